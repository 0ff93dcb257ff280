"""Random histories of a session that outlives its connections: each request and each post ends once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bmqctl.client.protocol.control import Unusable
from bmqctl.client.protocol.events import (
    Acks,
    Closed,
    Configured,
    ConnectionLost,
    Event,
    Opened,
    Pushes,
    QueueHandle,
    Reconnected,
    Refused,
    Reopened,
    Restored,
    Started,
    Stopped,
    StreamOptions,
)
from bmqctl.client.protocol.guid import ClientGuidGenerator
from bmqctl.client.protocol.lifecycle import Queue, Session
from bmqctl.client.protocol.machine import Machine, MachineOptions
from formats.bmq.control.messages import CloseQueue, ConfigureStream, OpenQueue, Status, StatusCategory
from tests.bmqctl.client.fakes import FakeBroker
from tests.families import examples

SECOND_NS = 1_000_000_000
TIMEOUT_S = 5
URIS = [f"bmq://bmq.test.mem.priority/q{number}" for number in range(2)]
FANOUT = [f"bmq://bmq.test.mem.fanout/q?id={app}" for app in ("foo", "bar")]
REFUSAL = Status(category=StatusCategory.REFUSED, code=-6, message="no")

brokers = st.builds(
    FakeBroker,
    mute=st.sets(st.sampled_from([OpenQueue, ConfigureStream, CloseQueue]), max_size=2).map(tuple),
    mute_puts=st.booleans(),
    refuse_queues=st.sampled_from([None, None, REFUSAL]),
    deduplication_time_ms=st.sampled_from([3000, 300_000]),
)


class Histories(RuleBasedStateMachine):
    """A client, its broker of the moment, and what is still owed."""

    @initialize(broker=brokers, ends_connected=st.booleans())
    def start(self, broker: FakeBroker, ends_connected: bool) -> None:
        options = MachineOptions("test", 1, TIMEOUT_S * SECOND_NS, resume=True)
        self.machine = Machine(options, ClientGuidGenerator(b"client", 0, 0), 0)
        self.broker = broker
        self.ends_connected = ends_connected
        self.now_ns = 0
        self.queues: list[QueueHandle] = []
        self.owed_acks: dict[bytes, QueueHandle] = {}
        # Requests of the application that have no outcome yet: opening, configuring, closing.
        self.owed: Counter[tuple[QueueHandle, str]] = Counter()
        self.between = False
        self.machine.start(0)
        self.run()

    def run(self) -> None:
        while data := self.machine.data_to_send():
            if reply := self.broker.receive(bytes(data)):
                self.take(self.machine.receive(reply, self.now_ns))

    def take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Acks(acks):
                    for ack in acks:
                        assert self.owed_acks.pop(ack.guid) is ack.queue
                case Opened(queue):
                    self.settle(queue, "open")
                    assert queue.is_open
                case Configured(queue):
                    self.settle(queue, "configure")
                case Closed(queue):
                    self.owed.pop((queue, "close"), None)
                    self.settle_all(queue)
                    assert queue.state is Queue.CLOSED
                case Refused(queue, _):
                    if queue.is_closed:
                        self.settle_all(queue)
                    else:
                        self.settle(queue, "configure")
                case Reopened(queue):
                    assert queue.is_open
                    assert self.between
                case ConnectionLost():
                    assert self.machine.state is Session.RECONNECTING
                    self.between = True
                case Restored():
                    self.between = False
                case Reconnected():
                    assert self.between
                case Started() | Stopped() | Pushes():
                    pass

    def settle(self, queue: QueueHandle, what: str) -> None:
        assert self.owed[queue, what] > 0, f"nobody asked to {what}"
        self.owed[queue, what] -= 1

    def settle_all(self, queue: QueueHandle) -> None:
        """Settle all requests about a queue that has ended; none of its posts may be unanswered."""
        assert queue not in self.owed_acks.values()
        for what in ("open", "configure", "close"):
            self.owed.pop((queue, what), None)

    @rule(broker=brokers)
    def connect(self, broker: FakeBroker) -> None:
        if self.machine.state is Session.RECONNECTING:
            self.broker = broker
            self.machine.start(self.now_ns)
            self.run()

    @rule()
    def cut(self) -> None:
        self.broker.hang_up()
        self.take(self.machine.lost("cut"))

    @rule(uri=st.sampled_from(URIS), read=st.booleans(), write=st.booleans())
    def open_queue(self, uri: str, read: bool, write: bool) -> None:
        self.ask_open(uri, read, write)

    @rule(uri=st.sampled_from(FANOUT))
    def open_app(self, uri: str) -> None:
        self.ask_open(uri, True, False)

    def ask_open(self, uri: str, read: bool, write: bool) -> None:
        options = StreamOptions()
        try:
            queue = self.machine.open_queue(uri, read=read, write=write, options=options, now_ns=self.now_ns)
        except Unusable:
            return
        self.queues.append(queue)
        self.owed[queue, "open"] += 1

    @precondition(lambda self: self.queues)
    @rule(data=st.data(), what=st.sampled_from(["configure", "close", "post", "post", "post without ack"]))
    def use_queue(self, data: st.DataObject, what: str) -> None:
        queue = data.draw(st.sampled_from(self.queues))
        try:
            if what == "configure":
                self.machine.configure_queue(queue, StreamOptions(7), self.now_ns)
                self.owed[queue, what] += 1
            elif what == "close":
                events = self.machine.close_queue(queue, self.now_ns)
                self.owed[queue, what] += 1
                self.take(events)
            else:
                self.post(queue, ack=what == "post")
        except Unusable:
            pass

    def post(self, queue: QueueHandle, *, ack: bool) -> None:
        options: dict[str, Any] = {"compress": False, "correlation": None, "now_ns": self.now_ns, "ack": ack}
        guid = self.machine.post(queue, b"payload", None, **options)
        if ack:
            self.owed_acks[guid] = queue

    @rule()
    def exchange(self) -> None:
        if self.machine.state is not Session.RECONNECTING:
            self.run()

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        self.take(self.machine.tick(self.now_ns))

    @rule()
    def unmute(self) -> None:
        self.broker.mute = ()
        self.broker.mute_puts = False

    @invariant()
    def without_a_connection_nothing_is_sent(self) -> None:
        if self.machine.state is Session.RECONNECTING:
            assert not self.machine.pending_size

    def teardown(self) -> None:
        """Connect to a sound broker, let it answer everything, and check that the session ends and owes nothing."""
        if not hasattr(self, "machine"):
            return
        self.unmute()
        for _ in range(3):  # a connection whose broker was mute may have to be left first
            self.connect(FakeBroker())
            self.exchange()
            self.wait(TIMEOUT_S + 1)
        self.connect(FakeBroker())
        self.exchange()
        assert self.machine.deadline_ns is not None
        assert not self.between
        assert {queue.state for queue in self.queues} <= {Queue.OPENED, Queue.CLOSED}
        assert not +self.owed
        if not self.ends_connected:
            self.cut()
            for queue in self.queues:
                if queue.write and not queue.is_closed:
                    self.post(queue, ack=True)
        self.take(self.machine.disconnect(self.now_ns))
        self.run()
        assert self.machine.state is Session.STOPPED
        assert {queue.state for queue in self.queues} <= {Queue.CLOSED}
        assert not self.owed_acks


@pytest.mark.slow
def test_each_request_ends_once_in_every_history() -> None:
    run_state_machine_as_test(
        Histories, settings=settings(max_examples=examples(250), stateful_step_count=25, deadline=None)
    )
