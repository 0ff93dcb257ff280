"""Clients that speak gRPC: a producer and groups that keep what those do that speak remoting, and are judged alike."""

from __future__ import annotations

from functools import partial

from formats.rocketmq.grpc.codes import ClientType, Code, MessageType, TransactionResolution, TransactionSource
from formats.rocketmq.grpc.messages import Message, make, time_of_ms
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.receipts import Receipt
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.calls import Calls
from tests.simulator.rocketmq.poppers import PopGroup
from tests.simulator.rocketmq.pops import GrpcPops, Outcome, Popped
from tests.simulator.rocketmq.producers import RECALL_MS_MIN, Link, Producer, Surroundings
from tests.simulator.rocketmq.promises import Fate, Sent
from tests.simulator.rocketmq.wire import name_of

__all__ = ["GrpcPopGroup", "GrpcProducer"]

FOREVER_MS = 1 << 60
WORK_MS_MAX = 150_000
POLLS_MS = (5_000, 8_000)
# The retries of groups that nobody has made.
RETRIES = 16
# The codes by which a broker with a full disk answers.
NO_ROOM = (Code.INTERNAL_ERROR, Code.INTERNAL_SERVER_ERROR)


class GrpcProducer(Producer):
    """A producer that speaks gRPC. The broker chooses the queues, and does not tell which."""

    calls: Calls

    @property
    def link(self) -> Link:
        return self.calls

    def connect(self) -> None:
        """Connect, and tell the broker the topics."""
        self._over: set[str] = set()
        self.calls = self.world.connect_grpc(self.name)
        settings = make("Settings", client_type=ClientType.PRODUCER)
        for topic in self.world.topics:
            settings.publishing.topics.add(name=topic)
        self.calls.tell(settings, self._told_by_broker)

    def heartbeat(self) -> None:
        """Say that this producer is there."""
        self.calls.call("Heartbeat", make("HeartbeatRequest", client_type=ClientType.PRODUCER), lambda answers: None)

    def _send_late(self, when: dict[str, str]) -> None:
        ms = self.world.wall_ms + self.world.random.randrange(1_000, 20_000)
        super()._send_late({"TIMER_DELIVER_MS": str(ms)})

    def _message(self, sent: Sent, properties: dict[str, str]) -> Message:
        message = make("Message", body=self._body(sent))
        message.topic.name = sent.topic
        system = message.system_properties
        system.message_id, system.tag, system.body_encoding = f"U{sent.name}", sent.tag, 1
        sent.keys = f"K{sent.name}", f"L{sent.name}"
        system.keys.extend(sent.keys)
        system.message_type = MessageType.TRANSACTION if sent.is_half else MessageType.NORMAL
        system.born_timestamp.CopyFrom(time_of_ms(self.world.wall_ms))
        if "TIMER_DELIVER_MS" in properties:
            system.message_type = MessageType.DELAY
            system.delivery_timestamp.CopyFrom(time_of_ms(int(properties["TIMER_DELIVER_MS"])))
        return message

    def _send(self, sent: Sent, properties: dict[str, str], flags: int) -> None:
        request = make("SendMessageRequest", messages=[self._message(sent, properties)])
        self.calls.call("SendMessage", request, partial(self._sent, [(sent, properties, flags)]))

    def _send_batch(self) -> None:
        first = self._make()
        batch = [first, *(self._make() for _ in range(self.world.random.randrange(5)))]
        for sent in batch:
            sent.topic = first.topic
        request = make("SendMessageRequest", messages=[self._message(sent, {}) for sent in batch])
        self.calls.call("SendMessage", request, partial(self._sent, [(sent, {}, 0) for sent in batch]))

    def _sent(self, batch: list[tuple[Sent, dict[str, str], int]], answers: list[Message] | None) -> None:
        for number, each in enumerate(batch):
            answer = None
            if answers is not None:
                entries = answers[0].entries
                answer = _frame(
                    entries[number] if entries else answers[0], is_full=self.world.was_full_since(each[0].sent_ms)
                )
            self._answered(*each, 0, 0, answer)

    def _told(self, sent: Sent, queue_id: int, offset: int, order: int) -> None:
        """Take note of nothing, as the answer does not say the queue."""

    # -- transactions and recalls

    def _end_local(self, sent: Sent, fields: dict[str, str]) -> None:
        if self.world.random.random() < 0.6:
            self._end(sent, 0, 0, is_asked=False)

    def _end(self, sent: Sent, offset: int, place: int, *, is_asked: bool) -> None:
        fate = sent.fate if sent.is_acked else Fate.ROLLBACK
        sent.is_told |= fate is Fate.COMMIT
        request = make("EndTransactionRequest", message_id=f"U{sent.name}", transaction_id=f"U{sent.name}")
        request.topic.name = sent.topic
        is_commit = fate is Fate.COMMIT
        request.resolution = TransactionResolution.COMMIT if is_commit else TransactionResolution.ROLLBACK
        source = TransactionSource
        request.source = source.SOURCE_SERVER_CHECK if is_asked else source.SOURCE_CLIENT
        self.calls.call("EndTransaction", request, partial(self._ended_here, sent, fate))

    def _ended_here(self, sent: Sent, fate: Fate, answers: list[Message] | None) -> None:
        if answers is not None and answers[0].status.code == Code.INVALID_TRANSACTION_ID:
            # It is over, or was prepared before the service began.
            if sent.name not in self._over and not sent.has_outlived:
                raise Violation(f"the transaction of {sent.name} is said not to be there: {answers[0].status.message}")
            return
        frame = None if answers is None else _frame(answers[0], is_full=self.world.was_full_since(sent.sent_ms))
        if frame is not None and frame.code == ResponseCode.SUCCESS:
            self._over.add(sent.name)
        elif frame is not None and self.world.random.random() < 0.5:
            # The disk was full: the transaction is still open.
            self._end(sent, 0, 0, is_asked=False)
        self._ended(sent, fate, frame)

    def _told_by_broker(self, command: Message) -> None:
        if command.WhichOneof("command") != "recover_orphaned_transaction_command":
            return
        sent = self.world.promises.messages[name_of(command.recover_orphaned_transaction_command.message.body)]
        self.world.promises.asked(sent)
        if self.world.random.random() < 0.8:
            self._end(sent, 0, 0, is_asked=True)

    def _recall(self, sent: Sent, handle: str) -> None:
        if sent.due_ms - self.world.wall_ms < RECALL_MS_MIN:
            return
        request = make("RecallMessageRequest", recall_handle=handle)
        request.topic.name = sent.topic
        self.calls.call("RecallMessage", request, partial(self._recalled_here, sent))

    def _recalled_here(self, sent: Sent, answers: list[Message] | None) -> None:
        is_done = answers is not None and answers[0].status.code == Code.OK
        code = ResponseCode.SUCCESS if is_done else ResponseCode.ILLEGAL_OPERATION
        self._recalled(sent, None if answers is None else Frame(code, 0))


class GrpcPopGroup(PopGroup):
    """A group that receives. The broker hides some messages while the client is there, and buries others."""

    late_ms = POLLS_MS[-1]

    def __init__(self, world: Surroundings, name: str, topic: str, most: int | None = None) -> None:
        super().__init__(world, name, topic)
        # The broker itself gives messages to the dead letters that were retried this often.
        world.promises.counted.discard(self.dead)
        self._most = most
        self._is_renewed = False
        # The messages that the client works on, with the time at which it is done.
        self._slow: list[tuple[int, str, str]] = []
        self._forwarded: set[str] = set()
        self._processes = 0

    @property
    def link(self) -> Link:
        return self._calls

    def connect(self) -> None:
        """Connect as another process, and tell the broker the group."""
        self._processes += 1
        self._calls = self.world.connect_grpc(f"{self.name}-{self._processes}")
        self.pops = self._grpc = GrpcPops(self._calls, self.name, self.topic, self.filter)
        settings = make("Settings", client_type=ClientType.PUSH_CONSUMER)
        settings.subscription.group.name = self.name
        settings.subscription.subscriptions.add().topic.name = self.topic
        self._calls.tell(settings, self._told_by_broker)
        for hidden in self._hidden.values():
            if hidden.until_ms == FOREVER_MS:
                hidden.until_ms = 0
        self._slow.clear()
        self._unacked.clear()
        self._pops = 0

    def _told_by_broker(self, command: Message) -> None:
        if command.WhichOneof("command") != "settings" or self._most is None:
            return
        attempts = command.settings.backoff_policy.max_attempts
        if attempts != self._most + 1:
            raise Violation(f"{self.name} is to deliver messages {attempts} times, and has {self._most} retries")

    def heartbeat(self) -> None:
        """Say that this group is there."""
        request = make("HeartbeatRequest", client_type=ClientType.PUSH_CONSUMER)
        request.group.name = self.name
        self._calls.call("Heartbeat", request, lambda answers: None)

    def act(self) -> None:
        """Receive, acknowledge, forward to the dead letters, or hide for longer or shorter."""
        done = [each for each in self._slow if each[0] <= self.world.wall_ms or self.is_careful]
        if done:
            self._slow.remove(done[0])
            self._acknowledge(*done[0][1:])
        elif self._unacked and self.world.random.random() < 0.05:
            name, handle = self._unacked.pop()
            self._forwarded.add(name)
            self._grpc.forward(handle, partial(self._acked, name, handle))
        else:
            super().act()

    def _pop(self) -> None:
        random = self.world.random
        renews = self._grpc.renews = random.random() < 0.4
        self._pops += 1
        terms = random.choice((1, 8, 32)), random.randrange(10_000, 20_000), random.choice(POLLS_MS)
        self.pops.pop(*terms, partial(self._received, renews))

    def _received(self, renews: bool, found: list[Popped] | None) -> None:
        self._is_renewed = renews
        self._popped(found)

    def _visible_ms(self, receipt: Receipt) -> int:
        return FOREVER_MS if self._is_renewed else receipt.visible_ms

    def _keep(self, popped: Popped) -> None:
        if self._most is not None and popped.attempts > self._most:
            raise Violation(f"{self.name} receives {popped.name} after {popped.attempts} attempts, of {self._most}")
        if self._is_renewed:
            done_ms = self.world.wall_ms + self.world.random.randrange(WORK_MS_MAX)
            self._slow.append((done_ms, popped.name, popped.handle))
        else:
            self._unacked.append((popped.name, popped.handle))

    def _acked(self, name: str, handle: str, outcome: Outcome | None) -> None:
        super()._acked(name, handle, outcome)
        hidden = self._hidden.get(name)
        if outcome is not None and not outcome.is_done and hidden is not None and hidden.until_ms == FOREVER_MS:
            # The broker hides it no longer.
            hidden.until_ms = 0

    def check_dead(self, name: str) -> str | None:
        """Return why a message may not be with the dead letters; None if it may."""
        most = RETRIES if self._most is None else self._most
        sent = self.world.promises.messages[name]
        may_be = (
            name in self._forwarded or self._may_be_twice(sent) or sent.sent_ms <= max(self._since_ms, self._lost_ms)
        )
        if may_be or self._attempts[name] > most:
            return None
        return f"{name} is with the dead letters of {self.name} after {self._attempts[name]} attempts"


def _frame(outcome: Message, *, is_full: bool) -> Frame:
    """Make the answer over remoting that says the same as a status, or as an entry with one."""
    code = outcome.status.code
    if code != Code.OK:
        if code not in NO_ROOM or not is_full:
            raise Violation(f"a call is answered with {code}: {outcome.status.message}")
        return Frame(ResponseCode.SERVICE_NOT_AVAILABLE, 0)
    fields = {"queueOffset": "0"}
    if getattr(outcome, "recall_handle", ""):
        fields["recallHandle"] = outcome.recall_handle
    return Frame(ResponseCode.SUCCESS, 0, ext_fields=fields)
