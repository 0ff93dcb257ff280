"""Upkeep of queues for the whole cluster: changes of apps, and the effects of committed changes on this node's queues.

The queue's primary requests a change and the leader advises it. Upon the commit the primary writes it to its journal,
and every node follows the ledger. A primary that begins to serve makes changes that the previous one could not write.

Source: mqbblp::ClusterQueueHelper (gcExpiredQueues, onQueueUnassigned, onQueueUpdated, matching with the domain).
"""

from __future__ import annotations

import logging
from typing import Final

from broker.bmq.consensus.metadata import Metadata, QueueChange
from broker.bmq.core.alarms import alarm
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Full
from broker.bmq.member.queues import NO_ROOM_MS, ClusterQueues
from broker.bmq.member.removals import QueueRemovals
from broker.bmq.node.changes import APPS_DIFFER, REMEDY, apps_to_change, change_apps, erase_queue, names_of
from broker.bmq.node.node import Node
from broker.bmq.queue.handles import Refusal
from broker.bmq.queue.queue import Queue
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.control.messages import QueueInfo
from formats.bmq.uri import parse_uri

__all__ = ["QueueUpkeep"]

log: Final = logging.getLogger("broker.cluster")

# Domains compared at once by a node that does not lead, and the interval.
COMPARED_AT_ONCE: Final = 8
COMPARE_INTERVAL_MS: Final = 50


class QueueUpkeep:
    """The upkeep of a member's queues. `renew_apps` is that of its role; see `Role`."""

    def __init__(self, node: Node, metadata: Metadata, queues: ClusterQueues, removals: QueueRemovals) -> None:
        self._node = node
        self._metadata = metadata
        self._queues = queues
        self._removals = removals
        # URIs of queues by domain, whose apps are yet to be compared.
        self._uncompared: dict[str, list[str]] = {}

    def renew_apps(self, config: DomainConfig) -> None:
        """Handle a reconfigured domain: the leader gives all its queues its apps, and no others."""
        if config.mode is not Mode.FANOUT or not self._metadata.is_active_leader:
            return
        for info in list(self._metadata.state.queues.values()):
            if parse_uri(info.uri).qualified_domain == config.name:
                added, removed = _differences(info, config)
                self._update_apps(info, config, added, removed)

    def _update_apps(self, info: QueueInfo, config: DomainConfig, added: list[str], removed: list[str]) -> None:
        if added or removed:
            self._metadata.update_apps(info.uri, config.name, added, removed, self._note_refusal)

    def _note_refusal(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            log.error("apps are not changed: %s", refusal)

    def healed(self, leads: bool) -> None:
        """Compare the apps of queues in the agreed state with the domains' apps here.

        A new leader adds missing apps. It removes none: while a new configuration is rolled out node by node, its own
        may be older than the cluster's apps, and their pending messages would be lost.
        """
        self._removals.healed()
        by_domain: dict[str, list[str]] = {}
        for info in self._metadata.state.queues.values():
            by_domain.setdefault(parse_uri(info.uri).qualified_domain, []).append(info.uri)
        self._uncompared = by_domain
        if leads:
            while self._uncompared:
                self._compare(leads=True)
        else:
            self._compare_some()

    def _compare_some(self) -> None:
        """Compare a few domains, whose files may have to be read, and the next ones later."""
        compared, uncompared = 0, self._uncompared
        while uncompared and compared < COMPARED_AT_ONCE:
            self._compare(leads=False)
            compared += 1
        if uncompared:
            again = self._node.now.ms + COMPARE_INTERVAL_MS
            self._node.timers.at(again, lambda: self._compare_some() if self._uncompared is uncompared else None)

    def _compare(self, *, leads: bool) -> None:
        name, uris = self._uncompared.popitem()
        config = self._config(name, loads=leads)
        if config is None or config.mode is not Mode.FANOUT:
            return
        missing: set[str] = set()
        unnamed: set[str] = set()
        for uri in uris:
            info = self._metadata.state.queues.get(uri)
            if info is not None:
                added, kept = _differences(info, config)
                missing.update(added)
                unnamed.update(kept)
                if leads:
                    self._update_apps(info, config, added, [])
        where = f"the configuration of domain '{name}' at this node"
        if unnamed:
            text = f"Queues have {names_of(unnamed)}, which {where} does not name"
            alarm(log, APPS_DIFFER, f"{text}. {REMEDY.format(name, 'the leader')}")
        if missing and not leads:
            text = f"Queues lack {names_of(missing)}, which {where} names"
            remedy = "to add them, give all nodes this configuration and send DOMAINS RECONFIGURE"
            alarm(log, APPS_DIFFER, f"{text}: {remedy} {name} to the leader.")

    def _config(self, name: str, *, loads: bool) -> DomainConfig | None:
        """Return a domain's configuration; None if it has no usable one.

        A node that does not lead reads it only for comparison: the file may change before the domain is first used.
        """
        node = self._node
        try:
            domain = node.domain(name) if loads else node.domains.get(name)
            return node.resolve_domain(name) if domain is None else domain.config
        except ValueError:
            return None

    # -- committed changes

    def changed(self, change: QueueChange) -> None:
        for info in change.unassigned:
            queue = self._node.queues.get(info.uri)
            if isinstance(queue, RelayQueue):
                self._queues.unassigned(queue)
            elif queue is not None and queue.key == info.key:
                self._erase(queue, info.partition_id)
            self._removals.committed(info)
        for info in change.updated:
            queue = self._node.queues.get(info.uri)
            if queue is not None:
                self._update(queue, info)

    def activated(self, partition_id: int) -> None:
        outdated = self._queues.outdated.pop(partition_id, [])
        if kept := [queue for queue in outdated if not self._erase(queue, partition_id)]:
            self._queues.outdated[partition_id] = kept
        for queue in list(self._node.queues.values()):
            if not queue.is_root or not self._is_in(queue, partition_id):
                continue
            info = self._metadata.state.queues.get(queue.uri)
            if info is not None and info.key == queue.key:
                self._update(queue, info)
            else:
                self._erase(queue, partition_id)

    def _is_in(self, queue: Queue, partition_id: int) -> bool:
        return queue.key in self._node.partitions[partition_id].records.stores

    def _erase(self, queue: Queue, partition_id: int) -> bool:
        if not queue.is_idle:
            name = f"queue '{queue.uri}' [key: {queue.key.hex().upper()}]"
            alarm(log, "CLUSTER_STATE", f"{name} is not known to the cluster, but has {len(queue.messages)} messages")
            return False
        try:
            erase_queue(self._node, queue, self._node.partitions[partition_id])
        except Full as full:
            # The next primary finds it in the journal and erases it.
            log.error("queue '%s' is not removed from the journal: %s", queue.uri, full)
            return False
        return True

    def _update(self, queue: Queue, info: QueueInfo) -> None:
        added, removed = apps_to_change(queue, info.app_ids)
        if not (added or removed):
            return
        if isinstance(queue, RelayQueue):
            for app in removed:
                queue.unname_app(app)
            for app_id, key in added:
                queue.name_app(app_id, key)
            return
        stored = self._node.partitions.get(info.partition_id)
        if stored is None or queue.key not in stored.records.stores:
            # Another node's ledger may name more partitions, or others.
            text = "queue '%s' keeps its apps: the ledger has it in partition %d, which does not have it here"
            log.error(text, queue.uri, info.partition_id)
            return
        try:
            change_apps(stored, queue, added, removed)
        except Full as full:
            log.error("queue '%s' keeps its former apps: %s", queue.uri, full)
            self._node.timers.at(self._node.now.ms + NO_ROOM_MS, lambda: self._update_again(queue))
            return
        queue.configure_domain(queue.config)

    def _update_again(self, queue: Queue) -> None:
        info = self._metadata.state.queues.get(queue.uri)
        if self._node.queues.get(queue.uri) is queue and info is not None and info.key == queue.key:
            self._update(queue, info)


def _differences(info: QueueInfo, config: DomainConfig) -> tuple[list[str], list[str]]:
    has = {app.app_id for app in info.app_ids}
    return [app_id for app_id in config.app_ids if app_id not in has], sorted(has.difference(config.app_ids))
