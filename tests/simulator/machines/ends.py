"""A node's ends of links: arrivals go to a session as in the shell, and its output is sent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from broker.bmq.node.node import Node
from broker.bmq.session.session import Session
from formats.bmq.codes import AckStatus
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationResponse,
    ControlMessage,
    ElectionResponse,
    ElectorMessage,
    NegotiationMessage,
    StatusCategory,
)
from formats.bmq.wire.ack import Ack, iter_acks
from formats.bmq.wire.event import EVENT_HEADER_SIZE, EventType, iter_frames, schema_message
from formats.bmq.wire.options import sub_queue_infos
from formats.bmq.wire.push import iter_pushes
from tests.broker.bmq.rig import Pushed
from tests.fuzz.session_events import shown
from tests.simulator.faults.not_ready import NotReady
from tests.simulator.judges.invariants import Violation
from tests.simulator.machines.network import Link, Taken
from tests.simulator.machines.proofs import LIFE_US

if TYPE_CHECKING:
    from tests.simulator.actors.clients import Client
    from tests.simulator.machines.hosts import Host

__all__ = ["ClientSideEnd", "Item", "NodeEnd", "refused_in"]

EVENT_BYTES_MAX = 1 << 30
PROOF_PART = 0.98  # of the life of a proof, as clocks drift
SLACK_US = 1_500_000  # in which a node notices that a proof is too old

Item = ControlMessage | NegotiationMessage | AuthenticationMessage | Ack | Pushed | EventType


class NodeEnd:
    """A node's end of a link to another node."""

    asks = True

    def __init__(self, host: Host, node: Node, session: Session) -> None:
        self.host = host
        self.machine = host.name
        self.session = session
        self.link: Link | None = None
        self._node = node
        self._held = b""
        self._handles = True  # the session had not ended before the bytes of this step
        self._oddity = host.make_oddity()
        self._echo = host.make_echo()
        self._malformer = host.make_malformer()
        self.not_ready: NotReady | None = None

    def arrived(self, data: bytes, taken: Taken | None) -> None:
        self.host.step(lambda: self._receive(data), taken and (lambda: self._note(taken)))

    def _note(self, taken: Taken) -> None:
        """Call `taken`, unless the session had ended when the bytes came: nothing has handled them then."""
        if self._handles:
            taken()

    def _receive(self, data: bytes) -> None:
        self._handles = not self.session.finished
        buffer = bytearray(self._held + data)
        try:
            used = self.session.receive(memoryview(buffer))
        except OSError as error:
            if not self.host.fails_flushes:
                raise
            # As the loop does it.
            self._node.faults.end_session(self.session, error)
            used = len(buffer)
        self._held = bytes(buffer[used:])
        buffer[:] = b"\xee" * len(buffer)

    def lost(self, reason: str) -> None:
        def disconnect() -> None:
            self._node.disconnect(self.session, reason)
            self.host.ends.pop(self.session, None)
            self._lost()

        self.host.step(disconnect)

    def _lost(self) -> None:
        self.host.world.attempts.link_lost()

    def flush(self) -> None:
        """Send the session's output; a finished session closes its link."""
        link, session = self.link, self.session
        assert link is not None
        while session.output_size():
            data = bytes(session.take_output())
            session.output_sent()
            self.send(link, data)
        if session.finished:
            link.close(self, "the session has ended")
            self.host.world.attempts.link_lost()
            self.host.ends.pop(session, None)
            self._node.disconnect(session, "the session has ended")

    def send(self, link: Link, data: bytes) -> None:
        for guid in refused_in(memoryview(data)):
            self.host.world.records.refused(guid)
        if self.host.member is not None:
            self._note_votes(link, data)
        if self.not_ready is not None:
            data = self._part(link, data, self.not_ready)
        link.send(self, data)
        if self._oddity is not None and (again := self._oddity.sent(data)) is not None:
            link.send(self, again)
        if self._echo is not None and self.host.world.is_busy and (again := self._echo.sent(data)) is not None:
            link.send(self, again)
        if self._malformer is not None and (wrong := self._malformer.sent(data)) is not None:
            self.host.world.say(f"{self.machine} says what cannot be: {shown(wrong, 160)}")
            link.send(self, wrong)

    def _part(self, link: Link, data: bytes, not_ready: NotReady) -> bytes:
        """Return the part that the other end is ready for; it answers the rest when that has arrived."""
        passes, answer, answered = not_ready.part(data)
        if answer:
            other = link.ends[1 - link.ends.index(self)]
            self.host.world.say(f"{other.machine} is not ready for posts of {self.machine}")
            clock = self.host.world.clock

            def answer_late() -> None:
                clock.after(not_ready.late_us, lambda: link.send(other, answer, lambda: not_ready.end(answered)))

            link.send(self, b"", answer_late)
        if not_ready.is_over:
            self.not_ready = None
        return passes

    def _note_votes(self, link: Link, data: bytes) -> None:
        """Report the votes among these events to the world."""
        at = 0
        while at < len(data):
            end = at + int.from_bytes(data[at : at + 4], "big")
            if data[at + 4] & 0x3F == EventType.ELECTOR and (term := _voted_in(data[at:end])):
                other = link.ends[1 - link.ends.index(self)]
                self.host.world.voted(self.host, term, other.machine)
            at = end


class ClientSideEnd(NodeEnd):
    """A node's end of a link to a client: its output is read here, once for the records and for the client."""

    def __init__(self, host: Host, node: Node, session: Session, client: Client) -> None:
        super().__init__(host, node, session)
        self.client = client
        self._negotiated = False
        self._proven_us: int | None = None  # the time of the last good proof
        self._is_proving = False  # the node looks at another

    def _lost(self) -> None:
        if self.link is not None:
            self.host.world.attempts.died(self.link, self.host)

    def send(self, link: Link, data: bytes) -> None:
        items = list(_decode(memoryview(data), self._negotiated))
        for item in items:
            self._negotiated |= isinstance(item, NegotiationMessage)
            if isinstance(item, AuthenticationMessage):
                self._answers(item, link)
            self.client.tap(item, link)
        link.send(self, data, partial(self.client.handle, link, items))

    # -- proofs

    def _answers(self, message: AuthenticationMessage, link: Link) -> None:
        assert isinstance(message.choice, AuthenticationResponse)
        self._is_proving = False
        self.host.world.clock.after(1, self._go_on)
        if message.choice.status.category is StatusCategory.SUCCESS:
            clock = self.host.world.clock
            self._proven_us = us = clock.us
            clock.after(
                self.host.proofs_random.randrange(LIFE_US), partial(self.client.prove_again, link, self._proves)
            )
            clock.after(LIFE_US + SLACK_US, partial(self._check_age, us))

    def _proves(self) -> None:
        self._is_proving = not self.session.finished

    def _go_on(self) -> None:
        """Let the session have what came while it took no input, as the shell does it."""
        if self.host.ends.get(self.session) is self:
            self.arrived(b"", None)

    def _check_age(self, us: int) -> None:
        """Check that the session is over, unless there was another proof."""
        if self.host.ends.get(self.session) is not self or self._proven_us != us or self._is_proving:
            return
        clock = self.host.world.clock
        if self.host.has_time_since(clock.us - SLACK_US):
            raise Violation(f"{self.client.name} is not asked for another proof by {self.machine}")
        clock.after(SLACK_US, partial(self._check_age, us))

    def flush(self) -> None:
        super().flush()
        if self.session.finished and self._proven_us is not None and self.session.entrance.has_expired:
            age_us = self.host.world.clock.us - self._proven_us
            if self._is_proving or age_us < LIFE_US * PROOF_PART:
                raise Violation(f"{self.client.name} is cut off, and its proof is good")


def refused_in(view: memoryview) -> Iterator[bytes]:
    """Yield the posts that events refuse for good: a broker that receives NOT_READY sends the post again."""
    for frame in iter_frames(view, 0, len(view), EVENT_BYTES_MAX):
        if frame.type == EventType.ACK:
            for ack in iter_acks(view, frame.body, frame.end):
                if ack.status not in (AckStatus.SUCCESS, AckStatus.NOT_READY):
                    yield ack.guid


@lru_cache(maxsize=256)
def _voted_in(event: bytes) -> int:
    """The term of a vote; 0 for other messages of elections, most of which are repeated."""
    message = ber.decode(ElectorMessage, schema_message(memoryview(event), EVENT_HEADER_SIZE, len(event)))
    return message.term if isinstance(message.choice, ElectionResponse) else 0


def _decode(view: memoryview, negotiated: bool) -> Iterator[Item]:
    """Decode a node's output to a client, once for the records and for the client."""
    for frame in iter_frames(view, 0, len(view), EVENT_BYTES_MAX):
        if frame.type == EventType.PUSH:
            for push in iter_pushes(view, frame.body, frame.end):
                (info,) = sub_queue_infos(push.options)
                yield Pushed(push.queue_id, push.guid, bytes(push.data), info.sub_queue_id, schema_id=push.schema_id)
        elif frame.type == EventType.ACK:
            yield from iter_acks(view, frame.body, frame.end)
        elif frame.type == EventType.CONTROL:
            body = view[frame.body : frame.end]
            yield ber.decode(ControlMessage, body) if negotiated else ber.decode(NegotiationMessage, body)
            negotiated = True
        elif frame.type == EventType.AUTHENTICATION:
            yield ber.decode(AuthenticationMessage, view[frame.body : frame.end])
        else:
            yield EventType(frame.type)
