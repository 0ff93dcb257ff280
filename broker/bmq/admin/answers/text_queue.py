"""The internals of a queue as text, in the reference's layout (source: mqbcmd::HumanPrinter)."""

from __future__ import annotations

from collections.abc import Iterable

from broker.bmq.admin.answers.results_queue import (
    AppState,
    CapacityMeter,
    QueueEngine,
    QueueHandle,
    QueueInternalsResult,
    QueueState,
    UsageMonitor,
)
from broker.bmq.core.pretty import pretty_bytes, pretty_number

__all__ = ["capacity_meter", "queue_internals", "yes_no"]

INDENT = "    "

# Number of a queue id that is not a client's (bmqp::QueueId).
UNASSIGNED_QUEUE_ID = 0xFFFF_FFFF
PRIMARY_QUEUE_ID = 0xFFFF_FFFE


def yes_no(flag: bool) -> str:
    """Format a boolean as C++ streams print it."""
    return "true" if flag else "false"


def capacity_meter(meter: CapacityMeter, level: int) -> Iterable[str]:
    """Format a meter, and the one that it counts against."""
    margin = INDENT * level
    if meter.is_disabled:
        yield f"{margin}[ ** DISABLED ** ]"
        return
    reserved = f", reserved: {pretty_number(meter.num_messages_reserved)}" if meter.num_messages_reserved else ""
    yield f"{margin}{meter.name}:"
    yield (
        f"{margin}    Messages: [current: {pretty_number(meter.num_messages)}, "
        f"limit: {pretty_number(meter.message_capacity)}{reserved}]"
    )
    reserved = f", reserved: {pretty_bytes(meter.num_bytes_reserved)}" if meter.num_bytes_reserved else ""
    yield (
        f"{margin}    Bytes   : [current: {pretty_bytes(meter.num_bytes)}, "
        f"limit: {pretty_bytes(meter.byte_capacity)}{reserved}]"
    )
    if meter.parent is not None:
        yield from capacity_meter(meter.parent, level)


def queue_internals(result: QueueInternalsResult) -> Iterable[str]:
    yield "Queue Internals"
    yield "---------------"
    yield from _state(result.state)
    yield "    LocalQueue:"
    yield "    -----------"
    yield from _engine(result.engine)


def _state(state: QueueState) -> Iterable[str]:
    numbers = {UNASSIGNED_QUEUE_ID: "unassigned", PRIMARY_QUEUE_ID: "primary"}
    margin = INDENT * 2
    yield "    State:"
    yield "    ------"
    yield f"{margin}URI ...............: {state.uri}"
    yield f"{margin}Handle Parameters .: {state.handle_parameters_json}"
    yield f"{margin}Stream Parameters .: {state.stream_parameters_json}"
    yield f"{margin}Id/Key ............: {numbers.get(state.id, str(state.id))} ~ {state.key}"
    yield f"{margin}PartitionId .......: {state.partition_id}"
    storage = state.storage
    if storage is None:
        yield f"{margin}Storage ...........: none"
    else:
        size = f"{pretty_number(storage.num_messages)} messages, {pretty_bytes(storage.num_bytes)}"
        yield f"{margin}Storage ...........: {size}"
        yield f"{margin}    Num virtual storages: {len(storage.virtual_storages)}"
        for each in storage.virtual_storages:
            count = pretty_number(each.num_messages)
            yield f"{margin}    {each.app_id} : [appKey: {each.app_key}, numMessages: {count}]"
    yield f"{margin}Capacity Meter ....:{'' if state.capacity_meter else 'none'}"
    if state.capacity_meter is not None:
        yield from capacity_meter(state.capacity_meter, 3)
    yield ""
    yield "    QueueHandleCatalog:"
    yield "    -------------------"
    yield f"{INDENT * 3}{len(state.handles)} handles:"
    for number, handle in enumerate(state.handles, 1):
        yield f"{INDENT * 4}{number}. {handle.client_description}"
        yield from _handle(handle, 5)
    yield ""


def _handle(handle: QueueHandle, level: int) -> Iterable[str]:
    margin = INDENT * level
    yield f"{margin}Handle Parameters .....: {handle.parameters_json}"
    yield f"{margin}IsClientClusterMember .: {yes_no(handle.is_client_cluster_member)}"
    for stream in handle.sub_streams:
        yield f"{margin}subId .................: {stream.sub_id}"
        if stream.app_id is not None:
            yield f"{margin}appId .................: {stream.app_id}"
        yield f"{margin}Stream Parameters .....: {stream.parameters_json}"
        yield f"{margin}UnconfirmedMonitors ...:"
        yield f"{margin}    --------"
        for monitor in stream.unconfirmed_monitors:
            yield f" {_monitor(monitor)}"
        if stream.num_unconfirmed_messages is not None:
            yield f"{margin}UnconfirmedMessages ...: {pretty_number(stream.num_unconfirmed_messages)}"


def _monitor(monitor: UsageMonitor) -> str:
    low, high, limit = (
        pretty_number(monitor.messages_low_watermark_ratio * monitor.messages_capacity),
        pretty_number(monitor.messages_high_watermark_ratio * monitor.messages_capacity),
        pretty_number(monitor.messages_capacity),
    )
    low_bytes, high_bytes, limit_bytes = (
        pretty_bytes(monitor.bytes_low_watermark_ratio * monitor.bytes_capacity),
        pretty_bytes(monitor.bytes_high_watermark_ratio * monitor.bytes_capacity),
        pretty_bytes(monitor.bytes_capacity),
    )
    return (
        f"{monitor.state} [Messages ({monitor.messages_state}): {pretty_number(monitor.num_messages)} "
        f"({low} - {high} - {limit}), Bytes ({monitor.bytes_state}): {pretty_bytes(monitor.num_bytes)} "
        f"({low_bytes} - {high_bytes} - {limit_bytes})] "
    )


def _engine(engine: QueueEngine) -> Iterable[str]:
    yield f"{INDENT * 2}FanoutQueueEngine ({engine.mode}):"
    yield f"{INDENT * 2}-----------------"
    if engine.max_consumers:
        yield f"{INDENT * 3} (maxConsumers: {engine.max_consumers})"
    longest = max((len(each.app_id) for each in engine.consumer_states), default=0)
    for each in engine.consumer_states:
        at_end = ""
        if each.is_at_end_of_storage is not None:
            at_end = f", StorageIter.atEnd={yes_no(each.is_at_end_of_storage)}"
        yield f"{INDENT * 3}{each.app_id:<{longest}}: status={each.status}{at_end}"
        yield f"{INDENT * 3}{'-' * longest}"
        yield from _app(each.app_state, 4)
    yield ""


def _app(app: AppState, level: int) -> Iterable[str]:
    margin = INDENT * level
    yield f"{margin}Consumers .........: {app.num_consumers}"
    yield f"{margin}RedeliveryList ....: {app.redelivery_list_length}"
    yield f"{margin}RoundRobinRouter ..:"
    for consumer in app.round_robin_router.consumers:
        expression = f", expression: {consumer.expression}" if consumer.expression else ""
        yield (
            f"{margin}    {consumer.queue_handle.client_description} "
            f"[priority: {consumer.priority}, count: {consumer.count}{expression}]"
        )
