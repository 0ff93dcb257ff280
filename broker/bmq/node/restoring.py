"""Restoration of queues and messages from a store: one by one, and invisible until all are restored."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, Protocol

from broker.bmq.core.clocks import Clocks
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Content, message_of
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.expiry_hold import RestoredQueue, Restoring, hold_expiry
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.root_queue import RootQueue
from broker.bmq.store.peaks import Peak
from broker.bmq.store.recovery import Recovered, RecoveredMessage, RecoveredQueue
from broker.bmq.store.removals import Removed
from broker.common.clock import Now
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.uri import parse_uri

__all__ = ["Restoration", "RestoringNode"]

log: Final = logging.getLogger("broker.node")


class RestoringNode(Protocol):
    """The services that restoring needs of the node."""

    queues: dict[str, Queue]
    domains: dict[str, DomainInUse]

    @property
    def now(self) -> Now: ...

    @property
    def clocks(self) -> Clocks: ...

    def domain(self, name: str) -> DomainInUse | None: ...

    def make_queue(
        self,
        uri: str,
        key: bytes,
        domain: DomainInUse,
        apps: list[tuple[str, bytes]],
        partition: StoredPartition,
        *,
        in_files: bool = False,
    ) -> RootQueue:
        """Make a queue that is not visible yet; its partition locates its messages."""
        ...


class Restoration:
    """The restoration of one partition: `begin`, `remember` removed messages, `take` the others in order, and `end`."""

    def __init__(self, node: RestoringNode, partition: StoredPartition) -> None:
        self._node = node
        self._partition = partition
        self._since_ms = node.now.ms
        self._recovered: Mapping[bytes, RecoveredQueue] = {}
        self._domains: dict[bytes, DomainInUse] = {}
        self._arrivals: dict[int, int] = {}
        self.queues: dict[bytes, RootQueue] = {}  # by key
        self._arrived: defaultdict[bytes, Counter[int]] = defaultdict(Counter)  # by key

    def put_back(self, state: Recovered) -> None:
        self.begin(state.queues, state.timestamp)
        partition = self._partition
        for some in partition.removals.before_slowly(partition.files, state.timestamp, self._since_ms):
            for key, removed in some:
                self.remember_before(key, removed)
        for key, guids in state.gone.items():
            self.remember(key, guids)
        for key, ended in state.ended.items():
            partition.removals.note(key, bytes(ended))
        for message in state.messages:
            self.take(message)
        self.end()

    def begin(self, queues: Mapping[bytes, RecoveredQueue], newest_s: int) -> None:
        """Make the queues; `newest_s` is the time of the newest record, in seconds since the epoch."""
        node = self._node
        self._since_ms = node.now.ms
        self._recovered = queues
        self._about = Restoring.of(self._partition.partition_id, newest_s, self._partition.heard, node.now)
        for key in queues:
            self._make(key, in_files=False)

    def _make(self, key: bytes, *, in_files: bool) -> RootQueue:
        recovered = self._recovered[key]
        name = parse_uri(recovered.uri).qualified_domain
        # A domain that is no longer configured may be again some day.
        domain = self._node.domain(name) or DomainInUse(DomainConfig(name, Mode.FANOUT))
        apps = [(app.app_id, app.app_key) for app in recovered.apps]
        queue = self._node.make_queue(recovered.uri, key, domain, apps, self._partition, in_files=in_files)
        self.queues[key] = queue
        self._domains[key] = domain
        return queue

    def remember(self, key: bytes, guids: bytes) -> None:
        """Note a queue's messages that the journal removes: their GUIDs, concatenated."""
        queue = self.queues.get(key)
        if queue is not None:
            queue.history.restore(guids, self._since_ms)

    def remember_before(self, key: bytes, removed: Removed) -> None:
        """Note a queue's messages removed before the journal began; oldest first, and before `remember`."""
        queue = self.queues.get(key)
        if queue is not None:
            queue.history.restore(b"", self._since_ms, (removed,))

    def take(self, found: RecoveredMessage) -> None:
        guid, key, offset, _, compression, size, has_properties, schema_id, confirmed, timestamp, checksum = found
        queue = self.queues[key]
        if not (queue.messages or queue.config.persistent):
            queue = self._keep_in_files(key, queue)
        outstanding = 0
        for app in queue.apps.values():
            if app.key not in confirmed:
                outstanding |= app.bit
        content = Content(b"", checksum, compression, has_properties, schema_id)
        # Many messages arrive in the same second, and share one number.
        arrived_ms = self._arrivals.get(timestamp)
        if arrived_ms is None:
            arrived_ms = self._since_ms - self._about.wall_ms + timestamp * 1000
            self._arrivals[timestamp] = arrived_ms
        if confirmed:
            # The first delivery's time is unknown; as in the reference, the arrival stands for it.
            for app in queue.apps.values():
                if not outstanding & app.bit:
                    app.statistics.waited(max(0, self._since_ms - arrived_ms))
        self._arrived[key][arrived_ms] += 1
        message = message_of(guid, size, content, outstanding, arrived_ms)
        message.offset = offset
        self._partition.adopt(outstanding.bit_count())
        queue.restore(message)

    def peaked(self, key: bytes, app_key: bytes, peak: Peak) -> None:
        """Observe a peak, beyond the present level, of a queue or app while another node served it."""
        queue = self.queues.get(key)
        if queue is None:
            return
        if app_key == NULL_KEY:
            queue.statistics.observe(len(queue.messages) + peak.messages, queue.bytes + peak.bytes)
        for app in queue.apps.values():
            if app.key == app_key:
                app.statistics.observe(app.messages + peak.messages, app.bytes + peak.bytes)

    def _keep_in_files(self, key: bytes, empty: RootQueue) -> RootQueue:
        """Replace an empty queue in memory: its domain was persistent before and has messages in the files."""
        queue = self._make(key, in_files=True)
        queue.history = empty.history
        empty.delivery.end()
        return queue

    def end(self) -> None:
        node = self._node
        for key, queue in self.queues.items():
            name = self._domains[key].config.name
            # Between slices a domain may have been reconfigured, and the node cut off.
            queue.configure_domain(self._domains[key].config)
            if name in node.domains:
                self._show(queue)
            else:
                text = "queue '%s' belongs to no configured domain; its %d messages are kept"
                log.warning(text, queue.uri, len(queue.messages))
        restored = [RestoredQueue(queue, self._arrived[key]) for key, queue in self.queues.items()]
        hold_expiry(restored, self._about, node.now, node.clocks)

    def _show(self, queue: Queue) -> None:
        self._node.queues[queue.uri] = queue
