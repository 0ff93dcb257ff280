"""A world from a seed: machines, nodes, clients and faults, and what must be true of them at every step.

First come faults, and safety is watched; then they end, and what was begun must come to its end (liveness).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from zlib import crc32

import pytest

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.work import SLICE
from broker.bmq.queue import queue as queue_module
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import store_faults
from tests.simulator.actors.administrator import Administrator
from tests.simulator.actors.clients import PARTS, Client, Consumer, Producer, Tuning, wants
from tests.simulator.actors.intruder import Intruder
from tests.simulator.actors.late_acks import LateAcks, Repeats, shorten_windows
from tests.simulator.actors.malformed import Malformer
from tests.simulator.actors.operator import ADMITTING, EXTRA_APP, Operator
from tests.simulator.actors.strangers import Echo, Oddity, Stranger
from tests.simulator.actors.whole_clients import WholeClients
from tests.simulator.chances import Chances
from tests.simulator.faults.faults import Faults
from tests.simulator.faults.moments import Moments
from tests.simulator.faults.own_faults import VACANT, OwnFaults
from tests.simulator.judges.accounts import check_counts, miscounted_credit, miscounted_opens
from tests.simulator.judges.attempts import Attempts
from tests.simulator.judges.invariants import Promise, Records, Violation, check_queue
from tests.simulator.judges.leftovers import check_files, check_left
from tests.simulator.judges.passage import Passage
from tests.simulator.judges.prompt import PromptPushes
from tests.simulator.machines.clock import Clock
from tests.simulator.machines.disk import CAPACITY
from tests.simulator.machines.hosts import Death, Host
from tests.simulator.machines.network import Network
from tests.simulator.worlds.bounds import lower
from tests.simulator.worlds.features import Feature, features_of, own_random

__all__ = ["STEPS", "World"]

STEPS = 2000
# Steps and time that the world has for coming to rest once the faults have ended.
REST_STEPS_MAX = 40_000
REST_US_MAX = 120_000_000
SLICE_GAP_US_MAX = 5000  # between two slices of a long task, where these take their time
WRITE_BACK_US = 5_000_000
ASK_US = 200_000
PROBE_US = 500_000
SCHEMAS_MAX = (1, 3, 12)  # numbers that a queue has for shapes, where producers have several
LOOK_EVERY = 200  # steps between two looks into the nodes

LIMITS = PartitionLimits(journal=32 << 10, data=96 << 10, qlist=4 << 10)
APPS = ("foo", "bar")
PRIORITY, FANOUT, SIBLING = "bmq://priority/p", "bmq://fanout/f", "bmq://fanout/g"
EVENTUAL, BROADCAST, PARTED = "bmq://eventual/e", "bmq://broadcast/b", "bmq://priority/s"
AGING, FLEETING = "bmq://aging/a", "bmq://fleeting/t"
# Longer than any world lasts: what expires nevertheless, a clock has made old.
TTL_S = 240
# A time to live after which messages expire in a world, and by how much less they live at least: records have seconds.
LIFE_S = 2
LIFE_US_MIN = 500_000
# The part of the messages that one app of two gets, by its domain's subscriptions.
PART = next(iter(PARTS))


class World:
    """A simulated world. `say` gets a line for each event that is of interest to a person."""

    is_cluster = False
    partition_count = 1

    def __init__(self, seed: int, *, nodes: int = 1, features: frozenset[Feature] | None = None) -> None:
        self.seed = seed
        self.features = features_of(seed) if features is None else features
        self.random = Random(seed)
        self.clock = Clock()
        self.network = Network(self.clock, self.random)
        self._malformed_random = own_random(Feature.MALFORMED, seed)
        self.domains = {
            config.name: config
            for config in (
                DomainConfig("priority", Mode.PRIORITY, strong=self.is_cluster),
                DomainConfig("fanout", Mode.FANOUT, APPS, strong=self.is_cluster),
                DomainConfig("eventual", Mode.PRIORITY),
                DomainConfig("aging", Mode.PRIORITY, strong=self.is_cluster, message_ttl_s=TTL_S),
                DomainConfig("broadcast", Mode.BROADCAST, persistent=False),
            )
        }
        if Feature.WHOLE_QUEUES in self.features:
            self.domains["fanout"] = replace(self.domains["fanout"], subscriptions=((APPS[1], PART),))
            fleeting = DomainConfig("fleeting", Mode.PRIORITY, strong=self.is_cluster, message_ttl_s=LIFE_S)
            self.domains["fleeting"] = fleeting
        self.promises = self._promises()
        self.records = self.make_records()
        self.records.clock = self.clock
        self.records.are_clocks_right = lambda: not any(host.clock.was_set for host in self.hosts)
        if Feature.WHOLE_QUEUES in self.features:
            self.records.lives_us[FLEETING] = LIFE_US_MIN
            self.records.wants.update(dict.fromkeys(((uri, APPS[1]) for uri in self._fanouts), partial(wants, PART)))
        several = {Feature.WHOLE_CLIENTS, Feature.ATTEMPTS, Feature.WHOLE_QUEUES, Feature.SUBSCRIPTIONS}
        self.records.by_consumer = self.is_cluster and not several.isdisjoint(self.features)
        if Feature.LATE_ACKS in self.features:
            shorten_windows(self)
        if Feature.ADMISSION in self.features and not self.is_cluster:
            # A relay whose opens are refused too often gives them up.
            for name in ADMITTING:
                self.domains[name] = replace(self.domains[name], consumers_max=1, producers_max=1)
        self.attempts = Attempts(self)
        if Feature.LIMITS in self.features:
            self.records.refusals = (*self.records.refusals, AckStatus.LIMIT_MESSAGES)
        self.passage = Passage(self.records, self.leads)
        self.prompt_pushes = PromptPushes(self.records, self.network)
        self.is_busy = True
        self.is_ending = False  # consumers keep what they get
        self.traps: list[Callable[[Host], bool]] = []  # asked after each step of a host; true if they are over
        self.limits = LIMITS
        # Long tasks are done in slices, which are short in every other world: there is not much to do here.
        self.slice_units = 2 if Feature.SLICES in self.features else (SLICE, 4)[seed % 2]
        self.part = (2, 5)[seed // 2 % 2]  # as many waiting messages are packed together, soon
        self.packed_after_ms = (0, 200)[seed // 4 % 2]
        self._slices_random = own_random(Feature.SLICES, seed)
        self.spread = self.random.random() < 0.5  # primaries, over the nodes
        self._echoes = 0
        self.lines: list[str] | None = None
        self.chances = Chances()
        self.silent: frozenset[str] = frozenset()
        self.digest = 0
        drift = self.random.choice((0, 0, 200, 5000))
        self.hosts = [Host(self, number, self.random.randint(-drift, drift)) for number in range(nodes)]
        self.strangers: list[Client] = []
        self.clients = self.make_clients()
        self.clients += self._more_clients()
        whole = (Feature.WHOLE_CLIENTS, Feature.WHOLE_QUEUES)
        self.whole_clients = [WholeClients(self, feature) for feature in whole if feature in self.features]
        if Feature.STRANGERS in self.features:
            self.strangers = [Stranger(self, f"z{number}") for number in range(2)]
        if Feature.USERS in self.features:
            self.strangers += [Intruder(self, f"u{number}") for number in range(2)]
        self.faults = Faults(self)
        self.own_faults = OwnFaults(self)
        self.administrator = Administrator(self) if Feature.COMMANDS in self.features else None
        self.operator = Operator(
            self, "fanout", [uri for uri, promise in self.promises.items() if promise is not Promise.PASSED]
        )

    def _promises(self) -> dict[str, Promise]:
        """The queues, and what an ack promises of each."""
        promises = {PRIORITY: Promise.KEPT, FANOUT: Promise.KEPT}
        if Feature.EVENTUAL in self.features:
            promises[EVENTUAL] = Promise.COPIED
        if Feature.BROADCAST in self.features:
            promises[BROADCAST] = Promise.PASSED
        if Feature.PARTS in self.features:
            promises[PARTED] = Promise.KEPT
        if Feature.TTL in self.features:
            promises[AGING] = Promise.KEPT
        if Feature.WHOLE_QUEUES in self.features:
            promises[FLEETING] = Promise.KEPT
        if Feature.SIBLINGS in self.features:
            promises[SIBLING] = Promise.KEPT
        return promises

    @property
    def _fanouts(self) -> list[str]:
        """The queues of the domain with several apps."""
        return [uri for uri in (FANOUT, SIBLING) if uri in self.promises]

    @property
    def brokers(self) -> list[Host]:
        """All of them, whichever kind."""
        return self.hosts

    @property
    def apps(self) -> dict[str, tuple[str, ...]]:
        """The apps of each queue."""
        apps = dict.fromkeys(self.promises, ("__default",))
        return apps | dict.fromkeys(self._fanouts, (*APPS, EXTRA_APP) if Feature.APPS in self.features else APPS)

    def make_records(self) -> Records:
        """Make the records, and their rules."""
        return Records(self.apps, self.promises)

    def make_producers(self) -> list[Producer]:
        """Make the producers, which post to all queues."""
        producers = [Producer(self, f"p{number}", list(self.promises)) for number in range(2)]
        for producer in producers:
            producer.with_properties |= {PARTED, *self._fanouts} if Feature.WHOLE_QUEUES in self.features else {PARTED}
        return producers

    def make_clients(self) -> list[Client]:
        """Make all producers and consumers."""
        clients: list[Client] = [*self.make_producers()]
        clients += [Consumer(self, f"c{number}", [(PRIORITY, "")]) for number in range(2)]
        clients += [Consumer(self, f"f{app}", [(FANOUT, app)]) for app in APPS]
        return clients

    def _more_clients(self) -> list[Client]:
        """Make the consumers of additional queues."""
        more: list[Client] = []
        if Feature.EVENTUAL in self.features:
            more.append(Consumer(self, "e0", [(EVENTUAL, "")]))
        if Feature.BROADCAST in self.features:
            more += [Consumer(self, f"b{number}", [(BROADCAST, "")]) for number in range(2)]
        if Feature.PARTS in self.features:
            more += [Consumer(self, f"s{number}", [(PARTED, "")], part) for number, part in enumerate(PARTS)]
        if {Feature.PARTS, Feature.SUBSCRIPTIONS} <= self.features:
            more.append(Consumer(self, "d0", [(PARTED, "")], has_each=True))
        if Feature.HOLDERS in self.features:
            self.attempts.held.add(PARTED)
            for number, part in enumerate(PARTS):
                twin = Consumer(self, f"h{number}", [(PARTED, "")], part)
                twin.tuning = Tuning(0, 1, part)
                more.append(twin)
        if Feature.TTL in self.features:
            more.append(Consumer(self, "a0", [(AGING, "")]))
        if Feature.ATTEMPTS in self.features:
            more.append(Consumer(self, "c9", [(PRIORITY, "")]))
        if Feature.WHOLE_CLIENTS in self.features:
            whole = Consumer(self, "w0", [(FANOUT, app) for app in APPS], one_id=True)
            whole.keeps_part = 1
            more.append(whole)
        if Feature.WHOLE_QUEUES in self.features:
            for name, uri, keeps_part in (("k0", PRIORITY, 0.9), ("k1", PRIORITY, 0.9), ("t0", FLEETING, 0.5)):
                slow = Consumer(self, name, [(uri, "")])
                slow.keeps_part, slow.hosts = keeps_part, self.hosts[:1]
                more.append(slow)
        if Feature.SIBLINGS in self.features:
            more += [Consumer(self, f"g{app}", [(SIBLING, app)]) for app in APPS]
        if Feature.VACANT in self.features:
            more += [Consumer(self, f"v{number}", [(VACANT, "")]) for number in range(2)]
        if Feature.APPS in self.features:
            # Nothing is owed to it before it is there to stay.
            for uri in self._fanouts:
                self.records.views[uri][EXTRA_APP].owes = False
            more.append(Consumer(self, f"f{EXTRA_APP}", [(uri, EXTRA_APP) for uri in self._fanouts]))
        return more

    def say(self, text: str) -> None:
        """Log an event of the world."""
        self.chances.note(self.clock.us // 1000, text)
        line = f"{self.clock.steps:6} {self.clock.us / 1_000_000:10.6f} {text}"
        self.digest = crc32(line.encode(), self.digest)
        if self.lines is not None:
            self.lines.append(line)

    # -- the two phases

    def run(self, steps: int = STEPS) -> None:
        """Live through `steps` steps with faults, then come to rest. `Violation` if anything is not as it must be."""
        with pytest.MonkeyPatch.context() as patches:
            if Feature.SHAPES in self.features:
                few = partial(queue_module.SchemaMultiplexer, SCHEMAS_MAX[self.seed % 3])  # type: ignore[attr-defined]
                patches.setattr(queue_module, "SchemaMultiplexer", few)
            if Feature.BOUNDS in self.features:
                lower(patches, own_random(Feature.BOUNDS, self.seed))
            self._live(steps)

    def _live(self, steps: int) -> None:
        for host in self.hosts:
            host.start()
        for client in self.clients:
            client.dial()
            if isinstance(client, Producer) and client.name not in self.silent:
                client.act()
        for stranger in self.strangers:
            stranger.dial()
        self.clock.after(self.faults.interval_us, self.faults.next)
        self.own_faults.begin()
        self.operator.begin()
        if Feature.MOMENTS in self.features:
            Moments(self, self.brokers).next()
        if Feature.LATE_ACKS in self.features:
            LateAcks(self).next()
        if Feature.REPEATS in self.features:
            Repeats(self).next()
        for whole in self.whole_clients:
            whole.begin()
        if self.features:
            self.operator.next()
        if self.administrator is not None:
            self.administrator.next()
        self._write_back()
        while self.clock.steps < steps:
            self.clock.step()
            if self.clock.steps % LOOK_EVERY == 0:
                self.look()
        self.rest()

    def run_until(self, us: int) -> None:
        """Live until a moment, without faults but the ones that somebody makes."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True

        self.clock.after(us - self.clock.us, end)
        while not is_over:
            self.clock.step()

    def rest(self) -> None:
        """The faults end; everything must be delivered, and the stores be sound."""
        self.say("the faults end")
        self.is_busy = False
        self.network.delay_us_max = 2000
        self.network.heal()
        for host in self.hosts:
            host.recover()
            if host.is_rotten and host.disk.running_rot:
                # Nobody may want what has rotted before it would have to be read: a start reads it.
                host.die(Death.KILL)
            self.revive(host)
        for stranger in self.strangers:
            stranger.leave(1)
        for whole in self.whole_clients:
            whole.rest()
        for client in self.clients:
            client.come_back()
            if isinstance(client, Consumer):
                client.confirm_kept()
        if self.features:
            self.operator.next()
        self._run_to(self.unrest)
        self._probe()
        self._run_to(self.unrest)
        self.look()
        self._end()

    def _run_to(self, unrest: Callable[[], str]) -> None:
        """Live until there is no `unrest`; it says what there is."""
        until_us = self.clock.us + REST_US_MAX
        last_step = self.clock.steps + REST_STEPS_MAX
        # Looking costs more than a step.
        while self.clock.steps % 16 or unrest():
            if self.clock.us > until_us or self.clock.steps > last_step:
                self.records.check_all_delivered()
                raise Violation(f"no rest: {unrest()}")
            self.clock.step()

    @property
    def client_names(self) -> list[str]:
        return [producer.name for producer in self._producers]

    @property
    def _producers(self) -> list[Producer]:
        return [client for client in self.clients if isinstance(client, Producer)]

    def _readers_of(self, uri: str, app: str) -> list[Consumer]:
        read = (uri, "" if app == "__default" else app)
        return [client for client in self.clients if isinstance(client, Consumer) and read in client.reads]

    def _probe(self) -> None:
        """Each queue is as good as new: what is posted now reaches everybody, what was for nobody in particular too."""
        if Feature.APPS in self.features:
            for uri in self._fanouts:
                view = self.records.views[uri][EXTRA_APP]
                view.owes, view.begun_us = self.operator.wants_extra, self.clock.us
        for producer, uri in [(last, uri) for last in self._producers[-1:] for uri in last.uris]:
            views = self.records.views[uri]
            if self.promises[uri] is Promise.PASSED:
                self._run_to(lambda uri=uri: self._are_ready(uri))  # type: ignore[misc]
                before = [reader.got for reader in self._readers_of(uri, "__default")]
                self._pass_on(producer, uri, before)
                self._run_to(lambda uri=uri, before=before: self._has_passed(uri, before))  # type: ignore[misc]
            elif all(self._readers_of(uri, app) for app, view in views.items() if view.owes):
                producer.post(uri, 1)

    def _pass_on(self, producer: Producer, uri: str, before: list[int]) -> None:
        """Post until each reader has got a message, since a link may be dead unnoticed."""
        if self._has_passed(uri, before):
            producer.post(uri, 1)
            self.clock.after(PROBE_US, lambda: self._pass_on(producer, uri, before))

    def _are_ready(self, uri: str) -> str:
        names = [reader.name for reader in self._readers_of(uri, "__default") if not reader.is_ready]
        return f"{names} are not subscribed" if names else ""

    def _has_passed(self, uri: str, before: list[int]) -> str:
        names = [
            reader.name
            for reader, got in zip(self._readers_of(uri, "__default"), before, strict=True)
            if reader.got == got
        ]
        return f"{names} have not got what was passed on to all" if names else ""

    def _end(self) -> None:
        """All nodes stop, with some messages that nobody has confirmed; the stores are sound, and left alike."""
        self.is_ending = True
        for producer in self._producers[:1]:
            for uri in (PRIORITY, FANOUT):
                producer.post(uri, 3)
        self._run_to(self.unrest_at_end)
        if self.administrator is not None:
            self.administrator.check_copies()
        left = {}
        for host in self.hosts:
            host.die(Death.STOP)
            host.disk.mend_what_is_gone()
            check_files(host.name, host.directory.names(), self.partition_count)
            faults = store_faults(host.directory)
            if faults:
                raise Violation(f"the store of {host.name} is not sound: {faults[0]}")
            left[host.name] = host.left()
            self._digest_files(host)
        check_left(self.records, left)

    def _digest_files(self, host: Host) -> None:
        """Add all bytes of a node's files to the digest: worlds of one digest have written the same."""
        for name, content in sorted(host.directory.files.items()):
            self.digest = crc32(content.data, crc32(name.encode(), self.digest))

    def unrest_at_end(self) -> str:
        """Describe unfinished work like `unrest`, without confirms."""
        for client in self.clients:
            if isinstance(client, Producer) and any(client.unacked.values()):
                return f"{client.name} waits for acks"
        return ""

    def unrest(self) -> str:
        """Describe unfinished work; empty if there is none."""
        for client in self.clients:
            if client.link is None:
                return f"{client.name} is not connected"
            if isinstance(client, Producer) and any(client.unacked.values()):
                return f"{client.name} waits for acks"
            if not client.is_ready:
                return f"{client.name} waits for what it has opened"
        for uri, views in self.records.views.items():
            for app, view in views.items():
                for post in self.records.missing(view):
                    return f"message {post.number} of {post.producer} to {uri} is not confirmed by '{app}'"
        if self.features and (difference := self.operator.difference()):
            return difference
        for host in self.hosts:
            if host.node is None:
                return f"{host.name} does not run: {host.refused}"
            for queue in host.node.queues.values():
                if queue.messages:
                    return f"{host.name} holds messages of {queue.uri}"
        return self._miscounted()

    def _miscounted(self) -> str:
        """Describe a broker whose counts are wrong when all is delivered; empty if there is none."""
        for broker in self.brokers:
            if broker.node is not None and (credit := miscounted_credit(broker.node)):
                return f"{broker.name}: {credit}"
        # Malformed events may open queues, which their senders know nothing of.
        for host in self.hosts if Feature.MALFORMED not in self.features else ():
            for uri in self.records.views if host.node is not None else ():
                queue = host.node.queues.get(uri) if host.node is not None else None
                if queue is None or not queue.is_root:
                    continue
                writers = sum(uri in producer.uris for producer in self._producers)
                readers = {app: len(self._readers_of(uri, app)) for app in queue.apps}
                if opens := miscounted_opens(queue, writers, readers):
                    return f"{host.name}: {opens}"
        return ""

    def is_whole(self) -> bool:
        """Return whether every node runs, can reach all, and has everything."""
        return not self.network.blocked and all(host.is_sound for host in self.hosts)

    def trap(
        self,
        us: int,
        is_time: Callable[[Host], bool],
        action: Callable[[Host], None],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let `action` happen to the first host of which it is time, after it has sent its output.

        The trap waits for `us` microseconds at most, and until it `is_over`.
        """
        until_us = self.clock.us + us

        def trap(host: Host) -> bool:
            if self.clock.us > until_us or not self.is_busy or is_over():
                return True
            if not is_time(host):
                return False
            self.say(f"it is time for a fault at {host.name}")
            self.clock.after(0, lambda: action(host))
            return True

        self.traps.append(trap)

    # -- what hosts tell

    def started(self, host: Host) -> None:
        """A node has started: it has what it must have."""
        assert host.node is not None
        self.records.check_node(host.node)

    def before_flush(self, host: Host) -> None:
        """A node has taken a step, and nothing of it has left yet."""
        self.prompt_pushes.look(host)
        self.passage.look(host, self.clock.us)
        self.attempts.look(host)

    def slice_gap_us(self) -> int:
        """Draw the time until a host continues unfinished work, in microseconds."""
        return self._slices_random.randint(1, SLICE_GAP_US_MAX) if Feature.SLICES in self.features else 1

    def make_oddity(self) -> Oddity | None:
        """Draw the oddity of a new link between two members, if any."""
        return Oddity(self.random) if Feature.ODD in self.features else None

    def make_malformer(self) -> Malformer | None:
        """Make what spoils events on a new link between two members, while faults last."""
        if Feature.MALFORMED not in self.features:
            return None
        return Malformer(self._malformed_random, lambda: self.is_busy)

    def make_echo(self) -> Echo | None:
        """Make what sends old events once more over a new link between two members."""
        if Feature.ECHOES not in self.features:
            return None
        self._echoes += 1
        return Echo(Random(f"echo {self._echoes} {self.seed}"))

    def ask_place(self, host: Host, uri: str) -> None:
        """Ask a node of a cluster for the place of a queue: nothing here."""

    def leads(self, host: Host, uri: str) -> bool:
        """Return whether a node is the newest primary of a queue."""
        return False

    def voted(self, host: Host, term: int, machine: str) -> None:
        """A node gives its vote to the one on that machine."""

    def rolled_over(self, host: Host) -> None:
        """A node has put old files of a partition away."""
        self.say(f"{host.name} has rolled over")

    def received_anew(self, host: Host) -> None:
        """Note that a node has a partition from another, which told it of the removals before if there was room."""
        if min(host.directory.free, host.directory.opens_left) < CAPACITY // 2:
            self.records.forgets += 1

    def power_lost(self, host: Host) -> None:
        self.prompt_pushes.forget()
        if Feature.FSYNC not in self.features:
            # Its knowledge of removed messages may be gone, too.
            self.records.forgets += 1
            self.records.power_lost()

    def revive(self, host: Host) -> None:
        """Start a process where there is none; an operator helps with what a node cannot."""
        if host.node is not None:
            return
        host.start()
        if not host.refused:
            return
        self.prompt_pushes.forget()
        if host.disk.rotten is not None:
            host.disk.mend()
        elif Feature.FSYNC in self.features:
            raise Violation(f"{host.name} does not start: {host.refused}")
        else:
            self.lose_disk(host)
        host.refused = ""
        host.start()

    def lose_disk(self, host: Host) -> None:
        """A node does not start on what is there, and never will."""
        host.disk.wipe()

    def _write_back(self) -> None:
        for host in self.hosts:
            host.disk.write_back()
        if self.is_busy:
            self.clock.after(WRITE_BACK_US, self._write_back)

    def look(self) -> None:
        """Check the state inside the nodes, which must hold at any time."""
        for host in self.hosts:
            check_counts(host)
            if host.node is not None:
                for queue in host.node.queues.values():
                    check_queue(queue)
                self.records.check_node(host.node)
