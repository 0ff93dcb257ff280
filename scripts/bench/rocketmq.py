"""The runner of scripts/benchmark-rocketmq: a RocketMQ node on this machine, with Apache's Java client.

Messages of 1 KiB, 1,000 in flight, a push consumer, ASYNC_FLUSH; producer and consumer are one Java process on the same
processors. Only the loss of an acknowledged message ends a run. With --reference, Apache's own nameserver and broker
take turns; with --versus, the node of another checkout. The ratios are printed at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Protocol

from bmqctl.common.children import COMMAND, UNTIL_INPUT_ENDS
from bmqctl.systems.node_process import RocketProcess
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.options import DELAY_LEVELS, parse_delay_levels
from broker.shell.files.folders import FileFolder
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from scripts.bench.figures import MIB, Figure, measure_cases, parse_cases
from scripts.bench.slaves import measure_catch_up
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.suites.rocketmq import Unfit, build

SOURCE: Final = Path(__file__).parents[1] / "judges" / "rocketmq_load"
HOME: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bmqctl" / "rocketmq-load"

IN_FLIGHT: Final = 1_000
BODY_BYTES: Final = 1024
SHORT_BYTES: Final = 300
QUEUES: Final = 4
IDLE_S: Final = 2.0

WANTED_PER_S: Final = 20_000
WANTED_P99_MS: Final = 200.0
WANTED_READY_S: Final = 1.0
WANTED_IDLE_MIB: Final = 120.0
WANTED_OPEN_S: Final = 3.0


class Node(Protocol):
    """A running cluster of one broker."""

    @property
    def nameserver(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    @property
    def ready_s(self) -> float: ...


class Ours:
    """`bmqctl start rocketmq`, by itself."""

    def __init__(self, folder: Path, command: Sequence[str] = COMMAND) -> None:
        self.process = RocketProcess(folder / "store", timeout_s=600, command=command)

    @property
    def nameserver(self) -> str:
        """The nameserver's address, HOST:PORT."""
        return self.process.nameserver

    @property
    def pids(self) -> list[int]:
        return [self.process.pid]

    @property
    def ready_s(self) -> float:
        return self.process.ready_s


def command_of(checkout: Path) -> Sequence[str]:
    """Return the command of another checkout's bmqctl (or of its build/compiled), for this interpreter.

    Raises ValueError if the folder has none.
    """
    if not (checkout / "bmqctl" / "app.py").is_file():
        raise ValueError(f"--versus: {checkout} is not a checkout of bmqctl")
    program = f"import sys; sys.path.insert(0, {str(checkout.absolute())!r}); from bmqctl.app import main; "
    if not any((checkout / "bmqctl").glob("**/children.py")):
        program += f"sys.argv.remove({UNTIL_INPUT_ENDS!r}); "
    return (sys.executable, "-c", program + "main()")


def cpu_s(pids: list[int]) -> float:
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib(pids: list[int]) -> float:
    """The anonymous memory of processes, in MiB, without mapped files."""
    found = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return found * 1024 / MIB


class Load(NamedTuple):
    """The result of a run: the client's output, and the processor time per message, in microseconds."""

    told: dict[str, float]
    broker_us: float
    client_us: float


def run_load(class_path: str, node: Node, scratch: Path, arguments: argparse.Namespace) -> Load:
    topic = f"Load{time.time_ns()}"
    words = ["java", "-Xms512m", "-Xmx512m", f"-Drocketmq.client.logRoot={scratch}", "-cp", class_path, "Load"]
    settings = (arguments.warm_s, arguments.measure_s, arguments.in_flight, arguments.bytes, arguments.rate)
    told: dict[str, float] = {}
    spent: list[tuple[float, float]] = []
    with subprocess.Popen(
        [*words, node.nameserver, topic, *map(str, settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            word, name, value = [*line.strip().split(" ", 2), "", "", ""][:3]
            if word != "load":
                continue
            if name in ("begin", "end"):
                spent.append((cpu_s(node.pids), cpu_s([process.pid])))
            elif name == "fault":
                raise SystemExit(f"benchmark-rocketmq: the client says: {value}")
            else:
                told[name] = float(value)
    if told.get("missing") != 0 or len(spent) != 2:
        raise SystemExit(f"benchmark-rocketmq: the run is not whole: {told}")
    (broker, client), (broker_end, client_end) = spent
    per = 1e6 / max(1.0, told["messages"])
    return Load(told, (broker_end - broker) * per, (client_end - client) * per)


@contextmanager
def running(make: Callable[[Path], Ours | ReferenceProcess]) -> Iterator[tuple[Node, Path]]:
    """Start a broker with a new store, and make a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-rocketmq-") as directory:
        made = make(Path(directory) / "node")
        process = made.process if isinstance(made, Ours) else made
        process.start()
        try:
            yield made, Path(directory)
        finally:
            process.close()


Makers = Mapping[str, Callable[[Path], Ours | ReferenceProcess]]


def load(makers: Makers, class_path: str, arguments: argparse.Namespace) -> list[Figure]:
    """Measure a load, unlimited or at the given rate, in turns if there are two brokers."""
    runs: dict[str, list[Load]] = {name: [] for name in makers}
    for _ in range(arguments.rounds):
        for name, make in makers.items():
            with running(make) as (node, scratch):
                runs[name].append(run_load(class_path, node, scratch, arguments))
    figures: list[Figure] = []
    rates: dict[str, float] = {}
    for name, found in runs.items():

        def middle(what: str, found: list[Load] = found) -> float:
            return median(each.told[what] for each in found)

        rates[name] = middle("consumed_per_s")
        p99_ms = middle("delivery_p99_ms")
        # Producers may offer less than the rate, and a few messages are still in flight at the end.
        wanted = min(WANTED_PER_S, arguments.rate * 0.995) if arguments.rate else WANTED_PER_S
        figures += [
            Figure(f"{name}: end to end", rates[name], "messages/s", f">= {wanted:,.0f}", rates[name] >= wanted),
            Figure("  refused, as the broker was busy", middle("refused"), ""),
            Figure("  until the acknowledgment, p50", middle("send_p50_ms"), "ms"),
            Figure("  p99", middle("send_p99_ms"), "ms"),
            Figure("  until the consumer has it, p50", middle("delivery_p50_ms"), "ms"),
            Figure("  p99", p99_ms, "ms", f"<= {WANTED_P99_MS:.0f}", p99_ms <= WANTED_P99_MS),
            Figure("  processor time of the broker, a message", median(each.broker_us for each in found), "us"),
            Figure("  of the client", median(each.client_us for each in found), "us"),
        ]
    spent = {name: median(each.broker_us for each in found) for name, found in runs.items()}
    for name in list(runs)[1:]:
        figures.append(Figure(f"ours / {name}: messages/s", rates["ours"] / rates[name], "x"))
        figures.append(Figure("  processor time of the broker, a message", spent["ours"] / spent[name], "x"))
    return figures


def start(makers: Makers, class_path: str, arguments: argparse.Namespace) -> list[Figure]:
    """Measure the time to readiness with an empty store, and the memory two seconds later."""
    figures: list[Figure] = []
    found: dict[str, tuple[float, float]] = {}
    for name, make in makers.items():
        samples = []
        for _ in range(arguments.rounds):
            with running(make) as (node, _):
                time.sleep(IDLE_S)
                samples.append((node.ready_s, memory_mib(node.pids)))
        ready_s, idle = (median(column) for column in zip(*samples, strict=True))
        found[name] = (ready_s, idle)
        figures += [
            Figure(f"{name}: ready", ready_s, "s", f"<= {WANTED_READY_S:.0f}", ready_s <= WANTED_READY_S),
            Figure("  memory, idle", idle, "MiB", f"<= {WANTED_IDLE_MIB:.0f}", idle <= WANTED_IDLE_MIB),
        ]
    return figures + _ratios(found, "ready", "  memory, idle")


def _ratios(found: Mapping[str, tuple[float, float]], *names: str) -> list[Figure]:
    return [
        Figure(f"ours / {other}: {name.strip()}", ours / theirs, "x")
        for other in list(found)[1:]
        for name, ours, theirs in zip(names, found["ours"], found[other], strict=True)
    ]


def fill(folder: Path, messages: int, body_bytes: int) -> None:
    due = make_due_time(parse_delay_levels(DELAY_LEVELS))
    store = open_store(FileFolder(folder), StoreOptions(), lambda ms: time.strftime("%Y%m%d%H%M%S000"), due)
    writer = Writer(store)
    host, body = Host("127.0.0.1", 10911).pack(), bytes(body_bytes)
    begin_ms = time.time_ns() // 1_000_000
    for number in range(messages):
        properties = encode_properties({"UNIQ_KEY": f"7F00000100002F2A6CFF{number:012X}", "WAIT": "true"})
        message = Message("Opening", number % QUEUES, 0, 0, begin_ms, host, host, 0, 0, body, properties)
        writer.put(message, begin_ms + number // 20)
    store.close()


def opening(makers: Makers, class_path: str, arguments: argparse.Namespace) -> list[Figure]:
    """Measure the time to readiness with many messages in the store, after a clean stop and after a crash."""
    figures: list[Figure] = []
    found: dict[str, tuple[float, float]] = {}
    for name, make in makers.items():
        with tempfile.TemporaryDirectory(prefix="bmqctl-rocketmq-") as directory:
            made = make(Path(directory))
            process = made.process if isinstance(made, Ours) else made
            fill(Path(directory) / "store", arguments.messages, arguments.bytes)
            process.start()
            clean_s = process.ready_s
            process.kill()
            process.start()
            crashed_s = process.ready_s
            process.close()
        found[name] = (clean_s, crashed_s)
        wanted = f"<= {WANTED_OPEN_S:.0f}"
        figures += [
            Figure(
                f"{name}: ready with {arguments.messages:,} messages", clean_s, "s", wanted, clean_s <= WANTED_OPEN_S
            ),
            Figure("  after kill -9", crashed_s, "s"),
        ]
    return figures + _ratios(found, "ready after a clean stop", "ready after kill -9")


def slaves(makers: Makers, class_path: str, arguments: argparse.Namespace) -> list[Figure]:
    """Measure how fast a slave with an empty store copies its master's."""
    return measure_catch_up(fill, arguments.mib * MIB, [arguments.bytes, SHORT_BYTES])


CASES: dict[str, Callable[[Makers, str, argparse.Namespace], list[Figure]]] = {
    "load": load,
    "start": start,
    "opening": opening,
    "slaves": slaves,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a RocketMQ node on this machine.")
    parser.add_argument("--reference", action="store_true", help="also measure Apache's broker, in the same run")
    parser.add_argument("--versus", type=Path, metavar="CHECKOUT", help="another checkout's node takes turns")
    parser.add_argument("--rounds", type=int, default=1, help="number of runs of each; the median counts (%(default)s)")
    parser.add_argument("--warm-s", type=int, default=10, help="seconds of load before the measurement (%(default)s)")
    parser.add_argument("--measure-s", type=int, default=10, help="seconds of measured load (%(default)s)")
    parser.add_argument(
        "--in-flight", type=int, default=IN_FLIGHT, help="maximum unacknowledged messages (%(default)s)"
    )
    parser.add_argument("--bytes", type=int, default=BODY_BYTES, help="size of a body (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.0, help="messages per second; 0: as fast as possible")
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the store that is opened (%(default)s)")
    parser.add_argument("--mib", type=int, default=1024, help="in the store that a slave gets (%(default)s)")
    arguments = parse_cases(parser, CASES)
    wanted = arguments.cases or list(CASES)
    class_path = ""
    other_command: Sequence[str] = COMMAND
    try:
        if arguments.versus:
            other_command = command_of(arguments.versus)
        if arguments.reference or "load" in wanted:
            class_path = build(HOME, SOURCE)
    except (ValueError, Unfit) as fault:
        parser.error(str(fault))
    makers: dict[str, Callable[[Path], Ours | ReferenceProcess]] = {"ours": Ours}
    if arguments.versus:
        makers[str(arguments.versus)] = partial(Ours, command=other_command)
    if arguments.reference:
        makers["reference"] = partial(ReferenceProcess, class_path)
    measure_cases(wanted, lambda name: CASES[name](makers, class_path, arguments))


if __name__ == "__main__":
    main()
