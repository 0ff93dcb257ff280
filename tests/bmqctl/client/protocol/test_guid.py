from __future__ import annotations

import pytest

from bmqctl.client.protocol.guid import ClientGuidGenerator

CLIENT = bytes.fromhex("BF1837EE82B1")


def test_the_layout_is_that_of_the_reference() -> None:
    # The second message of a captured session: counter 1, tick 0x178b210 ns.
    generator = ClientGuidGenerator(CLIENT, start_ns=1000, epoch_ns=7)
    first = generator.make(1000 + 0xCDB805)
    second = generator.make(1000 + 0x178B210)
    assert first.hex() == "40000000000000cdb805bf1837ee82b1"
    assert second.hex() == "400001000000017 8b210bf1837ee82b1".replace(" ", "")


def test_the_counter_wraps_within_its_bits() -> None:
    generator = ClientGuidGenerator(CLIENT, 0, 0)
    made = {generator.make(5) for _ in range(1000)}
    assert len(made) == 1000
    generator._counter = (1 << 22) - 1
    assert generator.make(0)[:3].hex() == "7fffff"
    assert generator.make(0)[:3].hex() == "400000"


def test_the_identity_tells_the_id_in_capitals() -> None:
    info = ClientGuidGenerator(CLIENT, 0, 123).info()
    assert (info.client_id, info.nano_seconds_from_epoch) == ("BF1837EE82B1", 123)


def test_an_id_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="6 bytes"):
        ClientGuidGenerator(b"short", 0, 0)
