"""Numbers of 64 bits in bodies: a file that a node has written with one has to be read at its next start."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.codec import BodyCodec


class Numbers(NamedTuple):
    """A body with a number in each kind of member."""

    alone: int = 0
    listed: list[int] = []
    named: dict[str, int] = {}


CODEC = BodyCodec(Numbers)
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize("number", [INT64_MIN, INT64_MAX])
def test_a_number_at_the_bounds_is_read_back(number: int) -> None:
    body = Numbers(number, [number, 0], {"a": number})
    assert CODEC.read(CODEC.write(body)) == body


@pytest.mark.parametrize("number", [INT64_MIN - 1, INT64_MAX + 1])
@pytest.mark.parametrize("body", ['{"alone":%d}', '{"listed":[%d]}', '{"named":{"a":%d}}'])
def test_a_number_beyond_the_bounds_is_refused(number: int, body: str) -> None:
    with pytest.raises(FormatError):
        CODEC.read(body.encode() % number)
