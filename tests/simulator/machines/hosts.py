"""The machines of nodes: a clock, a disk, and maybe a process. A step runs the core and sends its output."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from broker.bmq.assembly.nodes import NodeStore, make_member, make_node, open_store
from broker.bmq.assembly.opening import StoreDamaged, open_ledger, open_partitions
from broker.bmq.consensus.election import ElectionTimes
from broker.bmq.core.config import MessageThrottle, NodeIdentity
from broker.bmq.core.messages import Full
from broker.bmq.links.admission import Admission, KnownNode
from broker.bmq.links.origins import Origins
from broker.bmq.member.config import MemberConfig
from broker.bmq.member.member import Member
from broker.bmq.member.peers import Peers
from broker.bmq.node.durability import Durability
from broker.bmq.node.node import Basis, Node
from broker.bmq.node.services import ProcessServices, QueueSettings
from broker.bmq.replication.positions import last_position
from broker.bmq.session.session import Session
from broker.bmq.store.names import next_timestamp
from broker.common.clock import Now
from broker.common.faults import Inconsistent
from formats.bmq.guid import GuidGenerator
from tests.broker.fakes import Crash, MemoryDirectory
from tests.simulator.faults.rotting import just_written
from tests.simulator.judges.invariants import Violation
from tests.simulator.judges.leftovers import Left, left_in
from tests.simulator.judges.platters import Platter
from tests.simulator.machines.clock import MachineClock
from tests.simulator.machines.disk import CAPACITY, Disk
from tests.simulator.machines.ends import ClientSideEnd, NodeEnd
from tests.simulator.machines.network import Taken
from tests.simulator.machines.proofs import ask_for_proofs, with_users
from tests.simulator.worlds.features import Feature

if TYPE_CHECKING:
    from tests.simulator.actors.clients import Client
    from tests.simulator.actors.malformed import Malformer
    from tests.simulator.actors.strangers import Echo, Oddity
    from tests.simulator.worlds.world import World

__all__ = ["Death", "Host"]

LEDGER_SIZE = 16 << 10
START_AGAIN_US = 500_000
TICK_US = 250_000
TICK_US_MIN = 5_000
REST_US = 1_000
RETIRE_US = 5_000_000
RETIRE_CHECK_US = 50_000
DIAL_TIMEOUT_US = 1_000_000
# A tenth of the usual, as everything is faster here.
TIMES = ElectionTimes(800, 300, 400, 400, 200, 100, 5)
START_S = 1_795_237_864


# For the throttling of messages that have few attempts left.
SHORT_THROTTLE = MessageThrottle(low_interval_ms=50, high_interval_ms=200)


def _no_new_files(prefix: str) -> str:
    raise AssertionError(f"{prefix}: nothing is to be begun")


def _nothing() -> None:
    """Do nothing in another step, since the last had more to do."""


class Death(Enum):
    """The manner of a process's end."""

    KILL = "killed"
    IN_CALL = "killed between two calls to its disk"
    TORN = "killed between two bytes of a record"
    POWER = "its machine loses power"
    DISK = "its disk fails"
    STOP = "stopped"


class Host:
    """One machine. `node` is None while no process runs; `refused` is the reason why it would not start."""

    def __init__(self, world: World, node_id: int, drift_ppm: int) -> None:
        self.world = world
        self.node_id = node_id
        self.name = f"n{node_id}"
        self.disk = Disk(world.random)
        self.clock = MachineClock(world.clock, START_S, drift_ppm)
        self.node: Node | None = None
        self.member: Member | None = None
        self.peers: Peers | None = None
        self.refused = ""
        self.ends: dict[Session, NodeEnd] = {}
        self.slow_us = 0  # its disk's longest delay of a step
        self.tear_next = False
        self.power_fails_next = False
        self.is_rotten = False  # and no process has noticed
        self.rollover_calls_left: int | None = None  # to its disk, before it dies
        self.rollover_flushes_left: int | None = None  # before its machine loses power
        self.fails_flushes = False  # its disk fails, or has failed, to write
        self.keeps_terms_now = True
        self.is_hasty = False  # it does not wait before it stands for election
        self.is_reachable = True
        # Its domain files: the same as everywhere, or not yet.
        self.domains = dict(world.domains) if Feature.DIFFER in world.features else world.domains
        self._archived = 0
        self._receives_anew = False
        self._now = Now()
        self.proofs_random = Random(f"proofs {node_id} {world.seed}")
        self._held: deque[tuple[Callable[[], None], Taken | None]] = deque()
        self._paused_until_us = 0
        self._will_rest = False

    # -- the process's life

    def start(self) -> None:
        if self.node is not None:
            return
        self._now = now = Now()
        self._will_rest = False
        self._set_clock()
        try:
            node = self._make_node(now)
        except StoreDamaged as damage:
            self.refused = str(damage)
            self.disk.process_died()
            self.world.say(f"{self.name} does not start: {self.refused.splitlines()[1].strip()}")
            return
        except Full as full:
            self.disk.process_died()
            self.world.say(f"{self.name} does not start: {full}")
            self.world.clock.after(START_AGAIN_US, lambda: self.world.revive(self))
            return
        except BaseException as error:
            if not isinstance(error, (Crash, *self._disk_errors())) and not self._is_full(error):
                raise
            self.world.say(f"{self.name} dies while it starts")
            if not self.directory.flushes_left:
                self._lose_power()
            else:
                self.disk.process_died()
            self.world.clock.after(START_AGAIN_US, lambda: self.world.revive(self))
            return
        self.refused = ""
        self.disk.rotten = None
        self.is_rotten = False
        self.fails_flushes = bool(self.directory.flushes_failing)
        self.node = node
        self.world.say(f"{self.name} starts")
        self.world.started(self)
        if self.peers is not None:
            self.step(self._join)
        self._tick_later(node)

    def _make_node(self, now: Now) -> Node:
        directory = self.disk.directory
        damage = self.disk.damage

        def make_timestamp(prefix: str) -> str:
            if self.rollover_calls_left is not None:
                directory.steps_left, self.rollover_calls_left = self.rollover_calls_left, None
            directory.take_descriptor(directory.path)
            if self.rollover_flushes_left is not None:
                directory.flushes_left, self.rollover_flushes_left = self.rollover_flushes_left, None
            return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(now.wall_s, UTC))

        guids = GuidGenerator(bytes(5) + bytes((self.node_id,)), 0)
        is_synced = Feature.FSYNC in self.world.features
        partition_count, limits = self.world.partition_count, self.world.limits
        heals = self.world.is_cluster
        store = open_store(
            directory,
            partition_count,
            self.node_id,
            limits,
            LEDGER_SIZE,
            now,
            make_timestamp,
            outlives_power=is_synced,
            heals=heals,
        )
        partitions = store.partitions.values()
        self.disk.check_start(partitions, damage)
        services = ProcessServices()
        if is_synced:
            durability = Durability(partitions, store.ledger)
            platter = Platter(self.name, directory, partitions, store.ledger)
            services = ProcessServices(before_sending=lambda: platter.sync(durability.unsynced()))
        if Feature.USERS in self.world.features:
            services = with_users(services)
        basis = Basis(self._identity(), now, self.domains.get, lambda: guids.make(now.ms), services, self._settings())
        node = self._make_member(basis, store) if self.world.is_cluster else make_node(basis, store, None)
        ask_for_proofs(self, node, self.proofs_random)
        node.work.amount = node.work.left = self.world.slice_units
        node.work.part, node.work.packed_after_ms = self.world.part, self.world.packed_after_ms
        return node

    def _settings(self) -> QueueSettings:
        return QueueSettings(throttle=SHORT_THROTTLE) if Feature.ATTEMPTS in self.world.features else QueueSettings()

    def _make_member(self, basis: Basis, store: NodeStore) -> Node:
        others = [host.node_id for host in self.world.hosts if host is not self]
        config = MemberConfig(len(self.world.hosts) // 2 + 1, self.world.spread, TIMES)
        node, role = make_member(basis, store, others, config, self._random_below, self.disk.term, self._keep_term)
        self.member = role.member
        names = {host.node_id: host.name for host in self.world.hosts}
        origins = Origins(names, self.node_id, node.now, lambda host, done: done(frozenset((host,))))
        known = {node_id: KnownNode(name) for node_id, name in names.items()}
        self.peers = Peers(node, self.member, self._dial, Admission(known, origins))
        role.attach(self.peers, names)
        return node

    def _random_below(self, number: int) -> int:
        return 0 if self.is_hasty else self.world.random.randrange(number)

    def _keep_term(self, term: int) -> None:
        self.directory.take_descriptor("elector.term")
        if not self.keeps_terms_now:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "elector.term")
        self.disk.term = term

    def keep_terms(self) -> None:
        self.keeps_terms_now = True

    def be_reachable(self) -> None:
        self.is_reachable = True

    def dial_again(self, other: Host) -> None:
        """Connect to a node that may be connected already."""
        if self.peers is not None:
            self._dial(other.node_id)

    def _join(self) -> None:
        assert self.peers is not None
        assert self.member is not None
        self.member.start()
        self.peers.start()

    def _identity(self) -> NodeIdentity:
        return NodeIdentity(
            cluster_name="local",
            node_id=self.node_id,
            host=self.name,
            process_name="bmqbrkr.tsk",
            process_id=1,
            version=999_999,
            user_agent="simulator",
            heartbeat_interval_ms=500,
            heartbeats_missed_max=4,
            peer_heartbeats_missed_max=4,
            downstream_heartbeats_missed_max=4,
        )

    def die(self, how: Death) -> None:
        """End the process, between steps."""
        node = self.node
        if node is None:
            return
        self.world.say(f"{self.name} dies: {how.value}")
        self.world.attempts.link_lost()
        if how is Death.STOP:
            self.disk.ended = {}
            with suppress(Crash):
                self._stop(node)
        self.node = None
        self._held.clear()
        self._paused_until_us = 0
        self.tear_next = self.power_fails_next = False
        for end in self.ends.values():
            assert end.link is not None
            if how is Death.POWER:
                end.link.abandon(end)
            else:
                end.link.close(end, "the connection was reset", lose=how is not Death.STOP)
        self.ends.clear()
        if how in (Death.IN_CALL, Death.TORN, Death.DISK) or not self.directory.flushes_left:
            # The fault was requested without a time.
            self.world.clock.after(START_AGAIN_US, lambda: self.world.revive(self))
        if how is Death.POWER:
            self._lose_power()
        else:
            self.disk.process_died()

    def _lose_power(self) -> None:
        features = self.world.features
        self.disk.power_lost(in_order=Feature.FSYNC in features, keeps_folders=Feature.FOLDERS not in features)
        self.world.power_lost(self)

    def _disk_errors(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions by which a failing disk ends the process."""
        return (OSError, Inconsistent) if self.fails_flushes else ()

    def _is_full(self, error: BaseException) -> bool:
        """True for the error of a node whose disk has no room for its first files: it has no client yet."""
        return isinstance(error, OSError) and error.errno == errno.ENOSPC and self.directory.free < CAPACITY // 2

    def _dies_in_call(self) -> None:
        """End at a call to the disk; at a flush by a loss of power."""
        self.die(Death.IN_CALL if self.directory.flushes_left else Death.POWER)

    def retire(self, then: Callable[[], None]) -> None:
        """Stop as at SIGTERM: as soon as others have taken over, or after a while; call `then` once the process is
        gone.
        """
        node = self.node
        until_us = self.world.clock.us + RETIRE_US

        def check() -> None:
            if self.node is not node or node is None:
                return
            may_stop = False

            def ask() -> None:
                nonlocal may_stop
                may_stop = node.retire()

            self.step(ask)
            if self.node is not node:
                return
            if may_stop or self.world.clock.us >= until_us:
                self.die(Death.STOP)
                then()
            else:
                self.world.clock.after(RETIRE_CHECK_US, check)

        check()

    def _is_receiving_anew(self) -> bool:
        member = self.member
        return member is not None and any(each.copy.records.is_fresh for each in member.partitions.values())

    def _stop(self, node: Node) -> None:
        """Stop cleanly, as the composition root does."""
        node.stopping = True
        node.leave()
        self._flush(node)
        for session in list(node.sessions.values()):
            node.disconnect(session, "the node stops")
        self._flush(node)
        for partition in node.partitions.values():
            partition.close()
        node.ledger.close()

    def pause(self, us: int) -> None:
        """Give the process no time: arrivals wait."""
        until_us = self.world.clock.us + us
        if until_us > self._paused_until_us:
            self._paused_until_us = until_us
            self.world.clock.after(us, self._resume)

    def _resume(self) -> None:
        while self._held and self.world.clock.us >= self._paused_until_us:
            action, taken = self._held.popleft()
            self._step(action, taken)

    # -- steps

    def step(self, action: Callable[[], None], taken: Taken | None = None) -> None:
        """Run the core, then send its output; `taken` is called if the process survived that."""
        if self.node is None:
            return
        if self._held or self.world.clock.us < self._paused_until_us:
            self._held.append((action, taken))
        else:
            self._step(action, taken)

    def _step(self, action: Callable[[], None], taken: Taken | None) -> None:
        node = self.node
        if node is None:
            return
        self._set_clock()
        self.disk.ended = {}
        before = self.disk.directory.after_crash() if self.tear_next else None
        written = self._written(node) if before is not None or self.slow_us or self.power_fails_next else 0
        try:
            action()
            node.end_failed()
            more = any(node.end_step())
        except Crash:
            self._dies_in_call()
            return
        except self._disk_errors():
            self.die(Death.DISK)
            return
        if before is not None and self._written(node) != written:
            self.disk.step_torn(before)
            self.die(Death.TORN)
            return
        if self.power_fails_next and self._written(node) != written:
            self.die(Death.POWER)
            return
        try:
            node.before_sending()
        except Crash:
            self._dies_in_call()
            return
        except self._disk_errors():
            self.die(Death.DISK)
            return
        if node.faults.of_sessions + node.faults.others and not self.fails_flushes:
            raise Violation(f"{self.name} has stumbled over {node.faults.of_sessions + node.faults.others} fault(s)")
        self._note_ends(node)
        self.world.before_flush(self)
        archived = sum(name.endswith("journal") for name in self.directory.archived)
        if archived != self._archived:
            self._archived = archived
            self.world.rolled_over(self)
        receives_anew = self._is_receiving_anew()
        if self._receives_anew and not receives_anew:
            self.world.received_anew(self)
        self._receives_anew = receives_anew
        self._flush(node)
        if taken is not None:
            taken()
        if more:
            self.world.clock.after(self.world.slice_gap_us(), lambda: self.step(_nothing))
        self._rest_later(node)
        if self.slow_us and self._written(node) != written:
            self.pause(self.world.random.randrange(self.slow_us))
        if self.world.traps:
            self.world.traps = [trap for trap in self.world.traps if not trap(self)]

    def _rest_later(self, node: Node) -> None:
        """Let a node with deferred output rest in a moment, as if nothing had come in."""

        def act() -> None:
            self._will_rest = False
            node.rest()

        def rest() -> None:
            if self.node is node:
                self.step(act)

        gathers = self.member is not None and any(each.gathers for each in self.member.partitions.values())
        if gathers and not self._will_rest:
            self._will_rest = True
            self.world.clock.after(REST_US, rest)

    def _note_ends(self, node: Node) -> None:
        """Note the state of a process that may be gone before its next step, but no partition that it receives."""
        self.disk.ended = {number: last_position(partition.files) for number, partition in node.partitions.items()}
        for number, partition in self.member.partitions.items() if self.member is not None else ():
            if partition.copy.records.is_fresh:
                del self.disk.ended[number]
            elif not partition.stored.active:
                self.disk.ended[number] = partition.copy.rollovers.kept

    def broker_ends(self) -> list[NodeEnd]:
        return [end for end in self.ends.values() if not isinstance(end, ClientSideEnd)]

    def make_oddity(self) -> Oddity | None:
        return self.world.make_oddity() if self.member is not None else None

    def make_malformer(self) -> Malformer | None:
        """Make what spoils events on a new link, if any."""
        return self.world.make_malformer() if self.member is not None else None

    def make_echo(self) -> Echo | None:
        """Make what repeats old events over a new link, if any."""
        return self.world.make_echo() if self.member is not None else None

    def _written(self, node: Node) -> int:
        return node.ledger.end + sum(partition.files.journal_end for partition in node.partitions.values())

    def _flush(self, node: Node) -> None:
        dirty = node.dirty
        while dirty:
            sessions = sorted(dirty, key=lambda session: session.session_id)
            dirty.clear()
            for session in sessions:
                end = self.ends.get(session)
                if end is not None:
                    end.flush()
        self.world.records.step_ends()

    def _set_clock(self) -> None:
        self._now.ms = self.clock.ms
        self._now.wall_s = self.clock.wall_s

    def _tick_later(self, node: Node) -> None:
        def tick() -> None:
            if self.node is node:
                self.step(node.tick)
                self._tick_later(node)

        due_ms = node.timers.next_ms
        wait_us = TICK_US if due_ms is None else (due_ms - self.clock.ms) * 1000
        self.world.clock.after(min(TICK_US, max(TICK_US_MIN, wait_us)), tick)

    # -- links

    def accept(self, client: Client) -> None:
        """Accept a client, which hears of the connection when the process has taken it."""
        node = self.node
        if node is None or not self.is_reachable:
            client.refused()
            return

        def connect() -> None:
            certified = client.certified
            session = node.connect(client.name, lambda: certified)
            end = ClientSideEnd(self, node, session, client)
            end.link = self.world.network.connect(client, end)
            self.ends[session] = end
            client.connected(end.link, self)

        self.step(connect)

    def peer(self, node_id: int) -> Host:
        return self.world.hosts[node_id]

    def _dial(self, node_id: int) -> None:
        peers, other = self.peers, self.peer(node_id)
        assert peers is not None
        self._dial_host(
            other,
            lambda: self.peers is peers,
            lambda: peers.connected(node_id, other.name),
            lambda reason: peers.failed(node_id, reason),
        )

    def _dial_host(
        self,
        other: Host,
        wants: Callable[[], bool],
        connected: Callable[[], Session],
        failed: Callable[[str], None],
    ) -> None:
        """Connect to another machine; a later step reports the result, if it is still wanted."""
        network = self.world.network

        def fail(reason: str) -> None:
            if wants():
                self.step(lambda: failed(reason))

        def connect() -> None:
            theirs = other.node
            if not wants():
                return
            if not network.passes(self.name, other.name):
                self.world.clock.after(DIAL_TIMEOUT_US, lambda: fail("no answer"))
            elif theirs is None:
                fail("Connection refused")
            elif not self.is_reachable or not other.is_reachable:
                fail("Too many open files")
            else:
                self.step(lambda: join(theirs))

        def join(theirs: Node) -> None:
            """Make a connection in the kernels; the other process accepts it when it has time, if it still lives."""
            if self.node is None or not wants():
                return
            if other.node is not theirs:
                failed("the connection was reset")
                return
            mine = NodeEnd(self, self.node, connected())
            self.ends[mine.session] = mine
            accepted = NodeEnd(other, theirs, theirs.connect(self.name))
            other.ends[accepted.session] = accepted
            mine.link = accepted.link = network.connect(mine, accepted)

        self.world.clock.after(network.delay_us(), connect)

    @property
    def is_damaged(self) -> bool:
        """Return whether its disk has an unhealed loss, noticed or not."""
        return self.is_rotten or self.disk.is_damaged

    def rot(self, extension: str) -> None:
        """Flip a bit of a file with this extension while no process runs."""
        assert self.node is None
        self.is_rotten = self.disk.rot_file(extension, self._notices)
        if self.is_rotten:
            self.world.say(f"{self.name}: rot in a file of {extension}")

    def rot_running(self, random: Random) -> None:
        """Flip a bit of a waiting payload under a running process."""
        assert self.node is not None
        flip = self.disk.rot_running(random, self._notices, just_written(self.node))
        self.is_rotten |= flip
        if flip:
            self.world.say(f"{self.name}: rot in a payload")

    def _notices(self, directory: MemoryDirectory) -> bool:
        """Return whether a node would refuse this folder if it were alone."""

        def make_timestamp(prefix: str) -> str:
            return next_timestamp(prefix, directory.names(), datetime.fromtimestamp(self._now.wall_s, UTC))

        world = self.world
        try:
            opened = open_partitions(
                directory, world.partition_count, self.node_id, world.limits, self._now, make_timestamp
            )
            open_ledger(directory, LEDGER_SIZE, self._now, make_timestamp, opened)
        except StoreDamaged:
            return True
        return False

    def fill_disk(self, left: int) -> None:
        self.disk.directory.free = left
        self.world.records.runs_short()

    def free_disk(self) -> None:
        self.disk.directory.free = CAPACITY
        self.world.records.is_short = False

    def fast_disk(self) -> None:
        self.slow_us = 0

    def recover(self) -> None:
        """End all faults of the machine; a process that is gone stays so."""
        self.free_disk()
        self.fast_disk()
        self.tear_next = self.power_fails_next = False
        self.keep_terms()
        self.be_reachable()
        self.rollover_calls_left = self.rollover_flushes_left = None
        self.directory.flushes_failing = 0
        self.directory.flushes_left = self.directory.steps_left = self.directory.opens_left = CAPACITY
        if self._paused_until_us > self.world.clock.us:
            self._paused_until_us = self.world.clock.us
            self.world.clock.after(0, self._resume)

    def left(self) -> Left:
        """Return the content of its disk, while no process runs."""
        opened = open_partitions(
            self.disk.directory.after_crash(),
            self.world.partition_count,
            self.node_id,
            self.world.limits,
            self._now,
            _no_new_files,
        )
        return left_in(opened, self._now.ms)

    def has_time_since(self, us: int) -> bool:
        """Return whether its process has taken all steps at their time since then."""
        return self._paused_until_us <= us and not self._held

    @property
    def is_sound(self) -> bool:
        directory = self.directory
        ailing = (
            self.tear_next
            or self.power_fails_next
            or min(directory.steps_left, directory.flushes_left, directory.opens_left) < CAPACITY // 2
            or directory.flushes_failing
            or self.is_rotten
            or directory.free < CAPACITY // 2
        )
        return self.node is not None and not ailing and self._paused_until_us <= self.world.clock.us

    @property
    def directory(self) -> MemoryDirectory:
        return self.disk.directory
