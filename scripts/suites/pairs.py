"""Messages that are sent by one protocol and consumed by the other, for all pairs of official clients.

Each client sends some to its own topic, with keys, a tag and a property, and one with a delay. Each client of the other
protocol then consumes them in its own group, and has to get each once, as it was sent. A program in each language does
either: `PROGRAM send PLACE TOPIC COUNT`, `PROGRAM take PLACE GROUP TOPIC=COUNT...`.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

import trio

from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.systems.node_process import RocketProcess
from scripts.judges.client_environment import CannotInstall
from scripts.judges.cpp_client import cpp_python
from scripts.suites import ali_ons as conformance_ali_ons
from scripts.suites import grpc as conformance_grpc
from scripts.suites import rocketmq as conformance_rocketmq
from scripts.suites.results import failed_before, tell
from scripts.suites.rocketmq import Outcomes, Unfit

__all__ = ["GRPC", "REMOTING", "Place", "build", "exchange", "read_got", "run"]

REMOTING: Final = ("remoting-java", "ali-ons", "cpp")
GRPC: Final = ("java", "node", "go", "python")
CLIENTS: Final = REMOTING + GRPC

COUNT: Final = 8
QUEUES: Final = 4
TIMEOUT_S: Final = 300.0
# The delay is five seconds; the Python client counts whole seconds.
LATE_S: Final = (2.9, 30.0)

_JUDGES: Final = Path(__file__).parents[1] / "judges"
_LATE: Final = "-late"


class Place(NamedTuple):
    """A cluster: its nameserver and its endpoint for gRPC, HOST:PORT each."""

    nameserver: str
    endpoint: str

    def of(self, client: str) -> str:
        """The address for a client."""
        return self.nameserver if client in REMOTING else self.endpoint


class Got(NamedTuple):
    """A message as a client got it."""

    body: str
    keys: str
    tag: str
    number: str


def _wanted(count: int) -> list[Got]:
    return [Got(f"body {number}", f"k{number}", "tag", str(number)) for number in range(count)]


# -- building


def build(client: str, home: Path) -> list[str]:
    """Build a client's program, as far as it is not there; return the words that start it. Raises `Unfit`."""
    return _BUILDERS[client](home)


def _java(class_path: str) -> list[str]:
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path, "Exchange"]


def _build_cpp(home: Path) -> list[str]:
    try:
        python = cpp_python()
    except CannotInstall as reason:
        raise Unfit(str(reason)) from None
    return [str(python), str(_JUDGES / "exchange_cpp.py")]


_BUILDERS: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "remoting-java": lambda home: _java(conformance_rocketmq.build(home / "rocketmq")),
    "ali-ons": lambda home: [
        "node",
        str(conformance_ali_ons.build(home / "rocketmq-npm").with_name("exchange.js")),
    ],
    "cpp": _build_cpp,
    "java": lambda home: _java(
        conformance_rocketmq.build(home / "rocketmq-grpc-java", conformance_grpc.SOURCE / "java")
    ),
    "node": lambda home: [
        "node",
        str(
            conformance_ali_ons.build(home / "rocketmq-grpc-node", conformance_grpc.SOURCE / "node").with_name(
                "exchange.js"
            )
        ),
    ],
    "go": lambda home: conformance_grpc.build("go", home / "rocketmq-grpc-go").words,
    "python": lambda home: conformance_grpc.build_python("exchange.py"),
}

# -- exchanging


def exchange(programs: Mapping[str, Sequence[str]], place: Place, scratch: Path, log: IO[str]) -> Outcomes:
    """Have each client send, then each take the messages from the other protocol; return the outcome of each pair.

    A client whose delayed message arrived at the wrong time is a failed case.
    """
    run = secrets.token_hex(4)
    outcomes = Outcomes({}, {})
    trio.run(_make_topics, place.nameserver, run, list(programs))
    environment = _Environment(scratch, log)
    for client, words in programs.items():
        late_s = _send(environment, [*words, "send", place.of(client), _topic(client, run), str(COUNT)], place)
        wrong = "" if late_s is not None and LATE_S[0] < late_s < LATE_S[1] else f"it came after {late_s} s"
        _note(outcomes, f"{client} late", wrong)
    for client, words in programs.items():
        senders = [each for each in programs if (each in REMOTING) != (client in REMOTING)]
        topics = [
            f"{topic}={count}"
            for each in senders
            for topic, count in ((_topic(each, run), COUNT), (_topic(each, run) + _LATE, 1))
        ]
        if not topics:
            continue
        got = read_got(environment.run([*words, "take", place.of(client), _group(client, run), *topics]))
        for each in senders:
            wrong = _fault(got, _topic(each, run))
            _note(outcomes, f"{each} -> {client}", wrong)
    return outcomes


def read_got(lines: Iterable[str]) -> dict[str, list[Got]]:
    """Read the messages that a client reports, by topic."""
    found: dict[str, list[Got]] = {}
    for line in lines:
        word, *parts = line.rstrip("\n").split("\t")
        if word == "got" and len(parts) == 5:
            found.setdefault(parts[0], []).append(Got(*parts[1:]))
    return found


def _fault(got: Mapping[str, list[Got]], topic: str) -> str:
    """The fault in the messages of a client's topics; empty if there is none."""
    for name, count in ((topic, COUNT), (topic + _LATE, 1)):
        found = sorted(got.get(name, []))
        if found != _wanted(count):
            return f"of {name}: {found}"
    return ""


def _note(outcomes: Outcomes, case: str, wrong: str) -> None:
    outcomes.found[case] = "failed" if wrong else "passed"
    if wrong:
        outcomes.reasons[case] = wrong


def _topic(client: str, run: str) -> str:
    return f"across-{client}-{run}"


def _group(client: str, run: str) -> str:
    return f"across-by-{client}-{run}"


class _Environment(NamedTuple):
    """The folder in which programs run, and the log of their output."""

    scratch: Path
    log: IO[str]

    def start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.scratch,
            env=conformance_grpc.client_environment(self.scratch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, words: Sequence[str]) -> list[str]:
        """Run a program to its end; return its output."""
        with self.start(words) as process:
            try:
                said, _ = process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
        self.log.write(said)
        return said.splitlines()


def _send(environment: _Environment, words: Sequence[str], place: Place) -> float | None:
    """Have a client send; return the delay of its late message in seconds, None if it has not sent."""
    late_s: float | None = None
    with environment.start(words) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                environment.log.write(line)
                if line.strip() == "sent":
                    began = time.monotonic()
                    trio.run(_arrival, place.nameserver, words[-2] + _LATE)
                    late_s = round(time.monotonic() - began, 2)
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
    return late_s


async def _arrival(nameserver: str, topic: str) -> None:
    host, _, port = nameserver.rpartition(":")
    async with Client.connect(host, int(port)) as client:
        pullers = [
            QueuePuller(await client.link_to(queue.address), "across-nobody", topic, queue.queue_id, TIMEOUT_S)
            for queue in await client.queues(topic)
        ]
        with trio.move_on_after(LATE_S[1]):
            while not any(puller.offset for puller in pullers):
                for puller in pullers:
                    await puller.seek_end()
                await trio.sleep(0.05)


async def _make_topics(nameserver: str, run: str, clients: Sequence[str]) -> None:
    host, _, port = nameserver.rpartition(":")
    async with Client.connect(host, int(port)) as client:
        for address in await client.masters():
            link = await client.link_to(address)
            for each in clients:
                topic = _topic(each, run)
                await conformance_grpc.make_topic(link, topic, "NORMAL", QUEUES)
                await conformance_grpc.make_topic(link, topic + _LATE, "DELAY", QUEUES)
                # npm's ali-ons makes no topic, and does not start without its group's.
                await conformance_grpc.make_topic(link, f"%RETRY%{_group(each, run)}", "NORMAL", 1)
        with trio.fail_after(TIMEOUT_S):
            for each in clients:
                while not await client.queues(_topic(each, run) + _LATE):
                    await trio.sleep(0.1)


# -- the runner


def run(home: Path, options: argparse.Namespace) -> int:
    """Run all pairs, or those of some clients; 0 if all passed, 1 if some failed, 2 if they could not be run."""
    name = "rocketmq-pairs" + ("" if options.nameserver is None else "-other-broker")
    log = home / f"{name}.log"
    chosen = options.expression.split(",") if options.expression else list(CLIENTS)
    if options.failed:
        chosen = [each for each in CLIENTS if any(each in case.split() for case in failed_before(name, home))]
    if unknown := [each for each in chosen if each not in CLIENTS]:
        print(f"conformance: no such client: {', '.join(unknown)}; there are {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as folder, contextlib.ExitStack() as stack:
        try:
            programs = {each: build(each, home) for each in chosen}
        except Unfit as fault:
            print(f"conformance: {fault}", file=sys.stderr)
            return 2
        if options.nameserver is None:
            command = [str(options.bmqctl.absolute())]
            node = stack.enter_context(RocketProcess(Path(folder) / "store", command=command))
            place = Place(node.nameserver, node.endpoint)
        else:
            place = Place(options.nameserver, options.endpoint)
        with log.open("w") as out:
            found, reasons = exchange(programs, place, Path(folder), out)
    tell(name, found, reasons, home)
    return 1 if "failed" in found.values() else 0
