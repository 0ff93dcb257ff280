"""Sends the messages of a plan to RocketMQ's topics at a pace, in the order of each queue, across lost connections.

Each queue has at most one batch at its broker. An unanswered one is sent again: RocketMQ keeps both copies, which have
the same unique id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio

from bmqctl.carrying.bridge.blazingmq_ends import lane_of
from bmqctl.carrying.bridge.carrying import Bridge, CannotBegin, Destination, Tell, TryAgain, run_to_end
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.flow import CarriedMessage, FlowOptions, Send
from bmqctl.carrying.bridge.patience import Patience
from bmqctl.carrying.bridge.rocketmq_destination import NEW_QUEUES, RocketDestination, find_topics
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.moving.security import security_of
from bmqctl.carrying.replay.messages import Stored, StoredRecord
from bmqctl.carrying.replay.names import check_topic
from bmqctl.carrying.replay.outgoing import Unfit, for_rocketmq
from bmqctl.carrying.replay.progress import ReplayStep, replay_unique_id
from bmqctl.carrying.replay.run import ReplayOptions, Run, sync, watch_signals
from bmqctl.client.remoting.client import PLAIN, Security
from bmqctl.client.remoting.routes import Place
from bmqctl.common.nurseries import open_nursery
from formats.bmq.wire.properties import Property, PropertyType
from formats.rocketmq.properties import decode_properties

__all__ = ["CannotBegin", "ReplaySendOptions", "TopicReplay", "send"]

_WINDOW_BYTES: Final = 32 << 20
_PIECE_COUNT: Final = 64
# As long as the ids that messages get when they are sent.
_ANY_UNIQUE_ID: Final = "0" * 32


@dataclass(frozen=True, slots=True)
class ReplaySendOptions:
    """`speed` is a factor of the original pace, None as fast as possible. A run ends when patience does.

    With `makes_topics` an unknown topic is created, with its former number of queues.
    """

    end: RocketEnd
    makes_topics: bool = False
    speed: float | None = None
    window: int = 4096
    patience_s: float = 30.0
    timeout_s: float = 10.0
    security: Security = PLAIN


class TopicReplay:
    """A topic, or a cluster in which each message keeps its topic. Raises `CannotBegin` for an invalid `reach`."""

    def __init__(self, end: RocketEnd, reach: Reach) -> None:
        self.target = end.topic
        self._end = end
        try:
            self._security = security_of(reach)
        except CannotBegin as fault:
            raise CannotBegin(f"--to {end}: {fault}") from None

    def lasting(self, text: str) -> str:
        return text.replace(f"{self._end.host}:{self._end.port}", "")

    def check_target(self, name: str) -> None:
        check_topic(name)

    def check_delayed(self) -> None:
        pass

    def convert(self, message: Stored) -> object:
        return for_rocketmq(message, _ANY_UNIQUE_ID)

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        speed, window, patience_s, makes_topics = options
        await send(run, ReplaySendOptions(self._end, makes_topics, speed, window, patience_s, security=self._security))

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        return (
            f"{count} messages were unacknowledged when the last run ended: sent again with the same unique ids, so "
            "some may be duplicated"
        )


async def send(run: Run, options: ReplaySendOptions) -> None:
    """Send the rest of a plan. Raises `CannotBegin` if there is no such topic, or no broker."""
    if not len(run.order):
        return
    trying = _at_once(options, lambda text: None)
    wanted = _new_queues(run, options)
    found = await find_topics(options.end, wanted, options.timeout_s, trying, options.security)
    lanes = _Lanes(options.end, found)
    await _Sending(run, options, lanes).run()


def _at_once(options: ReplaySendOptions, tell: Tell) -> TryAgain:
    """Do not wait for an end that is away at the start."""
    return TryAgain(str(options.end), tell, 0.0)


def _new_queues(run: Run, options: ReplaySendOptions) -> dict[str, int]:
    widths = dict.fromkeys(run.targets, 0)
    if options.makes_topics:
        for source, target in zip(run.plan.queues, run.targets, strict=True):
            least = (options.end.queue or 0) + 1
            widths[target] = max(widths[target], run.plan.widths.get(source, NEW_QUEUES), least)
    return widths


class _Lanes:
    """The destination queues, and the choice between those of a topic."""

    def __init__(self, end: RocketEnd, topics: Mapping[str, list[Place]]) -> None:
        self.places: list[Place] = []
        self._begins: dict[str, int] = {}
        self._end = end
        self._counts = {topic: len(places) for topic, places in topics.items()}
        for topic, places in topics.items():
            if end.queue is not None and end.queue >= len(places):
                raise CannotBegin(f"{end}: topic {topic} has {len(places)} queues, and none with number {end.queue}")
            self._begins[topic] = len(self.places)
            self.places += places

    def of(self, topic: str, message: Stored) -> int:
        """The lane of a message, by the named queue, its key's value, or its original queue."""
        count = self._counts[topic]
        if self._end.key:
            chosen = lane_of(_properties(message), self._end.key, count)
        elif self._end.queue is not None:
            chosen = self._end.queue
        else:
            chosen = message.queue_id % count if isinstance(message, StoredRecord) else 0
        return self._begins[topic] + chosen


def _properties(message: Stored) -> list[Property]:
    if not isinstance(message, StoredRecord):
        return message.properties
    found = decode_properties(message.record.properties)
    return [Property(name, PropertyType.STRING, text) for name, text in found.items()]


class _Sending:
    """A run, as the source of a bridge to the topics."""

    def __init__(self, run: Run, options: ReplaySendOptions, lanes: _Lanes) -> None:
        self._run = run
        self._options = options
        self._patience = Patience(options.patience_s)
        self._source = _PlanSource(run, options, lanes)
        tell = self._patience.tell
        inner = RocketDestination(
            options.end, lanes.places, options.timeout_s, _at_once(options, tell), tell, options.security
        )
        flow = FlowOptions(window=options.window, window_bytes=_WINDOW_BYTES, skip_refused=True)
        self._bridge = Bridge(self._source, _Noting(inner, run), flow, self._patience.tell)

    async def run(self) -> None:
        async with open_nursery() as nursery:
            nursery.start_soon(watch_signals, self._run, self._bridge.stop, self._bridge.give_up)
            nursery.start_soon(sync, self._run)
            nursery.start_soon(self._patience.watch, self._bridge, lambda: self._run.acked + len(self._run.refused))
            await self._bridge.run(None, self._options.patience_s)
        self._run.ended_by = self._patience.ended_by


class _Noting:
    """A destination that notes outgoing messages in the progress first."""

    def __init__(self, inner: Destination, run: Run) -> None:
        self._inner = inner
        self._steps = run.progress.steps

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        await self._inner.run(bridge, task_status)

    def send(self, send: Send) -> None:
        self._steps[[item.token for item in send.items]] = ReplayStep.SENT
        self._inner.send(send)


class _PlanSource:
    """The messages of a plan, a few at a time, within the window's room."""

    def __init__(self, run: Run, options: ReplaySendOptions, lanes: _Lanes) -> None:
        self.lanes = len(lanes.places)
        self._run = run
        self._options = options
        self._choice = lanes
        self._seed = run.progress.head.seed
        self._bytes = 0

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        await run_to_end(bridge, task_status, self._hand_out)

    def settle(self, lane: int, items: list[CarriedMessage]) -> None:
        run = self._run
        for item in items:
            self._bytes -= item.size
            if item.unfit:
                run.take_refusal(item.token, item.unfit)
            else:
                run.take_ack(item.token, len(item.message.body))
        run.on_progress(run.acked, len(run.order))

    async def _hand_out(self, bridge: Bridge) -> None:
        order, speed = self._run.order, self._options.speed
        due_s = None if speed is None else self._run.plan.due_s(order, speed).tolist()
        started = trio.current_time()
        lanes: dict[int, list[CarriedMessage]] = {}
        count = 0
        for at, number in enumerate(order.tolist()):
            is_late = due_s is None or started + due_s[at] <= trio.current_time()
            if count >= _PIECE_COUNT or self._bytes >= _WINDOW_BYTES or not is_late:
                lanes, count = self._take(bridge, lanes), 0
                await self._await_room(bridge)
            if due_s is not None:
                await trio.sleep_until(started + due_s[at])
            made = self._item(number)
            if made is not None:
                lane, item = made
                lanes.setdefault(lane, []).append(item)
                self._bytes += item.size
            count += 1
        self._take(bridge, lanes)

    def _take(self, bridge: Bridge, lanes: dict[int, list[CarriedMessage]]) -> dict[int, list[CarriedMessage]]:
        for lane, items in lanes.items():
            bridge.take(lane, items)
        return {}

    async def _await_room(self, bridge: Bridge) -> None:
        await trio.lowlevel.checkpoint()
        while bridge.flow.held >= self._options.window or self._bytes >= _WINDOW_BYTES:
            await bridge.await_change()

    def _item(self, number: int) -> tuple[int, CarriedMessage] | None:
        run = self._run
        message = run.read(number)
        if message is None:
            return None
        try:
            made = for_rocketmq(message, replay_unique_id(self._seed, number))
        except Unfit as fault:
            run.fail(number, ReplayStep.UNFIT, str(fault))
            return None
        is_delayed = isinstance(message, StoredRecord) and message.delay_level > 0
        lane = self._choice.of(run.target_of(number), message)
        # Brokers refuse batches with delayed messages.
        return lane, CarriedMessage(number, made, len(made.body) + len(made.properties), is_alone=is_delayed)
