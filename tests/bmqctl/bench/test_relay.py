from __future__ import annotations

import pytest

from bmqctl.bench.relay import ack_event, frame_size, take_acks


def test_the_frames_have_the_sizes_of_the_protocol() -> None:
    # As recorded of the official client: a PUT event of 1,024 bytes, ACK events of one message and of nine.
    assert frame_size(1024) == 1072
    assert frame_size(4096) == 4144
    assert (len(ack_event(1)), len(ack_event(9))) == (36, 228)


@pytest.mark.parametrize("size", [1, 5, 12, 36, 1000])
def test_acks_are_counted_however_they_are_cut(size: int) -> None:
    counts = [1, 0, 7, 300, 2]
    stream = b"".join(ack_event(count) for count in counts)
    held = bytearray()
    messages = 0
    for at in range(0, len(stream), size):
        held += stream[at : at + size]
        messages += take_acks(held)
    assert messages == sum(counts)
    assert not held
