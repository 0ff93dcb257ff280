"""Hostile peers: clients with hostile numbers, brokers of no cluster, and odd members.

Nobody else may notice. An odd member does nothing but what a link may do to it by itself: what it has sent over a link
comes there once more, late. It tells no lies.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from formats.bmq.codes import EventType
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    ClientType,
    ClusterMessage,
    ControlMessage,
    ElectorMessage,
    LeaderHeartbeat,
    NegotiationMessage,
    OpenQueue,
    PartitionMessage,
)
from formats.bmq.wire.event import build_schema_event, schema_message
from formats.errors import FormatError
from tests.broker.bmq.rig import ACK, READ, WRITE, handle, identity
from tests.fuzz.session_events import Maker, events_of
from tests.simulator.actors.clients import Client
from tests.simulator.machines.ends import Item
from tests.simulator.machines.network import Link

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["Echo", "Oddity", "Stranger"]

STAY_US = 400_000
SAY_US = 60_000
URIS = ("bmq://priority/hostile", "bmq://fanout/hostile", "bmq://fanout/hostile?id=foo", "bmq://nowhere/q")
KINDS = (
    *(EventType.CONTROL, EventType.CONTROL, EventType.CONFIRM, EventType.REJECT, EventType.ACK, EventType.PUSH),
    *(EventType.STORAGE, EventType.PARTITION_SYNC, EventType.ELECTOR, EventType.CLUSTER_STATE),
    EventType.REPLICATION_RECEIPT,
)
TERM = (1 << 64) - 1
KEPT_MAX = 12
ODD_PART = 0.02
ECHO_PART = 0.25
ECHOED = (EventType.ELECTOR, EventType.CLUSTER_STATE)
AGAIN = (EventType.ELECTOR, EventType.STORAGE, EventType.CLUSTER_STATE, EventType.REPLICATION_RECEIPT)


class Stranger(Client):
    """Connects as anybody, says what it should not, and goes on elsewhere."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.random = Random(f"stranger {world.seed} {name}")
        self._maker = Maker(self.random)
        for number, uri in enumerate(URIS):
            self._maker.show(self._open(uri, number))
        self._stays = 0

    def _open(self, uri: str, queue_id: int) -> bytes:
        choice = OpenQueue(handle_parameters=handle(queue_id, uri, READ | WRITE | ACK))
        return build_schema_event(ber.encode(ControlMessage(r_id=1, choice=choice)))

    def introduce(self) -> bytes:
        kind = self.random.randrange(6)
        client_id = self.name.encode().rjust(6, b"_").hex().upper()
        who = identity(client_id=client_id)
        if kind == 1:
            return self.random.randbytes(200)
        if kind == 2:
            # A proxy, as everybody may be.
            who = replace(who, client_type=ClientType.TCPBROKER, cluster_name="local", cluster_node_id=-1)
        elif kind > 2:
            node_id = self.random.choice((0, 1, 2, 77, -2))
            cluster = self.random.choice(("local", "local", "other", ""))
            who = replace(who, client_type=ClientType.TCPBROKER, cluster_name=cluster, cluster_node_id=node_id)
        return build_schema_event(ber.encode(NegotiationMessage(choice=who)))

    def begin(self) -> None:
        self._stays += 1
        stay, link = self._stays, self.link
        self.world.clock.after(self.random.randrange(1, STAY_US), lambda: self._go(stay))
        self._say(link)

    def _say(self, link: Link | None) -> None:
        if link is None or self.link is not link:
            return
        self.send(self._next())
        self.world.clock.after(self.random.randrange(1, SAY_US), lambda: self._say(link))

    def _next(self) -> bytes:
        """Make an event in which hardly anything is right."""
        if self.random.random() < 0.1:
            heartbeat = ElectorMessage(term=TERM, choice=LeaderHeartbeat())
            return build_schema_event(ber.encode(heartbeat), EventType.ELECTOR)
        uri = self.random.choice(URIS)
        event = self._open(uri, self.random.choice((0, 1, 2, 0x80000001, 0xFFFFFFF4)))
        if self.random.random() < 0.7:
            event = self._maker.any_event(KINDS)
        return self._maker.garbled(event) if self.random.random() < 0.1 else event

    def _go(self, stay: int) -> None:
        if stay == self._stays and self.link is not None:
            self.leave(self.random.randrange(1, STAY_US))

    def come_back(self) -> None:
        if self.world.is_busy:
            super().come_back()

    def dial(self) -> None:
        if self.world.is_busy:
            super().dial()

    def tap(self, item: Item, link: Link) -> None:
        """Ignore the item."""

    def handle(self, link: Link, items: list[Item]) -> None:
        """Ignore the items."""


class Oddity:
    """One direction of a link between two members, on which old events come once more."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: deque[bytes] = deque(maxlen=KEPT_MAX)

    def sent(self, data: bytes) -> bytes | None:
        """An old event that comes again after these."""
        for event in events_of(data):
            if _may_come_again(event) and self._random.random() < 0.3:
                self._kept.append(event)
        if self._kept and self._random.random() < ODD_PART:
            return self._random.choice(self._kept)
        return None


class Echo:
    """One direction of a link between two members, on which old words of elections and of the ledger come once more."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._kept: dict[int, deque[bytes]] = {kind: deque(maxlen=KEPT_MAX) for kind in ECHOED}

    def sent(self, data: bytes) -> bytes | None:
        """An old event that comes again after these."""
        again = None
        for event in events_of(data):
            kept = self._kept.get(event[4] & 0x3F)
            if kept is None:
                continue
            if kept and self._random.random() < ECHO_PART:
                again = self._random.choice(kept)
            if event not in kept:
                kept.append(event)
        return again


def _may_come_again(event: bytes) -> bool:
    kind = event[4] & 0x3F
    if kind != EventType.CONTROL:
        return kind in AGAIN
    view = memoryview(event)
    try:
        message = ber.decode(ControlMessage, schema_message(view, 8, len(event)))
    except FormatError:
        return False  # who it is: said before all else
    return isinstance(message.choice, ClusterMessage) and isinstance(message.choice.choice, PartitionMessage)
