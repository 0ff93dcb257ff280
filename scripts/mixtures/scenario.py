"""One scenario of scripts/mixed, drawn from a seed: a cluster, its clients, and their faults."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bmqctl.bench.tally import settle
from bmqctl.common.children import COMMAND
from scripts.judges.cluster_load import STRONG, Stream, wait_until
from scripts.judges.reference_process import Running
from scripts.mixtures.cluster import MixedCluster
from scripts.mixtures.episodes import EPISODES, FULL_JOURNAL_MAX
from scripts.mixtures.faults import FAULTS, MORE_FAULTS, PING_PONG, Differs, Setting
from scripts.mixtures.streams import Group, expressions, fan_out

__all__ = ["EVERYTHING", "Plan", "Scenario", "draw"]

COUNT = 3
RATE = 150.0  # messages/s of each stream
SIZE = 512
QUIET_S = (1.0, 4.0)
SETTLE_S = 120.0
# For one call of a tool, which reads a store.
LIMIT_S = 120.0
FAULTS_MAX = 4
DATA_BYTES = (4 << 20, 16 << 20)
JOURNAL_BYTES = (256 << 10, 1 << 20, 4 << 20)
QLIST_BYTES = 1 << 20
# Each tenth scenario is one node that both programs run in turn.
SINGLE_EVERY = 10
ROUNDS = (3, 6)

EVERYTHING = FAULTS | MORE_FAULTS | EPISODES | PING_PONG


@dataclass
class Plan:
    """A drawn scenario: the nodes of the reference, the files' sizes, and the sequence of faults and episodes."""

    seed: int
    count: int
    foreign: list[int]
    sizes: dict[str, int]
    happenings: list[str]
    proxies: list[bool] = field(default_factory=list)  # True: the reference's
    other_sizes: dict[int, dict[str, int]] = field(default_factory=dict)
    extras: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [
            f"reference: nodes {self.foreign} of {self.count}",
            f"journals of {self.sizes['maxJournalFileSize'] >> 10} KiB",
        ]
        for number, sizes in self.other_sizes.items():
            parts.append(f"node {number}: {sizes['maxJournalFileSize'] >> 10} KiB")
        parts += ["a proxy of theirs" if theirs else "a proxy of ours" for theirs in self.proxies]
        return "; ".join([*parts, *self.extras, ", ".join(self.happenings)])


def draw(seed: int) -> tuple[Plan, Random]:
    """Draw a scenario; also return the generator, for the faults."""
    generator = Random(f"mixed-{seed}")
    foreign = sorted(generator.sample(range(1, COUNT + 1), 1 + seed % 2))
    sizes = {
        "maxDataFileSize": generator.choice(DATA_BYTES),
        "maxJournalFileSize": generator.choice(JOURNAL_BYTES),
        "maxQlistFileSize": QLIST_BYTES,
    }
    faults = [generator.choice(list(FAULTS)) for _ in range(generator.randint(1, FAULTS_MAX))]
    plan = Plan(seed, COUNT, foreign, sizes, faults)
    _draw_more(plan, Random(f"mixed-more-{seed}"))
    return plan, generator


def _draw_more(plan: Plan, more: Random) -> None:
    if plan.seed % SINGLE_EVERY == SINGLE_EVERY - 1:
        plan.count, plan.foreign = 1, [1] if plan.foreign[0] == 1 else []
        plan.happenings = [more.choice(list(PING_PONG)) for _ in range(more.randint(*ROUNDS))]
        return
    plan.proxies = more.sample([True, False], more.choice((0, 0, 1, 2)))
    plan.extras = [each for each in ("fan-out", "expressions") if more.random() < 0.5]
    if more.random() < 0.2 and "exchange of programs" not in plan.happenings:
        # A primary with larger files than the reference's replicas would end them, and our own nodes refuse each other
        # if their sizes differ.
        ours = sorted(set(range(1, plan.count + 1)) - set(plan.foreign))
        small = {name: max(size // 2, 256 << 10) for name, size in plan.sizes.items()}
        plan.other_sizes = dict.fromkeys(ours, small)
    possible = [name for name in [*MORE_FAULTS, *EPISODES] if _is_possible(plan, name)]
    for name in [more.choice(possible) for _ in range(more.randint(1, 2))]:
        plan.happenings.insert(more.randint(0, len(plan.happenings)), name)


def _is_possible(plan: Plan, name: str) -> bool:
    if name == "kill -9 of the proxies":
        return bool(plan.proxies)
    if name == "full journal":
        return plan.sizes["maxJournalFileSize"] <= FULL_JOURNAL_MAX
    return True


@dataclass
class Scenario:
    """One cluster and its faults; `tools` is the folder of the reference's executables."""

    seed: int
    tools: Path
    directory: Path
    say: Callable[[str], None]
    only: list[str] | None = None
    program: str | None = None  # of all nodes and proxies: "ours" or "theirs"
    events: list[str] = field(default_factory=list)

    def run(self) -> str:
        """Run it, and return a line of figures. Raises `Differs`, `NodeFailed` or TimeoutError."""
        plan, generator = draw(self.seed)
        if self.only is not None:
            plan.happenings = self.only
        if self.program is not None:
            theirs = self.program == "theirs"
            plan.foreign = list(range(1, plan.count + 1)) if theirs else []
            plan.proxies = [theirs for _ in plan.proxies]
        self.say(str(plan))
        started = time.monotonic()
        with MixedCluster(
            self.directory,
            self.tools / "bmqbrkr.tsk",
            plan.foreign,
            count=plan.count,
            sizes=plan.sizes,
            other_sizes=plan.other_sizes,
            proxies=plan.proxies,
            quotas="full disk" in plan.happenings,
        ) as self.cluster:
            self.setting = Setting(self.cluster, generator, Random(f"mixed-episodes-{self.seed}"))
            self.cluster.wait_healed()
            self.cluster.wait_proxies()
            self.say(f"  formed: {time.monotonic() - started:.1f} s")
            with ExitStack() as stack:
                self._enter_clients(stack, plan)
                for name in plan.happenings:
                    time.sleep(generator.uniform(*QUIET_S))
                    self._let_happen(name)
                time.sleep(generator.uniform(*QUIET_S))
                ending = time.monotonic()
                clients: list[Stream | Group] = [*self.streams, *self.groups]
                for each in clients:
                    each.finish()
                for each in clients:
                    each.drain(SETTLE_S)
            self.cluster.check_alive()
            self._wait_equal()
            self.say(f"  drained and at rest: {time.monotonic() - ending:.1f} s")
            self.cluster.kill_all()
        self._check_stores()
        report = self._account()
        notes = "".join(f"; {note}" for note in self.setting.notes)
        return f"{report}, {time.monotonic() - started:.0f} s{notes}"

    def _enter_clients(self, stack: ExitStack, plan: Plan) -> None:
        """Start a stream from each node to the next, with proxies in place of some, and the readers of groups."""
        nodes = list(self.cluster.nodes.values())
        posting, reading = list(nodes), nodes[1:] + nodes[:1]
        places = Random(f"mixed-places-{self.seed}")
        for proxy in self.cluster.proxies:
            places.choice([posting, reading])[places.randrange(len(nodes))] = proxy
        run = secrets.randbits(32)
        self.streams = [
            stack.enter_context(
                Stream(index, run, f"bmq://{STRONG}/mixed-{index}", one.uri, other.uri, rate=RATE, size=SIZE)
            )
            for index, (one, other) in enumerate(zip(posting, reading, strict=True))
        ]

        def anywhere(count: int) -> list[Running]:
            return [places.choice(self.cluster.brokers) for _ in range(count)]

        self.groups: list[Group] = []
        if "fan-out" in plan.extras:
            self.groups.append(stack.enter_context(fan_out(COUNT, run, *anywhere(4))))
        if "expressions" in plan.extras:
            self.groups.append(stack.enter_context(expressions(COUNT + 1, run, *anywhere(3))))

    def _let_happen(self, name: str) -> None:
        started = time.monotonic()
        leader = self.cluster.leader()
        self.events.append(name)
        EVERYTHING[name](self.setting)
        self.cluster.wait_healed()
        wait_until(lambda: not self._cut_off(), SETTLE_S, lambda: f"clients have no queue: {self._cut_off()}")
        led_by = "nobody" if leader is None else self.setting.program(leader)
        self.say(f"  {name}: {led_by} led, {time.monotonic() - started:.1f} s")

    def _cut_off(self) -> list[str]:
        self.cluster.check_alive()
        found = [f"{who} {index}" for index, stream in enumerate(self.streams) for who in sorted(stream.cut_off)]
        return found + [who for group in self.groups for who in group.cut_off]

    def _account(self) -> str:
        account = settle([each.sent for each in self.streams], [each.came for each in self.streams])
        garbled = sum(stream.garbled for stream in self.streams)
        if account.lost or account.reordered or account.unanswered or garbled:
            late = {stream.uri: stream.came.reordered for stream in self.streams if stream.came.reordered}
            raise Differs(
                f"{account.lost} lost, {account.reordered} reordered {late}, {account.unanswered} unanswered, "
                f"{garbled} garbled"
            )
        faults = [fault for group in self.groups for fault in group.faults()]
        if faults:
            raise Differs("; ".join(faults))
        report = (
            f"{account.acked} acked, {account.nacked} nacked {account.nacks or ''}, {account.duplicated} duplicates"
        )
        for group in self.groups:
            report += f"; {group.stream.sent.acked} acked of {group.stream.uri}"
        return report

    # -- what is on the disks

    @property
    def _stores(self) -> list[Path]:
        return [folder / "storage" for folder in self.cluster.folders.values()]

    def _wait_equal(self) -> None:
        """Wait until no store has grown for a while: the replicas have everything from the primary."""
        same = at_rest(self._stores)

        def rest() -> bool:
            is_same = same()
            time.sleep(1.0)
            return is_same

        wait_until(rest, SETTLE_S, lambda: "the journals do not come to rest")

    def _check_stores(self) -> None:
        for store in self._stores:
            check_readable(store, self.tools / "bmqstoragetool.tsk")
        check_same(self._stores)


def journal_bytes(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(store.glob("*.bmq_journal")))


def check_readable(store: Path, storage_tool: Path) -> None:
    """Raise `Differs` unless our tool finds a store sound, and the reference's reads each of its journals."""
    _bmqctl("journal", "validate", str(store))
    for journal in sorted(store.glob("*.bmq_journal")):
        done = subprocess.run(
            [str(storage_tool), "--journal-file", str(journal), "--summary"],
            cwd=store.parent,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise Differs(f"the reference's tool does not read {journal}: {done.stdout}{done.stderr}")


def check_same(stores: Sequence[Path]) -> None:
    """Raise `Differs` unless all stores hold the same records."""
    for other in stores[1:]:
        _bmqctl("journal", "diff", str(stores[0]), str(other))


def _bmqctl(*words: str) -> None:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Differs(
            f"bmqctl {' '.join(words)}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
        )


def at_rest(stores: Iterable[Path]) -> Callable[[], bool]:
    """Return a function that is true when no store has changed since its last call."""
    last: list[bytes] = []
    watched = list(stores)

    def same() -> bool:
        nonlocal last
        now = [journal_bytes(store) for store in watched]
        is_same, last = now == last, now
        return is_same

    return same
