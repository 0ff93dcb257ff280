"""An operator: empties queues, and lets a domain name another app, at each node, again and again until it is so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import Full
from broker.bmq.node.changes import reconfigure
from broker.bmq.node.node import Node
from broker.bmq.queue.queue import Queue
from tests.simulator.actors.administrator import command, on_queue
from tests.simulator.judges.invariants import Violation
from tests.simulator.machines.hosts import Host
from tests.simulator.worlds.features import Feature, own_random

if TYPE_CHECKING:
    from tests.simulator.worlds.world import World

__all__ = ["ADMITTING", "EXTRA_APP", "Operator"]

EXTRA_APP = "baz"
INTERVAL_US = 900_000
INSIST_US = 1_000_000
LATE_US_MAX = 3_000_000
QLIST_PART = 0.7
LIMITED = "priority"
ADMITTING = ("priority", "fanout")  # the domains that may admit few clients
CHANGES = ("message_ttl_s", "deduplication_time_ms", "strong", "idle_time_max_ms", "delivery_attempts_max", "limits")
# The domains in which an ack promises least, whatever the consistency; and the domains that keep messages.
WEAKEST = "eventual"
KEEPING = ("priority", "fanout", "eventual", "aging")


class Operator:
    """`fanout` is the domain whose apps change, `purged` are the queues that may be emptied."""

    def __init__(self, world: World, fanout: str, purged: list[str]) -> None:
        self._world = world
        self._random = Random(f"operator {world.seed}")
        self._fanout = fanout
        self._purged = purged
        self._own = own_random(Feature.RECONFIGURED, world.seed)
        self._reconfigured: set[str] = set()

    def begin(self) -> None:
        """Change domains from time to time, on a schedule of its own."""
        if Feature.RECONFIGURED in self._world.features:
            self._world.clock.after(int(self._own.expovariate(1) * INTERVAL_US) + 1, self._change_domain)

    def _change_domain(self) -> None:
        """Change something of a domain that takes nothing from what its queues promise."""
        world, random = self._world, self._own
        if not world.is_busy:
            return
        name = random.choice(sorted(world.domains))
        config = world.domains[name]
        what = random.choice(CHANGES)
        match what:
            case "message_ttl_s" if name in KEEPING:
                # Longer than any clock is off: who sets less has what is old by its record expire.
                config = replace(config, message_ttl_s=random.choice((None, 1_000_000, 2_000_000)))
            case "deduplication_time_ms":
                config = replace(config, deduplication_time_ms=random.choice((240_000, 300_000, 900_000)))
            case "strong" if name == WEAKEST and world.is_cluster:
                config = replace(config, strong=not config.strong)
            case "idle_time_max_ms":
                config = replace(config, idle_time_max_ms=random.choice((0, 500, 60_000)))
            case "delivery_attempts_max" if Feature.ATTEMPTS not in world.features:
                config = replace(config, delivery_attempts_max=random.choice((0, 1000)))
            case _:
                config = replace(config, domain_messages_max=random.choice((0, 10_000)), queues_max=0)
        if config != world.domains[name]:
            world.say(f"'{name}' is to have another {what}")
            world.domains[name] = config
            self._reconfigured.add(name)
            self._spread(name)
        self.begin()

    def next(self) -> None:
        """One command, and the next after a while; in the end only what it has wanted before."""
        world = self._world
        if not world.is_busy:
            self._change_limit(0)
            self._admit_all()
            for name in self._reconfigured:
                self._spread(name)
            self._spread(self._fanout)
            self._insist()
            return
        with world.chances.at("operator", self._random) as is_taken:
            world.clock.after(int(self._random.expovariate(1) * INTERVAL_US) + 1, self.next)
            if is_taken:
                self._act()

    def _act(self) -> None:
        kinds = [kind for kind in (Feature.PURGE, Feature.APPS, Feature.LIMITS) if kind in self._world.features]
        if not kinds:
            return
        match self._random.choice(kinds):
            case Feature.PURGE:
                self.purge(self._random.choice(self._purged))
            case Feature.LIMITS:
                self._change_limit(self._random.choice((0, 3, 20)))
            case _:
                self.change_apps()

    # -- queues that are emptied

    def purge(self, uri: str, app_id: str = "") -> None:
        """Empty a queue, or one app of it, at every node; only the primary does anything."""
        for host in self._world.hosts:
            gone: list[bytes] = []
            host.step(partial(self._purge_at, host, uri, app_id, gone), partial(self._purged_at, uri, app_id, gone))

    def _purge_at(self, host: Host, uri: str, app_id: str, gone: list[bytes]) -> None:
        queue = host.node.queues.get(uri) if host.node is not None else None
        if queue is None or not queue.is_root or not queue.messages:
            return
        app = queue.apps.get(app_id)
        if app is not None:
            guids = [message.guid for message in queue.messages.peek(app.bit)]
            self._world.say(f"{host.name} is told to remove {len(guids)} messages of {uri} for '{app_id}'")
        elif app_id:
            return
        else:
            # Messages that wait for copies are refused, and may be posted again.
            guids = [guid for guid in queue.messages if guid not in queue.awaiting]
            self._world.say(f"{host.name} is told to remove {len(queue.messages)} messages of {uri}")
        self._world.records.purged(uri, guids, app_id)
        assert host.node is not None
        (purged,) = command(host.node, on_queue(uri, f"PURGE {app_id or '*'}"))["purgedQueues"]["queues"]
        if "queue" not in purged:
            self._world.say(f"{host.name} cannot: {purged}")
            return
        gone += guids

    def _purged_at(self, uri: str, app_id: str, gone: list[bytes]) -> None:
        """The node has survived it."""
        for app in (app_id,) if app_id else self._world.records.views[uri]:
            self._world.records.confirmed(uri, app, gone)

    # -- how much queues may hold

    def _change_limit(self, messages_max: int) -> None:
        domains = self._world.domains
        for name in (LIMITED,) if Feature.LIMITS in self._world.features else ():
            self._world.say(f"queues of '{name}' are to hold at most {messages_max} messages")
            domains[name] = replace(domains[name], queue_messages_max=messages_max)
            self._spread(name)

    # -- how many clients queues admit

    def _admit_all(self) -> None:
        """Admit any number of clients from now on."""
        domains = self._world.domains
        for name in ADMITTING if Feature.ADMISSION in self._world.features else ():
            domains[name] = replace(domains[name], consumers_max=0, producers_max=0)
            self._reconfigured.add(name)

    # -- apps that come and go

    @property
    def wants_extra(self) -> bool:
        """Return whether the domain names the extra app."""
        return EXTRA_APP in self._world.domains[self._fanout].app_ids

    def change_apps(self) -> None:
        """Have the domain name the extra app, or no longer; nothing changes once the faults have ended."""
        if not self._world.is_busy:
            return
        domains = self._world.domains
        config = domains[self._fanout]
        apps = [app for app in config.app_ids if app != EXTRA_APP]
        if not self.wants_extra:
            if not self._has_room():
                return
            apps.append(EXTRA_APP)
        self._world.say(f"'{self._fanout}' is to have the apps {', '.join(apps)}")
        domains[self._fanout] = replace(config, app_ids=tuple(apps))
        self._spread(self._fanout)

    def _has_room(self) -> bool:
        """Return whether each partition has room for more apps, and for the queues that clients open after that.

        Rollovers keep the record of each app that a queue has ever had, as the reference's do.
        """
        nodes = [host.node for host in self._world.hosts if host.node is not None]
        partitions = [partition for node in nodes for partition in node.partitions.values()]
        used = [(each.records.files.qlist_end + each.records.qlist_held, each.room.limits.qlist) for each in partitions]
        return all(size <= limit * QLIST_PART for size, limit in used)

    # -- domain files that are changed at each node, at once or one after another

    def _spread(self, name: str) -> None:
        differs = Feature.DIFFER in self._world.features and self._world.is_busy
        for host in self._world.hosts:
            if differs:
                late_us = self._random.randrange(LATE_US_MAX)
                self._world.clock.after(late_us, partial(self._reconfigure, host, name))
            else:
                self._reconfigure(host, name)

    def _reconfigure(self, host: Host, name: str) -> None:
        host.domains[name] = self._world.domains[name]
        if host.node is not None:
            host.step(partial(self._reconfigure_at, host.node, host.domains, name))

    def _reconfigure_at(self, node: Node, files: Mapping[str, DomainConfig], name: str) -> None:
        """Have a node take a domain's file as it is by now, which may have changed while the process stood still."""
        domain = node.domains.get(name)
        if domain is None:
            return
        try:
            reconfigure(node, domain, files[name])
        except Full as full:
            self._world.say(f"n{node.identity.node_id} cannot change apps: {full}")
            for queue in self._fanouts(node) if not self._world.is_cluster else ():
                if not _is_as_in_ledger(node, queue):
                    raise Violation(f"a change of the apps of {queue.uri} is refused, and its ledger has it") from full

    def _insist(self) -> None:
        """A queue whose primary comes back late may have the apps of long ago."""
        if self._world.is_ending:
            return
        if self.difference():
            for name in {self._fanout, *self._reconfigured}:
                self._spread(name)
        self._world.clock.after(INSIST_US, self._insist)

    def _fanouts(self, node: Node) -> list[Queue]:
        return [queue for queue in node.queues.values() if queue.config.name == self._fanout]

    def difference(self) -> str:
        """Describe a queue whose apps or configuration differ from its domain's; empty if there is none."""
        wanted = set(self._world.domains[self._fanout].app_ids)
        for host in self._world.hosts:
            for queue in self._fanouts(host.node) if host.node is not None else ():
                if queue.is_root and set(queue.apps) != wanted:
                    return f"{queue.uri} has the apps {sorted(queue.apps)} at {host.name}"
                if queue.is_root and not _is_as_in_ledger(host.node, queue):
                    return f"the apps of {queue.uri} have other keys at {host.name} than in its ledger"
            for queue in host.node.queues.values() if host.node is not None else ():
                name = queue.config.name
                if name in self._reconfigured and queue.is_root and queue.config != self._world.domains[name]:
                    return f"{queue.uri} is not configured at {host.name} as its domain is"
        return ""


def _is_as_in_ledger(node: Node | None, queue: Queue) -> bool:
    """Return whether a queue has the apps that its node's ledger says, if the ledger has the queue."""
    info = node.ledger.state.queues.get(queue.uri) if node is not None else None
    keys = {app.app_id: app.key for app in queue.apps.values()}
    return info is None or {app.app_id: app.app_key for app in info.app_ids} == keys
