# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The queues of a cluster's member: as their primary it serves them, the others it relays.

A client can open a queue at any node. It gets the root if this node is the active primary of the queue's partition, and
otherwise a relay, whose upstream is the primary as soon as there is one (source: mqbblp::ClusterQueueHelper).
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from broker.bmq.core.messages import Content
from broker.bmq.core.payloads import Payloads
from broker.bmq.links.links import OwnLinks
from broker.bmq.links.requests import Requests
from broker.bmq.member.known_primaries import KnownPrimaries
from broker.bmq.member.primary_opens import MemberHost, PrimaryOpens
from broker.bmq.member.queues_ports import Copies, QueuePlaces
from broker.bmq.member.relay_places import RelayPlaces
from broker.bmq.member.restoring import MemberRestoration
from broker.bmq.node.node import Node
from broker.bmq.partition.unkept_confirms import unkept_confirms
from broker.bmq.queue.domains import DomainInUse
from broker.bmq.queue.handles import Handle, Refusal
from broker.bmq.queue.queue import Queue
from broker.bmq.queue.queue_requests import Opened
from broker.bmq.queue.root_queue import RootQueue
from broker.bmq.relay.confirms import SENT_CONFIRMS_MAX, Given
from broker.bmq.relay.downstream import Downstream
from broker.bmq.relay.handover import confirm_all, retire, to_relay, to_root
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.relay_links import PeerUpstream, RelayLinks
from broker.bmq.session.queue_user import PUSH_BYTES_HIGH
from formats.bmq.control.messages import ControlMessage, QueueHandleParameters, QueueInfo
from formats.bmq.disk.keys import NULL_KEY
from formats.bmq.wire.event import Frame

__all__ = ["NO_ROOM_MS", "ClusterQueues"]

log: Final = logging.getLogger("broker.cluster")

# Time until a retry after there was no room in a journal, or for a queue in the cluster.
NO_ROOM_MS: Final = 1000

# Time until a relay reopens its queue after a push of a missing message.
OUT_OF_STEP_MS: Final = 100


class ClusterQueues:
    """The queues of a member. Call `flush` after each step, after that of the partitions.

    Queues that are `leaving`, by URI, are about to be unassigned, and cannot be opened until the outcome is known.
    """

    def __init__(
        self,
        node: Node,
        links: OwnLinks,
        requests: Requests,
        places: QueuePlaces,
        copies: Copies,
        leaving: Container[str] = (),
    ) -> None:
        self.node = node
        self._links = links
        self._leaving = leaving
        self._relay_links = RelayLinks(links, requests, node.identity.cluster_name, node.now)
        self.on_ack = self._relay_links.on_ack
        self.on_push = self._relay_links.on_push
        self._places = places
        self._copies = copies
        self._postponed: set[int] = set()  # partitions with a primary that cannot push here yet
        self.opens = PrimaryOpens(self, copies.may_lack)
        self._downstreams: dict[int, Downstream] = {}
        self._relays = self._relay_links.relays
        self._relay_places = RelayPlaces()
        self._primaries = KnownPrimaries()
        self._served: set[int] = set()  # the partitions whose active primary this node is
        self._moving: dict[int, list[RelayQueue]] = {}
        # Restored queues whose names other queues have, by partition: they are to be erased.
        self.outdated: dict[int, list[Queue]] = {}

    @property
    def reopening(self) -> int:
        """Queues that are being opened again at a new primary."""
        return self._relay_links.reopening

    # -- where queues are

    def serves(self, uri: str) -> bool:
        info = self._places.state.queues.get(uri)
        return info is not None and info.partition_id in self._served and uri not in self._leaving

    def serves_partition(self, partition_id: int) -> bool:
        return partition_id in self._served

    def info_of(self, uri: str) -> QueueInfo | None:
        return self._places.state.queues.get(uri)

    def partition_of(self, uri: str) -> int:
        return self._places.state.queues[uri].partition_id

    def primary_changed(self, partition_id: int, node_id: int | None, primary_lease_id: int) -> None:
        if self._primaries.assign(partition_id, node_id, primary_lease_id):
            self._connect(partition_id)

    def removed(self, partition_id: int, queue_key: bytes, guid: bytes) -> None:
        relay = self._relay_places.at(partition_id, queue_key)
        if relay is not None:
            relay.removed(guid)

    def purged(self, partition_id: int, queue_key: bytes, guids: Sequence[Container[bytes]], *, heals: bool) -> None:
        """See `RelayQueue.purged`."""
        relay = self._relay_places.at(partition_id, queue_key)
        if relay is not None:
            relay.purged(guids, heals=heals)

    def primary_active(self, partition_id: int, node_id: int, active: bool) -> None:
        self._primaries.report(partition_id, node_id, active=active)
        self._connect(partition_id)

    def _primary_of(self, partition_id: int) -> int | None:
        node_id = self._primaries.serving(partition_id)
        return node_id if node_id is not None and self._links.is_up(node_id) else None

    def _takes_pushes(self, partition_id: int) -> bool:
        # The primary's pushes have no payload, so it must be in this node's copy.
        if self._copies.takes_pushes(partition_id):
            return True
        self._postponed.add(partition_id)
        return False

    def _connect(self, partition_id: int) -> None:
        primary = self._primary_of(partition_id)
        takes_pushes = primary is not None and self._takes_pushes(partition_id)
        for relay in self._relay_places.of_partition(partition_id):
            old = relay.upstream
            if primary is not None and isinstance(old, PeerUpstream) and old.node_id == primary:
                # Its pushes wait for messages missing here: a primary of the reference would not push them again.
                if takes_pushes:
                    relay.arrivals.go_on()
                continue
            if old is not None:
                self._relay_links.lost(relay)
            if primary is not None and takes_pushes:
                self._relay_links.found(relay, primary)

    def place(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        queue = self.node.queues.get(name)
        if queue is None and name not in self._places.state.queues:
            self._places.assign_queue(
                name,
                domain.config,
                lambda outcome: self._assigned(outcome, name, domain, parameters, opened),
            )
        elif queue is None or isinstance(queue, RelayQueue):
            self._open(name, domain, parameters, opened)
        else:
            queue.upkeep.was_opened = True
            opened(queue)

    def _assigned(
        self,
        outcome: QueueInfo | Refusal,
        name: str,
        domain: DomainInUse,
        parameters: QueueHandleParameters,
        opened: Opened,
    ) -> None:
        if isinstance(outcome, Refusal):
            opened(outcome)
            return
        try:
            self._open(name, domain, parameters, opened)
        except Refusal as refusal:
            opened(refusal)

    def _open(self, name: str, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened) -> None:
        queue = self.node.queues.get(name)
        if isinstance(queue, RelayQueue):
            self._open_relay(queue, domain, parameters, opened)
        elif self.serves(name):
            opened(self.node.serve_queue(name, domain))
        else:
            relay = self._make_relay(self._places.state.queues[name], domain)
            self._open_relay(relay, domain, parameters, opened)

    def _open_relay(
        self, relay: RelayQueue, domain: DomainInUse, parameters: QueueHandleParameters, opened: Opened
    ) -> None:
        def answered(outcome: Queue | Refusal) -> None:
            if isinstance(outcome, Refusal) or not outcome.is_root:
                opened(outcome)
                return
            # The root has moved here, and takes this open like any other.
            try:
                self.node.role.place(relay.uri, domain, parameters, opened)
            except Refusal as refusal:
                opened(refusal)

        relay.open(parameters, answered)

    def _make_relay(self, info: QueueInfo, domain: DomainInUse) -> RelayQueue:
        relay = self._new_relay(info, domain)
        primary = self._primary_of(info.partition_id)
        if primary is not None and self._takes_pushes(info.partition_id):
            self._relay_links.found(relay, primary)
        return relay

    def _new_relay(self, info: QueueInfo, domain: DomainInUse) -> RelayQueue:
        relay = RelayQueue(
            info.uri,
            info.key,
            domain.config,
            [(app.app_id, app.app_key) for app in info.app_ids],
            self.node,
            self._relay_links.next_queue_id(),
            lambda guid: self._read_message(relay, guid),
            self._forget,
            self._connect_later,
            self._on_out_of_step,
        )
        self._register(relay, info.partition_id)
        self._relay_links.begin(relay)
        self.node.queues[relay.uri] = relay
        log.info("queue '%s' has its primary elsewhere [partition: %d]", info.uri, info.partition_id)
        return relay

    def _read_message(self, relay: RelayQueue, guid: bytes) -> Content | None:
        info = self._places.state.queues.get(relay.uri)
        return None if info is None else self._copies.read(info.partition_id, info.key, guid)

    def go_on(self, payloads: Payloads) -> None:
        settled = dict(payloads.settled)
        payloads.settled.clear()
        for queue in list(self.node.queues.values()):
            if queue.is_root and queue.key in settled:
                queue.delivery.go_on(settled[queue.key])

    def _on_out_of_step(self, relay: RelayQueue) -> None:
        """Return all messages of a queue; reopen it once this node's replica, which lacks one of them, is healed."""
        if relay.uri in self._places.state.queues:
            self._relay_links.lost(relay)
            self._connect_later(relay)

    def _connect_later(self, relay: RelayQueue) -> None:
        """Let a queue continue once this node's replica is healed, but not at once."""
        info = self._places.state.queues.get(relay.uri)
        if info is not None:
            again = lambda: self._postponed.add(info.partition_id)  # noqa: E731
            self.node.timers.at(self.node.now.ms + OUT_OF_STEP_MS, again)

    def unassigned(self, relay: RelayQueue) -> None:
        """Drop a relay whose queue was removed; it is created again if a client still needs it."""
        if relay.upstream is not None:
            self._relay_links.lost(relay)
        self._assign_again(relay)

    def _assign_again(self, relay: RelayQueue) -> None:
        if relay.openings.is_unused and not relay.unacknowledged:
            self._forget(relay)
            return
        self._places.assign_queue(relay.uri, relay.config, lambda outcome: self._assigned_again(relay, outcome))

    def _assigned_again(self, relay: RelayQueue, outcome: QueueInfo | Refusal) -> None:
        if self._relays.get(relay.queue_id) is not relay:
            return
        if isinstance(outcome, Refusal):
            log.error("queue '%s' cannot be assigned again yet: %s", relay.uri, outcome)
            self.node.timers.at(self.node.now.ms + NO_ROOM_MS, lambda: self._assign_again(relay))
            return
        self._unregister(relay)
        relay.key = outcome.key
        self._register(relay, outcome.partition_id)
        self._connect(outcome.partition_id)
        self._serve_again(relay)

    def _register(self, relay: RelayQueue, partition_id: int) -> None:
        self._relays[relay.queue_id] = relay
        self._relay_places.add(relay, partition_id)

    def _unregister(self, relay: RelayQueue) -> None:
        self._relay_links.remove(relay)
        self._relay_places.remove(relay)

    def _forget(self, relay: RelayQueue) -> None:
        if self._relays.get(relay.queue_id) is relay:
            self._unregister(relay)
            self._relay_links.end(relay)
            if self.node.queues.get(relay.uri) is relay:
                del self.node.queues[relay.uri]

    # -- changes of the primary

    def restoring(self, partition_id: int) -> MemberRestoration:
        return MemberRestoration(self, partition_id)

    def restored(self, partition_id: int) -> None:
        """Replace relays by the restored queues of a partition, to which nothing may be written yet.

        A relay that waits for the assignment of its queue stays: its partition is not known yet.
        """
        relays = [
            relay for relay in self._relay_places.of_partition(partition_id) if self._is_in(relay, {partition_id})
        ]
        for relay in relays:
            self.node.queues.pop(relay.uri, None)
            self._unregister(relay)
        self._moving[partition_id] = relays

    def activated(self, partition_id: int) -> None:
        """Begin to serve a partition, after `restored`."""
        relays = self._moving.pop(partition_id)
        self._served.add(partition_id)
        handles = self._handles({id(relay) for relay in relays})
        assigned_since = self._relay_places.of_partition(partition_id)
        for relay in relays:
            if relay.uri in self.node.queues or self._is_in(relay, self._served):
                self._begin_to_serve(relay, handles[id(relay)])
            else:
                # Its queue was unassigned after `restored`.
                self._stay_relay(relay, partition_id)
        for relay in assigned_since:
            self._serve_again(relay)
        for uri in self._relay_links.left.uris:
            if self.serves(uri) and uri in self.node.queues:
                confirm_all(self.node.queues[uri], [(guid, app) for _, guid, app in self._relay_links.left.take(uri)])

    def _begin_to_serve(self, relay: RelayQueue, handles: Sequence[Handle]) -> None:
        """Turn a relay into a root; if there is no room for that, the relay waits and retries."""
        try:
            root = self.node.serve_queue(relay.uri, self.node.domains[relay.config.name])
        except Refusal as refusal:
            log.error("queue '%s' cannot be served yet: %s", relay.uri, refusal)
            self._stay_relay(relay, self.partition_of(relay.uri))
            self.node.timers.at(self.node.now.ms + NO_ROOM_MS, lambda: self._serve_again(relay))
            return
        to_root(relay, root, handles)
        log.info("Rebuilt internal state of queue engine for queue [%s]", root.uri)

    def _serve_again(self, relay: RelayQueue) -> None:
        if self._relays.get(relay.queue_id) is relay and self.serves(relay.uri):
            self._unregister(relay)
            del self.node.queues[relay.uri]
            self._begin_to_serve(relay, self._handles({id(relay)})[id(relay)])

    def deactivated(self, partition_id: int) -> None:
        """Stop serving a partition, or abandon a takeover of it, while its store is still complete."""
        self._served.discard(partition_id)
        for queue in self.outdated.pop(partition_id, []):
            retire(queue)
        state = self._places.state
        old = [
            queue
            for uri, queue in self.node.queues.items()
            if isinstance(queue, RootQueue) and (info := state.queues.get(uri)) and info.partition_id == partition_id
        ]
        if partition_id in self._moving:
            self._put_back(partition_id, old)
            return
        for downstream in self._downstreams.values():
            downstream.forget(old)
        self.opens.partition_lost(partition_id)
        handles = self._handles({id(queue) for queue in old})
        stored = self.node.partitions[partition_id]
        unkept = unkept_confirms(stored.unkept_records(), stored.unkept_purges())
        for queue in old:
            del self.node.queues[queue.uri]
            self._relay_links.left.keep(queue.uri, self._given(queue, unkept.get(queue.key, ())))
            if queue.is_open or queue.awaiting or queue.held:
                relay = self._new_relay(state.queues[queue.uri], self.node.domains[queue.config.name])
                to_relay(queue, relay, handles[id(queue)])
                if relay.openings.is_unused and not relay.unacknowledged:
                    self._forget(relay)
            else:
                retire(queue)
        self._connect(partition_id)

    def _given(self, queue: RootQueue, unkept: Iterable[tuple[bytes, bytes]]) -> list[Given]:
        """Take the confirms that the next primary may lack, oldest first: of messages not here, and `unkept` ones."""
        now_ms = self.node.now.ms
        unknown = queue.unknown_confirms
        given = unknown.take() if unknown is not None else []
        given += [
            (now_ms, guid, app.app_id)
            for guid, app_key in unkept
            for app in queue.apps.values()
            if app_key in (app.key, NULL_KEY)
        ]
        return given[-SENT_CONFIRMS_MAX:]

    def _put_back(self, partition_id: int, restored: Iterable[Queue]) -> None:
        for queue in restored:
            retire(queue)
            del self.node.queues[queue.uri]
        for relay in self._moving.pop(partition_id):
            self._stay_relay(relay, partition_id)

    def _stay_relay(self, relay: RelayQueue, partition_id: int) -> None:
        """Undo `restored` for a relay, and ask for an assignment that it missed meanwhile."""
        self._register(relay, partition_id)
        self.node.queues[relay.uri] = relay
        if not self._is_in(relay, {partition_id}):
            self._assign_again(relay)

    def _is_in(self, relay: RelayQueue, partition_ids: Container[int]) -> bool:
        info = self.info_of(relay.uri)
        return info is not None and info.partition_id in partition_ids

    def _handles(self, queues: set[int]) -> Mapping[int, list[Handle]]:
        found: dict[int, list[Handle]] = {queue: [] for queue in queues}
        for session in self.node.sessions.values():
            for handle in session.handles.values():
                if id(handle.queue) in found:
                    found[id(handle.queue)].append(handle)
        return found

    # -- links

    def downstreams(self) -> Iterable[Downstream]:
        return self._downstreams.values()

    def peer_up(self, node_id: int) -> None:
        outbox = self._relay_links.node_up(node_id)
        self._downstreams[node_id] = Downstream(
            MemberHost(self.opens, self.node, node_id),
            -1 - node_id,
            f"node {node_id}",
            outbox,
            lambda: self._relay_links.wake(node_id),
            lambda error: self._links.fail(node_id, error),
            member=True,
        )
        for partition_id in self._primaries.partitions_of(node_id):
            self._connect(partition_id)

    def peer_down(self, node_id: int) -> None:
        self.opens.node_lost(node_id)
        downstream = self._downstreams.pop(node_id, None)
        if downstream is not None:
            downstream.lost()
        self._relay_links.node_down(node_id)
        for partition_id in self._primaries.lose(node_id):
            self._connect(partition_id)

    def flush(self) -> bool:
        """Send the output of the step; return True if more can be sent at once."""
        if self._postponed:
            for partition_id in [each for each in self._postponed if self._copies.takes_pushes(each)]:
                self._postponed.discard(partition_id)
                self._connect(partition_id)
        if self.opens.held:
            self.opens.go_on()
        self._relay_links.send_all()
        more = False
        for node_id, downstream in self._downstreams.items():
            if self._links.backlog(node_id) > PUSH_BYTES_HIGH or self._copies.is_behind(node_id):
                downstream.block()
            elif downstream.is_waiting:
                downstream.output_sent()
                more |= downstream.is_waiting
                self._relay_links.send_to(node_id)
        return more

    def on_control(self, node_id: int, message: ControlMessage) -> bool:
        """Handle a request about a queue; return False for anything else."""
        return self._downstreams[node_id].on_request(message)

    def on_put(self, node_id: int, data: memoryview, frame: Frame) -> None:
        self._downstreams[node_id].on_put(data, frame)

    def on_confirm(self, node_id: int, data: memoryview, frame: Frame) -> None:
        self._downstreams[node_id].on_confirm(data, frame)

    def on_reject(self, node_id: int, data: memoryview, frame: Frame) -> None:
        self._downstreams[node_id].on_reject(data, frame)
