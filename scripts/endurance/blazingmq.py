"""The runner of scripts/soak: a cluster of real nodes under load while nodes are killed, frozen, wiped and cut off.

The order of the faults depends on the seed alone; their exact times depend on the machine. In the end every
acknowledged message must have arrived, in the order of its producer.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bmqctl.bench.plan import monotonic_ns
from bmqctl.bench.tally import Account, settle
from scripts.judges.cluster_load import SECOND_NS, STRONG, Stream, wait_healed, wait_until
from scripts.judges.network_namespaces import IsolatedCluster, why_not
from tests.rigs.cluster_processes import ClusterProcesses

__all__ = ["FAULTS", "Report", "Soak"]

HEAL_S = 120.0
# Ranges of the time between two faults, and of a fault's length.
QUIET_S = (0.5, 3.0)
DOWN_S = (0.1, 4.0)
FROZEN_S = (0.2, 8.0)
CUT_S = (0.5, 12.0)
STALLED_NS = 5 * SECOND_NS


@dataclass
class Report:
    """The result of a soak."""

    account: Account
    faults: list[str]
    longest_gap_s: float
    took_s: float

    @property
    def clean(self) -> bool:
        """True if nothing was lost or reordered, and every post was answered."""
        account = self.account
        return not (account.lost or account.reordered or account.unanswered)

    def __str__(self) -> str:
        account = self.account
        return (
            f"{account.posted:,} posted, {account.acked:,} acked, {account.nacked:,} nacked {account.nacks or ''}, "
            f"{account.unanswered} unanswered; {account.lost} lost, {account.reordered} reordered, "
            f"{account.duplicated:,} duplicates; {len(self.faults)} faults in {self.took_s:.0f} s, "
            f"longest time without any ack {self.longest_gap_s:.2f} s"
        )


@dataclass
class Soak:
    """A cluster of `count` nodes in `directory`, with a stream of messages for each node, and faults by `seed`."""

    directory: Path
    count: int
    seed: int
    messages: int
    rate: float = 0.0
    faults_max: int | None = None
    kinds: tuple[str, ...] = ()
    isolated: bool = False
    say: Callable[[str], None] = print
    struck: list[str] = field(default_factory=list)

    def run(self) -> Report:
        """Run until enough messages are acknowledged. Raises TimeoutError if the cluster fails to recover."""
        self.random = random.Random(self.seed)
        self.cluster = (IsolatedCluster if self.isolated else ClusterProcesses)(self.directory, self.count)
        for node in self.cluster.nodes.values():
            node.timeout_s = HEAL_S
        self.known = FAULTS | CUTS if self.isolated else FAULTS
        started = time.monotonic()
        with self.cluster:
            wait_healed(self.cluster, HEAL_S)
            with ExitStack() as stack:
                self.streams = [stack.enter_context(stream) for stream in self._make_streams()]
                self._strike_until_enough()
                for stream in self.streams:
                    stream.finish()
                for stream in self.streams:
                    stream.drain(HEAL_S)
        account = settle([stream.sent for stream in self.streams], [stream.came for stream in self.streams])
        gap_s = max(stream.longest_gap_s() for stream in self.streams)
        return Report(account, self.struck, gap_s, time.monotonic() - started)

    def _make_streams(self) -> list[Stream]:
        nodes = list(self.cluster.nodes.values())
        run = secrets.randbits(32)
        rate = self.rate / len(nodes)
        return [
            Stream(
                index,
                run,
                f"bmq://{STRONG}/soak-{index}",
                node.uri,
                nodes[(index + 1) % len(nodes)].uri,
                rate=rate,
            )
            for index, node in enumerate(nodes)
        ]

    @property
    def acked(self) -> int:
        return sum(stream.sent.acked for stream in self.streams)

    def _strike_until_enough(self) -> None:
        while self.acked < self.messages:
            if self.faults_max is not None and len(self.struck) >= self.faults_max:
                wait_until(lambda: self.acked >= self.messages, HEAL_S, lambda: f"{self.acked} acked")
                return
            time.sleep(self.random.uniform(*QUIET_S))
            kind = self.random.choice(self.kinds or tuple(self.known))
            self.say(f"{self.acked:>10,} acked  {kind}{self._stalled()}")
            self.known[kind](self)
            self.struck.append(kind)
            wait_healed(self.cluster, HEAL_S)
            # The official client reconnects slowly, and may miss a node that is up for seconds.
            wait_until(lambda: not self._cut_off(), HEAL_S, lambda: f"clients have no queue: {self._cut_off()}")

    def _cut_off(self) -> list[str]:
        return [f"{who} {index}" for index, stream in enumerate(self.streams) for who in sorted(stream.cut_off)]

    def _stalled(self) -> str:
        """Describe streams without recent answers while all nodes are in order."""
        now_ns = monotonic_ns()
        found = [
            f"stream {index} for {(now_ns - stream.sent.last_ack_ns) / SECOND_NS:.0f} s {stream.events[-4:]}"
            for index, stream in enumerate(self.streams)
            if now_ns - stream.sent.last_ack_ns > STALLED_NS
        ]
        return f" (no ack: {'; '.join(found)})" if found else ""

    # -- faults

    def _victims(self, count_max: int) -> list[int]:
        numbers = sorted(self.cluster.nodes)
        return self.random.sample(numbers, self.random.randint(1, count_max))

    @property
    def _minority(self) -> int:
        return (self.count - 1) // 2

    def _down(self, victims: list[int], end: Callable[[int], object], wiped: bool = False) -> None:
        for number in victims:
            end(number)
        time.sleep(self.random.uniform(*DOWN_S))
        for number in victims:
            if wiped:
                shutil.rmtree(self.cluster.nodes[number].data_dir)
            self.cluster.start(number)

    def kill_leader(self) -> None:
        self._down([self.cluster.leader()], self.cluster.kill)

    def kill_some(self) -> None:
        self._down(self._victims(self._minority), self.cluster.kill)

    def kill_all(self) -> None:
        self._down(self._victims(1) and sorted(self.cluster.nodes), self.cluster.kill)

    def restart(self) -> None:
        self._down(self._victims(1), self.cluster.stop)

    def wipe(self) -> None:
        self._down(self._victims(1), self.cluster.kill, wiped=True)

    def _freeze(self, victims: list[int]) -> None:
        for number in victims:
            os.kill(self.cluster.nodes[number].pid, signal.SIGSTOP)
        try:
            time.sleep(self.random.uniform(*FROZEN_S))
        finally:
            for number in victims:
                os.kill(self.cluster.nodes[number].pid, signal.SIGCONT)

    def _cut(self, victims: list[int], *, one_way: bool = False) -> None:
        assert isinstance(self.cluster, IsolatedCluster)
        others = [number for number in self.cluster.nodes if number not in victims]
        pairs = [(victim, other) for victim in victims for other in others]
        self.cluster.cut(pairs if one_way else pairs + [(other, victim) for victim, other in pairs])
        try:
            time.sleep(self.random.uniform(*CUT_S))
        finally:
            self.cluster.mend()

    def cut_leader(self) -> None:
        self._cut([self.cluster.leader()])

    def cut_some(self) -> None:
        self._cut(self._victims(self._minority))

    def mute_leader(self) -> None:
        self._cut([self.cluster.leader()], one_way=True)

    def mute_some(self) -> None:
        self._cut(self._victims(self._minority), one_way=True)

    def freeze_leader(self) -> None:
        self._freeze([self.cluster.leader()])

    def freeze_some(self) -> None:
        self._freeze(self._victims(self._minority))


FAULTS: dict[str, Callable[[Soak], None]] = {
    "kill -9 of the leader": Soak.kill_leader,
    "kill -9 of a minority": Soak.kill_some,
    "kill -9 of all": Soak.kill_all,
    "graceful restart": Soak.restart,
    "kill -9, wiped disk": Soak.wipe,
    "SIGSTOP of the leader": Soak.freeze_leader,
    "SIGSTOP of a minority": Soak.freeze_some,
}

# Only for nodes with separate networks.
CUTS: dict[str, Callable[[Soak], None]] = {
    "leader cut off from the others": Soak.cut_leader,
    "minority cut off": Soak.cut_some,
    "leader unheard by the others": Soak.mute_leader,
    "minority unheard by the others": Soak.mute_some,
}


def main() -> None:
    """Run one soak; exit with code 1 if a message was lost or reordered, or the cluster did not recover."""
    parser = argparse.ArgumentParser(description="A cluster of real nodes under load and faults.")
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5, 7), help="number of nodes (%(default)s)")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="number of acked messages after which it ends (%(default)s)"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="messages/s of all producers; 0: as fast as possible")
    parser.add_argument("--seed", type=int, default=None, help="seed of the order of the faults (by default a new one)")
    parser.add_argument("--faults", nargs="+", choices=(*FAULTS, *CUTS), default=(), help="only these faults")
    parser.add_argument("--keep", type=Path, help="directory for the nodes' files and logs, which then stay")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    absent = why_not()
    if absent is not None:
        print(f"soak: no network partitions, as network namespaces are unavailable: {absent}")
        if set(arguments.faults) & set(CUTS):
            parser.error("these faults need network namespaces")
    print(f"soak: seed {seed}, {arguments.nodes} nodes, {arguments.messages:,} messages", flush=True)
    with ExitStack() as stack:
        directory = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmqctl-soak-")))
        started = time.monotonic()
        soak = Soak(
            directory,
            arguments.nodes,
            seed,
            arguments.messages,
            arguments.rate,
            kinds=tuple(arguments.faults),
            isolated=absent is None,
            say=lambda text: print(f"{time.monotonic() - started:7.1f} s {text}", flush=True),
        )
        try:
            report = soak.run()
        except TimeoutError as fault:
            sys.exit(f"soak: seed {seed}: {fault}; after {', '.join(soak.struck)}")
    print(f"soak: seed {seed}: {report}")
    sys.exit(not report.clean)


if __name__ == "__main__":
    main()
