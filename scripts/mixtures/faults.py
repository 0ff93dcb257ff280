"""The faults of a mixed cluster under load."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from scripts.mixtures.cluster import MixedCluster

__all__ = ["FAULTS", "MORE_FAULTS", "PING_PONG", "Differs", "Setting"]

DOWN_S = (0.1, 3.0)
# A node that starts this many seconds before the others leads.
AHEAD_S = 1.8
FULL_S = 4.0


class Differs(Exception):
    """A scenario shows a wrong result."""


@dataclass
class Setting:
    """A running cluster, with the generators that faults (`random`) and later additions (`other`) draw from."""

    cluster: MixedCluster
    random: Random
    other: Random
    notes: list[str] = field(default_factory=list)

    def victim(self) -> int:
        return self.random.choice(sorted(self.cluster.running))

    def pause(self) -> None:
        time.sleep(self.random.uniform(*DOWN_S))

    def program(self, number: int) -> str:
        return "theirs" if number in self.cluster.foreign else "ours"


def kill_leader(setting: Setting) -> None:
    _kill(setting, setting.cluster.leader() or setting.victim())


def kill_one(setting: Setting) -> None:
    _kill(setting, setting.victim())


def _kill(setting: Setting, number: int) -> None:
    setting.cluster.kill(number)
    setting.pause()
    setting.cluster.start(number)


def restart(setting: Setting) -> None:
    number = setting.victim()
    setting.cluster.stop(number)
    setting.pause()
    setting.cluster.start(number)


def wipe(setting: Setting) -> None:
    number = setting.victim()
    setting.cluster.kill(number)
    shutil.rmtree(setting.cluster.nodes[number].data_dir)
    setting.pause()
    setting.cluster.start(number)


def exchange(setting: Setting) -> None:
    """Exchange the programs of one node of each kind, which keep their files; if all are of one kind, restart two."""
    cluster = setting.cluster
    is_mixed = 0 < len(cluster.foreign) < len(cluster.nodes)
    for theirs in (True, False):
        candidates = [n for n in cluster.nodes if (n in cluster.foreign) is theirs or not is_mixed]
        number = setting.random.choice(sorted(candidates))
        cluster.stop(number)
        if is_mixed:
            cluster.replace(number)
        cluster.start(number)
        cluster.wait_healed()


def kill_all(setting: Setting) -> None:
    setting.cluster.kill_all()
    for number in setting.cluster.nodes:
        setting.cluster.start(number)


FAULTS: dict[str, Callable[[Setting], None]] = {
    "kill -9 of the leader": kill_leader,
    "kill -9 of one": kill_one,
    "kill -9 of all": kill_all,
    "graceful restart": restart,
    "wiped disk": wipe,
    "exchange of programs": exchange,
}


# The faults below draw from the other generator: the scenarios of existing seeds do not change.


def stop_leader(setting: Setting) -> None:
    number = setting.cluster.wait_leader()
    setting.cluster.stop(number)
    time.sleep(setting.other.uniform(*DOWN_S))
    setting.cluster.start(number)


def wipe_leader(setting: Setting) -> None:
    number = setting.cluster.wait_leader()
    setting.cluster.kill(number)
    shutil.rmtree(setting.cluster.nodes[number].data_dir)
    time.sleep(setting.other.uniform(*DOWN_S))
    setting.cluster.start(number)


def change_leader(setting: Setting) -> None:
    """Stop all nodes, and start one of the other program ahead of the rest, so that it leads."""
    cluster = setting.cluster
    theirs = cluster.wait_leader() in cluster.foreign
    candidates = [number for number in cluster.nodes if (number in cluster.foreign) is not theirs]
    first = setting.other.choice(sorted(candidates or cluster.nodes))
    for number in list(cluster.running):
        cluster.stop(number)
    cluster.start(first)
    time.sleep(AHEAD_S)
    for number in cluster.nodes:
        if number != first:
            cluster.start(number)
    cluster.wait_healed()
    found = cluster.wait_leader()
    if found != first:
        setting.notes.append(f"node {found} leads, though node {first} started ahead")


def kill_proxies(setting: Setting) -> None:
    for proxy in setting.cluster.proxies:
        proxy.kill()
        time.sleep(setting.other.uniform(*DOWN_S) / 3)
        proxy.start()


def full_disk(setting: Setting) -> None:
    cluster = setting.cluster
    number = setting.other.choice(sorted(cluster.running - cluster.foreign))
    cluster.fill_disk(number)
    time.sleep(FULL_S)
    cluster.empty_disk(number)


MORE_FAULTS: dict[str, Callable[[Setting], None]] = {
    "graceful restart of the leader": stop_leader,
    "wiped disk of the leader": wipe_leader,
    "another kind leads": change_leader,
    "kill -9 of the proxies": kill_proxies,
    "full disk": full_disk,
}


def _play(setting: Setting, stop: Callable[[int], object]) -> None:
    cluster = setting.cluster
    stop(1)
    cluster.replace(1)
    cluster.start(1)


PING_PONG: dict[str, Callable[[Setting], None]] = {
    "kill -9 and the other program": lambda setting: _play(setting, setting.cluster.kill),
    "graceful stop and the other program": lambda setting: _play(setting, setting.cluster.stop),
}
