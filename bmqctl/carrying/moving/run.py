"""The run of `bmqctl copy` and `bmqctl move`: a bridge that ends, between any two queues and topics."""

from __future__ import annotations

import secrets
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.blazingmq_ends import (
    BlazingDestination,
    BlazingSource,
    Confirming,
    Keeping,
    Make,
    for_topic,
)
from bmqctl.carrying.bridge.carrying import Bridge, Destination, Source, Tell, TryAgain
from bmqctl.carrying.bridge.carrying import CannotBegin as BridgeCannotBegin
from bmqctl.carrying.bridge.flow import TAKEN, FlowOptions, Send
from bmqctl.carrying.bridge.patience import Patience
from bmqctl.carrying.bridge.rocketmq_destination import NEW_QUEUES, RocketDestination, find_places, find_topics
from bmqctl.carrying.bridge.rocketmq_source import MakeOfRecord, RocketSource, for_queue
from bmqctl.carrying.messages.ends import (
    BlazingEnd,
    CannotBegin,
    End,
    Reach,
    RocketEnd,
    blazingmq_credentials,
    check_authority,
)
from bmqctl.carrying.moving.forms import for_other_queue, for_other_topic, for_queue_of_run
from bmqctl.carrying.moving.holding import Holding
from bmqctl.carrying.moving.security import security_of
from bmqctl.carrying.moving.stored import StoredSource, find_parts, select
from bmqctl.client.admin import AdminLost
from bmqctl.client.events import StreamOptions, StreamSubscription
from bmqctl.client.queue import check_subscriptions
from bmqctl.client.session import SessionOptions
from bmqctl.clients.rocketmq.client import Client
from bmqctl.clients.rocketmq.faults import FAULTS
from bmqctl.clients.rocketmq.moments import moment
from bmqctl.clients.rocketmq.sharing import Place
from bmqctl.common.nurseries import open_nursery
from bmqctl.systems.blazingmq.status.asking import Asking, Refused
from bmqctl.systems.blazingmq.status.contents import contents_of, waiting_of
from formats.bmq.uri import parse_uri
from formats.rocketmq.files.record import Record

__all__ = ["At", "Carried", "CarryOptions", "Contents", "carry", "check", "rehearse", "waiting"]

_SALT_SIZE: Final = 16
_REPORT_S: Final = 0.2


class At(NamedTuple):
    """A queue or a topic, and how its brokers are reached."""

    end: End
    reach: Reach


@dataclass(frozen=True, slots=True)
class CarryOptions:
    """Options of a run, which with `moves` rids the source of what was carried.

    `expression` is in the language of the source's system. The run ends after `count_max` messages; for a source that
    is consumed, when none has come for `idle_s`; and at a refused message, unless it is a copy and `skip_refused`.
    """

    moves: bool
    expression: str | None = None
    tags: str | None = None
    count_max: int | None = None
    idle_s: float = 2.0
    patience_s: float = 30.0
    window: int = 4096
    batch: int = 512
    skip_refused: bool = False


@dataclass(slots=True)
class Carried:
    """The end of a run. `ended_by` is the reason if it ended before all was carried, and no signal ended it."""

    account: Account = field(default_factory=Account)
    ended_by: str = ""
    is_interrupted: bool = False


class Contents(NamedTuple):
    """The messages at a source. `unfit` counts by their reasons those that the destination cannot hold, if known."""

    messages: int
    size_bytes: int
    oldest_at: str | None
    unfit: dict[str, int]


def check(source: At, destination: At, options: CarryOptions) -> None:
    """Raise `CannotBegin` for ends and options that do not go together."""
    _check_source(source.end, options)
    _check_destination(source.end, destination.end)
    if _place(source.end) == _place(destination.end):
        raise CannotBegin(f"{source.end} is both: messages would go round without end")


def _check_source(end: End, options: CarryOptions) -> None:
    if isinstance(end, BlazingEnd):
        if options.tags is not None:
            raise CannotBegin("--tags is for topics of RocketMQ: give --expression")
        try:
            check_subscriptions(_subscriptions(options))
        except ValueError as fault:
            raise CannotBegin(f"--expression: {fault}") from None
        return
    if options.tags is not None and options.expression is not None:
        raise CannotBegin("--tags or --expression, not both")
    if end.key:
        raise CannotBegin(f"{end}: ?key= is for the topic that messages go to")
    if not options.moves:
        if end.group:
            raise CannotBegin(f"{end}: no group gets what is copied: behind ? there may be queue= only")
    elif not end.group:
        raise CannotBegin(
            f"{end}: a topic keeps its messages: name the group that is to have consumed them, ?group=GROUP"
        )
    elif end.queue is not None:
        raise CannotBegin(f"{end}: a member of a group gets messages of all queues: leave out queue=")
    elif options.tags is not None or options.expression is not None:
        raise CannotBegin("a group passes over what it does not select, for good: use copy, which leaves it alone")


def _check_destination(source: End, end: End) -> None:
    if isinstance(end, BlazingEnd):
        if parse_uri(end.uri).app_id:
            raise CannotBegin(f"{end}: messages are posted to a queue, not to an app of it")
    elif end.key and isinstance(source, RocketEnd):
        raise CannotBegin(f"{end}: each queue of a topic goes to one queue of the other: leave out key=")


def _place(end: End) -> tuple[object, ...]:
    if isinstance(end, BlazingEnd):
        return end.host, end.port, parse_uri(end.uri)._replace(app_id="").canonical
    return end.host, end.port, end.topic


def _subscriptions(options: CarryOptions) -> tuple[StreamSubscription, ...]:
    return () if options.expression is None else (StreamSubscription(options.expression),)


async def carry(
    source: At, destination: At, options: CarryOptions, tell: Tell, on_progress: Callable[[int], None]
) -> Carried:
    """Carry messages until there are no more, they are enough, or a signal comes. Raises `CannotBegin`.

    `tell` is given what happens to connections, `on_progress` the number of messages so far.
    """
    check(source, destination, options)
    found = Carried()
    patience = Patience(options.patience_s)

    def hear(text: str) -> None:
        patience.tell(text)
        tell(text)

    async with open_nursery() as nursery:
        making = trio.CancelScope()
        bridge: Bridge | None = None

        def stop() -> None:
            making.cancel()
            if bridge is not None:
                (bridge.give_up if found.is_interrupted else bridge.stop)()
            found.is_interrupted = True

        nursery.start_soon(_watch_signals, stop)
        try:
            with making:
                bridge = await _make(source, destination, options, hear)
            if bridge is None:
                raise CannotBegin("interrupted before it began")
            found.account = bridge.account
            nursery.start_soon(patience.watch, bridge, partial(_ended, bridge.account))
            nursery.start_soon(_report, bridge, on_progress)
            idle_s = options.idle_s if _is_consumed(source.end, options) else None
            await bridge.run(idle_s, options.patience_s)
        except BridgeCannotBegin as fault:
            raise CannotBegin(str(fault)) from None
    found.ended_by = patience.ended_by or bridge.flow.ended_by
    return found


def _is_consumed(end: End, options: CarryOptions) -> bool:
    """Return True for a source of which nobody knows the end."""
    return isinstance(end, BlazingEnd) or options.moves


def _ended(account: Account) -> int:
    return account.delivered + account.refused.total()


async def _watch_signals(stop: Callable[[], None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        async for _ in received:
            stop()


async def _report(bridge: Bridge, on_progress: Callable[[int], None]) -> None:
    while True:
        await trio.sleep(_REPORT_S)
        on_progress(_ended(bridge.account))


async def _make(source: At, destination: At, options: CarryOptions, tell: Tell) -> Bridge:
    """Make the bridge. Raises `CannotBegin` of both kinds."""
    flow = FlowOptions(
        window=options.window,
        batch_messages=options.batch,
        skip_refused=options.skip_refused and not options.moves,
    )
    places: list[Place] = []
    end = destination.end
    if isinstance(end, RocketEnd):
        places = await _places(destination, end, isinstance(source.end, RocketEnd), tell)
    return Bridge(
        _source(source, end, options, len(places), flow, tell),
        _destination(destination, places, tell),
        flow,
        tell,
        options.count_max,
    )


async def _places(at: At, end: RocketEnd, has_queues: bool, tell: Tell) -> list[Place]:
    """The queues that messages go to: of a topic to all in turn, of a queue to one, or by a key."""
    trying, security = TryAgain(str(end), tell, 0.0), security_of(at.reach)
    if has_queues and end.queue is None:
        return (await find_topics(end, {end.topic: NEW_QUEUES}, at.reach.timeout_s, trying, security))[end.topic]
    return await find_places(end, at.reach.timeout_s, trying, security)


def _source(at: At, to: End, options: CarryOptions, places: int, flow: FlowOptions, tell: Tell) -> Source:
    trying = TryAgain(str(at.end), tell, 0.0)
    salt = b"" if options.moves else secrets.token_bytes(_SALT_SIZE)
    if isinstance(at.end, BlazingEnd):
        make: Make = for_topic() if isinstance(to, RocketEnd) else for_other_queue(at.end.uri, salt)
        key = to.key if isinstance(to, RocketEnd) else ""
        keeping = _keeping(options, flow, tell)
        return BlazingSource(at.end, _session(at.reach), keeping, make, max(1, places), key, trying)
    make_record = _record_maker(to, salt)
    timeout_s, security = at.reach.timeout_s, security_of(at.reach)
    if options.moves:
        return RocketSource(at.end, timeout_s, trying, tell, make=make_record, security=security)
    return StoredSource(at.end, select(options.tags, options.expression), make_record, timeout_s, trying, security)


def _record_maker(to: End, salt: bytes) -> MakeOfRecord:
    if isinstance(to, RocketEnd):
        return for_other_topic()
    return for_queue_of_run(salt) if salt else for_queue


def _keeping(options: CarryOptions, flow: FlowOptions, tell: Tell) -> Keeping:
    subscriptions = _subscriptions(options)
    if options.moves:
        window = min(flow.window, options.count_max or flow.window)
        return Confirming(StreamOptions(max_unconfirmed_messages=window, subscriptions=subscriptions))
    return Holding(StreamOptions(subscriptions=subscriptions), flow.window, flow.window_bytes, options.count_max, tell)


def _destination(at: At, places: Sequence[Place], tell: Tell) -> Destination:
    trying = TryAgain(str(at.end), tell, 0.0)
    if isinstance(at.end, RocketEnd):
        return RocketDestination(at.end, places, at.reach.timeout_s, trying, tell, security_of(at.reach))
    return BlazingDestination(at.end, _session(at.reach), trying, tell)


def _session(reach: Reach) -> SessionOptions:
    """The options of a session of BlazingMQ. Raises `CannotBegin`."""
    return SessionOptions(
        timeout_s=reach.timeout_s,
        process_name=reach.name,
        credentials=blazingmq_credentials(reach),
        tls_authority=check_authority(reach.authority),
    )


# What there is at a source


def _asking(reach: Reach) -> Asking:
    return Asking(reach.timeout_s, check_authority(reach.authority), blazingmq_credentials(reach))


async def waiting(source: At, options: CarryOptions) -> int | None:
    """The number of messages at a source, at most those that will be carried; None if its broker does not tell."""
    end, reach = source
    try:
        if isinstance(end, BlazingEnd):
            asking, queue = _asking(reach), parse_uri(end.uri)
            return await trio.to_thread.run_sync(partial(waiting_of, end.host, end.port, asking, queue))
        async with Client.connect(end.host, end.port, reach.timeout_s, security_of(reach)) as client:
            parts = await find_parts(client, end, reach.timeout_s, end.group if options.moves else "")
        return sum(part.end - part.offset for part in parts)
    except (AdminLost, Refused, BridgeCannotBegin, *FAULTS):
        return None


async def rehearse(source: At, destination: At, options: CarryOptions) -> Contents:
    """Look at what would be carried, and change nothing. Raises `CannotBegin`.

    A broker of BlazingMQ lists messages without their properties, so that an expression selects among these. The
    messages of a topic are read.
    """
    check(source, destination, options)
    end, reach = source
    if isinstance(end, BlazingEnd):
        asking, queue = _asking(reach), parse_uri(end.uri)
        try:
            found = await trio.to_thread.run_sync(partial(contents_of, end.host, end.port, asking, queue))
        except (AdminLost, Refused) as fault:
            raise CannotBegin(f"{end}: {fault}") from None
        return Contents(*found, {})
    return await _read_through(source, end, destination.end, options)


async def _read_through(source: At, end: RocketEnd, to: End, options: CarryOptions) -> Contents:
    """Read the messages of a topic, as they would be carried, to nowhere."""
    reach = source.reach
    make = _record_maker(to, b"")
    oldest_ms: list[int] = []

    def noted(record: Record, broker_name: str) -> Any:
        oldest_ms[:] = [min([record.stored_ms, *oldest_ms])]
        return make(record, broker_name)

    faults: list[str] = []
    reading = StoredSource(
        end._replace(group=""),
        select(options.tags, options.expression),
        noted,
        reach.timeout_s,
        TryAgain(str(end), faults.append, 0.0),
        security_of(reach),
        end.group if options.moves else "",
    )
    bridge = Bridge(reading, _Nowhere(), FlowOptions(skip_refused=True), faults.append, options.count_max)
    patience = Patience(options.patience_s)
    try:
        async with open_nursery() as nursery:
            nursery.start_soon(patience.watch, bridge, partial(_ended, bridge.account))
            await bridge.run(None, options.patience_s)
    except BridgeCannotBegin as fault:
        raise CannotBegin(str(fault)) from None
    ended_by = patience.ended_by or bridge.flow.ended_by
    if ended_by:
        raise CannotBegin(f"{end}: {ended_by}")
    account = bridge.account
    oldest = moment(oldest_ms[0]).isoformat(timespec="milliseconds") if oldest_ms else None
    return Contents(account.delivered, account.size_bytes, oldest, dict(Counter(account.refused)))


class _Nowhere:
    """A destination that takes all messages, and keeps none."""

    def __init__(self) -> None:
        self._bridge: Bridge | None = None

    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        """Be there."""
        self._bridge = bridge
        task_status.started()
        bridge.destination_up()
        await trio.sleep_forever()

    def send(self, send: Send) -> None:
        """Take a batch."""
        assert self._bridge is not None
        self._bridge.answered(send.lane, send.batch, [TAKEN] * len(send.items))
