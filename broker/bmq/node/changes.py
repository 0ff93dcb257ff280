# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Changes while a node runs: domains are reconfigured, unused queues are deleted.

The ledger changes first, then the journal, then the node. A node whose ledger no other node has makes room in the
journal before all: a refused change then leaves both alike.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from broker.bmq.core.alarms import alarm, panic, printable
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.ledger import Ledger, app_infos
from broker.bmq.core.messages import Full
from broker.bmq.node.role import Role
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.purges import first_of
from broker.bmq.queue.queue import App, Queue
from broker.bmq.queue.upkeep import add_app, remove_app
from broker.common.clock import Now
from broker.common.faults import Change
from formats.bmq.control.messages import AppIdInfo
from formats.bmq.disk.journal import QueueOpType
from formats.bmq.disk.keys import derive_key
from formats.bmq.disk.qlist import build_queue_record

__all__ = [
    "APPS_DIFFER",
    "REMEDY",
    "apps_to_change",
    "change_apps",
    "collect_idle_queues",
    "delete_queue",
    "erase_queue",
    "has_been_idle",
    "key_salt",
    "names_of",
    "reconfigure",
    "room_for_queue",
    "sync_apps",
    "sync_apps_at_start",
]

log: Final = logging.getLogger("broker.node")

QUEUES_WATERMARK: Final = 0.8

APPS_DIFFER: Final = "FANOUT_APPIDS_DIFFER"
REMEDY: Final = (
    "They are kept, and messages are stored for them: to remove them and their messages, send DOMAINS RECONFIGURE {} "
    "to {}; to keep them, name them in the domain's configuration."
)


class QueueHolder(Protocol):
    """The node's interface to its queues."""

    ledger: Ledger
    now: Now
    queues: dict[str, Queue]

    @property
    def partitions(self) -> Mapping[int, StoredPartition]: ...

    @property
    def role(self) -> Role: ...


def reconfigure(holder: QueueHolder, domain: DomainInUse, config: DomainConfig) -> None:
    """Apply a domain's new parameters to all of its queues.

    Raises ValueError, without effect, for a parameter that cannot change; `Full` if new apps cannot be recorded.
    """
    old = domain.config
    if config.mode is not old.mode:
        raise ValueError(
            "Reconfiguration of domain routing mode is not allowed "
            f"(was '[ {old.mode.value} = [ ] ]', changed to '[ {config.mode.value} = [ ] ]')"
        )
    if config.persistent != old.persistent:
        was, now = _storage(old), _storage(config)
        raise ValueError(f"Reconfiguration of storage type is not allowed (was '{was}', changed to '{now})")
    queues = [queue for queue in holder.queues.values() if queue.config.name == config.name and queue.is_root]
    log.info("Reconfiguring %d queues from domain %s", len(queues), config.name)
    domain.configure(config)
    holder.role.renew_apps(config)
    for queue in queues:
        queue.configure_domain(config)
        for app in queue.apps.values():
            queue.deliver(app)


def _storage(config: DomainConfig) -> str:
    return "[ fileBacked = [ ] ]" if config.persistent else "[ inMemory = [ ] ]"


def sync_apps_at_start(holder: QueueHolder) -> None:
    """Give all fanout queues the apps that their domains name now.

    The editor of a domain's file may not have meant to lose messages: an app with pending ones stays in all queues of
    its domain, with an alarm, until `reconfigure` is asked for.
    """
    owed: dict[str, set[str]] = {}
    for queue in holder.queues.values():
        if queue.config.mode is Mode.FANOUT:
            unnamed = {app.app_id for app in queue.apps.values() if app.messages} - set(queue.config.app_ids)
            owed.setdefault(queue.config.name, set()).update(unnamed)
    for queue in holder.queues.values():
        try:
            sync_apps(holder, queue, queue.config, owed.get(queue.config.name, ()))
        except Full as full:
            log.error("queue '%s' keeps its former apps: %s", queue.uri, full)
    for name, app_ids in owed.items():
        if app_ids:
            text = (
                f"Messages are stored for {names_of(app_ids)} of domain '{name}', which its configuration does not name"
            )
            alarm(log, APPS_DIFFER, f"{text}. {REMEDY.format(name, 'this node')}")


def names_of(app_ids: Iterable[str]) -> str:
    return "the apps " + ", ".join(f"'{printable(app_id)}'" for app_id in sorted(app_ids))


def sync_apps(holder: QueueHolder, queue: Queue, config: DomainConfig, kept: Collection[str] = ()) -> None:
    """Give a fanout queue the apps that its domain names, and remove all others except those `kept`.

    Raises `Full` if that cannot be recorded.
    """
    if config.mode is not Mode.FANOUT:
        return
    taken = {app.key for app in queue.apps.values()}
    added = []
    for app_id in config.app_ids:
        if app_id not in queue.apps:
            key = derive_key(app_id, key_salt(holder), taken)
            taken.add(key)
            added.append((app_id, key))
    removed = [app for app in queue.apps.values() if app.app_id not in config.app_ids and app.app_id not in kept]
    if not (added or removed):
        return
    info = holder.ledger.state.queues[queue.uri]
    partition = holder.partitions[info.partition_id]
    gone = app_infos([(app.app_id, app.key) for app in removed])
    _make_room(partition, queue, added, removed)
    holder.ledger.update_apps(info, config.name, app_infos(added), gone)
    change_apps(partition, queue, added, removed)


def apps_to_change(queue: Queue, infos: Sequence[AppIdInfo]) -> tuple[list[tuple[str, bytes]], list[App]]:
    """Return the apps that a queue lacks, as ids and keys, and its surplus apps, according to the ledger."""
    wanted = {info.app_id: info.app_key for info in infos}
    removed = [app for app in queue.apps.values() if wanted.get(app.app_id) != app.key]
    kept = set(queue.apps) - {app.app_id for app in removed}
    return [(app_id, key) for app_id, key in wanted.items() if app_id not in kept], removed


def change_apps(
    partition: StoredPartition, queue: Queue, added: Sequence[tuple[str, bytes]], removed: Sequence[App]
) -> None:
    """Change a queue's apps after the ledger. Raises `Full`, having written nothing, if the journal has no room.

    A partial change would make a restart count an app for messages that it never had.
    """
    _make_room(partition, queue, added, removed)
    with Change(f"the change of the apps of queue '{queue.uri}'"):
        if added:
            partition.append_queue(queue.uri, queue.key, list(added), QueueOpType.ADDITION)
        # An app that is added again under another key is removed first.
        for app in removed:
            first = first_of(queue, app)
            if first is not None:
                queue.log.purge(app.key, first, queue.awaiting)
            partition.append_queue_op(QueueOpType.DELETION, queue.key, app.key)
            remove_app(queue, app)
        for app_id, key in added:
            add_app(queue, app_id, key)
    log.info(
        "queue '%s': apps added: %s, removed: %s",
        queue.uri,
        ", ".join(app_id for app_id, _ in added) or "none",
        ", ".join(app.app_id for app in removed) or "none",
    )


def _make_room(
    partition: StoredPartition, queue: Queue, added: Sequence[tuple[str, bytes]], removed: Sequence[App]
) -> None:
    qlist = len(build_queue_record(queue.uri, queue.key, list(added))) if added else 0
    partition.make_room(bool(added) + 2 * len(removed), qlist)


def key_salt(holder: QueueHolder) -> int:
    """Return a salt for keys derived from the same name, different with every record of the ledger.

    An app that is added again must not have its old key, which may still be in the journal.
    """
    ledger = holder.ledger
    number = (ledger.state.term & 0xFFF) << 20 | ledger.sequence_number & 0xF_FFFF
    return holder.now.wall_s << 32 | number


def room_for_queue(domain: DomainInUse, count: int) -> bool:
    """Return True if a domain with `count` queues may have one more; log alarms in time."""
    limit = domain.config.queues_max
    name = f"domain 'bmq://{domain.config.name}'"
    if count + 1 > limit:
        panic(log, "DOMAIN_QUEUE_LIMIT_FULL", f"{name} has reached the maximum number of queues (limit: {limit}).")
        return False
    watermark = int(limit * QUEUES_WATERMARK)
    if count < watermark <= count + 1:
        text = f"watermark limit for the number of queues (current: {count + 1}, limit: {limit})."
        alarm(log, "DOMAIN_QUEUE_LIMIT_HIGH_WATERMARK", f"{name} has reached the {QUEUES_WATERMARK:.0%} {text}")
    return True


def delete_queue(holder: QueueHolder, queue: Queue) -> None:
    """Delete an unused, empty queue. Raises `Full` if that cannot be recorded."""
    assert queue.is_idle
    info = holder.ledger.state.queues[queue.uri]
    partition = holder.partitions[info.partition_id]
    partition.make_room(1)
    holder.ledger.unassign(info, holder.ledger.state.primaries[info.partition_id])
    erase_queue(holder, queue, partition)


def erase_queue(holder: QueueHolder, queue: Queue, partition: StoredPartition) -> None:
    """Remove a queue that is no longer in the ledger. Raises `Full` if the journal has no room."""
    with Change(f"the removal of queue '{queue.uri}'", Full):
        partition.append_queue_op(QueueOpType.DELETION, queue.key)
        partition.forget(queue.key)
        if holder.queues.get(queue.uri) is queue:
            del holder.queues[queue.uri]
    log.info(
        "Removing queue '%s' [key: %s] from Partition [%d].", queue.uri, queue.key.hex().upper(), partition.partition_id
    )


def collect_idle_queues(holder: QueueHolder, keepalive_ms: int, domain: str | None = None) -> int:
    """Delete the queues (of one domain) idle for `keepalive_ms`; return their number. Raises `Full`."""
    idle = [
        queue
        for queue in holder.queues.values()
        if queue.is_root
        and (domain is None or queue.config.name == domain)
        and has_been_idle(queue, holder.now.ms, keepalive_ms)
    ]
    for queue in idle:
        holder.role.take_away(queue)
    return len(idle)


def has_been_idle(queue: Queue, now_ms: int, keepalive_ms: int) -> bool:
    """Return True if a queue has been idle for `keepalive_ms`; to be called periodically."""
    if not queue.is_idle:
        queue.upkeep.idle_since_ms = None
        return False
    if queue.upkeep.idle_since_ms is None:
        queue.upkeep.idle_since_ms = now_ms
    return now_ms - queue.upkeep.idle_since_ms >= keepalive_ms
