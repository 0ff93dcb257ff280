# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A node: its domains, queues, partitions and sessions. Its part in a cluster is its role's; see `Role`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.bmq.core.clocks import Clocks
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.core.config import DomainConfig, MessageThrottle, Mode, NodeIdentity, ReopenPace
from broker.bmq.core.ledger import Ledger, app_infos
from broker.bmq.core.work import Work
from broker.bmq.node.changes import key_salt, room_for_queue, sync_apps_at_start
from broker.bmq.node.restoring import Restoration
from broker.bmq.node.retention import Retention
from broker.bmq.node.role import Role
from broker.bmq.node.rounds import NodeRounds
from broker.bmq.node.services import ProcessServices, QueueSettings, RunCommand
from broker.bmq.partition.message_logs import FileLog, MemoryLog
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Refusal, check_open
from broker.bmq.queue.queue import Full, Queue
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.queue.root_queue import RootQueue
from broker.bmq.queue.unknown_confirms import KeptConfirms
from broker.bmq.session.entrance import uncertified
from broker.bmq.session.session import Session
from broker.bmq.session.session_ports import BrokerPeer
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

__all__ = ["Basis", "DomainInUse", "DomainResolver", "Node", "unadministered"]

log: Final = logging.getLogger("broker.node")

# Resolves the name of a domain to its configuration, or None; raises ValueError for a faulty one.
DomainResolver = Callable[[str], DomainConfig | None]

SECOND_MS: Final = 1000
# Interval at which journals are read for removals.
READ_MS: Final = 250

_MODE_FLAGS: Final = {
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


def unadministered(node: Node) -> RunCommand:
    return lambda command, source, may_read=None: (-1, "This node does not accept commands")


@dataclass(frozen=True, slots=True)
class Basis:
    """The parts of any node, whatever its role. `administer` makes the service for admin commands."""

    identity: NodeIdentity
    now: Now
    resolve_domain: DomainResolver
    next_guid: Callable[[], bytes]
    services: ProcessServices = field(default_factory=ProcessServices)
    settings: QueueSettings = field(default_factory=QueueSettings)
    administer: Callable[[Node], RunCommand] = unadministered


class Node:
    """All of a node's state. The shell sets `now`, feeds sessions, and sends the output of `dirty` sessions."""

    def __init__(
        self, basis: Basis, ledger: Ledger, partitions: Mapping[int, StoredPartition], make_role: Callable[[Node], Role]
    ) -> None:
        """`make_role` is called once, at the end, with the otherwise complete node."""
        services, now = basis.services, basis.now
        self.identity = basis.identity
        self.now = now
        self.faults = Faults(now)
        self.ledger = ledger
        self.partitions = partitions
        self.next_guid = basis.next_guid
        self.sessions: dict[int, Session] = {}
        self.queues: dict[str, Queue] = {}
        self.domains: dict[str, DomainInUse] = {}
        self.dirty: set[Session] = set()
        self.authentications = services.authentications
        self.authorizations = services.authorizations
        self.before_sending = services.before_sending
        self.keep_rejected = services.keep_rejected
        self.settings = basis.settings
        self.stopping = False
        self.timers = Timers()
        self.work = Work(now)
        for partition in partitions.values():
            partition.work_with(self.work)
        self.resolve_domain = basis.resolve_domain
        self.clocks = Clocks(now)
        self.kept_confirms = KeptConfirms(now)
        self._retention = Retention(self)
        self._queue_keys: set[bytes] = set()
        self._queue_counts = dict.fromkeys(partitions, 0)
        self._session_ids = 0
        self._ticked_ms = self._read_ms = now.ms
        self._rounds = NodeRounds(self)
        self._logged: set[int] = set()
        self.role = make_role(self)
        self.run_command = basis.administer(self)

    def configure(self, settings: QueueSettings) -> None:
        """Set other parameters of queues; queues already open may keep some of the old ones.

        A proxy knows no parameters before its first cluster, and it has no queues until then.
        """
        self.settings = settings

    @property
    def throttle(self) -> MessageThrottle:
        return self.settings.throttle

    @property
    def keepalive_ms(self) -> int:
        return self.settings.keepalive_ms

    @property
    def open_timeout_ms(self) -> int:
        return self.settings.open_timeout_ms

    @property
    def reopen_pace(self) -> ReopenPace:
        return self.settings.reopen_pace

    @property
    def shutdown_timeout_ms(self) -> int:
        return self.settings.shutdown_timeout_ms

    def start(self, recovered: Mapping[int, Recovered]) -> None:
        """Lead and become primary of every partition, under lease ids above earlier ones, with recovered messages."""
        known = self.ledger.state
        primaries = {}
        for partition_id, partition in self.partitions.items():
            old = known.primaries.get(partition_id)
            lease_id = max(recovered[partition_id].primary_lease_id, old.primary_lease_id if old else 0) + 1
            primaries[partition_id] = PartitionPrimaryInfo(
                partition_id=partition_id, primary_node_id=partition.records.node_id, primary_lease_id=lease_id
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
            self.restore(self.partitions[partition_id], state)
        for partition_id, partition in self.partitions.items():
            partition.activate(primaries[partition_id].primary_lease_id)
        sync_apps_at_start(self)

    def restore(self, partition: StoredPartition, state: Recovered) -> None:
        Restoration(self, partition).put_back(state)

    # -- sessions

    def connect(self, peer: str, certified: Callable[[], frozenset[str]] = uncertified) -> Session:
        """Make the session of a peer; `certified` returns the names in its certificate, if it has one."""
        return self.adopt(lambda session_id: Session(self, session_id, peer, certified))

    def adopt(self, make: Callable[[int], Session]) -> Session:
        self._session_ids += 1
        session = make(self._session_ids)
        self.sessions[session.session_id] = session
        return session

    def disconnect(self, session: Session, reason: str) -> None:
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
        """Called a few times a second."""
        self.timers.run(self.now.ms)
        with Change("the upkeep of queues and partitions"):
            self._keep_up()

    def tick_session(self, session: Session) -> None:
        """Called once a second."""
        try:
            session.tick()
        except Exception as error:
            self.faults.end_session(session, error)

    def _keep_up(self) -> None:
        self._rounds.begin()
        self.kept_confirms.tick()
        for partition in self.partitions.values():
            partition.rollovers.sift()
        if self.now.ms - self._read_ms >= READ_MS:
            self._read_ms = self.now.ms
            for partition in self.partitions.values():
                partition.removals.tick(partition.files, self.now.ms)
        if self.now.ms - self._ticked_ms < SECOND_MS:
            return
        self._ticked_ms = self.now.ms
        self._logged.clear()
        for session in list(self.sessions.values()):
            self.tick_session(session)
        self.clocks.look()
        self._retention.tick()
        for partition in self.partitions.values():
            partition.tick()

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
            return has_tasks, self.role.settle()
        # The same as in `Work.end_step`; nearly every step ends here.
        work.left = work.amount
        work.since_ms = self.now.ms
        return False, self.role.settle()

    def rest(self) -> bool:
        return self.role.rest()

    def admit(self, session: Session, identity: ClientIdentity) -> BrokerPeer | str | None:
        return self.role.admit(session, identity)

    # -- the end

    def retire(self) -> bool:
        return self.role.retire()

    def awaits_confirms(self) -> bool:
        return self.role.awaits_confirms()

    def leave(self) -> None:
        self.role.leave()

    def may_log(self, session: Session) -> bool:
        """Return True if a session may log one more line about bad input this second: a flood must not fill the log."""
        if session.session_id in self._logged:
            return False
        self._logged.add(session.session_id)
        return True

    # -- queues

    def open_queue(self, parameters: QueueHandleParameters, opened: Opened) -> None:
        """Open the queue that a request names, creating it if needed. Raises `Refusal` for an invalid request."""
        name, domain = self.named(parameters)
        self.role.place(name, domain, parameters, opened)

    def named(self, parameters: QueueHandleParameters) -> tuple[str, DomainInUse]:
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

    def serve_queue(self, name: str, domain: DomainInUse) -> Queue:
        """Return the queue of that URI, served here, creating it if needed. Raises `Refusal`."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self._create_queue(name, domain)
        queue.upkeep.was_opened = True
        return queue

    def routing_flags(self, queue: Queue) -> int:
        return sum(1 << flag for flag in _MODE_FLAGS[queue.config.mode])

    def domain(self, name: str) -> DomainInUse | None:
        """Return the domain of `name`, read if needed; None if there is none. Raises ValueError if it is faulty."""
        domain = self.domains.get(name)
        if domain is None:
            config = self.resolve_domain(name)
            if config is None:
                return None
            domain = self.domains.setdefault(config.name, DomainInUse(config))
            self.domains[name] = domain
        return domain

    def _create_queue(self, uri: str, domain: DomainInUse) -> Queue:
        info = self.ledger.state.queues.get(uri)
        try:
            if info is None:
                if not self.role.assigns_queues:
                    raise Refusal(StatusCategory.NOT_READY, f"Queue '{uri}' is not assigned to a partition", -1)
                if domain.config.queues_max and not room_for_queue(domain, self._count_queues(domain)):
                    raise Refusal(StatusCategory.REFUSED, "maximum number of queues reached", ClusterError.LIMIT)
                info = self._propose(uri, domain.config)
            partition = self.partitions.get(info.partition_id)
            if partition is None:
                message = f"Queue '{uri}' is in partition {info.partition_id}, which this node does not serve"
                raise Refusal(StatusCategory.NOT_READY, message, -1)
            apps = [(app.app_id, app.app_key) for app in info.app_ids]
            # A name that cannot be recorded must fail before the ledger has it.
            build_queue_record(uri, info.key, apps)
            with Change(f"the creation of queue '{uri}'", Full):
                self._assign(info)
                partition.append_queue(uri, info.key, apps)
                queue = self.make_queue(uri, info.key, domain, apps, partition)
                self.queues[uri] = queue
        except Full as full:
            raise Refusal(StatusCategory.NOT_READY, f"Queue cannot be created: {full}", -1) from None
        log.info("queue '%s' created [key: %s, partition: %d]", uri, info.key.hex().upper(), info.partition_id)
        return queue

    def _count_queues(self, domain: DomainInUse) -> int:
        name = domain.config.name
        return sum(parse_uri(uri).qualified_domain == name for uri in self.ledger.state.queues)

    def _propose(self, uri: str, config: DomainConfig) -> QueueInfo:
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
            self._queue_counts = dict.fromkeys(self.partitions, 0)
            for info in known.values():
                if info.partition_id in self._queue_counts:
                    self._queue_counts[info.partition_id] += 1
        return self._queue_counts

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
        if not apps and (in_files or domain.config.mode is not Mode.FANOUT):
            apps = [(DEFAULT_APP_ID, DEFAULT_APP_KEY)]
        in_files = in_files or domain.config.persistent
        log = FileLog(partition, key) if in_files else MemoryLog()
        queue = RootQueue(uri, key, domain.config, apps, log, domain.usage, self)
        partition.register(key, queue.messages if in_files else {})
        return queue
