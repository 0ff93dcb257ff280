"""Consumer groups of a RocketMQ topic: the queues of a member, their messages, and the outcomes of these."""

from __future__ import annotations

import logging
from collections import deque
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from bmqctl.client.arguments import INT_MAX, check_whole
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.faults import FAULTS, words_of
from bmqctl.client.remoting.faults import RequestRefused as Refused
from bmqctl.client.remoting.routes import Place, share_of
from bmqctl.client.rocketmq.cluster import Cluster
from bmqctl.client.rocketmq.consumer_options import ConsumerOptions
from bmqctl.client.rocketmq.errors import ConsumerClosed, RequestRefused
from bmqctl.client.rocketmq.message import Content
from bmqctl.client.rocketmq.progress import Progress
from bmqctl.client.rocketmq.returning import PAUSE_S, Returns
from bmqctl.client.spans import Spans
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.bodies.clients import ALL, CONSUMER_IDS, ConsumerData, make_subscription
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.consuming import ConsumerSendMessageBackRequest, UnregisterClientRequest
from formats.rocketmq.topic_names import RETRY_PREFIX

__all__ = ["Consumer", "Message"]

log = logging.getLogger("bmqctl.client")

REBALANCE_S: Final = 20.0
COMMIT_S: Final = 1.0
CLOSE_S: Final = 5.0
_PULLED_MAX: Final = 32
_TURN: Final = 64
_FATAL: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
    }
)


class _Lane:
    """A queue that this consumer has."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.progress: Progress | None = None
        self.puller: QueuePuller | None = None
        self.scope = anyio.CancelScope()
        self.is_lost = False


class Message(Content):
    """A message for a group. `async with message` confirms it at the end of the block, or rejects it if that raises."""

    __slots__ = ("_consumer", "_lane", "_progress", "is_settled")

    def __init__(self, consumer: Consumer, lane: _Lane, progress: Progress, record: Record, topic: str) -> None:
        super().__init__(record, topic, lane.place.broker_name)
        self._consumer = consumer
        self._lane = lane
        self._progress = progress
        self.is_settled = False

    def __repr__(self) -> str:
        return f"<Message {self.message_id} of {self.topic}>"

    def confirm(self) -> None:
        """Confirm the message: the group does not get it again. A second call has no effect."""
        if not self.is_settled:
            self.is_settled = True
            self._consumer.settle(self)

    def reject(self, delay_level: int = 0) -> None:
        """Send the message back, for later delivery to the group.

        The broker chooses the delay, which grows with each attempt, unless `delay_level` does. After the group's number
        of attempts, or immediately with `delay_level` -1, the message becomes a dead letter.
        """
        check_whole("delay_level", delay_level, -1, INT_MAX)
        if not self.is_settled:
            self.is_settled = True
            self._consumer.send_back(self, delay_level)

    @property
    def lane(self) -> _Lane:
        """The queue from which it came; internal."""
        return self._lane

    @property
    def progress(self) -> Progress:
        """The consumption of which it is part; internal."""
        return self._progress

    async def __aenter__(self) -> Self:
        self.begin_processing(self._consumer.spans, self._consumer.group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end_processing(fault)
        if fault is None:
            self.confirm()
        else:
            self.reject()


class Consumer:
    """A member of a consumer group, made by `Session.consume`. Iteration yields its messages until it is closed."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions) -> None:
        self.topic = options.topic
        self.group = options.group
        self._cluster = cluster
        self._options = options
        self._subscription = options.subscription
        self._retry_topic = RETRY_PREFIX + options.group
        self._lanes: dict[Place, _Lane] = {}
        self._buffer: deque[Message] = deque()
        self._returns: Returns[Message] = Returns(self._send_back)
        self._unsettled = 0
        self._unsettled_bytes = 0
        self._turn = 0
        self._arrival = anyio.Event()
        self._room = anyio.Event()
        self._look = anyio.Event()
        self._scope = anyio.CancelScope()
        self._is_over = anyio.Event()
        self._told = ""
        self._fault: Exception | None = None
        self._is_closed = False

    def __str__(self) -> str:
        return f"group {self.group} of topic {self.topic} at {self._cluster}"

    def __repr__(self) -> str:
        return f"<Consumer in {self}>"

    @property
    def spans(self) -> Spans | None:
        """The maker of the spans of messages; internal."""
        return self._cluster.spans

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def queues(self) -> list[tuple[str, int]]:
        """The member's present queues of the topic, as names of brokers and numbers."""
        return sorted((place.broker_name, place.queue_id) for place in self._lanes if place.topic == self.topic)

    # Consuming

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._turn += 1
        if self._turn >= _TURN:
            self._turn = 0
            await checkpoint()
        while not self._buffer:
            if self._must_end():
                raise StopAsyncIteration
            await self._arrival.wait()
        return self._next()

    async def receive(self, count_max: int | None = None) -> list[Message]:
        """Wait for messages and return them, at most `count_max`; none once the consumer is closed."""
        if count_max is not None:
            check_whole("count_max", count_max, 1, INT_MAX)
        await checkpoint()
        while not self._buffer:
            if self._must_end():
                return []
            await self._arrival.wait()
        count = len(self._buffer) if count_max is None else min(count_max, len(self._buffer))
        return [self._next() for _ in range(count)]

    def _next(self) -> Message:
        message = self._buffer.popleft()
        if not self._buffer:
            self._arrival = anyio.Event()
        return message

    def _must_end(self) -> bool:
        if self._fault is not None:
            raise RequestRefused(f"{self}: {self._fault}")
        return self._is_closed

    def settle(self, message: Message) -> None:
        """Note a message as settled; the message calls it."""
        if self._is_closed:
            raise ConsumerClosed(f"the consumer in {self} is closed")
        self._release(message)
        message.progress.settle(message.offset)

    def send_back(self, message: Message, delay_level: int) -> None:
        """Send a message back; the message calls it. A broadcasting group has no second delivery."""
        if self._is_closed:
            raise ConsumerClosed(f"the consumer in {self} is closed")
        if self._options.broadcast:
            self.settle(message)
            return
        self._returns.add(message, delay_level)

    def _release(self, message: Message) -> None:
        self._unsettled -= 1
        self._unsettled_bytes -= message.size
        self._room.set()

    # The life of the member

    async def begin(self) -> None:
        """Join the group. Raises `RequestRefused` or `OSError` if the topic is not known."""
        await self._cluster.route(self.topic)
        options = self._options
        subscriptions = [self._subscription]
        if not options.broadcast:
            subscriptions.append(make_subscription(self._retry_topic, ALL, self._subscription.sub_version))
        self._cluster.consumers[self.group] = ConsumerData(
            self.group,
            message_model="BROADCASTING" if options.broadcast else "CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET" if options.from_start else "CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=subscriptions,
        )
        self._cluster.changed[self.group] = self.look_again
        try:
            refusal = await self._cluster.beat()
            if refusal is not None:
                raise refusal
        except BaseException:
            self._is_over.set()
            await self.close()
            raise

    async def run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._commit_for_ever)
                    group.start_soon(self._returns.run)
                    while True:
                        self._look = anyio.Event()
                        with anyio.move_on_after(await self._rebalance(group)):
                            await self._look.wait()
        finally:
            self._is_over.set()

    def look_again(self) -> None:
        self._look.set()

    async def close(self) -> None:
        """Commit settled messages, and leave the group, within five seconds. A second call has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._scope.cancel()
        self._buffer.clear()
        self._arrival.set()
        self._cluster.changed.pop(self.group, None)
        self._cluster.consumers.pop(self.group, None)
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._is_over.wait()
            await self._returns.carry_out()
            await self._commit_all()
            fields = write_header(UnregisterClientRequest(self._cluster.client_id, consumer_group=self.group))
            await self._cluster.unregister(fields)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    # Which queues

    async def _rebalance(self, group: anyio.abc.TaskGroup) -> float:
        try:
            wanted = await self._wanted()
        except (RequestRefused, *FAULTS) as fault:
            if _is_fatal(fault):
                self._fail(fault)
            self._note(words_of(fault))
            await anyio.sleep(PAUSE_S)
            return PAUSE_S
        for place in [place for place in self._lanes if place not in wanted]:
            await self._let_go(self._lanes.pop(place))
        for place in wanted:
            if place not in self._lanes:
                lane = self._lanes[place] = _Lane(place)
                group.start_soon(self._pull_for_ever, lane)
        return REBALANCE_S

    async def _wanted(self) -> list[Place]:
        places = await self._places(self.topic)
        if self._options.broadcast:
            return places
        members = await self._members()
        if self._cluster.client_id not in members:
            # A restarted broker has forgotten its clients.
            await self._cluster.beat()
            members = await self._members()
        try:
            retries = await self._places(self._retry_topic)
        except RequestRefused:
            retries = []  # no broker has created it yet
        shares = [share_of(self._cluster.client_id, members, each) for each in (places, retries)]
        if None in shares:
            raise RequestRefused("the brokers do not know this member")
        return [place for share in shares for place in share or ()]

    async def _places(self, topic: str) -> list[Place]:
        route = await self._cluster.route(topic)
        return [Place(topic, queue.broker_name, queue.queue_id) for queue in route.readable]

    async def _members(self) -> list[str]:
        """The client ids of the group, from any broker of the topic that answers."""
        fault: Exception | None = None
        for address in self._cluster.known_route(self.topic).addresses:
            try:
                answer = await self._cluster.call(
                    address,
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                    {"consumerGroup": self.group},
                    f"no members of group {self.group}",
                )
                return CONSUMER_IDS.read(answer.body).consumer_id_list
            except FAULTS as found:
                fault = found
        # Brokers ignore heartbeats of an unknown group that they do not create, and refuse its pulls.
        for queue in self._cluster.known_route(self.topic).readable[:1]:
            link = await self._cluster.link_to(queue.address)
            await QueuePuller(link, self.group, self.topic, queue.queue_id, self._cluster.timeout_s).check()
        raise RequestRefused(f"no broker of topic {self.topic} tells the members: {fault or 'there is none'}")

    async def _let_go(self, lane: _Lane) -> None:
        lane.is_lost = True
        lane.scope.cancel()
        for message in [each for each in self._buffer if each.lane is lane]:
            self._buffer.remove(message)
            self._release(message)
        if not self._buffer and self._arrival.is_set():
            self._arrival = anyio.Event()
        await self._commit(lane)

    # Pulling

    async def _pull_for_ever(self, lane: _Lane) -> None:
        with lane.scope:
            while True:
                try:
                    await self._pull(lane)
                except FAULTS as fault:
                    if _is_fatal(fault):
                        self._fail(fault)
                        return
                    self._note(words_of(fault))
                lane.puller = None
                await anyio.sleep(PAUSE_S)
                self.look_again()

    async def _pull(self, lane: _Lane) -> None:
        """Pull a queue for as long as its broker answers. Raises one of `FAULTS`."""
        topic, broker_name, queue_id = lane.place
        link = await self._cluster.link_to(self._cluster.address_of(topic, broker_name))
        is_retry = topic == self._retry_topic
        expression = (ALL, "TAG") if is_retry else (self._subscription.sub_string, self._subscription.expression_type)
        puller = QueuePuller(link, self.group, topic, queue_id, self._cluster.timeout_s, *expression)
        progress = lane.progress
        if progress is None:
            await self._seek(puller, is_retry)
            progress = lane.progress = Progress(puller.offset)
        else:
            puller.offset = progress.offset
            progress.committed = -1
        lane.puller = puller
        self._told = ""
        while True:
            while not self._has_room():
                if self._room.is_set():
                    self._room = anyio.Event()
                await self._room.wait()
            records = await puller.pull_records(_PULLED_MAX)
            if puller.offset < progress.offset:
                # The queue is shorter than before: later pulls return other messages.
                progress = lane.progress = Progress(puller.offset)
            self._deliver(lane, progress, records, puller.offset)

    def _has_room(self) -> bool:
        options = self._options
        return self._unsettled < options.messages_max and self._unsettled_bytes < options.bytes_max

    async def _seek(self, puller: QueuePuller, is_retry: bool) -> None:
        if not self._options.broadcast and await puller.seek_committed():
            return
        if self._options.from_start or (is_retry and not self._options.broadcast):
            await puller.seek_begin()
        elif self._options.since_ms is not None:
            await puller.seek_time(self._options.since_ms)
        else:
            await puller.seek_end()

    def _deliver(self, lane: _Lane, progress: Progress, records: list[Record], next_offset: int) -> None:
        messages = [Message(self, lane, progress, record, self.topic) for record in records]
        tags = self._subscription.tags_set
        if tags:
            # The broker compares only hashes.
            messages = [message for message in messages if message.tag in tags]
        progress.took([message.offset for message in messages], next_offset)
        self._buffer.extend(messages)
        self._unsettled += len(messages)
        self._unsettled_bytes += sum(message.size for message in messages)
        if self._buffer:
            self._arrival.set()

    def _note(self, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            log.warning("%s: %s; it is tried again", self, reason)

    def _fail(self, fault: Exception) -> None:
        log.error("%s: %s", self, fault)
        self._fault = fault
        self._scope.cancel()
        self._arrival.set()

    # Committing and sending back

    async def _commit_for_ever(self) -> None:
        while True:
            await anyio.sleep(COMMIT_S)
            await self._commit_all()

    async def _commit_all(self) -> None:
        for lane in list(self._lanes.values()):
            await self._commit(lane)

    async def _commit(self, lane: _Lane) -> None:
        progress, puller = lane.progress, lane.puller
        if progress is None or puller is None or self._options.broadcast:
            return
        offset = progress.settled_offset
        if offset == progress.committed:
            return
        try:
            await puller.commit(offset)
            progress.committed = offset
        except FAULTS as fault:
            log.info("%s: offset %d is not committed: %s", self, offset, words_of(fault))

    async def _send_back(self, message: Message, delay_level: int) -> None:
        """Send a message back to its broker. Raises one of `FAULTS`."""
        if not message.lane.is_lost:
            record, place = message.record, message.lane.place
            header = ConsumerSendMessageBackRequest(
                record.physical_offset,
                self.group,
                delay_level,
                message.message_id,
                message.system_property("RETRY_TOPIC") or record.topic,
            )
            await self._cluster.call(
                self._cluster.address_of(place.topic, place.broker_name),
                RequestCode.CONSUMER_SEND_MSG_BACK,
                write_header(header),
                f"message {message.message_id} of topic {self.topic} cannot be sent back",
            )
        message.progress.settle(message.offset)
        self._release(message)
        if not any(place.topic == self._retry_topic for place in self._lanes):
            self.look_again()


def _is_fatal(fault: Exception) -> bool:
    return isinstance(fault, Refused) and fault.code in _FATAL
