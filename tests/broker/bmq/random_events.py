"""Clients' events drawn from a seed, some of them odd."""

from __future__ import annotations

import random
from collections.abc import Sequence

from crc32c import crc32c

from formats.bmq.codes import EventType, PutFlag
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.event import build_event
from formats.bmq.wire.put import append_put
from tests.broker.bmq.rig import guid

__all__ = ["RandomEvents", "Row"]

# Queue id, GUID and sub-queue id of a message that a consumer got.
Row = tuple[int, bytes, int]


class RandomEvents:
    """Posts to queues with these ids, and confirms. A few posts go to the queues `elsewhere`, which may not be open."""

    def __init__(self, rng: random.Random, queue_ids: Sequence[int], elsewhere: Sequence[int]) -> None:
        self._random = rng
        self._queue_ids = queue_ids
        self._elsewhere = elsewhere
        self._used: list[bytes] = []
        self._numbers = iter(range(1, 1 << 20))

    def posts(self) -> bytes:
        """Make one event of posts, or some in a row."""
        return b"".join([self._post_event() for _ in range(self._random.choice((1, 1, 2, 5)))])

    def _post_event(self) -> bytes:
        rng, body = self._random, bytearray()
        home = rng.choice(self._queue_ids)
        odd = rng.random() < 0.3
        for _ in range(rng.choice((1, 2, 3, 10, 20))):
            each = guid(next(self._numbers))
            if odd and rng.random() < 0.1:
                each = rng.choice([*self._used[-30:], bytes(16)])
            self._used.append(each)
            data = rng.randbytes(rng.choice((1, 3, 7, 60, 60, 300)))
            flags, schema_id = int(PutFlag.ACK_REQUESTED), 0
            if odd and rng.random() < 0.1:
                flags = 0
            if rng.random() < 0.2:
                flags, schema_id = flags | PutFlag.MESSAGE_PROPERTIES, rng.choice((0, 1, 3, 4, 5))
            queue_id = rng.choice((home, home, *self._elsewhere)) if odd and rng.random() < 0.2 else home
            checksum = crc32c(data) ^ (odd and rng.random() < 0.05)
            append_put(body, queue_id, each, data, checksum, flags, rng.choice((0, 0, 0, 1)), schema_id)
        return build_event(EventType.PUT, bytes(body))

    def confirms(self, got: list[Row]) -> bytes:
        """Make events that confirm some of the messages that a consumer got, and take these off the list."""
        rng = self._random
        chosen = list(got)
        if rng.random() < 0.9:
            stream = rng.choice(got)[::2]
            chosen = [row for row in got if row[::2] == stream]
        chosen = chosen[: rng.choice((2, 5, 10, 50))]
        if rng.random() < 0.2:
            rng.shuffle(chosen)
        got[:] = [row for row in got if row not in chosen]
        if rng.random() < 0.2:
            odd = [rng.choice(chosen), (chosen[0][0], rng.choice(self._used), chosen[0][2])]
            chosen[rng.randrange(len(chosen)) : 0] = odd[: rng.choice((1, 2))]
        size = rng.choice((1, 7, 100))
        return b"".join([build_confirm_event(chosen[at : at + size]) for at in range(0, len(chosen), size)])
