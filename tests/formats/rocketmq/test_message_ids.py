"""Ids of messages: read, written back, and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.message_ids import ClientId

# The one that RocketMQ's documents take apart.
DOCUMENTED = "0156F7E71C361B21BC024CCDBE00000000"


def test_documented_id_of_version_1() -> None:
    found = ClientId.parse(DOCUMENTED)
    assert found == ClientId(bytes.fromhex("56F7E71C361B"), 0x21BC, 0x024CCDBE, 0)
    assert found.made_s == 1_609_459_200 + 0x024CCDBE


@given(st.binary(min_size=16, max_size=16))
def test_ids_of_version_1_are_written_back(rest: bytes) -> None:
    text = f"01{rest.hex().upper()}"
    assert str(ClientId.parse(text)) == text


@pytest.mark.parametrize("text", ["", DOCUMENTED[:-2], f"{DOCUMENTED}00", f"02{DOCUMENTED[2:]}", "G" * 34])
def test_id_of_another_version_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        ClientId.parse(text)
