"""An intruder: a user, or none, who asks for everything, and gets what that user may have."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from broker.bmq.session.authorization import Permission
from formats.bmq.codes import QueueFlag
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationResponse,
    BrokerResponse,
    ClientType,
    ControlMessage,
    NegotiationMessage,
    OpenQueue,
    OpenQueueResponse,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import HEARTBEAT_RESPONSE, EventType, build_schema_event
from tests.broker.bmq.rig import handle, identity
from tests.simulator.actors.clients import Client
from tests.simulator.judges.invariants import Violation
from tests.simulator.machines.ends import Item
from tests.simulator.machines.network import Link
from tests.simulator.machines.proofs import CERTIFIED, USERS, proof

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["Intruder"]

STAY_US = 6_000_000
AWAY_US = 500_000
ASK_US = 120_000
REFUSED = "Not authorized"
DOMAINS = ("priority", "fanout")
READ, WRITE = Permission.READ, Permission.WRITE
KINDS = {
    ClientType.TCPCLIENT: frozenset((READ, WRITE)),
    ClientType.TCPADMIN: frozenset((Permission.ADMINISTER,)),
}


class Intruder(Client):
    """Connects as some user, or as none, and asks for all that there is; what it gets is what that user may have."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.random = Random(f"intruder {world.seed} {name}")
        self._stays = 0
        self._user = ""  # the one that it has proven to be
        self._shown: tuple[str, bool] | None = None  # the proof that waits for its answer
        self._kind = ClientType.TCPCLIENT
        self._opens: dict[int, OpenQueue] = {}

    def introduce(self) -> bytes:
        self._repeats = self.random.random() < 0.5
        self._kind = self.random.choice((*KINDS, ClientType.TCPCLIENT))
        self._user, self._shown = "", None
        self._opens.clear()
        shown = b""
        if self.random.random() < 0.8:
            shown = self._prove(self.random.choice(list(USERS)), is_right=self.random.random() < 0.7)
        return shown + build_schema_event(ber.encode(NegotiationMessage(choice=identity(self._kind))))

    def _prove(self, user: str, *, is_right: bool) -> bytes:
        self._shown = user, is_right
        return proof(user, is_right=is_right)

    def begin(self) -> None:
        self._stays += 1
        stay = self._stays

        def go() -> None:
            if stay == self._stays and self.link is not None:
                self.leave(self.random.randrange(1, AWAY_US))

        self.world.clock.after(self.random.randrange(1, STAY_US), go)

    def dial(self) -> None:
        if self.world.is_busy:
            if self.link is None:
                self.certified = frozenset(CERTIFIED) if self.random.random() < 0.2 else frozenset()
            super().dial()

    def come_back(self) -> None:
        if self.world.is_busy:
            super().come_back()

    def prove_again(self, link: Link, taken: Callable[[], None]) -> None:
        if link is not self.link or self._shown is not None or not self._repeats:
            return
        user = self._user if self.random.random() < 0.7 else self.random.choice(list(USERS))
        self.send(self._prove(user, is_right=self.random.random() < 0.8), taken)

    def tap(self, item: Item, link: Link) -> None:
        """Do nothing: it owes and is owed nothing."""

    def handle(self, link: Link, items: list[Item]) -> None:
        for item in items:
            if link is self.link:
                self._judge(item, link)

    def _judge(self, item: Item, link: Link) -> None:
        if isinstance(item, AuthenticationMessage):
            assert self._shown is not None
            user, is_right = self._shown
            self._shown = None
            assert isinstance(item.choice, AuthenticationResponse)
            is_granted = item.choice.status.category is StatusCategory.SUCCESS
            self._check(is_granted, is_right and self._user in ("", user), f"proves to be {user}")
            self._user = user if is_granted else self._user
        elif isinstance(item, NegotiationMessage):
            assert isinstance(item.choice, BrokerResponse)
            self._check(not item.choice.result.code, self._may(KINDS[self._kind], None), f"is let in as {self._kind}")
            if self._kind is ClientType.TCPCLIENT:
                self._ask(link)
        elif item is EventType.HEARTBEAT_REQ:
            self.send(HEARTBEAT_RESPONSE)
        elif isinstance(item, ControlMessage):
            self._answered_open(item)

    def _ask(self, link: Link) -> None:
        """Open a queue, and go on so."""
        if link is not self.link:
            return
        number = len(self._opens) + 1
        flags = self.random.choice((QueueFlag.READ, QueueFlag.WRITE, QueueFlag.READ | QueueFlag.WRITE))
        domain = self.random.choice(DOMAINS)
        app = "?id=foo" if domain == "fanout" and flags & QueueFlag.READ else ""
        opened = self._opens[number] = OpenQueue(
            handle_parameters=handle(number, f"bmq://{domain}/users{number % 3}{app}", flags)
        )
        self.send(build_schema_event(ber.encode(ControlMessage(r_id=number, choice=opened))))
        self.world.clock.after(self.random.randrange(1, ASK_US), lambda: self._ask(link))

    def _answered_open(self, message: ControlMessage) -> None:
        wanted = self._opens[message.r_id or 0].handle_parameters
        domain = wanted.uri.split("/")[2]
        answer = message.choice
        is_open = isinstance(answer, OpenQueueResponse)
        is_refused = isinstance(answer, Status) and answer.message.startswith(REFUSED)
        if is_open or is_refused:
            asked = [some for flag, some in ((QueueFlag.READ, READ), (QueueFlag.WRITE, WRITE)) if wanted.flags & flag]
            may = all(self._may(frozenset((each,)), domain) for each in asked)
            self._check(is_open, may, f"opens {wanted.uri} for {wanted.flags}")

    def _may(self, some: frozenset[Permission], domain: str | None) -> bool:
        """Return whether it may do any of these, to some domain or to this one."""
        found = [USERS[self._user]] if self._user else []
        found += [CERTIFIED[name] for name in self.certified]
        return any(not some.isdisjoint(rights) and of in ("*", domain or of) for rights, of in found)

    def _check(self, has: bool, may: bool, what: str) -> None:
        if has != may:
            who = f"{self._user or 'nobody known'}{' with a certificate' if self.certified else ''}"
            raise Violation(f"{self.name}, {who}, {what}: {has}, and that is wrong")
