# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""One node as a member of its cluster: dispatch of its links' events to its machines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from broker.bmq.consensus.election import Election
from broker.bmq.consensus.metadata import Metadata, QueueChange
from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import Content
from broker.bmq.core.pretty import Shown
from broker.bmq.core.received import received
from broker.bmq.links.peer_links import Peer, PeerLinks
from broker.bmq.links.requests import Requests
from broker.bmq.member.config import MemberConfig
from broker.bmq.member.copies import risk_of_copies
from broker.bmq.member.healing import Healing
from broker.bmq.member.legacy import LegacyWorkflow
from broker.bmq.member.pushes import is_pushed_to, may_lack
from broker.bmq.member.queue_upkeep import QueueUpkeep
from broker.bmq.member.queues import ClusterQueues
from broker.bmq.member.removals import QueueRemovals, Removal
from broker.bmq.node.node import Node
from broker.bmq.relay.guests import Guests
from broker.bmq.relay.last_confirms import LastConfirms
from broker.bmq.replication.healing_pace import HealingPace
from broker.bmq.replication.partition import ReplicatedPartition, named
from broker.bmq.replication.take_over import PartitionRestoring
from broker.bmq.store.recovery import Recovered
from broker.common.faults import Change
from formats.bmq.codes import EncodingType, EventType
from formats.bmq.control.messages import (
    ClusterMessage,
    ClusterSyncRequest,
    ControlMessage,
    ElectorMessage,
    LeaderSyncDataQuery,
    LeaderSyncStateQuery,
    NodeStatus,
    NodeStatusAdvisory,
    PartitionMessage,
    PartitionSyncDataQuery,
    PartitionSyncStateQuery,
    PrimaryStatusAdvisory,
    StopRequest,
    StopResponse,
    StorageSyncRequest,
)
from formats.bmq.disk.ledger import LEDGER_RECORD_HEADER
from formats.bmq.wire.event import Frame, schema_encoding, schema_message
from formats.bmq.wire.receipt import parse_receipt
from formats.bmq.wire.recovery import iter_chunks
from formats.bmq.wire.storage import storage_partition_id
from formats.errors import FormatError

__all__ = ["Member", "described"]

log = logging.getLogger("broker.cluster")


def described(node_id: int) -> str:
    return f"[node{node_id}, {node_id}]"


class Member:
    """The machines of one member, and their links; the main part of `MemberRole`.

    `peer_up` and `peer_down` report links, and `receive` processes an event of one. It raises FormatError even for an
    event that no member sends: the link cannot be trusted after it. `settle` ends each step.

    `describe` returns the displayed name of a node. `on_available` is called once, when this node begins to take part.
    """

    def __init__(
        self,
        node: Node,
        other_ids: Iterable[int],
        config: MemberConfig,
        recovered: Mapping[int, Recovered],
        random_below: Callable[[int], int],
        term: int = 0,
        keep_term: Callable[[int], None] = lambda term: None,
        describe: Callable[[int], str] = described,
        on_available: Callable[[], None] = lambda: None,
    ) -> None:
        now, timers = node.now, node.timers
        self._node = node
        self.describe = describe
        self._on_available = on_available
        self._elector_quorum = config.quorum
        self._quorum_set = 0  # set by an operator; 0 for the configured one
        self._is_cut_off = False
        self._is_well = False
        self._pace = HealingPace(now, timers)
        self.links = PeerLinks(node.identity.node_id, other_ids)
        self.majority = (1 + len(self.links.other_ids)) // 2 + 1
        # The number of nodes that must have a message of strong consistency, unless an operator sets another.
        self.replication_quorum = self.majority
        self.requests = Requests(self.links, now, timers)
        self.metadata = Metadata(
            self.links,
            self.requests,
            node.ledger,
            now,
            timers,
            self,
            quorum=max(self.majority, config.quorum),
            partition_count=len(node.partitions),
            resolve_domain=self._resolve_domain,
            spread=config.spread,
            leases={partition_id: state.primary_lease_id for partition_id, state in recovered.items()},
        )
        self.election = Election(
            self.links,
            config.quorum,
            now,
            timers,
            random_below,
            self.metadata.leader_changed,
            config.times,
            max(term, self.metadata.number.term),
            keep_term,
            self.metadata.node_silent,
        )
        self.partitions = {
            partition_id: ReplicatedPartition(
                stored,
                recovered[partition_id],
                self.links,
                self.requests,
                now,
                timers,
                self.majority,
                self._pace,
                self,
            )
            for partition_id, stored in node.partitions.items()
        }
        self._healing = Healing(self.partitions, self._pace)
        removals: dict[str, Removal] = {}
        self.queues = ClusterQueues(node, self.links, self.requests, self.metadata, self, removals)
        self.guests = Guests(node, NodeStatus.STARTING)
        self._last_confirms = LastConfirms(node, self.queues.downstreams)
        self.removals = QueueRemovals(node, self.metadata, self.queues, removals)
        self.upkeep = QueueUpkeep(node, self.metadata, self.queues, self.removals)
        self.status = NodeStatus.STARTING
        # Reported by the others; none while a link is down.
        self.statuses: dict[int, NodeStatus] = {}
        self._legacy = LegacyWorkflow(self.requests, self.describe)
        self._on_event: dict[int, Callable[[int, memoryview, Frame], None]] = {
            EventType.ELECTOR: self._on_elector,
            EventType.CONTROL: self._on_control,
            EventType.CLUSTER_STATE: self._on_cluster_state,
            EventType.STORAGE: self._on_storage,
            EventType.PARTITION_SYNC: self._on_sync,
            EventType.REPLICATION_RECEIPT: self._on_receipt,
            EventType.RECOVERY: self._on_recovery,
            EventType.PUT: self.queues.on_put,
            EventType.ACK: self.queues.on_ack,
            EventType.PUSH: self.queues.on_push,
            EventType.CONFIRM: self.queues.on_confirm,
            EventType.REJECT: self.queues.on_reject,
        }

    def _resolve_domain(self, name: str) -> DomainConfig | None:
        domain = self._node.domain(name)
        return None if domain is None else domain.config

    def start(self) -> None:
        self.election.start()

    def retire(self) -> bool:
        """Ask the leader to move this node's partitions to other primaries; return True if done, or impossible."""
        if self.status is not NodeStatus.STOPPING:
            log.info("this node hands over its partitions")
            self._set_status(NodeStatus.STOPPING)
            self.election.retire()
        # Both at once, so that the proxies' consumers confirm at the same time as others. Other members' consumers
        # confirm until their primary is another one.
        if not all((self.guests.retire(), self._last_confirms.done())):
            return False
        if list(self.statuses.values()).count(NodeStatus.AVAILABLE) < self.election.quorum:
            return True
        return not any(self.metadata.primary_of(each)[0] == self.links.own_id for each in self.partitions)

    def awaits_confirms(self) -> bool:
        return self._last_confirms.awaited()

    def stop(self) -> None:
        self.election.stop()
        self.metadata.stop()
        for partition in self.partitions.values():
            partition.stop()

    def settle(self) -> bool:
        partitions = self.partitions.values()
        if self.status is NodeStatus.STARTING and self.metadata.healed and all(each.is_healed for each in partitions):
            log.info("Cluster (%s) is available", self._node.identity.cluster_name)
            self._on_available()
            self._set_status(NodeStatus.AVAILABLE)
        heals = False
        for partition in partitions:
            partition.flush(gathers=True)
            stream = partition.stream
            heals |= partition.transfer is not None or (stream is not None and stream.heals)
            if partition.stored.payloads.settled:
                self.queues.go_on(partition.stored.payloads)
        self._healing.is_needed = heals
        # Pushes refer to messages, which the replicas must have first.
        unfinished = self.queues.flush()
        return (heals and self._healing.go_on()) or unfinished

    def rest(self) -> bool:
        """Send what `settle` left to go with later output; return True if there was any."""
        gathering = [partition for partition in self.partitions.values() if partition.gathers]
        for partition in gathering:
            partition.flush()
        return bool(gathering)

    # -- see `Copies`

    def read(self, partition_id: int, queue_key: bytes, guid: bytes) -> Content | None:
        return self.partitions[partition_id].read(queue_key, guid)

    def takes_pushes(self, partition_id: int) -> bool:
        primary_id, _ = self.metadata.primary_of(partition_id)
        return self.partitions[partition_id].is_healed and is_pushed_to(self.status, self.links, primary_id)

    def is_behind(self, node_id: int) -> bool:
        return self._healing.is_behind(node_id)

    def may_lack(self, node_id: int, partition_id: int) -> bool:
        return may_lack(node_id, self.partitions[partition_id].healed, self.links)

    def peer_up(self, node_id: int, peer: Peer) -> None:
        """Register a negotiated link, which replaces an older one."""
        if node_id in self.links.peers:
            self.peer_down(node_id)
        log.info("node %d is connected", node_id)
        self.links.peers[node_id] = peer
        self._judge_links()
        # A leader sends its heartbeat first, as the reference does.
        self.election.node_up(node_id)
        self.metadata.node_up(node_id)
        for partition in self.partitions.values():
            partition.node_up(node_id)
        self.queues.peer_up(node_id)
        self._sync()
        self.requests.advise(node_id, ClusterMessage(choice=NodeStatusAdvisory(status=self.status)))

    def peer_down(self, node_id: int) -> None:
        log.warning("node %d has disconnected", node_id)
        del self.links.peers[node_id]
        self._judge_links()
        self.statuses.pop(node_id, None)
        self._legacy.node_down(node_id)
        self.queues.peer_down(node_id)
        self.requests.node_down(node_id)
        for partition in self.partitions.values():
            partition.node_down(node_id)
        self.metadata.node_down(node_id)
        self.election.node_down(node_id)

    def _judge_links(self) -> None:
        """Stop acks in a minority, whatever the consistency, unless an operator lets fewer nodes elect."""
        is_cut_off = 1 + len(self.links.peers) < min(self.majority, self._quorum_set or self.majority)
        if is_cut_off is not self._is_cut_off:
            self._is_cut_off = is_cut_off
            for stored in self._node.partitions.values():
                stored.kept.is_cut_off = is_cut_off
            self._judge_copies()

    def _judge_copies(self) -> None:
        wanted = max(1, self.replication_quorum)
        if self._is_cut_off:
            wanted = max(wanted, self.majority)
        for partition in self.partitions.values():
            partition.set_copies_wanted(wanted)
        for queue in self._node.queues.values():
            queue.judge_copies()

    def receive(self, node_id: int, data: memoryview, frame: Frame) -> None:
        handler = self._on_event.get(frame.type)
        if handler is None:
            text = f"unexpected {EventType(frame.type).name} event from a node"
            raise FormatError("EventHeader.type", frame.body, text)
        handler(node_id, data, frame)

    def _on_elector(self, node_id: int, data: memoryview, frame: Frame) -> None:
        message = received(ElectorMessage, schema_message(data, frame.body, frame.end), EncodingType.BER)
        with Change(f"an election with node {node_id}", FormatError):
            self.metadata.node_heard(node_id)
            self.election.receive(node_id, message)

    def _on_control(self, node_id: int, data: memoryview, frame: Frame) -> None:
        body = schema_message(data, frame.body, frame.end)
        message = received(ControlMessage, body, schema_encoding(frame.type_specific))
        with Change(f"a message of node {node_id} ({type(message.choice).__name__})", FormatError):
            self._hear(node_id, message, frame)

    def _hear(self, node_id: int, message: ControlMessage, frame: Frame) -> None:
        match message.choice:
            case ClusterMessage(choice=NodeStatusAdvisory(status=status)):
                self._on_status(node_id, status)
            case ClusterMessage(choice=StopRequest()) if message.r_id is not None:
                self._on_status(node_id, NodeStatus.STOPPING)
                answer = StopResponse(cluster_name=self._node.identity.cluster_name)
                self.requests.respond(node_id, message, ClusterMessage(choice=answer))
            case _:
                if not self._take(node_id, message):
                    log.warning(
                        "node %d: unexpected response ignored: %s", node_id, Shown(message, frame.end - frame.body)
                    )

    def _on_status(self, node_id: int, status: NodeStatus) -> None:
        is_new = self.statuses.get(node_id) is not status
        self.statuses[node_id] = status
        self.metadata.node_status(node_id, status)
        if is_new:
            self._sync()

    def _sync(self) -> None:
        """Write sync points as primary, as the reference does when another member comes, is available, or stops."""
        for partition in self.partitions.values():
            partition.stored.sync()

    def _take(self, node_id: int, message: ControlMessage) -> bool:
        if self.requests.received(node_id, message):
            return True
        match message.choice:
            case ClusterMessage(choice=PartitionMessage(choice=choice)):
                partition = self.partitions.get(choice.partition_id)
                if partition is None:
                    log.error(
                        "node %d: Received %s of an invalid partitionId, %d",
                        node_id,
                        named(choice),
                        choice.partition_id,
                    )
                return partition is not None and partition.on_control(node_id, message)
            case ClusterMessage(choice=PrimaryStatusAdvisory(partition_id=partition_id) as advisory):
                log.info(
                    "received primary status advisory: "
                    "[ partitionId = %d primaryLeaseId = %d status = E_%s ], from: %s",
                    partition_id,
                    advisory.primary_lease_id,
                    advisory.status.name,
                    self.describe(node_id),
                )
                self.metadata.lease_wanted(node_id, advisory)
                partition = self.partitions.get(partition_id)
                return partition is not None and partition.on_control(node_id, message)
            case ClusterMessage(
                choice=LeaderSyncStateQuery()
                | LeaderSyncDataQuery()
                | PartitionSyncStateQuery()
                | PartitionSyncDataQuery()
                | StorageSyncRequest()
                | ClusterSyncRequest() as query
            ):
                self._legacy.refuse(node_id, message, type(query).__name__)
                return True
            case ClusterMessage():
                return self.metadata.on_control(node_id, message)
            case _:
                return self.queues.on_control(node_id, message)

    def _partition(self, partition_id: int, at: int) -> ReplicatedPartition:
        partition = self.partitions.get(partition_id)
        if partition is None:
            raise FormatError("partition_id", at, f"there is no partition {partition_id}")
        return partition

    def _on_cluster_state(self, node_id: int, data: memoryview, frame: Frame) -> None:
        self.metadata.on_cluster_state(node_id, data, frame)
        # Acks, commits and advisories are made when they are sent, so they show the sender's time.
        self._node.clocks.told(node_id, LEDGER_RECORD_HEADER.unpack(data, frame.body).timestamp)

    def _on_storage(self, node_id: int, data: memoryview, frame: Frame) -> None:
        partition_id = storage_partition_id(data, frame.body, frame.end)
        self._partition(partition_id, frame.body).on_storage(node_id, data, frame)

    def _on_sync(self, node_id: int, data: memoryview, frame: Frame) -> None:
        partition_id = storage_partition_id(data, frame.body, frame.end)
        self._partition(partition_id, frame.body).on_sync(node_id, data, frame)

    def _on_recovery(self, node_id: int, data: memoryview, frame: Frame) -> None:
        for chunk in iter_chunks(data, frame.body, frame.end):
            self._partition(chunk.partition_id, frame.body).on_recovery(node_id, chunk)

    def _on_receipt(self, node_id: int, data: memoryview, frame: Frame) -> None:
        receipt = parse_receipt(data, frame.body, frame.end)
        self._partition(receipt.partition_id, frame.body).on_receipt(node_id, receipt, frame.body)

    def on_restore(self, partition_id: int) -> PartitionRestoring:
        return self.queues.restoring(partition_id)

    def on_active(self, partition_id: int) -> None:
        self.queues.activated(partition_id)
        self.upkeep.activated(partition_id)
        self._judge_health()

    def on_passive(self, partition_id: int) -> None:
        self.queues.deactivated(partition_id)

    def on_removed(self, partition_id: int, queue_key: bytes, guid: bytes) -> None:
        self.queues.removed(partition_id, queue_key, guid)

    def on_purged(self, partition_id: int, queue_key: bytes, guids: Sequence[Container[bytes]], heals: bool) -> None:
        self.queues.purged(partition_id, queue_key, guids, heals=heals)

    def on_outdated(self, partition_id: int, lease_id: int) -> None:
        self.metadata.lease_outdated(partition_id, lease_id)

    def on_queues(self, change: QueueChange) -> None:
        self.upkeep.changed(change)

    def on_agreed(self) -> None:
        """Log that the leader's state is agreed on, before any queue is served.

        The text and the order are the reference's: programs wait for it in the log, and for the queues' lines after it.
        """
        leader_id = self.election.leader_id
        if leader_id is not None:
            name = self._node.identity.cluster_name
            log.info("Cluster (%s): new leader: %s, leader status: ACTIVE", name, self.describe(leader_id))
            log.info("#ELECTOR_INFO: leader: %s, transitioning status from PASSIVE to ACTIVE", self.describe(leader_id))

    def on_healed(self, leads: bool) -> None:
        self.upkeep.healed(leads)
        self._judge_health()

    def on_primary_status(self, partition_id: int, node_id: int, active: bool) -> None:
        self.queues.primary_active(partition_id, node_id, active)
        self._judge_health()

    def _judge_health(self) -> None:
        is_well = self.metadata.healed and all(each.is_served for each in self.partitions.values())
        if is_well and not self._is_well:
            log.info("Cluster (%s) is back to healthy state.", self._node.identity.cluster_name)
        self._is_well = is_well

    def set_elector_quorum(self, quorum: int) -> None:
        self._quorum_set = quorum
        self.election.quorum = quorum or self._elector_quorum
        self._judge_links()
        self.metadata.set_quorum(quorum or max(self.majority, self._elector_quorum))
        for partition in self.partitions.values():
            partition.set_quorum(min(self.majority, quorum or self.majority))

    def set_replication_quorum(self, quorum: int) -> None:
        self.replication_quorum = quorum
        self._judge_copies()
        risk = risk_of_copies(quorum, 1 + len(self.links.other_ids))
        if risk:
            log.warning("Cluster (%s): messages of strong consistency %s", self._node.identity.cluster_name, risk)

    def on_primary(self, partition_id: int, node_id: int | None, primary_lease_id: int) -> None:
        """Handle a change of a partition's primary, which may be None."""
        self.partitions[partition_id].primary_changed(node_id, primary_lease_id)
        self.queues.primary_changed(partition_id, node_id, primary_lease_id)
        self._judge_health()

    def copied(self, partition_id: int) -> Mapping[bytes, tuple[int, int]] | None:
        partition = self.partitions[partition_id]
        return None if partition.stored.active else partition.copy.index.places.stored()

    def _set_status(self, status: NodeStatus) -> None:
        self.status = status
        self.metadata.node_status(self.links.own_id, status)
        for node_id in self.links.peers:
            self.requests.advise(node_id, ClusterMessage(choice=NodeStatusAdvisory(status=status)))
        self.guests.set_status(status)
