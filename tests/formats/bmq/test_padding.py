from __future__ import annotations

import pytest

from formats.bmq.padding import DWORD, WORD, padding, unpadded_end
from formats.errors import FormatError


@pytest.mark.parametrize("unit", [WORD, DWORD])
@pytest.mark.parametrize("size", range(17))
def test_padding_fills_units_and_says_its_length(size: int, unit: int) -> None:
    pad = padding(size, unit)
    assert 1 <= len(pad) <= unit
    assert (size + len(pad)) % unit == 0
    assert set(pad) == {len(pad)}
    data = b"head" + bytes(size) + pad + b"tail"
    assert unpadded_end(data, 4, len(data) - 4, "test", unit) == 4 + size


@pytest.mark.parametrize("data", [b"", b"abc\0", b"abc\5", b"a\4", b"\xff" * 4])
def test_invalid_padding_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="test"):
        unpadded_end(data, 0, len(data), "test")
