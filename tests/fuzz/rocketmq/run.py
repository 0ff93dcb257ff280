"""Arbitrary requests at RocketMQ's ports: `python -m tests.fuzz.rocketmq.run [--seconds N] [--port P]...`.

Each round starts a node, a node with a proxy, or three nodes under controllers, and well-behaved clients. Sessions of
requests follow each other at the ports: single tries (see `requests.cases`), random requests, and stories. Twice in a
round, a process is stopped or killed, and started again. `ground` defines a find, which ends its round; finds of one
cause are shown once.

Each find is printed with its seed and the last actions, and written with all actions of its round to a file, which
`--replay FILE` sends again.

Exit codes: 0 nothing was found, 1 something was; 2 usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

from formats.rocketmq.remoting.codes import RequestCode
from tests.fuzz.judging import Find
from tests.fuzz.produced import print_missing
from tests.fuzz.rocketmq.ground import SHAPES, Ground, LongStep, Signature, ground
from tests.fuzz.rocketmq.ports import STORIES
from tests.fuzz.rocketmq.requests import CODES, Case, Requests, all_names, cases, name_of
from tests.fuzz.rocketmq.stories import Story
from tests.fuzz.rocketmq.values import FAMILIES, Values
from tests.fuzz.rocketmq.wire import Action, Sender, load, save

__all__ = ["PORTS", "Fuzzer", "Session", "replay"]

PORTS = tuple(STORIES)
NAMES = {story.__name__ for port in PORTS for story in STORIES[port]} | {code.name for code in RequestCode}
# A round has two parts, with a restart after each.
PART_S = 20.0
PARTS = 2
# A find in a later part of a round may be due to actions of the first.
KEPT_MAX = 100_000
SHOWN = 12
# All is judged after actions that are longer, or have a longer wait.
LONG_BYTES = 1 << 16
LONG_S = 0.5
CASES_EACH = 40
REQUESTS_EACH = 40
# Shapes, in the order of rounds; ports that a shape lacks are not tried.
ORDER = ("node", "node", "group", "node", "proxy")
# An action is the cause of a step that began at most this time before the action.
_EARLY_NS = 5_000_000


class Sent(NamedTuple):
    """An action, and the time at which its sending began."""

    action: Action
    at_ns: int


class Session:
    """The actions of one session at a port, which follow from its seed, the time, and the answers."""

    def __init__(self, port: str, seed: str, left: deque[Case], now_ms: int, without: Sequence[str] = ()) -> None:
        self.random = Random(seed)
        self.values = Values(self.random, now_ms)
        self.requests = Requests(self.values, port, without)
        self._port = port
        self._left = left
        self._stories = [story for story in STORIES[port] if story.__name__ not in without]

    def actions(self) -> Story:
        """Yield remaining cases, random requests, or a story."""
        kind = self.random.random()
        if self._stories and (self._port not in CODES or kind < 0.3):
            story = self.random.choice(self._stories)
            self.requests.produced.add(f"{self._port}: {story.__name__}")
            yield from story(self.requests)
        elif self._port not in CODES:
            return
        elif kind < 0.7 and self._left:
            for _ in range(min(CASES_EACH, len(self._left))):
                yield self.requests.case(self._left.popleft())
        else:
            for _ in range(REQUESTS_EACH):
                yield self.requests.any()


def mixed(every: Sequence[Case], random: Random) -> list[Case]:
    """Return the cases in a random order, in which each second one is of properties that the broker reads again."""
    families = [case for case in every if case.name in FAMILIES.get(case.topic, ())]
    others = [case for case in every if case.name not in FAMILIES.get(case.topic, ())]
    random.shuffle(families)
    random.shuffle(others)
    pairs = list(zip(families, others, strict=False))
    return [case for pair in pairs for case in pair] + families[len(pairs) :] + others[len(pairs) :]


class Fuzzer:
    """Plays rounds. `found` counts finds by their signatures, `sessions` those of each port, `told` all actions.

    `produced` has the names of their codes, fields and stories.
    """

    def __init__(
        self, ports: Sequence[str], shapes: Sequence[str], seed: int, replays: Path, without: Sequence[str] = ()
    ) -> None:
        self.ports = ports
        self._without = without
        self.seed = seed
        self.found: Counter[str] = Counter()
        self.sessions: Counter[str] = Counter()
        self.told = 0
        self.produced: set[str] = set()
        self._order = [shape for shape in ORDER if shape in shapes] or list(shapes)
        self._replays = replays
        self._began_s = time.monotonic()
        self._left: dict[str, deque[Case]] = {}
        for port in CODES:
            every = [case for case in cases(port) if name_of(case.code) not in without]
            self._left[port] = deque(mixed(every, Random(f"cases-{port}-{seed}")))

    def run(self, until: float, rounds: int = 1 << 31) -> None:
        """Play rounds until a time, or a number of them."""
        for number in range(rounds):
            shape = self._order[number % len(self._order)]
            if time.monotonic() >= until:
                break
            sent: deque[Sent] = deque(maxlen=KEPT_MAX)
            with tempfile.TemporaryDirectory(prefix="rocketmq-fuzz-") as folder:
                try:
                    with ground(shape, Path(folder), console="console" in self.ports) as here:
                        self._round(here, number, until, sent)
                except Find as find:
                    self._report(find, shape, number, sent)

    def _round(self, here: Ground, number: int, until: float, sent: deque[Sent]) -> None:
        ports = [port for port in self.ports if port in here.ports]
        random = Random(f"round-{self.seed}-{number}")

        def judge(is_flood: bool = False) -> None:
            try:
                here.judge(is_flood=is_flood)
            except Find as find:
                if not find.goes_on:
                    raise
                self._report(find, here.shape, number, sent)

        for _ in range(PARTS):
            end = min(until, time.monotonic() + PART_S)
            with closing(Sender(here.ports)) as sender:
                while ports and time.monotonic() < end:
                    # The broker's port has most to try.
                    port = random.choice([*ports, *(each for each in ports if each in ("broker", "proxy"))])
                    is_flood = False
                    for action in self._session(here, port, sender, sent):
                        is_flood = is_flood or action.copies > 1
                        # Judge here: the cause of a find is the last action.
                        if action.copies > 1 or action.size > LONG_BYTES or action.wait_s > LONG_S:
                            judge(is_flood)
                    judge(is_flood)
                here.judge_files(sender.sent)
            here.restart(random.choice((signal.SIGTERM, signal.SIGKILL)))
        here.settle()
        judge()

    def _session(self, here: Ground, port: str, sender: Sender, sent: deque[Sent]) -> Iterator[Action]:
        """Send the actions of a session, and then yield each."""
        self.sessions[port] += 1
        seed = f"{port}-{self.seed}-{self.sessions[port]}"
        session = Session(port, seed, self._left.get(port, deque()), int(time.time() * 1000), self._without)
        session.values.addresses = tuple(f"127.0.0.1:{each}" for each in here.ports["broker"])
        told = session.actions()
        try:
            action = next(told)
            while True:
                sent.append(Sent(action, time.monotonic_ns()))
                answers = sender.send(action)
                self.told += 1
                yield action
                action = told.send(answers)
        except StopIteration:
            return
        finally:
            self.produced |= session.requests.produced

    def _report(self, find: Find, shape: str, number: int, sent: deque[Sent]) -> None:
        last = [each.action for each in sent]
        signature = Signature.of(str(find)).text
        if isinstance(find, LongStep):
            last = [each.action for each in sent if each.at_ns <= find.step.start_ns + _EARLY_NS]
            signature = f"a long step: {last[-1].port} {last[-1].what.split(' {')[0][:60]}" if last else "a long step"
        self.found[signature] += 1
        if self.found[signature] > 1:
            return
        file = self._replays / f"rocketmq-{self.seed}-{number}-{len(self.found)}.jsonl"
        save(file, {"shape": shape, "find": signature}, (each.action for each in sent))
        took = time.monotonic() - self._began_s
        print(
            f"\nFIND {len(self.found)} after {took:.0f} s, seed {self.seed}, round {number} at a {shape}: {signature}"
        )
        print(f"{find}\nThe last actions, the latest last ({file} has all {len(sent)}):")
        for action in last[-SHOWN:]:
            print(f"  {action}")
        sys.stdout.flush()


def replay(file: Path, last: int) -> int:
    """Send the last actions of a file again (all if 0), restart, and judge. Returns the exit code."""
    head, actions = load(file)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="rocketmq-fuzz-") as folder,
            ground(head["shape"], Path(folder), console=any(each.port == "console" for each in actions)) as here,
            closing(Sender(here.ports)) as sender,
        ):
            for action in actions[-last:]:
                sender.send(action)
                here.judge(is_flood=action.copies > 1)
            here.settle()
            here.judge()
            here.judge_files(sender.sent)
            here.restart(signal.SIGKILL)
            here.settle()
            here.judge()
    except Find as find:
        print(f"found again: {find}")
        return 1
    print("nothing was found")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz-rocketmq", description="Send anything to RocketMQ's ports.")
    parser.add_argument("--seconds", type=int, default=240, help="for all ports together (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first session (default: %(default)s)")
    parser.add_argument("--port", choices=PORTS, action="append", help="one of them; all by default")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="processes to talk to; all in turn by default")
    without = "a story or a code that is left out, as its find is known; repeatable"
    parser.add_argument("--without", metavar="NAME", choices=sorted(NAMES), action="append", default=[], help=without)
    parser.add_argument("--rounds", type=int, default=1 << 31, help="at most")
    parser.add_argument("--replays", type=Path, default=Path(tempfile.gettempdir()), help="folder of files to replay")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send what a file has instead")
    parser.add_argument("--last", type=int, default=0, help="with --replay: only so many actions, the last ones")
    parser.add_argument("--coverage", action="store_true", help="print which codes, fields and stories were never sent")
    options = parser.parse_args()
    if options.replay:
        return replay(options.replay, options.last)
    ports, shapes = options.port or PORTS, options.shape or SHAPES
    fuzzer = Fuzzer(ports, shapes, options.seed, options.replays, options.without)
    fuzzer.run(time.monotonic() + options.seconds, options.rounds)
    for port, count in fuzzer.sessions.items():
        print(f"{port:12}{count:>7,} sessions")
    print(f"{fuzzer.told:,} actions, {'nothing found' if not fuzzer.found else f'{len(fuzzer.found)} causes found'}")
    for signature, count in fuzzer.found.most_common():
        print(f"{count:>6} x {signature}")
    if options.coverage:
        names = [name for port in ports for name in all_names(port)]
        names += [f"{port}: {story.__name__}" for port in ports for story in STORIES[port]]
        print_missing(names, fuzzer.produced)
    return int(bool(fuzzer.found))


if __name__ == "__main__":
    sys.exit(main())
