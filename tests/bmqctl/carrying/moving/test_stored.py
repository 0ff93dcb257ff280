"""A copy of a topic: what the broker passes over is counted as missing."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.carrying import TryAgain
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.moving import stored
from bmqctl.carrying.moving.forms import for_other_topic
from bmqctl.carrying.moving.stored import EVERYTHING, Part, Selection, StoredSource
from bmqctl.client.remoting.routes import Place
from formats.rocketmq.files.record import Magic, Record, body_crc

PLACE = b"\x7f\0\0\1\0\0\0\0"
END = RocketEnd("127.0.0.1", 9876, "t")


def record(offset: int) -> Record:
    return Record(Magic.V1, body_crc(b"x"), 0, 0, offset, 1, 0, 1, PLACE, 2, PLACE, 0, 0, b"x", "t", b"")


class Queue:
    """A queue of 20 messages, some of which its broker no longer has: their offsets are passed over."""

    lost: frozenset[int] = frozenset()

    def __init__(self, *_: object) -> None:
        self.offset = 0


class Pulls:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def next_records(self, most: int) -> list[Record]:
        """Return at most four messages; an offset without one ends an answer."""
        found: list[Record] = []
        while self._queue.offset < 20 and len(found) < min(most, 4):
            if self._queue.offset in self._queue.lost:
                self._queue.offset += 1
                if found:
                    break
                continue
            found.append(record(self._queue.offset))
            self._queue.offset += 1
        await trio.lowlevel.checkpoint()
        return found


class Bridge:
    """Takes what comes."""

    def __init__(self) -> None:
        self.flow = self
        self.account = Account()
        self.taken: list[int] = []
        self.is_source_away = False

    def room(self, lane: int) -> int:
        return 100

    def take(self, lane: int, items: list[Any]) -> None:
        self.taken += [item.token for item in items]


class Client:
    async def link_to(self, address: str) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("lost", "selection", "missing"),
    [
        ((), EVERYTHING, 0),
        ((7,), EVERYTHING, 1),
        ((0, 1, 5, 6, 12), EVERYTHING, 5),
        ((14, 18, 19), EVERYTHING, 1),
        ((7,), Selection("a", "TAG", frozenset()), 0),
    ],
)
def test_offsets_without_a_message_are_missing(
    monkeypatch: pytest.MonkeyPatch, lost: tuple[int, ...], selection: Selection, missing: int
) -> None:
    monkeypatch.setattr(Queue, "lost", frozenset(lost))
    monkeypatch.setattr(stored, "QueuePuller", Queue)
    monkeypatch.setattr(stored, "PullsAhead", Pulls)
    bridge: Any = Bridge()
    client: Any = Client()

    async def read() -> None:
        source = StoredSource(END, selection, for_other_topic(), 1.0, TryAgain("t", lambda text: None, 0.0))
        await source._read(client, "127.0.0.1:1", 0, Part(Place("t", "b", 0), 0, 16), bridge)

    trio.run(read)
    assert bridge.taken == [offset for offset in range(16) if offset not in lost]
    assert bridge.account.missing == missing
