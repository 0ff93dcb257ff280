"""Commands on domains and their queues (source: mqba::DomainManager, mqbblp::Domain, mqbc::StorageUtil)."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from itertools import islice

from broker.bmq.admin.answers.json_form import dumped
from broker.bmq.admin.answers.results import (
    DomainInfo,
    ListedMessage,
    MessageContents,
    Problem,
    PurgedQueue,
    PurgedQueues,
    QueueContents,
    Result,
    Success,
)
from broker.bmq.admin.answers.results_queue import (
    QueueInternalsResult,
)
from broker.bmq.admin.commands import QueueList, QueueMessage
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.queues import domain_meter, queue_internals, queue_uri
from broker.bmq.admin.storage import domain_storages, primary_elsewhere
from broker.bmq.core.messages import Full
from broker.bmq.node.changes import collect_idle_queues
from broker.bmq.node.changes import reconfigure as reconfigure_domain
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.reports import arrival_time
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control.messages import QueueInfo
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.uri import parse_uri

__all__ = [
    "clear_cache",
    "domain_infos",
    "internals",
    "list_messages",
    "purge_domain",
    "purge_queue",
    "reconfigure",
    "remove",
    "show_message",
]

ALL_APPS = "*"
# Larger messages are not shown, since the answer is made in one step.
SHOWN_BYTES_MAX = 1 << 20
GUID_HEX = 32


def find_domain(context: CommandContext, name: str) -> DomainInUse:
    """Return a domain, read from its file if it is not in use. Raises `Failed` if there is none."""
    try:
        domain = context.node.domain(name)
    except ValueError as error:
        raise Failed(str(error)) from None
    if domain is None:
        raise Failed(f"Domain '{name}' doesn't exist")
    return domain


def domain_infos(context: CommandContext, name: str) -> DomainInfo:
    """Return a domain's configuration, its usage, its queues in use, and its queues with messages."""
    domain = find_domain(context, name)
    active = sorted(queue.uri for queue in queues_of(context, domain) if queue.upkeep.was_opened)
    return DomainInfo(
        name=domain.config.name,
        config_json=dumped(domain.config.shown, pretty=True, indent=2),
        cluster_name=context.cluster_name,
        capacity_meter=domain_meter(domain),
        queue_uris=tuple(active),
        storage_content=domain_storages(context, domain.config.name),
    )


def queues_of(context: CommandContext, domain: DomainInUse) -> list[Queue]:
    return [queue for queue in context.node.queues.values() if queue.config.name == domain.config.name]


def internals(context: CommandContext, domain_name: str, queue_name: str) -> QueueInternalsResult:
    return queue_internals(context, active_queue(context, domain_name, queue_name))


def active_queue(context: CommandContext, domain_name: str, queue_name: str) -> Queue:
    """Return a queue that was opened since the node started. Raises `Failed`."""
    queue = _known_queue(context, domain_name, queue_name)
    if not queue.upkeep.was_opened:
        raise _not_found(queue_name, queue.config.name)
    return queue


def _known_queue(context: CommandContext, domain_name: str, queue_name: str) -> Queue:
    """Return a queue of this node, opened or stored. Raises `Failed` if there is none."""
    domain = find_domain(context, domain_name)
    queue = context.node.queues.get(queue_uri(domain, queue_name))
    if queue is None:
        raise _not_found(queue_name, domain.config.name)
    return queue


def _not_found(queue: str, domain: str) -> Failed:
    return Failed(f"Queue '{queue}' was not found on domain '{domain}'")


# -- messages


def list_messages(context: CommandContext, command: QueueList) -> QueueContents:
    """List messages of a queue, or the messages that one of its apps has yet to confirm, oldest first.

    A node with only a copy of the queue lists that, or, if its own consumers have the queue open, the messages that it
    holds for them. Unlike the reference, a primary also lists queues not opened since it started.
    """
    copied = _copied_queue(context, command)
    if copied is not None:
        return _list_copied(context, copied, command)
    queue = _known_queue(context, command.domain, command.queue)
    bits, total = -1, len(queue.messages)
    if command.app_id is not None and command.app_id != DEFAULT_APP_ID:
        app = queue.apps.get(command.app_id)
        if app is None:
            raise Failed("Invalid 'LIST' command: invalid APPID")
        bits, total = app.bit, app.messages
    offset, count = _section(command, total)
    listed = tuple(
        ListedMessage(message.guid.hex().upper(), message.size, arrival_time(message, context.node.now))
        for message in islice(queue.messages.peek(bits, offset), count)
    )
    return QueueContents(listed, offset, total)


def _section(command: QueueList, total: int) -> tuple[int, int]:
    offset = command.offset if command.offset >= 0 else max(0, total + command.offset)
    count = command.count or max(0, total - offset)
    return (offset, count) if count >= 0 else (max(0, offset + count), -count)


def _copied_queue(context: CommandContext, command: QueueList) -> QueueInfo | None:
    """Return the queue if this node only has a copy of it and no client has it open here."""
    uri = queue_uri(find_domain(context, command.domain), command.queue)
    info = context.node.ledger.state.queues.get(uri)
    if info is None or uri in context.node.queues or context.node.role.copied(info.partition_id) is None:
        return None
    return info


def _list_copied(context: CommandContext, info: QueueInfo, command: QueueList) -> QueueContents:
    if command.app_id is not None and command.app_id != DEFAULT_APP_ID:
        primary = primary_elsewhere(context, info.partition_id)
        raise Failed(f"Not listing messages of an app of queue '{info.uri}' {primary}")
    stored = context.node.role.copied(info.partition_id) or {}
    total, _ = stored.get(info.key, (0, 0))
    offset, count = _section(command, total)
    copied = context.node.role.list_copied(info.partition_id, info.key, offset, count)
    listed = tuple(
        ListedMessage(guid.hex().upper(), size, datetime.fromtimestamp(arrived_s, UTC))
        for guid, size, arrived_s in copied
    )
    return QueueContents(listed, offset, total)


def show_message(context: CommandContext, command: QueueMessage) -> MessageContents:
    domain = find_domain(context, command.domain)
    uri = queue_uri(domain, command.queue)
    elsewhere = _served_elsewhere(context, domain).get(uri)
    if elsewhere is not None:
        raise Failed(elsewhere.message.replace("Not purging", "Not showing messages of", 1))
    queue = context.node.queues.get(uri)
    if queue is None or not queue.is_root:
        raise _not_found(command.queue, domain.config.name)
    message = queue.messages.get(_guid(command.guid))
    if message is None:
        raise Failed(f"Queue '{uri}' has no message {command.guid[:GUID_HEX]}")
    if message.size > SHOWN_BYTES_MAX:
        raise Failed(f"The message has {message.size} bytes, and at most {SHOWN_BYTES_MAX} are shown: consume it")
    data = queue.log.read_sound(message)
    if data is None:
        raise Failed("The message does not have its checksum: its payload is corrupted")
    return MessageContents(
        message.guid.hex().upper(),
        message.size,
        arrival_time(message, context.node.now),
        message.compression,
        message.has_properties,
        message.schema_id,
        tuple(app.app_id for app in queue.apps.values() if message.outstanding & app.bit),
        b64encode(data).decode("ascii"),
    )


def _guid(text: str) -> bytes:
    try:
        return bytes.fromhex(text) if len(text) == GUID_HEX else b""
    except ValueError:
        return b""


def purge_domain(context: CommandContext, name: str) -> PurgedQueues:
    """Remove all messages from all queues of a domain, in use or not, that this node serves; list the others."""
    domain = find_domain(context, name)
    elsewhere = _served_elsewhere(context, domain)
    here = (queue for queue in queues_of(context, domain) if queue.uri not in elsewhere)
    return PurgedQueues((*(_purge(queue) for queue in here), *elsewhere.values()))


def purge_queue(context: CommandContext, domain_name: str, queue_name: str, app_id: str) -> PurgedQueues:
    """Remove the messages that an app has yet to confirm, or all messages of the queue."""
    domain = find_domain(context, domain_name)
    uri = queue_uri(domain, queue_name)
    elsewhere = _served_elsewhere(context, domain).get(uri)
    if elsewhere is not None:
        return PurgedQueues((elsewhere,))
    queue = context.node.queues.get(uri)
    if queue is None:
        raise Failed(f"Queue was not found in a storage '{uri}'")
    return PurgedQueues((_purge(queue, "" if app_id == ALL_APPS else app_id),))


def _served_elsewhere(context: CommandContext, domain: DomainInUse) -> dict[str, Problem]:
    """Return the queues of a domain that this node does not serve, and therefore does not purge, by URI."""
    found = {}
    for uri, info in sorted(context.node.ledger.state.queues.items()):
        if parse_uri(uri).qualified_domain == domain.config.name:
            primary = primary_elsewhere(context, info.partition_id)
            if primary is not None:
                found[uri] = Problem(f"Not purging queue '{uri}' {primary}")
    return found


def _purge(queue: Queue, app_id: str = "") -> PurgedQueue | Problem:
    app = queue.apps.get(app_id)
    if app_id and app is None:
        return Problem(f"Specified appId '{app_id}' not found in the storage of queue '{queue.uri}'.")
    key = (app.key if app else NULL_KEY).hex().upper()
    try:
        messages, size = purge_app(queue, app) if app else purge(queue)
    except Full as full:
        return Problem(f"Failed to purge appId '{app_id}', appKey '{key}' of queue '{queue.uri}' [reason: {full}]")
    return PurgedQueue(queue.uri, app_id, key, messages, size)


# -- configurations


def reconfigure(context: CommandContext, name: str) -> Success:
    domain = find_domain(context, name)
    try:
        config = context.node.resolve_domain(domain.config.name)
        if config is None:
            raise Failed(f"Domain '{name}' doesn't exist")
        reconfigure_domain(context.node, domain, config)
    except (ValueError, Full) as error:
        raise Failed(str(error)) from None
    return Success()


def clear_cache(context: CommandContext, name: str | None) -> Success:
    """Drop cached resolutions of one domain, or of all (None)."""
    if not context.environment.forget_domain(name):
        raise Failed(f"Domain '{name}' doesn't exist")
    return Success()


def remove(context: CommandContext, name: str, *, finalize: bool) -> Result:
    """Remove a domain, in two steps; see the table of commands."""
    if finalize:
        return _finalize_removal(context, name)
    domain = find_domain(context, name)
    # From here on no queue can be opened, so that all are closed at some time.
    domain.removing = True
    queues = queues_of(context, domain)
    if any(queue.is_open for queue in queues):
        raise Failed(f"Trying to remove the domain '{name}' while there are queues opened or opening")
    purged = PurgedQueues(tuple(_purge(queue) for queue in queues))
    try:
        collect_idle_queues(context.node, 0, domain.config.name)
    except Full as full:
        raise Failed(f"Failed to force GC queues on domain '{name}' ({full})") from None
    domain.removed = not any(queue.uri in context.node.queues for queue in queues)
    return purged


def _finalize_removal(context: CommandContext, name: str) -> Success:
    domains = context.node.domains
    domain = domains.get(name)
    if domain is None:
        raise Failed(f"Domain '{name}' doesn't exist")
    if not domain.removed:
        raise Failed(f"First round of DOMAINS REMOVE '{name}' is not completed.")
    for alias in [alias for alias, known in domains.items() if known is domain]:
        del domains[alias]
        context.environment.forget_domain(alias)
    return Success()
