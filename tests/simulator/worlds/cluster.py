"""A world of several nodes that are one cluster: strong consistency, whichever node a client is connected to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.bmq.consensus.election_table import ElectionRole
from broker.bmq.member.member import Member
from broker.bmq.node.node import Node
from broker.bmq.queue.handles import Refusal
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import QueueInfo
from formats.bmq.disk.keys import DEFAULT_APP_KEY
from tests.simulator.actors.clients import Client, Consumer
from tests.simulator.actors.operator import EXTRA_APP
from tests.simulator.judges.accounts import check_counts
from tests.simulator.judges.agreement import Agreement
from tests.simulator.judges.invariants import (
    WINDOW_PART,
    Post,
    Promise,
    Reader,
    Records,
    Violation,
    check_queue,
    name_of,
)
from tests.simulator.judges.journals import Journals
from tests.simulator.judges.prompt import PromptAcks
from tests.simulator.machines.hosts import Host
from tests.simulator.worlds.features import Feature
from tests.simulator.worlds.world import APPS, EVENTUAL, FANOUT, PRIORITY, World

__all__ = ["ClusterRecords", "ClusterWorld"]

POST_US = 150_000  # between two posts of a client: each takes many steps here
SHORT = PartitionLimits(journal=10 << 10, data=24 << 10, qlist=4 << 10)  # for many rollovers
LONG_WINDOW_US = 240_000_000  # the shortest deduplication time of a queue that has none of its own
ASK_US = 300_000  # between two questions about the places of queues


class ClusterRecords(Records):
    """The records of a cluster: a message is safe, and a confirm durable, once a majority of nodes has its record."""

    def __init__(
        self, apps: Mapping[str, tuple[str, ...]], promises: Mapping[str, Promise], world: ClusterWorld
    ) -> None:
        super().__init__(apps, promises)
        self._world = world
        self._durable: set[tuple[str, bytes]] = set()
        # NOT_READY is for brokers: they send the post again.
        self.refusals = (AckStatus.STORAGE_FAILURE, AckStatus.UNKNOWN)

    def confirmed(self, uri: str, app: str, guids: Iterable[bytes]) -> None:
        """A broker has handled the confirms: that alone is not enough."""

    def durable(self, uri: str, app: str, guid: bytes) -> None:
        """A majority has the record that an app is done with a message."""
        super().confirmed(uri, app, (guid,))
        self._durable.add((app, guid))

    def is_durable(self, app: str, guid: bytes) -> bool:
        """Return whether a majority has it that an app is done with a message, or is no more."""
        return (app, guid) in self._durable

    def ack(self, guid: bytes, status: int) -> None:
        post = self.posts.get(guid)
        if post is not None and status == AckStatus.UNKNOWN and not post.refused:
            self._check_age(post)
        if post is not None and status == AckStatus.SUCCESS and not post.acked:
            self._check_copies(post, "acknowledged")
        super().ack(guid, status)

    def _check_age(self, post: Post) -> None:
        """Check that a post that nobody has refused is given up only when its repetition might be taken for another.

        Or when its primary is none any longer, and has the payload no more that the next one would be sent.
        """
        can_close = {Feature.WHOLE_QUEUES, Feature.MALFORMED}  # queues to which posts are on their way
        window_us = self.windows_us.get(post.uri, LONG_WINDOW_US) * WINDOW_PART
        if self.clock.us - post.made_us < window_us and not post.rotted and can_close.isdisjoint(self._world.features):
            raise Violation(f"{name_of(post)} is given up before its time")

    def taken_twice(self, guid: bytes) -> None:
        """A majority has a message again, as another: rightly only if nobody can know any longer that it was there."""
        post = self.posts[guid]
        apps = self.views[post.uri]
        is_gone = not post.purged or all(self.is_durable(app, guid) for app in apps)
        if is_gone and not all(self.may_be_new(post, app) for app in apps):
            raise Violation(f"{name_of(post)} was taken twice")

    def push(self, consumer: Reader, uri: str, app: str, guid: bytes, payload: bytes, *, is_heard: bool = True) -> None:
        post = self.posts.get(guid)
        if post is not None:
            if self.is_durable(app, guid):
                # It was on its way when the app was done with it: see `Passage`.
                self.redelivered += 1
                return
            self._check_copies(post, "delivered")
            if uri == EVENTUAL and self._world.has_been_replaced(uri, guid):
                # It waits for no majority, so it may come before what the primary of today was sent before it.
                self.again.add((guid, app))
        super().push(consumer, uri, app, guid, payload, is_heard=is_heard)

    def _check_copies(self, post: Post, what: str) -> None:
        if self.promises[post.uri] is Promise.KEPT and not post.purged and not self.is_safe(post):
            raise Violation(f"number {post.number} of {post.producer} to {post.uri} is {what} without enough copies")

    def is_safe(self, post: Post) -> bool:
        """Return whether a majority has a message for good."""
        return any(post.guid in each.safe for each in self._world.journals.values())

    def is_kept(self, post: Post) -> bool:
        return super().is_kept(post) and (self.promises[post.uri] is Promise.KEPT or self.is_safe(post))


class ClusterWorld(World):
    """Several nodes."""

    is_cluster = True
    records: ClusterRecords

    def __init__(self, seed: int, *, nodes: int = 3, features: frozenset[Feature] | None = None) -> None:
        self.quorum = nodes // 2 + 1
        self.partition_count = 2 if seed % 3 == 2 else 1
        self.agreement = Agreement(self.quorum)
        self._without_power: set[Host] = set()  # whose disks may be damaged
        self._beliefs: dict[tuple[str, str], str] = {}
        self._app_ids: dict[str, dict[bytes, str]] = {}  # by queue and key
        self._questions: dict[object, tuple[Node | None, str, str]] = {}  # about places of queues, not answered yet
        # The messages of the queue of eventual consistency, by primaries without a majority.
        self._when_cut_off: dict[Host, set[bytes]] = {}
        super().__init__(seed, nodes=nodes, features=features)
        if seed % 2:
            self.limits = SHORT
        self.journals = {
            number: Journals(number, self.quorum, self.records.refused) for number in range(self.partition_count)
        }

        self.prompt_acks = PromptAcks(self)

    def make_records(self) -> Records:
        return ClusterRecords(self.apps, self.promises, self)

    def make_clients(self) -> list[Client]:
        producers = self.make_producers()
        for producer in producers:
            producer.interval_us = POST_US
        clients: list[Client] = [*producers]
        clients.append(Consumer(self, "c0", [(PRIORITY, "")]))
        clients += [Consumer(self, f"f{app}", [(FANOUT, app)]) for app in APPS]
        return clients

    def run(self, steps: int = 2000) -> None:
        self._ask_places()
        self.prompt_acks.look()
        super().run(steps)

    # -- what hosts tell

    def started(self, host: Host) -> None:
        self._without_power.discard(host)
        self.agreement.started(host.node_id)
        for journals in self.journals.values():
            journals.forget(host.node_id)

    def voted(self, host: Host, term: int, machine: str) -> None:
        (for_id,) = [other.node_id for other in self.hosts if other.name == machine]
        self.agreement.voted(host.node_id, term, for_id)

    def before_flush(self, host: Host) -> None:
        """A step has written, and nothing of it has left yet."""
        node, member = host.node, host.member
        if node is not None and member is not None:
            self._look_at(host, node, member)
        super().before_flush(host)

    def _look_at(self, host: Host, node: Node, member: Member) -> None:
        self.agreement.look(host.node_id, node, member.metadata, member.election)
        if member.election.role is ElectionRole.LEADER and 1 + len(member.links.peers) < self.quorum:
            raise Violation(f"{host.name} leads, and is linked to {len(member.links.peers)} other nodes")
        for number, journals in self.journals.items():
            was = len(journals.primaries)
            for guid, app_key in journals.look(host.node_id, node):
                self._done(host, guid, app_key)
            for guid in journals.twice:
                self.records.taken_twice(guid)
            journals.twice.clear()
            partition = member.partitions[number]
            journals.copies.look(host.node_id, partition, self.clock.us)
            if len(journals.primaries) != was:
                numbers = journals.views[host.node_id].numbers
                journals.copies.check_begun(host.node_id, partition.primary_lease_id, numbers)
                self._check_primary(journals, host)
        self._check_cut_off(host, node, member)
        for what, belief in self._beliefs_of(host):
            if self._beliefs.get((host.name, what)) != belief:
                self._beliefs[host.name, what] = belief
                self.say(f"{host.name} {belief}")

    def _check_cut_off(self, host: Host, node: Node, member: Member) -> None:
        """Check that a primary without a majority takes no message as kept, whatever the queue promises otherwise."""
        queue = node.queues.get(EVENTUAL)
        if queue is None or not queue.is_root or 1 + len(member.links.peers) >= self.quorum:
            self._when_cut_off.pop(host, None)
            return
        if host in self._when_cut_off:
            for guid in queue.messages.keys() - self._when_cut_off[host] - queue.awaiting.keys():
                raise Violation(f"{host.name} is cut off, and takes {name_of(self.records.posts[guid])} as kept")
        self._when_cut_off[host] = set(queue.messages)

    def has_been_replaced(self, uri: str, guid: bytes) -> bool:
        """Return whether a node has a message as a primary of its queue, and is not the newest."""
        for host in self.hosts:
            queue = host.node.queues.get(uri) if host.node is not None else None
            if queue is not None and queue.is_root and guid in queue.messages and not self.leads(host, uri):
                return True
        return False

    def _beliefs_of(self, host: Host) -> Iterator[tuple[str, str]]:
        assert host.member is not None
        election = host.member.election
        yield "election", f"is {election.role.value} in term {election.term}"
        yield "metadata", f"has metadata {host.member.metadata.fsm_state.name}"
        for number, partition in host.member.partitions.items():
            yield f"partition {number}", f"has partition {number} {partition.state.name}"

    def _done(self, host: Host, guid: bytes, app_key: bytes) -> None:
        """An app, or all of them, is durably done with a message."""
        assert host.node is not None
        post = self.records.posts.get(guid)
        if post is None:
            raise Violation(f"{host.name} has a record of {guid.hex().upper()}, which nobody has posted")
        for app in self.records.views[post.uri] if not app_key else (self._app_id(post.uri, app_key),):
            self.records.durable(post.uri, app, guid)

    def _app_id(self, uri: str, app_key: bytes) -> str:
        """The app of a key, as any node knows it: one may have a record before it hears of the queue's assignment."""
        names = self._app_ids.setdefault(uri, {DEFAULT_APP_KEY: "__default"})
        if app_key not in names:
            for node in (host.node for host in self.hosts):
                if node is not None and (info := node.ledger.state.queues.get(uri)) is not None:
                    names.update({app.app_key: app.app_id for app in info.app_ids})
        # The apps that come and go have other keys each time.
        return names.get(app_key, EXTRA_APP) if Feature.APPS in self.features else names[app_key]

    def _check_primary(self, journals: Journals, host: Host) -> None:
        """The newest primary of a partition has all that must be there."""
        lease_id = max(journals.primaries, default=0)
        partition = host.node.partitions[journals.partition_id] if host.node is not None else None
        if partition is None or not partition.active or partition.primary_lease_id != lease_id:
            return
        assert host.node is not None
        known = host.node.ledger.state.queues
        uris = [uri for uri in self.records.views if uri in known and known[uri].partition_id == partition.partition_id]
        for uri in uris:
            if uri in host.node.queues:
                check_queue(host.node.queues[uri])
                # While a rollover copies, the records of confirms wait for the new files.
                if self.promises[uri] is not Promise.PASSED and not partition.rollovers.is_copying:
                    journals.check_queue(host.node_id, host.node.queues[uri])
        self.records.check_node(host.node, uris)

    def leads(self, host: Host, uri: str) -> bool:
        """Return whether a node is the newest primary of a queue."""
        assert host.node is not None
        info = host.node.ledger.state.queues.get(uri)
        partition = host.node.partitions.get(info.partition_id) if info is not None else None
        if partition is None or not partition.active:
            return False
        return partition.primary_lease_id == max(self.journals[partition.partition_id].primaries, default=0)

    def look(self) -> None:
        for host in self.hosts:
            check_counts(host)
            for journals in self.journals.values():
                self._check_primary(journals, host)
            for queue in self._hops(host):
                check_queue(queue)

    def _hops(self, host: Host) -> list[RelayQueue]:
        """The queues of a node whose root is elsewhere."""
        queues = host.node.queues.values() if host.node is not None else ()
        return [queue for queue in queues if isinstance(queue, RelayQueue)]

    def lose_disk(self, host: Host) -> None:
        if host not in self._without_power or Feature.FSYNC in self.features:
            raise Violation(f"{host.name} does not start: {host.refused}")
        super().lose_disk(host)

    def power_lost(self, host: Host) -> None:
        self._without_power.add(host)
        # A node that waits for its disk still has all that it was seen to write: it counts until it starts again.
        if Feature.FSYNC not in self.features:
            for journals in self.journals.values():
                journals.forget(host.node_id)

    def is_whole(self) -> bool:
        is_rotten = any(host.is_rotten for host in self.hosts)
        return super().is_whole() and not is_rotten and not self._difference()

    # -- what is asked, and what must be in the end

    def _ask_places(self) -> None:
        """Ask a node for the place of a queue, which may be new."""
        if not self.is_busy:
            return
        self.clock.after(int(self.random.expovariate(1) * ASK_US) + 1, self._ask_places)
        host = self.random.choice(self.hosts)
        self.ask_place(host, f"bmq://{self.random.choice(('priority', 'fanout'))}/q{self.random.randrange(30)}")

    def ask_place(self, host: Host, uri: str) -> None:
        """Ask a node for the place of a queue; it must answer sooner or later, unless its process ends."""
        config = self.domains[uri.split("/")[2]]
        question = object()

        def ask() -> None:
            assert host.member is not None
            self._questions[question] = host.node, host.name, uri
            host.member.metadata.assign_queue(uri, config, told)

        def told(outcome: QueueInfo | Refusal) -> None:
            self._questions.pop(question, None)
            if isinstance(outcome, QueueInfo):
                self.agreement.told_place(uri, outcome)

        host.step(ask)

    def unrest(self) -> str:
        return self._difference() or super().unrest() or self._kept_posts()

    def _kept_posts(self) -> str:
        for host in self.hosts:
            for queue in self._hops(host):
                room = queue.posts.room
                if room.messages or room.bytes:
                    return f"{host.name} keeps {room.messages} posts to {queue.uri} of {room.bytes} bytes"
        return ""

    def unrest_at_end(self) -> str:
        return super().unrest_at_end() or self._difference() or self._half_rolled() or self._unanswered()

    def _unanswered(self) -> str:
        nodes = [host.node for host in self.hosts]
        for node, name, uri in self._questions.values():
            if node in nodes:
                return f"{name} has never said where {uri} is"
        return ""

    def _half_rolled(self) -> str:
        """The nodes that have yet to finish a rollover: later records are on the disks of others."""
        for host in self.hosts:
            for number, partition in host.member.partitions.items() if host.member is not None else ():
                if partition.copy.rollovers.is_rolling:
                    return f"partition {number} of {host.name} is not rolled over"
        return ""

    def _difference(self) -> str:
        """Describe a reason why the nodes are not alike, or not fully able; empty if there is none."""
        members = {}
        for host in self.hosts:
            if host.node is None or host.member is None:
                return f"{host.name} does not run: {host.refused}"
            members[host.name] = host.member
            if host.member.election.leader_id is None:
                return f"{host.name} knows no leader"
            if not host.member.metadata.healed:
                return f"the metadata of {host.name} is {host.member.metadata.fsm_state.name}"
            for number, partition in host.member.partitions.items():
                if not partition.is_healed:
                    return f"partition {number} of {host.name} is {partition.state.name}"
        difference = self.agreement.difference({name: member.metadata for name, member in members.items()})
        if difference:
            return difference
        for number in self.journals:
            positions = {member.partitions[number].position for member in members.values()}
            if len(positions) > 1:
                return f"partition {number} ends at {positions}"
        return ""
