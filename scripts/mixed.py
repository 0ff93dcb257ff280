"""The runner behind scripts/mixed: clusters of our nodes and the reference's, under load, with faults.

A scenario is drawn from a seed: which nodes are whose, how large the files are, and which faults follow each other.
Three streams of the official client go through strongly consistent queues meanwhile, each from one node to another. At
the end every message that was acknowledged has come, in the order of its producer; the nodes are killed at one
moment, `bmqctl journal validate` finds no fault in any store, `journal diff` no difference between two of them, and the
reference's storage tool reads each journal.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bmqctl.bench.tally import settle
from bmqctl.node_process import NodeFailed
from scripts.cluster_load import STRONG, Stream, wait_until
from scripts.mixed_cluster import MixedCluster

__all__ = ["FAULTS", "Scenario", "main"]

COUNT = 3
RATE = 150.0  # messages/s of each stream
SIZE = 512
QUIET_S = (1.0, 4.0)
DOWN_S = (0.1, 3.0)
SETTLE_S = 120.0
FAULTS_MAX = 4
DATA_BYTES = (4 << 20, 16 << 20)
JOURNAL_BYTES = (256 << 10, 1 << 20, 4 << 20)
QLIST_BYTES = 1 << 20

COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()")


class Differs(Exception):
    """A scenario shows something that must not be."""


@dataclass
class Scenario:
    """One cluster and what happens to it; `tools` is the folder of the reference's executables."""

    seed: int
    tools: Path
    directory: Path
    foreign_count: int
    say: Callable[[str], None]
    events: list[str] = field(default_factory=list)

    def run(self) -> str:
        """A line that says what was sent, or `Differs`, `NodeFailed` or TimeoutError."""
        self.random = random.Random(f"mixed-{self.seed}")
        numbers = list(range(1, COUNT + 1))
        foreign = sorted(self.random.sample(numbers, self.foreign_count))
        sizes = {
            "maxDataFileSize": self.random.choice(DATA_BYTES),
            "maxJournalFileSize": self.random.choice(JOURNAL_BYTES),
            "maxQlistFileSize": QLIST_BYTES,
        }
        faults = [self.random.choice(list(FAULTS)) for _ in range(self.random.randint(1, FAULTS_MAX))]
        self.say(
            f"reference: nodes {foreign}; journals of {sizes['maxJournalFileSize'] >> 10} KiB; {', '.join(faults)}"
        )
        started = time.monotonic()
        with MixedCluster(
            self.directory, self.tools / "bmqbrkr.tsk", foreign, count=COUNT, sizes=sizes
        ) as self.cluster:
            self.cluster.wait_healed()
            with ExitStack() as stack:
                self.streams = [stack.enter_context(each) for each in self._make_streams()]
                for fault in faults:
                    time.sleep(self.random.uniform(*QUIET_S))
                    self._strike(fault)
                time.sleep(self.random.uniform(*QUIET_S))
                for stream in self.streams:
                    stream.finish()
                for stream in self.streams:
                    stream.drain(SETTLE_S)
            self.cluster.check_alive()
            self._wait_equal()
            self.cluster.kill_all()
        self._check_stores()
        account = settle([each.sent for each in self.streams], [each.came for each in self.streams])
        if account.lost or account.reordered or account.unanswered:
            late = {stream.uri: stream.came.reordered for stream in self.streams if stream.came.reordered}
            raise Differs(f"{account.lost} lost, {account.reordered} reordered {late}, {account.unanswered} unanswered")
        took_s = time.monotonic() - started
        return f"{account.acked} acked, {account.nacked} nacked, {account.duplicated} duplicates, {took_s:.0f} s"

    def _make_streams(self) -> list[Stream]:
        nodes = list(self.cluster.nodes.values())
        run = secrets.randbits(32)
        return [
            Stream(
                index,
                run,
                f"bmq://{STRONG}/mixed-{index}",
                node.uri,
                nodes[(index + 1) % COUNT].uri,
                rate=RATE,
                size=512,
            )
            for index, node in enumerate(nodes)
        ]

    def _strike(self, fault: str) -> None:
        FAULTS[fault](self)
        self.events.append(fault)
        self.cluster.wait_healed()
        wait_until(lambda: not self._cut_off(), SETTLE_S, lambda: f"clients have no queue: {self._cut_off()}")

    def _cut_off(self) -> list[str]:
        self.cluster.check_alive()
        return [f"{who} {index}" for index, stream in enumerate(self.streams) for who in sorted(stream.cut_off)]

    # -- faults

    def _victim(self) -> int:
        return self.random.choice(sorted(self.cluster.running))

    def _leader(self) -> int:
        return self.cluster.leader() or self._victim()

    def _pause(self) -> None:
        time.sleep(self.random.uniform(*DOWN_S))

    def kill_leader(self) -> None:
        self._kill(self._leader())

    def kill_one(self) -> None:
        self._kill(self._victim())

    def _kill(self, number: int) -> None:
        self.cluster.kill(number)
        self._pause()
        self.cluster.start(number)

    def restart(self) -> None:
        number = self._victim()
        self.cluster.stop(number)
        self._pause()
        self.cluster.start(number)

    def wipe(self) -> None:
        number = self._victim()
        self.cluster.kill(number)
        shutil.rmtree(self.cluster.nodes[number].data_dir)
        self._pause()
        self.cluster.start(number)

    def exchange(self) -> None:
        """One node of either kind goes on as the other kind's, on the same files."""
        for theirs in (True, False):
            candidates = [n for n in self.cluster.nodes if (n in self.cluster.foreign) is theirs]
            number = self.random.choice(sorted(candidates))
            self.cluster.stop(number)
            self.cluster.replace(number)
            self.cluster.start(number)
            self.cluster.wait_healed()

    def kill_all(self) -> None:
        self.cluster.kill_all()
        for number in self.cluster.nodes:
            self.cluster.start(number)

    # -- what is on the disks

    def _wait_equal(self) -> None:
        """Wait until no store has grown for a while: the replicas have what the primary has."""
        last: list[bytes] = []

        def same() -> bool:
            nonlocal last
            now = [_journal_bytes(folder / "storage") for folder in self.cluster.folders.values()]
            is_same = now == last
            last = now
            time.sleep(1.0)
            return is_same

        wait_until(same, SETTLE_S, lambda: "the journals do not come to rest")

    def _check_stores(self) -> None:
        stores = [folder / "storage" for folder in self.cluster.folders.values()]
        for store in stores:
            _bmqctl("journal", "validate", str(store))
            for journal in sorted(store.glob("*.bmq_journal")):
                done = subprocess.run(
                    [str(self.tools / "bmqstoragetool.tsk"), "--journal-file", str(journal), "--summary"],
                    cwd=self.directory,
                    capture_output=True,
                    text=True,
                    timeout=SETTLE_S,
                    check=False,
                )
                if done.returncode:
                    raise Differs(f"the reference's tool does not read {journal}: {done.stdout}{done.stderr}")
        for other in stores[1:]:
            _bmqctl("journal", "diff", str(stores[0]), str(other))


FAULTS: dict[str, Callable[[Scenario], None]] = {
    "kill -9 of the leader": Scenario.kill_leader,
    "kill -9 of one": Scenario.kill_one,
    "kill -9 of all": Scenario.kill_all,
    "graceful restart": Scenario.restart,
    "wiped disk": Scenario.wipe,
    "exchange of programs": Scenario.exchange,
}


def _journal_bytes(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(store.glob("*.bmq_journal")))


def _bmqctl(*words: str) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=SETTLE_S, check=False)
    if done.returncode:
        raise Differs(
            f"bmqctl {' '.join(words)}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
        )


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def main() -> None:
    """Run scenarios; exit code 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Clusters of our nodes and the reference's, under load and faults.")
    parser.add_argument("--reference", type=Path, required=True, help="folder with bmqbrkr.tsk and bmqstoragetool.tsk")
    parser.add_argument("--seed", type=int, default=0, help="of the first scenario (%(default)s)")
    parser.add_argument("--scenarios", type=int, default=10, help="so many (%(default)s)")
    parser.add_argument("--keep", type=Path, help="directory for the nodes' files and logs of what failed")
    arguments = parser.parse_args()
    for name in ("bmqbrkr.tsk", "bmqstoragetool.tsk"):
        if not (arguments.reference / name).is_file():
            parser.error(f"{arguments.reference} has no {name}; unpack the reference's executables there")
    failed = []
    for seed in range(arguments.seed, arguments.seed + arguments.scenarios):
        with tempfile.TemporaryDirectory(prefix="bmqctl-mixed-") as name:
            scenario = Scenario(
                seed,
                arguments.reference.absolute(),
                Path(name),
                1 + seed % 2,
                lambda text: print(f"  {text}", flush=True),
            )
            print(f"scenario {seed}", flush=True)
            try:
                print(f"  {scenario.run()}", flush=True)
            except (Differs, NodeFailed, TimeoutError) as fault:
                failed.append(seed)
                print(f"  FAILED after {', '.join(scenario.events) or 'nothing'}: {fault}", flush=True)
                if arguments.keep is not None:
                    kept = arguments.keep / f"scenario-{seed}"
                    shutil.copytree(name, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.ctl"))
    print(f"mixed: {arguments.scenarios - len(failed)} of {arguments.scenarios} passed; failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
