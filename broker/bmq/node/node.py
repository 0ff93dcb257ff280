"""A node: its domains, queues, shards and sessions. One node is a cluster of one, with a quorum of 1."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from broker.bmq.core.clocks import Clocks
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.cluster_view import ClusterView, CopiedMessage, ProxyView
from broker.bmq.core.config import DomainConfig, MessageThrottle, Mode, NodeIdentity, ReopenPace
from broker.bmq.core.ledger import Ledger, app_infos
from broker.bmq.core.work import Work
from broker.bmq.node.changes import delete_queue, key_salt, room_for_queue, sync_apps, sync_apps_at_start
from broker.bmq.node.restoring import Restoration
from broker.bmq.node.retention import Retention
from broker.bmq.node.rounds import Rounds
from broker.bmq.partition.message_logs import FileLog, MemoryLog
from broker.bmq.partition.shard import Shard
from broker.bmq.queue.domains import Domain
from broker.bmq.queue.handles import Refusal, check_open
from broker.bmq.queue.queue import Full, Queue
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.session.authentication import Authentications
from broker.bmq.session.authorization import Authorizations
from broker.bmq.session.entrance import uncertified
from broker.bmq.session.session import Session
from broker.bmq.session.session_ports import BrokerPeer, Bulk
from broker.bmq.store.recovery import Recovered
from broker.common.clock import Now
from broker.common.faults import Change, Faults, Inconsistent
from broker.common.timers import Timers
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control.messages import (
    ClientIdentity,
    PartitionPrimaryInfo,
    QueueHandleParameters,
    QueueInfo,
    RoutingConfigurationFlags,
    StatusCategory,
)
from formats.bmq.disk.keys import DEFAULT_APP_KEY, derive_key
from formats.bmq.disk.qlist import build_queue_record
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = ["Domain", "DomainResolver", "Node"]

log = logging.getLogger("broker.node")

Placement = Callable[[str, Domain, QueueHandleParameters, Opened], None]

# Resolves the name of a domain to its configuration, or None; raises ValueError for a faulty one.
DomainResolver = Callable[[str], DomainConfig | None]

SECOND_MS = 1000
# Interval at which journals are read for removals.
READ_MS = 250

# Time for which an unused queue is kept (mqbcfg::QueueOperationsConfig).
KEEPALIVE_MS = 1_800_000
OPEN_TIMEOUT_MS = 300_000
SHUTDOWN_TIMEOUT_MS = 20_000

_MODE_FLAGS = {
    Mode.PRIORITY: (RoutingConfigurationFlags.DELIVER_CONSUMER_PRIORITY,),
    Mode.FANOUT: (
        RoutingConfigurationFlags.DELIVER_CONSUMER_PRIORITY,
        RoutingConfigurationFlags.HAS_MULTIPLE_SUB_STREAMS,
    ),
    Mode.BROADCAST: (
        RoutingConfigurationFlags.AT_MOST_ONCE,
        RoutingConfigurationFlags.DELIVER_CONSUMER_PRIORITY,
        RoutingConfigurationFlags.DELIVER_ALL,
    ),
}


class Node:
    """All of a node's state. The shell sets `now`, feeds sessions, and sends what `dirty` sessions have."""

    def __init__(
        self,
        identity: NodeIdentity,
        now: Now,
        resolve_domain: DomainResolver,
        ledger: Ledger,
        shards: Mapping[int, Shard],
        next_guid: Callable[[], bytes],
        authorizations: Authorizations | None = None,
    ) -> None:
        self.identity = identity
        self.now = now
        self.faults = Faults(now)
        self.ledger = ledger
        self.shards = shards
        self.next_guid = next_guid
        self.sessions: dict[int, Session] = {}
        self.queues: dict[str, Queue] = {}
        self.domains: dict[str, Domain] = {}
        self.dirty: set[Session] = set()
        self.authentications = Authentications.open()
        self.authorizations = authorizations or Authorizations.open()
        # Takes whole events for queues whose primary is elsewhere.
        self.bulk: Bulk | None = None
        # Decides about another broker's connection; see `broker.bmq.session.session.Host`.
        self.admit: Callable[[Session, ClientIdentity], BrokerPeer | str | None] = _no_brokers
        # Executes an admin command, given its source; returns its status, 0 for success, and its answer.
        self.run_command: Callable[[str, str], tuple[int, str]] = _no_administration
        self.stopping = False
        # Called once after each step, before links are sent to; returns True if more can be done at once.
        self.settle: Callable[[], bool] = _settled
        # Called repeatedly when the node is to stop; returns True once others have taken over.
        self.retire: Callable[[], bool] = lambda: True
        # Returns True while it waits for confirms of the messages that were delivered from here.
        self.awaits_confirms: Callable[[], bool] = lambda: False
        # Sets the number of nodes that elect a leader, 0 for a majority; a cluster of one has no elections.
        self.set_elector_quorum: Callable[[int], None] = lambda quorum: None
        # How many nodes must have a message of strong consistency from now on; a cluster of one has no copies.
        self.set_replication_quorum: Callable[[int], None] = lambda quorum: None
        # The last thing before all links end.
        self.leave: Callable[[], None] = lambda: None
        # A member's view of its cluster; None in a cluster of one.
        self.cluster_view: Callable[[], ClusterView] | None = None
        # Counts messages and bytes of a partition's replica by queue key; None if this node serves it itself.
        self.copied: Callable[[int], Mapping[bytes, tuple[int, int]] | None] = lambda partition_id: None
        # Lists messages of a partition's replica: those of a queue key, from a number on, so many at most.
        self.list_copied: Callable[[int, bytes, int, int], Sequence[CopiedMessage]] = _no_copies
        # A proxy's view of a cluster by name, None for an unknown one; None at other nodes.
        self.proxy_view: Callable[[str], ProxyView | None] | None = None
        # Called before anything leaves this node, to flush to the disk if that is configured.
        self.before_sending: Callable[[], None] = _sent_at_once
        # Finds the place of a queue to be opened, by its URI, its domain, and the request.
        self.place: Placement = self._place_here
        # Deletes an unused queue, and syncs the apps of queues with those of their domain: in the ledger at first.
        self.take_away: Callable[[Queue], None] = lambda queue: delete_queue(self, queue)
        self.renew_apps: Callable[[DomainConfig], None] = self._sync_apps
        self.timers = Timers()
        self.work = Work(now)
        for shard in shards.values():
            shard.work_with(self.work)
        self.throttle = MessageThrottle()
        self.keepalive_ms = KEEPALIVE_MS
        # Time that a client waits for a queue that is opened elsewhere.
        self.open_timeout_ms = OPEN_TIMEOUT_MS
        self.reopen_pace = ReopenPace()
        # Time that a node which is to stop waits for these confirms.
        self.shutdown_timeout_ms = SHUTDOWN_TIMEOUT_MS
        self.keep_rejected: Callable[[str], str] = _no_files
        self.resolve_domain = resolve_domain
        self.clocks = Clocks(now)
        self._retention = Retention(self)
        self._queue_keys: set[bytes] = set()
        self._queue_counts = dict.fromkeys(shards, 0)
        self._session_ids = 0
        self._ticked_ms = self._read_ms = now.ms
        self._rounds = Rounds(self)
        self._logged: set[int] = set()

    # -- starting

    def start(self, recovered: Mapping[int, Recovered]) -> None:
        """Lead and become primary of every partition, under lease ids above earlier ones, with recovered messages."""
        known = self.ledger.state
        primaries = {}
        for partition_id, shard in self.shards.items():
            old = known.primaries.get(partition_id)
            lease_id = max(recovered[partition_id].primary_lease_id, old.primary_lease_id if old else 0) + 1
            primaries[partition_id] = PartitionPrimaryInfo(
                partition_id=partition_id, primary_node_id=shard.node_id, primary_lease_id=lease_id
            )
        for partition_id, state in recovered.items():
            for queue in state.queues.values():
                info = QueueInfo(
                    uri=queue.uri,
                    key=queue.key,
                    partition_id=partition_id,
                    app_ids=app_infos([(app.app_id, app.app_key) for app in queue.apps]),
                )
                known.queues[queue.uri] = info
        self.ledger.lead(primaries)
        for partition_id, state in recovered.items():
            self.restore(self.shards[partition_id], state)
        for partition_id, shard in self.shards.items():
            shard.activate(primaries[partition_id].primary_lease_id)
        sync_apps_at_start(self)

    def restore(self, shard: Shard, state: Recovered) -> None:
        """Restore the queues and messages of a recovered partition."""
        Restoration(self, shard).put_back(state)

    # -- sessions

    def connect(self, peer: str, certified: Callable[[], frozenset[str]] = uncertified) -> Session:
        """Make the session of a peer; `certified` returns the names in its certificate, if it has one."""
        return self.adopt(lambda session_id: Session(self, session_id, peer, certified))

    def adopt(self, make: Callable[[int], Session]) -> Session:
        """Register the session that `make` makes from a number."""
        self._session_ids += 1
        session = make(self._session_ids)
        self.sessions[session.session_id] = session
        return session

    def disconnect(self, session: Session, reason: str) -> None:
        """Handle the end of a session's link."""
        with Change(f"the end of session {session.description}"):
            session.end(reason, lost=not self.stopping)
            self.sessions.pop(session.session_id, None)
            self.dirty.discard(session)

    def end_failed(self) -> None:
        """End the sessions whose work failed in the last step: their consumers' messages go to others."""
        while (session := self.faults.next_failed()) is not None:
            with Change(f"the end of session {session.description}"):
                session.give_up("a fault of this broker")

    def tick(self) -> None:
        """Do periodic work; called a few times a second."""
        self.timers.run(self.now.ms)
        with Change("the upkeep of queues and shards"):
            self._keep_up()

    def tick_session(self, session: Session) -> None:
        """Let a session check its peer, once a second."""
        try:
            session.tick()
        except Exception as error:
            self.faults.end_session(session, error)

    def _keep_up(self) -> None:
        self._rounds.begin()
        if self.now.ms - self._read_ms >= READ_MS:
            self._read_ms = self.now.ms
            for shard in self.shards.values():
                shard.removals.tick(shard.files, self.now.ms)
        if self.now.ms - self._ticked_ms < SECOND_MS:
            return
        self._ticked_ms = self.now.ms
        self._logged.clear()
        for session in list(self.sessions.values()):
            self.tick_session(session)
        self.clocks.look()
        self._retention.tick()
        for shard in self.shards.values():
            shard.tick()

    def end_step(self) -> tuple[bool, bool]:
        """End a step, before links are sent to: long tasks get their slice.

        Returns (more can be done at once, more can be done when links to brokers take more).
        """
        work = self.work
        if work.tasks:
            try:
                has_tasks = work.end_step()
            except Exception as error:
                raise Inconsistent("a long task", error) from error
            return has_tasks, self.settle()
        # The same as in `Work.end_step`; nearly every step ends here.
        work.left = work.amount
        work.since_ms = self.now.ms
        return False, self.settle()

    def may_log(self, session: Session) -> bool:
        """Return True if a session may log one more line about bad input this second: a flood must not fill the log."""
        if session.session_id in self._logged:
            return False
        self._logged.add(session.session_id)
        return True

    # -- queues

    def _sync_apps(self, config: DomainConfig) -> None:
        for queue in list(self.queues.values()):
            if queue.config.name == config.name:
                sync_apps(self, queue, config)

    def open_queue(self, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Open the queue that a request names, creating it if needed. Raises `Refusal` for an invalid request."""
        name, domain = self.named(parameters)
        self.place(name, domain, parameters, opened)

    def named(self, parameters: QueueHandleParameters) -> tuple[str, Domain]:
        """Return the URI and domain of the queue that an open request names. Raises `Refusal` like `open_queue`."""
        try:
            uri = parse_uri(parameters.uri)
        except FormatError as error:
            raise Refusal(StatusCategory.REFUSED, error.reason, 0) from None
        check_open(parameters)
        try:
            domain = self.domain(uri.qualified_domain)
        except ValueError as error:
            raise Refusal(StatusCategory.UNKNOWN, str(error), -2) from None
        if domain is None:
            message = f"Domain '{uri.qualified_domain}' is not configured on this broker"
            raise Refusal(StatusCategory.UNKNOWN, message, -1)
        if domain.config.incompatible:
            message = f"Incompatible storage type for LocalQueue [uri: {uri.canonical}]: {domain.config.incompatible}"
            raise Refusal(StatusCategory.UNKNOWN, message, -10)
        if domain.removing:
            raise Refusal(StatusCategory.REFUSED, "Domain is removing or removed", ClusterError.UNKNOWN)
        # A redirected domain's queues live under the name of its definition.
        return uri._replace(domain=domain.config.name, tier="").canonical, domain

    def _place_here(self, name: str, domain: Domain, parameters: QueueHandleParameters, opened: Opened) -> None:
        opened(self.serve_queue(name, domain))

    def serve_queue(self, name: str, domain: Domain) -> Queue:
        """Return the queue of that URI, served here, creating it if needed. Raises `Refusal` if it cannot be."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self._create_queue(name, domain)
        queue.was_opened = True
        return queue

    def routing_flags(self, queue: Queue) -> int:
        """Return the flags of the queue's routing in an open response."""
        return sum(1 << flag for flag in _MODE_FLAGS[queue.config.mode])

    def domain(self, name: str) -> Domain | None:
        """Return the domain of `name`, read if needed; None if there is none. Raises ValueError if it is faulty."""
        domain = self.domains.get(name)
        if domain is None:
            config = self.resolve_domain(name)
            if config is None:
                return None
            domain = self.domains.setdefault(config.name, Domain(config))
            self.domains[name] = domain
        return domain

    def _create_queue(self, uri: str, domain: Domain) -> Queue:
        """Assign a queue to a partition, first in the ledger, then in the journal."""
        info = self.ledger.state.queues.get(uri)
        try:
            if info is None:
                if domain.config.queues_max and not room_for_queue(domain, self._count_queues(domain)):
                    raise Refusal(StatusCategory.REFUSED, "maximum number of queues reached", ClusterError.LIMIT)
                info = self._propose(uri, domain.config)
            shard = self.shards.get(info.partition_id)
            if shard is None:
                message = f"Queue '{uri}' is in partition {info.partition_id}, which this node does not serve"
                raise Refusal(StatusCategory.NOT_READY, message, -1)
            apps = [(app.app_id, app.app_key) for app in info.app_ids]
            # An unrecordable queue must fail before the ledger names it.
            build_queue_record(uri, info.key, apps)
            with Change(f"the creation of queue '{uri}'", Full):
                self._assign(info)
                shard.append_queue(uri, info.key, apps)
                queue = self.make_queue(uri, info.key, domain, apps, shard)
                self.queues[uri] = queue
        except Full as full:
            raise Refusal(StatusCategory.NOT_READY, f"Queue cannot be created: {full}", -1) from None
        log.info("queue '%s' created [key: %s, partition: %d]", uri, info.key.hex().upper(), info.partition_id)
        return queue

    def _count_queues(self, domain: Domain) -> int:
        name = domain.config.name
        return sum(parse_uri(uri).qualified_domain == name for uri in self.ledger.state.queues)

    def _propose(self, uri: str, config: DomainConfig) -> QueueInfo:
        """Propose a partition and keys for a new queue."""
        salt = key_salt(self)
        apps: list[tuple[str, bytes]] = []
        for app_id in config.queue_app_ids:
            key = DEFAULT_APP_KEY if app_id == DEFAULT_APP_ID else derive_key(app_id, salt, {key for _, key in apps})
            apps.append((app_id, key))
        counts = self._census()
        return QueueInfo(
            uri=uri,
            key=derive_key(uri, salt, self._queue_keys),
            partition_id=min(counts, key=lambda partition_id: (counts[partition_id], partition_id)),
            app_ids=app_infos(apps),
        )

    def _assign(self, info: QueueInfo) -> None:
        """Record a new queue in the ledger, unless it is recorded already."""
        if info.uri not in self.ledger.state.queues:
            counts = self._census()
            self.ledger.assign(info)
            self._queue_keys.add(info.key)
            counts[info.partition_id] += 1

    def _census(self) -> dict[int, int]:
        """Count each partition's queues; recomputed, with all keys, after deletions."""
        known = self.ledger.state.queues
        if len(self._queue_keys) != len(known):
            self._queue_keys = {info.key for info in known.values()}
            self._queue_counts = dict.fromkeys(self.shards, 0)
            for info in known.values():
                if info.partition_id in self._queue_counts:
                    self._queue_counts[info.partition_id] += 1
        return self._queue_counts

    def make_queue(
        self,
        uri: str,
        key: bytes,
        domain: Domain,
        apps: list[tuple[str, bytes]],
        shard: Shard,
        *,
        in_files: bool = False,
    ) -> Queue:
        """See `broker.bmq.node.restoring.RestoringNode`."""
        if not apps and (in_files or domain.config.mode is not Mode.FANOUT):
            apps = [(DEFAULT_APP_ID, DEFAULT_APP_KEY)]
        in_files = in_files or domain.config.persistent
        log = FileLog(shard, key) if in_files else MemoryLog()
        queue = Queue(uri, key, domain.config, apps, log, domain.usage, self)
        shard.register(key, queue.messages if in_files else {})
        return queue


def _no_copies(partition_id: int, queue_key: bytes, first: int, count: int) -> Sequence[CopiedMessage]:
    return ()


def _no_files(text: str) -> str:
    raise OSError("this node keeps no rejected messages")


def _sent_at_once() -> None:
    """Do nothing first."""


def _settled() -> bool:
    return False


def _no_brokers(session: Session, identity: ClientIdentity) -> str:
    return f"{identity.client_type.name} connections are not supported"


def _no_administration(command: str, source: str) -> tuple[int, str]:
    return -1, "This node does not accept commands"
