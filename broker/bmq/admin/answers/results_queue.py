"""Results about the internals of a queue (source: mqbcmd.xsd, type `QueueInternals`); see `admin.results`."""

from __future__ import annotations

from dataclasses import field

from formats.record import record

__all__ = [
    "AppState",
    "CapacityMeter",
    "ConsumerLimits",
    "ConsumerState",
    "FailingMessages",
    "PriorityGroup",
    "QueueEngine",
    "QueueHandle",
    "QueueHandleSubStream",
    "QueueInternalsResult",
    "QueueState",
    "QueueStorage",
    "RoundRobinRouter",
    "RouterConsumer",
    "Routing",
    "Subscriber",
    "SubscriptionGroup",
    "SubscriptionInfo",
    "UsageMonitor",
    "VirtualStorage",
]


@record
class CapacityMeter:
    name: str
    is_disabled: bool
    num_messages: int
    message_capacity: int
    num_messages_reserved: int
    num_bytes: int
    byte_capacity: int
    num_bytes_reserved: int
    parent: CapacityMeter | None = None


@record
class UsageMonitor:
    """The usage of a resource: its state is STATE_NORMAL, STATE_HIGH_WATERMARK or STATE_FULL.

    The ratios are whole numbers in the schema, so the reference gives 0 for all below 1.
    """

    state: str
    messages_state: str
    num_messages: int
    messages_low_watermark_ratio: int
    messages_high_watermark_ratio: int
    messages_capacity: int
    bytes_state: str
    num_bytes: int
    bytes_low_watermark_ratio: int
    bytes_high_watermark_ratio: int
    bytes_capacity: int


@record
class QueueHandleSubStream:
    """A sub-stream of a handle; `parameters_json` is the reference's print of the parameters."""

    sub_id: int
    app_id: str | None
    parameters_json: str
    unconfirmed_monitors: tuple[UsageMonitor, ...]
    num_unconfirmed_messages: int | None


@record
class QueueHandle:
    client_description: str
    parameters_json: str
    is_client_cluster_member: bool
    sub_streams: tuple[QueueHandleSubStream, ...]


@record
class VirtualStorage:
    app_id: str
    app_key: str
    num_messages: int


@record
class QueueStorage:
    num_messages: int
    num_bytes: int
    virtual_storages: tuple[VirtualStorage, ...]


@record
class QueueState:
    uri: str
    handle_parameters_json: str
    stream_parameters_json: str
    id: int
    key: str
    partition_id: int
    storage: QueueStorage | None
    capacity_meter: CapacityMeter | None
    handles: tuple[QueueHandle, ...]


@record
class RouterConsumer:
    priority: int
    queue_handle: QueueHandle
    count: int
    expression: str


@record
class RoundRobinRouter:
    consumers: tuple[RouterConsumer, ...]


@record
class FailingMessages:
    """Messages that came back from consumers, and one of the oldest with fewest attempts left."""

    num_messages: int
    max_delivery_attempts: int
    guid: str
    attempts_left: int


@record
class AppState:
    """The state of an app. `failing` is ours: the reference has no such element."""

    app_id: str
    num_consumers: int
    redelivery_list_length: int
    round_robin_router: RoundRobinRouter
    failing: FailingMessages | None = None


@record
class ConsumerState:
    """An app's consumers. `status` is alive, registered (no consumer), or unauthorized (not an app of the domain)."""

    app_id: str
    status: str
    is_at_end_of_storage: bool | None
    app_state: AppState


@record
class ConsumerLimits:
    max_unconfirmed_messages: int
    max_unconfirmed_bytes: int
    consumer_priority: int
    consumer_priority_count: int


@record
class Subscriber:
    downstream_sub_queue_id: int


@record
class SubscriptionInfo:
    downstream_subscription_id: int
    consumer: ConsumerLimits
    subscriber: Subscriber


@record
class PriorityGroup:
    id: int
    highest_subscriptions: tuple[SubscriptionInfo, ...]


@record
class SubscriptionGroup:
    id: int
    expression: str
    upstream_sub_queue_id: int
    priority_group: PriorityGroup | None = None


@record
class Routing:
    subscription_groups: tuple[SubscriptionGroup, ...]


@record
class QueueEngine:
    """A queue's engine. The reference has one for all modes, with the name of one of them."""

    max_consumers: int
    mode: str
    consumer_states: tuple[ConsumerState, ...]
    routing: Routing = field(metadata={"json": "Routing"})


@record
class QueueInternalsResult:
    state: QueueState
    engine: QueueEngine
