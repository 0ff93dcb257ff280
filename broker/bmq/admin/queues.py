"""The internals of one queue (source: mqbblp::QueueState, QueueHandle, RootQueueEngine: their `loadInternals`)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from typing import Final

from broker.bmq.admin.answers.results_queue import (
    AppState,
    CapacityMeter,
    ConsumerLimits,
    ConsumerState,
    FailingMessages,
    PriorityGroup,
    QueueEngine,
    QueueHandle,
    QueueHandleSubStream,
    QueueInternalsResult,
    QueueState,
    QueueStorage,
    RoundRobinRouter,
    RouterConsumer,
    Routing,
    Subscriber,
    SubscriptionGroup,
    SubscriptionInfo,
    UsageMonitor,
    VirtualStorage,
)
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.storage import partition_of
from broker.bmq.core.alarms import printable
from broker.bmq.core.config import DomainConfig
from broker.bmq.node.node import DomainInUse
from broker.bmq.queue.handles import Handle
from broker.bmq.queue.queue import App, Queue, Stream, Subscription, Usage
from broker.bmq.queue.routing import LOW_DIVISOR, Group
from broker.bmq.session.session import Session
from formats.bmq.codes import DEFAULT_APP_ID, QueueFlag
from formats.bmq.control.messages import (
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    QueueHandleParameters,
    StreamParameters,
    SubQueueIdInfo,
)
from formats.bmq.control.messages import Subscription as SubscriptionParameters
from formats.bmq.control.printed import printed
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["domain_meter", "queue_internals", "queue_meter", "queue_uri"]

PRIMARY_QUEUE_ID = 0xFFFF_FFFE

# States of a limit of unconfirmed messages or bytes, the lowest first.
STATES = ("STATE_NORMAL", "STATE_HIGH_WATERMARK", "STATE_FULL")

# Maximum number of returned messages, oldest first, searched for the one with fewest attempts left.
FAILING_SEEN_MAX: Final = 1000

Held = tuple[Session, Handle]


def queue_uri(domain: DomainInUse, name: str) -> str:
    """Make the URI of a queue in a command. Raises `Failed` if the name is invalid."""
    text = f"bmq://{domain.config.name}/{name}"
    try:
        return parse_uri(text).canonical
    except FormatError as error:
        raise Failed(f"Unable to build queue uri with error '{error.reason}'") from None


def queue_internals(context: CommandContext, queue: Queue) -> QueueInternalsResult:
    held = [
        (session, handle)
        for session in context.node.sessions.values()
        for handle in session.handles.values()
        if handle.queue is queue
    ]
    domain = context.node.domains[queue.config.name]
    state = QueueState(
        uri=queue.uri,
        handle_parameters_json=printable(printed(_all_parameters(queue, held))),
        stream_parameters_json=" ".join(["[", *(_app_parameters(app) for app in queue.apps.values()), "]"]),
        id=PRIMARY_QUEUE_ID,
        key=queue.key.hex().upper(),
        partition_id=partition_of(context, queue),
        storage=_storage(queue),
        capacity_meter=queue_meter(queue, domain_meter(domain)),
        handles=tuple(_handle(session, handle) for session, handle in held),
    )
    return QueueInternalsResult(state, _engine(queue))


def _storage(queue: Queue) -> QueueStorage:
    apps = tuple(VirtualStorage(app.app_id, app.key.hex().upper(), app.messages) for app in queue.apps.values())
    return QueueStorage(len(queue.messages), queue.bytes, apps)


# -- meters


def domain_meter(domain: DomainInUse) -> CapacityMeter:
    config = domain.config
    name = f"domain [bmq://{config.name}]"
    return _meter(name, domain.usage, config.domain_messages_max, config.domain_bytes_max, None)


def queue_meter(queue: Queue, domain: CapacityMeter) -> CapacityMeter:
    config: DomainConfig = queue.config
    return _meter(f"queue [{queue.uri}]", queue.usage, config.queue_messages_max, config.queue_bytes_max, domain)


def _meter(name: str, usage: Usage, messages_max: int, bytes_max: int, parent: CapacityMeter | None) -> CapacityMeter:
    return CapacityMeter(
        name=name,
        is_disabled=False,
        num_messages=usage.messages,
        message_capacity=messages_max,
        num_messages_reserved=0,
        num_bytes=usage.bytes,
        byte_capacity=bytes_max,
        num_bytes_reserved=0,
        parent=parent,
    )


# -- clients


def _all_parameters(queue: Queue, held: Iterable[Held]) -> QueueHandleParameters:
    reads = sum(stream.readers for _, handle in held for stream in handle.streams.values())
    writes = sum(handle.writes for _, handle in held)
    return _parameters(queue.uri, PRIMARY_QUEUE_ID, reads, writes)


def _parameters(
    uri: str, queue_id: int, reads: int, writes: int, info: SubQueueIdInfo | None = None
) -> QueueHandleParameters:
    flags = (QueueFlag.READ if reads else 0) | (QueueFlag.WRITE if writes else 0)
    return QueueHandleParameters(
        uri=uri,
        q_id=queue_id,
        sub_id_info=info,
        flags=flags,
        read_count=reads,
        write_count=writes,
        admin_count=0,
    )


def _app_parameters(app: App) -> str:
    subscriptions = tuple(_subscription(each) for stream in app.streams for each in stream.subscriptions)
    return printable(printed(StreamParameters(app_id=app.app_id, subscriptions=subscriptions)))


def _subscription(subscription: Subscription) -> SubscriptionParameters:
    limits = _limits(subscription)
    consumer = ConsumerInfo(
        max_unconfirmed_messages=limits.max_unconfirmed_messages,
        max_unconfirmed_bytes=limits.max_unconfirmed_bytes,
        consumer_priority=limits.consumer_priority,
        consumer_priority_count=limits.consumer_priority_count,
    )
    version = ExpressionVersion.VERSION_1 if subscription.text else ExpressionVersion.UNDEFINED
    expression = Expression(version=version, text=subscription.text)
    return SubscriptionParameters(s_id=subscription.subscription_id, expression=expression, consumers=(consumer,))


def _limits(subscription: Subscription) -> ConsumerLimits:
    return ConsumerLimits(subscription.messages_max, subscription.bytes_max, subscription.priority, subscription.count)


def _handle(session: Session, handle: Handle) -> QueueHandle:
    streams = handle.streams.values()
    first = next(iter(streams), None)
    info = None
    if first is not None and first.app.app_id != DEFAULT_APP_ID:
        info = SubQueueIdInfo(sub_id=first.sub_queue_id, app_id=first.app.app_id)
    reads = sum(stream.readers for stream in streams)
    parameters = _parameters(handle.queue.uri, handle.queue_id, reads, int(handle.writes), info)
    return QueueHandle(
        client_description=printable(session.description),
        parameters_json=printable(printed(parameters)),
        is_client_cluster_member=False,
        sub_streams=tuple(_sub_stream(stream) for stream in streams),
    )


def _sub_stream(stream: Stream) -> QueueHandleSubStream:
    parameters = StreamParameters(
        app_id=stream.app.app_id, subscriptions=tuple(_subscription(each) for each in stream.subscriptions)
    )
    return QueueHandleSubStream(
        sub_id=stream.sub_queue_id,
        app_id=printable(stream.app.app_id),
        parameters_json=printable(printed(parameters)),
        unconfirmed_monitors=tuple(_monitor(each) for each in stream.subscriptions),
        num_unconfirmed_messages=len(stream.unconfirmed),
    )


def _monitor(subscription: Subscription) -> UsageMonitor:
    messages_state = _state(subscription.messages_left, subscription.messages_max)
    bytes_state = _state(subscription.bytes_left, subscription.bytes_max)
    return UsageMonitor(
        state=max(messages_state, bytes_state, key=STATES.index),
        messages_state=messages_state,
        num_messages=subscription.holds,
        messages_low_watermark_ratio=0,
        messages_high_watermark_ratio=0,
        messages_capacity=subscription.messages_max,
        bytes_state=bytes_state,
        num_bytes=subscription.holds_bytes,
        bytes_low_watermark_ratio=0,
        bytes_high_watermark_ratio=0,
        bytes_capacity=subscription.bytes_max,
    )


def _state(left: int, limit: int) -> str:
    if left <= 0:
        return "STATE_FULL"
    return "STATE_HIGH_WATERMARK" if left <= limit // LOW_DIVISOR else "STATE_NORMAL"


# -- routing


def _engine(queue: Queue) -> QueueEngine:
    attempts_max = queue.config.delivery_attempts_max
    states = [_consumer_state(app, attempts_max, known=True) for app in queue.apps.values()]
    states += [_consumer_state(app, attempts_max, known=False) for app in queue.unregistered.values()]
    groups = [_group(number, group) for number, app in enumerate(queue.apps.values()) for group in app.groups.values()]
    return QueueEngine(
        max_consumers=queue.config.consumers_max,
        mode=queue.config.mode.value,
        consumer_states=tuple(states),
        routing=Routing(tuple(groups)),
    )


def _consumer_state(app: App, attempts_max: int, *, known: bool) -> ConsumerState:
    consumers = tuple(
        RouterConsumer(each.priority, _client(each), each.count, printable(each.text))
        for stream in app.streams
        for each in stream.subscriptions
    )
    at_end = next(app.waiting(), None) is None
    app_id = printable(app.app_id)
    return ConsumerState(
        app_id=app_id,
        status="unauthorized" if not known else "alive" if app.streams else "registered",
        is_at_end_of_storage=at_end if known else None,
        app_state=AppState(
            app_id,
            len(app.streams),
            len(app.redelivery),
            RoundRobinRouter(consumers),
            _failing(app, attempts_max),
        ),
    )


def _failing(app: App, attempts_max: int) -> FailingMessages | None:
    """Return a summary of returned messages; None if there are none, or their attempts do not count."""
    if not app.attempts or not attempts_max:
        return None
    guid, left = min(islice(app.attempts.items(), FAILING_SEEN_MAX), key=itemgetter(1))
    return FailingMessages(len(app.attempts), attempts_max, guid.hex().upper(), left)


def _client(subscription: Subscription) -> QueueHandle:
    description = printable(subscription.stream.sink.description)
    return QueueHandle(description, "", is_client_cluster_member=False, sub_streams=())


def _group(number: int, group: Group) -> SubscriptionGroup:
    infos = tuple(
        SubscriptionInfo(each.subscription_id, _limits(each), Subscriber(each.stream.sub_queue_id))
        for each in group.subscriptions
    )
    return SubscriptionGroup(group.group_id, printable(group.text), number, PriorityGroup(group.group_id, infos))
