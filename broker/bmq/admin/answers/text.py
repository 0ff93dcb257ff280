"""Results as text for people, in the reference's layout (source: mqbcmd::HumanPrinter)."""

from __future__ import annotations

from collections.abc import Iterable

from broker.bmq.admin.answers.results import (
    BrokerConfig,
    ClusterHealthResult,
    ClusterList,
    ClusterNodeInfo,
    ClusterProxyStatusResult,
    ClusterStatusResult,
    ClusterStorageSummary,
    DomainInfo,
    ElectorInfo,
    FileInfo,
    FileStore,
    HelpResult,
    MessageContents,
    PartitionInfo,
    Problem,
    PurgedQueue,
    PurgedQueues,
    QueueContents,
    QueueHelperResult,
    Result,
    Stats,
    StorageContent,
    Success,
    Tunable,
    TunableConfirmation,
    Tunables,
)
from broker.bmq.admin.answers.results_queue import (
    QueueInternalsResult,
)
from broker.bmq.admin.answers.text_queue import capacity_meter, queue_internals, yes_no
from broker.bmq.admin.commands import Value
from broker.bmq.core.pretty import pretty_bytes, pretty_number

__all__ = ["to_text"]

INDENT = "    "


def to_text(result: Result) -> str:
    match result:
        case Problem(message):
            return message
        case Success():
            return "SUCCESS"
        case HelpResult():
            return _help(result)
        case BrokerConfig(as_json):
            return as_json
        case Stats(text):
            return text
        case Tunable():
            return f"{result.name} = {_value(result.value)}"
        case Tunables():
            return _tunables(result)
        case TunableConfirmation():
            return f"{result.name} set to {_value(result.new_value)} from {_value(result.old_value)}"
        case PurgedQueues():
            return _purged(result)
        case QueueContents():
            return _contents(result)
        case MessageContents():
            return _message(result)
        case StorageContent():
            return "\n".join(_storages(result, 0))
        case ClusterStorageSummary():
            return "\n".join(_storage_summary(result, 0))
        case DomainInfo():
            return "\n".join(_domain(result))
        case ClusterList():
            return _cluster_list(result)
        case ClusterStatusResult():
            return "\n".join(_cluster_status(result))
        case ClusterProxyStatusResult():
            return "\n".join(_proxy_status(result))
        case ClusterHealthResult():
            return "\n".join(_health(result))
        case QueueHelperResult():
            return "\n".join(_queue_helper(result))
        case QueueInternalsResult():
            return "\n".join(queue_internals(result))


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _help(result: HelpResult) -> str:
    if result.is_plumbing:
        return "".join(f"{each.command} - {each.description}\n" for each in result.commands)
    lines = "".join(f"    {each.command}\n        {each.description}\n" for each in result.commands)
    return f"This process responds to the following CMD subcommands:\n{lines}"


def _tunables(result: Tunables) -> str:
    longest = max((len(each.name) for each in result.tunables), default=0)
    return "".join(
        f"{each.name}{':'.rjust(longest - len(each.name) + 3, '.')} {_value(each.value)}\n    {each.description}\n"
        for each in result.tunables
    )


def _purged(result: PurgedQueues) -> str:
    if not result.queues:
        return "No queue purged."
    purged = [each for each in result.queues if isinstance(each, PurgedQueue)]
    purged.sort(key=lambda each: -each.num_bytes_purged)
    messages = sum(each.num_messages_purged for each in purged)
    size = sum(each.num_bytes_purged for each in purged)
    lines = [
        f"Purged {pretty_number(messages)} message(s) for a total of {pretty_bytes(size)} from "
        f"{len(result.queues)} queue(s):",
        "    NumBytes     NumMsgs      AppKey             AppId  QueueName",
    ]
    lines += [
        f"  {pretty_bytes(each.num_bytes_purged):>10}  {pretty_number(each.num_messages_purged):>10}  {each.app_key}  "
        f"{each.app_id:>16}  {each.queue_uri}"
        for each in purged
    ]
    problems = [each.message for each in result.queues if isinstance(each, Problem)]
    if problems:
        lines += ["Errors encountered: ", *problems]
    return "\n".join(lines)


def _contents(result: QueueContents) -> str:
    count, total = len(result.messages), result.total_queue_messages
    last = min(result.offset + count, total) - 1
    lines = [
        f"Printing {count} message(s) [{result.offset}-{last} / {pretty_number(total)}] "
        f"(total: {pretty_bytes(sum(each.size_bytes for each in result.messages))})",
        "       GUID                              Size        Timestamp (UTC)",
    ]
    lines += [
        f"{number:>5}: {each.guid:>32}  {pretty_bytes(each.size_bytes):>10}  "
        f"{each.arrival_timestamp:%d%b%Y_%H:%M:%S.%f%z}".upper()
        for number, each in enumerate(result.messages, result.offset)
    ]
    return "\n".join(lines) + "\n"


def _message(result: MessageContents) -> str:
    lines = [
        f"Message {result.guid}",
        f"    Size.............: {pretty_bytes(result.size_bytes)}",
        f"    Timestamp (UTC)..: {result.arrival_timestamp:%d%b%Y_%H:%M:%S.%f%z}",
        f"    Compression......: {result.compression}",
        f"    Has properties...: {yes_no(result.has_properties)}",
        f"    Not confirmed by.: {', '.join(result.apps)}",
        f"    Data (base64)....: {result.data}",
    ]
    return "\n".join(lines) + "\n"


def _storages(result: StorageContent, level: int) -> Iterable[str]:
    if not result.storages:
        return
    margin = INDENT * level
    yield f"{margin} QueueKey    Partition    NumMsgs    NumBytes                QueueUri"
    for each in result.storages:
        kind = "" if each.is_persistent else "  (non-persistent)"
        yield (
            f"{margin}{each.queue_key} {each.partition_id:>7}      {pretty_number(each.num_messages):>8}  "
            f"{pretty_bytes(each.num_bytes):>10}    {each.queue_uri}{kind}"
        )


def _domain(result: DomainInfo) -> Iterable[str]:
    yield "Domain:"
    yield "-------"
    yield f"    Name ............: {result.name}"
    yield "    Config ..........:"
    yield result.config_json
    yield f"    Cluster .........: {result.cluster_name}"
    yield "    Capacity Meter ..: "
    yield from capacity_meter(result.capacity_meter, 2)
    yield "    Queues ..........: "
    yield "    ------------------"
    yield f"        ActiveQueues ..: {len(result.queue_uris)}"
    for number, uri in enumerate(result.queue_uris):
        yield f"         {number:>3}. {uri}"
    yield ""
    yield "Storage ......."
    yield f"    Number of assigned queue-storages: {len(result.storage_content.storages)}"
    yield from _storages(result.storage_content, 2)


def _storage_summary(result: ClusterStorageSummary, level: int) -> Iterable[str]:
    margin = INDENT * level
    yield f"{margin}Storage Summary:"
    yield f"{margin}----------------"
    yield f"{margin}    Storage location: {result.cluster_file_store_location}"
    yield ""
    for store in result.file_stores:
        if store.state != "open":
            state = "STOPPING" if store.state == "stopping" else "NOT OPEN"
            yield f"{margin}Partition [{store.partition_id}]: {state}."
        else:
            yield from _file_store(store, level + 1)
            yield ""


def _file_store(store: FileStore, level: int) -> Iterable[str]:
    summary = store.summary
    margin = INDENT * level
    inner = margin + INDENT
    yield f"{margin}Partition [{store.partition_id}]:"
    yield f"{margin}----------------"
    yield (
        f"{inner}Primary Node: {summary.primary_node_description}, PSN: [ primaryLeaseId = {summary.primary_lease_id} "
        f"sequenceNumber = {summary.sequence_num}]"
    )
    yield f"{inner}IsAvailable: {yes_no(summary.is_available)}"
    yield f"{inner}Total maintained file sets: {len(summary.file_sets)}"
    yield ""
    yield f"{inner}Aliased payload count: "
    for each in summary.file_sets:
        yield f"{inner}    {each.data_file_name} : {pretty_number(each.aliased_blob_buffer_count)}"
    yield ""
    yield f"{inner}Active file set details: "
    active = summary.active_file_set
    for name, info in (("Data", active.data_file), ("Journal", active.journal_file), ("Qlist", active.qlist_file)):
        yield f"{inner}    {_file(name, info)}"
    yield ""
    yield f"{inner}Total mapped size      : {pretty_bytes(summary.total_mapped_bytes)}"
    yield f"{inner}Num outstanding records: {pretty_number(summary.num_outstanding_records)}"
    yield f"{inner}Num unreceipted messages: {pretty_number(summary.num_unreceipted_messages)}"
    yield f"{inner}Current Nagle count: {pretty_number(summary.nagle_packet_count)}"
    yield ""
    yield f"{inner}Number of assigned queue-storages: {pretty_number(len(summary.storage_content.storages))}"
    yield from _storages(summary.storage_content, level + 2)


def _file(name: str, info: FileInfo) -> str:
    title = f"{name} file size".ljust(17)
    percent = info.position_bytes * 100 // info.size_bytes
    return (
        f"{title} (used/total): {pretty_bytes(info.position_bytes)} / {pretty_bytes(info.size_bytes)}  ({percent} %). "
        f"Outstanding bytes: {pretty_number(info.outstanding_bytes)}"
    )


def _cluster_list(result: ClusterList) -> str:
    lines = ["The following clusters are active:"]
    for cluster in result.clusters:
        lines.append(f"    [{cluster.locality.upper():<6}] {cluster.name}:")
        lines += [f"        {node.host_name:<20}{node.node_id:<7}{node.data_center:<14}" for node in cluster.nodes]
        lines.append("")
    return "\n".join(lines)


def _cluster_status(result: ClusterStatusResult) -> Iterable[str]:
    yield f"Cluster ('{result.name}') :"
    yield "-" * (len("---------") + len(result.name) + 5)
    yield f"    Cluster name  : {result.description}"
    yield f"    Cluster size  : {len(result.node_statuses.nodes)} node(s)"
    yield f"    Self Node     : {result.self_node_description}"
    yield f"    Is Healthy    : {'Yes' if result.is_healthy else 'No'}"
    yield ""
    yield from _nodes(result.node_statuses.nodes)
    yield ""
    yield from _elector(result.elector_info)
    yield ""
    yield from _partitions(result.partitions_info.partitions)
    yield ""
    yield from _queues(result.queues_info)
    yield ""
    yield from _storage_summary(result.cluster_storage_summary, 1)


def _proxy_status(result: ClusterProxyStatusResult) -> Iterable[str]:
    yield "Cluster"
    yield "-------"
    yield f"    Cluster name: {result.description}"
    yield f"    Active node : {result.active_node_description or '* none *'}"
    yield f"    Is Healthy  : {'Yes' if result.is_healthy else 'No'}"
    yield ""
    yield from _nodes(result.node_statuses.nodes)
    yield ""
    yield from _queues(result.queues_info)


def _health(result: ClusterHealthResult) -> Iterable[str]:
    view = result.view
    leader = "none" if view.leader_node_id is None else f"node {view.leader_node_id}"
    yield f"Cluster '{view.name}', as node {view.node_id} sees it: {'healthy' if result.is_healthy else 'not healthy'}"
    yield from (f"    {problem}" for problem in result.problems)
    yield f"    Leader: {leader} in term {view.term}; this node is {view.role}"
    for node in view.nodes:
        yield f"    Node {node.node_id}: {node.status}{' (self)' if node.is_self else ''}"
    for each in view.partitions:
        primary = "none" if each.primary_node_id is None else f"node {each.primary_node_id}"
        yield (
            f"    Partition {each.partition_id}: primary {primary}, lease {each.primary_lease_id}, "
            f"{'active' if each.is_active else 'not active'}; here {each.state} at "
            f"({each.lease_id}, {each.sequence_number})"
        )
        for replica in each.replicas:
            lag = "unknown" if replica.lag_records is None else f"{replica.lag_records} records"
            yield f"        Node {replica.node_id}: {'live' if replica.is_live else 'not live'}, behind by {lag}"


def _nodes(nodes: tuple[ClusterNodeInfo, ...]) -> Iterable[str]:
    yield "    Nodes"
    yield "    -----"
    for node in nodes:
        connected = "self" if node.is_available is None else yes_no(node.is_available)
        yield f"    {node.description}"
        yield f"        IsConnected: {connected}"
        yield f"        Node Status: {node.status}"
        if node.primary_for_partition_ids:
            yield f"        Primary for partitions: [ {', '.join(map(str, node.primary_for_partition_ids))} ]"


def _elector(info: ElectorInfo) -> Iterable[str]:
    yield "    Elector"
    yield "    -------"
    yield f"    Self State            : {info.elector_state}"
    yield f"    Leader Node           : {info.leader_node}"
    number = info.leader_message_sequence
    yield f"    LSN: [ electorTerm = {number.elector_term} sequenceNumber = {number.sequence_number} ]"
    yield f"    Leader Status         : {info.leader_status}"


def _partitions(partitions: tuple[PartitionInfo, ...]) -> Iterable[str]:
    yield "    Partitions"
    yield "    ----------"
    for number, each in enumerate(partitions):
        yield f"    PartitionId: {number}"
        yield f"        Num Queues    : mapped ({each.num_queues_mapped}), active ({each.num_active_queues})"
        yield f"        Primary Node   : {each.primary_node or '[ ** NONE ** ]'}"
        yield f"        Primary LeaseId: {each.primary_lease_id}"
        yield f"        Primary Status : {each.primary_status}"


def _queues(content: StorageContent) -> Iterable[str]:
    yield "    Queues"
    yield "    ------"
    yield f"    Num Queues: {len(content.storages)}"
    if content.storages:
        yield "     QueueKey    Partition    Internal QueueId          QueueUri"
    for each in content.storages:
        yield (
            f"    {each.queue_key}       {each.partition_id}           {each.internal_queue_id:>10}       "
            f"{each.queue_uri}"
        )


def _queue_helper(result: QueueHelperResult) -> Iterable[str]:
    yield "ClusterQueueHelper :"
    yield "--------------------"
    yield f"    cluster......................: {result.cluster_name} ({result.locality})"
    yield f"    nbQueues.....................: {result.num_queues}"
    yield f"    nbQueueKeys..................: {result.num_queue_keys}"
    yield f"    nbPendingReopenQueueRequests.: {result.num_pending_reopen_queue_requests}"
    yield ""
    yield "    Domains :"
    yield "    ---------"
    longest = max((len(each.name) for each in result.domains), default=0)
    for domain in result.domains:
        loaded = "" if domain.loaded else " (domain not yet loaded)"
        yield f"        {domain.name:.<{longest}}: numAssignedQueues={domain.num_assigned_queues}{loaded}"
    yield ""
    yield "    Queues :"
    yield "    --------"
    for queue in result.queues:
        yield f"        {queue.uri}"
        margin = INDENT * 3
        yield f"{margin}inFlightContexts.: {queue.num_in_flight_contexts}"
        yield f"{margin}assigned.........: {yes_no(queue.is_assigned)}"
        yield f"{margin}primaryAvailable..: {yes_no(queue.is_primary_available)}"
        yield f"{margin}id...............: {queue.id}"
        yield f"{margin}subIds...........: {', '.join(f'({each.sub_id}, {each.app_id})' for each in queue.sub_ids)}"
        yield f"{margin}partitionId......: {queue.partition_id}{queue.primary_node_description or ''}"
        yield f"{margin}key..............: {queue.key}"
        yield f"{margin}queue............: {'created' if queue.is_created else '*NOT* created'}"
        yield f"{margin}nbContext........: 0"
