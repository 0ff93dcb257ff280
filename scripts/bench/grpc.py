"""The runner of scripts/benchmark-grpc: a RocketMQ node on this machine, with version 5's official Python client.

Messages of 1 KiB, 100 in flight (not yet acknowledged, or not yet consumed); the client is one process on the same
processors. With --reference, Apache's own nameserver, and its broker and proxy in one process, take turns; with
--versus, the node of another checkout. The ratios are printed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Protocol, Self

import trio

from bmqctl.client.remoting.client import Client
from bmqctl.common.children import COMMAND
from bmqctl.systems.node_process import RocketProcess
from scripts.bench.figures import Figure, measure_cases, parse_cases
from scripts.bench.rocketmq import HOME, command_of, cpu_s, memory_mib
from scripts.judges.children import ending_with_children
from scripts.judges.client_environment import CannotInstall, client_python
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.suites.grpc import make_topic
from scripts.suites.rocketmq import Unfit, build

__all__ = ["Load", "figures_of", "main", "read_load"]

SOURCE: Final = Path(__file__).parents[1] / "judges" / "rocketmq_proxy"
PROGRAM: Final = Path(__file__).parents[1] / "judges" / "grpc_load.py"
PACKAGE: Final = "rocketmq-python-client==5.1.2"

IN_FLIGHT: Final = 100
RATE: Final = 500
QUEUES: Final = 4
CONSUMERS: Final = 1_000
CLIENT_PROCESSES: Final = 4
# Longer than the pause between two queries for assignments.
SETTLED_S: Final = 12.0
TOPIC_S: Final = 30.0

WANTED_IDLE_MIB: Final = 150.0


class Cluster(Protocol):
    """A nameserver, a broker and an endpoint for gRPC."""

    @property
    def nameserver(self) -> str: ...

    @property
    def endpoint(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    def start(self) -> Self: ...

    def close(self) -> None: ...


class Ours:
    """`bmqctl start rocketmq`, by itself."""

    def __init__(self, folder: Path, command: Sequence[str] = COMMAND) -> None:
        self._process = RocketProcess(folder / "store", timeout_s=600, command=command)
        self.nameserver, self.endpoint = self._process.nameserver, self._process.endpoint

    @property
    def pids(self) -> list[int]:
        return [self._process.pid]

    def start(self) -> Self:
        self._process.start()
        return self

    def close(self) -> None:
        self._process.close()


Makers = Mapping[str, Callable[[Path], Cluster]]


@contextmanager
def running(make: Callable[[Path], Cluster]) -> Iterator[tuple[Cluster, str, Path]]:
    """Start a cluster with a new store, a topic and a file for the clients' output."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-grpc-") as directory:
        cluster = make(Path(directory) / "node")
        try:
            cluster.start()
            topic = f"load-{secrets.token_hex(4)}"
            trio.run(_make_topic, cluster.nameserver, topic)
            yield cluster, topic, Path(directory) / "clients.log"
        finally:
            cluster.close()


async def _make_topic(nameserver: str, topic: str) -> None:
    host, _, port = nameserver.rpartition(":")
    async with Client.connect(host, int(port)) as client:
        with trio.fail_after(TOPIC_S):
            # A broker may be ready before the nameserver knows it.
            while not (addresses := await client.masters()):
                await trio.sleep(0.1)
            for address in addresses:
                await make_topic(await client.link_to(address), topic, "NORMAL", QUEUES)
            while not await client.queues(topic):
                await trio.sleep(0.1)


class Load(NamedTuple):
    """The result of a run: the client's output, and the processor time per message, in microseconds."""

    told: dict[str, float]
    cluster_us: float
    client_us: float


def read_load(line: str) -> tuple[str, float] | None:
    """Parse a line of the client's output; None if it is not a measurement."""
    word, _, rest = line.strip().partition(" ")
    name, _, value = rest.partition(" ")
    return (name, float(value)) if word == "load" and value else None


def run_load(python: Path, cluster: Cluster, words: Sequence[str], log: Path) -> Load:
    """Run the client. Raises SystemExit if a message was not sent or did not arrive."""
    told: dict[str, float] = {}
    spent: list[tuple[float, float]] = []
    with _client(python, words, log) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = read_load(line)
            if found is None:
                continue
            if found[0] in ("begin", "end"):
                spent.append((cpu_s(cluster.pids), cpu_s([process.pid])))
            else:
                told[found[0]] = found[1]
    if process.returncode or len(spent) != 2 or told.get("faults") or told.get("missing"):
        raise SystemExit(f"benchmark-grpc: the run of {words[0]} is not whole: {told}; {_tail(log)}")
    per = 1e6 / max(1.0, told["messages"])
    cluster_us, client_us = ((after - before) * per for before, after in zip(*spent, strict=True))
    return Load(told, cluster_us, client_us)


@contextmanager
def _client(python: Path, words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the client until it ends; kill it if the block is left early."""
    with log.open("a") as err:
        process = subprocess.Popen(
            [str(python), str(PROGRAM), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _tail(log: Path) -> str:
    return log.read_text()[-2000:]


# -- cases


def sends(makers: Makers, python: Path, arguments: argparse.Namespace) -> list[Figure]:
    return figures_of("sends", _rounds("sends", makers, python, arguments, arguments.in_flight), "per_s", "sends/s")


def through(makers: Makers, python: Path, arguments: argparse.Namespace) -> list[Figure]:
    """Measure messages sent as fast as a push consumer takes them."""
    found = _rounds("through", makers, python, arguments, arguments.in_flight)
    return figures_of("end to end", found, "per_s", "messages/s")


def paced(makers: Makers, python: Path, arguments: argparse.Namespace) -> list[Figure]:
    """Measure the duration of a send at a given rate."""
    found = _rounds("paced", makers, python, arguments, arguments.rate)
    return figures_of(f"a send at {arguments.rate}/s, p50", found, "p50_ms", "ms", is_rate=False)


def _rounds(
    case: str, makers: Makers, python: Path, arguments: argparse.Namespace, number: int
) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {name: [] for name in makers}
    for _ in range(arguments.rounds):
        for name, make in makers.items():
            with running(make) as (cluster, topic, log):
                numbers = (str(arguments.warm_s), str(arguments.measure_s), str(number))
                found[name].append(run_load(python, cluster, [case, cluster.endpoint, topic, *numbers], log))
    return found


def figures_of(
    what: str, found: Mapping[str, list[Load]], measured: str, unit: str, *, is_rate: bool = True
) -> list[Figure]:
    """Make the rows of a case: the median of each cluster, and ours divided by each other's."""
    figures: list[Figure] = []
    for name, runs in found.items():
        figures.append(Figure(f"{name}: {what}", median(each.told[measured] for each in runs), unit))
        if "p99_ms" in runs[0].told:
            figures.append(Figure("  p99", median(each.told["p99_ms"] for each in runs), "ms"))
        figures.append(Figure("  processor time, a message", median(each.cluster_us for each in runs), "us"))
        figures.append(Figure("  of the client", median(each.client_us for each in runs), "us"))
    figure = {name: median(each.told[measured] for each in runs) for name, runs in found.items()}
    spent = {name: median(each.cluster_us for each in runs) for name, runs in found.items()}
    wanted = ">= 1.0" if is_rate else "<= 1.0"
    for name in list(found)[1:]:
        ratio = figure["ours"] / figure[name]
        figures.append(Figure(f"ours / {name}: {what}", ratio, "x", wanted, ratio >= 1 if is_rate else ratio <= 1))
        figures.append(Figure("  processor time, a message", spent["ours"] / spent[name], "x"))
    return figures


def idle(makers: Makers, python: Path, arguments: argparse.Namespace) -> list[Figure]:
    """Measure the memory used by many idle push consumers, each in its own group."""
    figures: list[Figure] = []
    each = arguments.consumers // CLIENT_PROCESSES
    for name, make in makers.items():
        with running(make) as (cluster, topic, log), contextlib.ExitStack() as stack:
            before = memory_mib(cluster.pids)
            clients = []
            for number in range(CLIENT_PROCESSES):
                words = ["idle", cluster.endpoint, topic, str(each), str(number)]
                clients.append(stack.enter_context(_client(python, words, log)))
                stack.callback(clients[-1].kill)
            for process in clients:
                assert process.stdout is not None
                if not any(read_load(line) == ("started", each) for line in process.stdout):
                    raise SystemExit(f"benchmark-grpc: not all consumers could be started: {_tail(log)}")
            time.sleep(SETTLED_S)
            used = memory_mib(cluster.pids)
            spent = cpu_s(cluster.pids)
            time.sleep(SETTLED_S)
            spent = (cpu_s(cluster.pids) - spent) / SETTLED_S
        is_ours = name == "ours"
        wanted = (f"<= {WANTED_IDLE_MIB:.0f}", used <= WANTED_IDLE_MIB) if is_ours else ("", None)
        figures += [
            Figure(f"{name}: memory with {each * CLIENT_PROCESSES:,} idle consumers", used, "MiB", *wanted),
            Figure("  before they came", before, "MiB"),
            Figure("  of one processor, meanwhile", spent * 100, "%"),
        ]
    return figures


CASES: Final[Mapping[str, Callable[[Makers, Path, argparse.Namespace], list[Figure]]]] = {
    "sends": sends,
    "through": through,
    "paced": paced,
    "idle": idle,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a RocketMQ node with version 5's Python client.")
    parser.add_argument("--reference", action="store_true", help="also measure Apache's broker and proxy, in turns")
    parser.add_argument("--versus", type=Path, metavar="CHECKOUT", help="another checkout's node takes turns")
    parser.add_argument("--rounds", type=int, default=1, help="number of runs of each; the median counts (%(default)s)")
    parser.add_argument("--warm-s", type=int, default=10, help="seconds of load before the measurement (%(default)s)")
    parser.add_argument("--measure-s", type=int, default=10, help="seconds of measured load (%(default)s)")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="unacknowledged messages (%(default)s)")
    parser.add_argument("--rate", type=int, default=RATE, help="sends a second of `paced` (%(default)s)")
    parser.add_argument("--consumers", type=int, default=CONSUMERS, help="push consumers of `idle` (%(default)s)")
    arguments = parse_cases(parser, CASES)
    makers: dict[str, Callable[[Path], Cluster]] = {"ours": Ours}
    try:
        python = client_python(PACKAGE, "rocketmq-grpc")
        if arguments.versus:
            makers[str(arguments.versus)] = partial(Ours, command=command_of(arguments.versus))
        if arguments.reference:
            class_path = build(HOME.with_name("rocketmq-proxy"), SOURCE)
            makers["reference"] = partial(ReferenceProcess, class_path, has_proxy=True)
    except (CannotInstall, Unfit, ValueError) as fault:
        parser.error(str(fault))
    measure_cases(arguments.cases or CASES, lambda name: CASES[name](makers, python, arguments))


if __name__ == "__main__":
    with ending_with_children():
        main()
