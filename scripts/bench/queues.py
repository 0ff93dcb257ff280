"""The runner of scripts/benchmark-queues: the cost of many queues, clients, apps and messages on one node.

Each case has its own node, in a temporary directory, and loads it with our own client. Figures to be compared are
measured in turns in the same run.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bmqctl.bench.histogram import Histogram
from bmqctl.bench.plan import Plan, monotonic_ns
from bmqctl.bench.tally import ConsumerTally
from bmqctl.client.protocol.events import StreamOptions
from bmqctl.client.session import Queue, Session, SessionOptions
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess
from scripts.bench.figures import MIB, Figure, fresh_queue, measure_cases, parse_cases, plan_for, run
from scripts.bench.large_store import write_store

OTHER_QUEUES = 10_000
OPENING_AT_ONCE = 100
BUSY_RUNS = 5
BUSY_RUN_S = 3.0
BUSY_SIZE = 1024
CONNECTIONS = 500
MESSAGES_EACH = 20
PAGES = 10
APPS = 30
FAN_OUT_PER_S = 2_000.0
FAN_OUT_S = 10.0
SMALL_SIZE = 64
STORED_MESSAGES = 300_000
RECOVERED_MESSAGES = 1_000_000
# The consumers' last confirms are in flight when their queues close; missing ones would lead to redelivery at once.
REDELIVERY_S = 1.0

GIB = 1 << 30
TIMEOUT_S = 120.0
# The messages of a generated store have an old, fixed date.
TTL_S = 10 * 365 * 86_400

MODES: dict[str, dict[str, Any]] = {
    "bench.priority": {"priority": {}},
    "bench.fanout": {"fanout": {"appIDs": ["foo", "bar", "baz"]}},
    "bench.apps": {"fanout": {"appIDs": [f"app{number}" for number in range(APPS)]}},
}


def write_config(folder: Path, data_dir: Path) -> None:
    """Write configuration files for one node with the domains above, with limits for all measurements."""
    network = {
        "heartbeats": {"client": 0},
        "tcpInterface": {"name": "TCPInterface", "port": 30114, "lowWatermark": 4 * MIB, "highWatermark": GIB},
    }
    app = {"brokerInstanceName": "bench", "hostName": "localhost", "networkInterfaces": network}
    partitions = {
        "numPartitions": 1,
        "location": str(data_dir),
        "archiveLocation": str(data_dir / "archive"),
        "maxDataFileSize": 2 * GIB,
        "maxJournalFileSize": GIB,
        "maxQlistFileSize": 64 * MIB,
    }
    node = {"id": 0, "name": "one", "dataCenter": "bench", "transport": {"tcp": {"endpoint": "tcp://localhost:30114"}}}
    cluster = {"name": "bench", "nodes": [node], "partitionConfig": partitions}
    (folder / "domains").mkdir(parents=True)
    (folder / "bmqbrkrcfg.json").write_text(json.dumps({"appConfig": app}))
    (folder / "clusters.json").write_text(json.dumps({"myClusters": [cluster], "proxyClusters": []}))
    limits = {"bytes": 2 * GIB, "messages": 10 * RECOVERED_MESSAGES}
    for name, mode in MODES.items():
        parameters = {
            "name": name,
            "mode": mode,
            "storage": {"config": {"fileBacked": {}}, "domainLimits": limits, "queueLimits": limits},
            "messageTtl": TTL_S,
            "consistency": {"eventual": {}},
        }
        definition = {"definition": {"location": "bench", "parameters": parameters}}
        (folder / "domains" / f"{name}.json").write_text(json.dumps(definition))


@contextmanager
def fresh_node(messages_stored: int = 0, options: Sequence[str] = ()) -> Iterator[NodeProcess]:
    """Start a node, removed with its files at the end; it may begin with `messages_stored` outstanding messages."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-queues-") as directory:
        data_dir = Path(directory) / "data"
        data_dir.mkdir()
        write_config(Path(directory) / "config", data_dir)
        if messages_stored:
            write_store(data_dir, messages_stored, kept_each=1)
        config_dir = Path(directory) / "config"
        with NodeProcess(data_dir, config_dir=config_dir, timeout_s=TIMEOUT_S, options=options) as node:
            yield node


def resident_bytes(node: NodeProcess) -> int:
    """The node's resident memory, mapped files included."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS in the status of the process")


def at(node: NodeProcess, queue: str = "", **changes: Any) -> Plan:
    """Plan a run at a node, by default on a new queue and with small messages."""
    return plan_for(node, queue or fresh_queue("bench.priority"), **({"size": SMALL_SIZE} | changes))


def busy_rate(node: NodeProcess) -> float:
    """Measure messages/s from end to end on one queue."""
    outcome = run(at(node, duration_s=BUSY_RUN_S, size=BUSY_SIZE))
    return outcome.rate(outcome.account.delivered, outcome.account.last_delivery_ns)


async def open_many(session: Session, count: int) -> None:
    at_once = trio.CapacityLimiter(OPENING_AT_ONCE)

    async def open_one(number: int) -> None:
        async with at_once:
            await session.open_queue(f"bmq://bench.priority/other-{number}", read=True, write=True)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(open_one, number)


def many_queues() -> list[Figure]:
    """Measure 10,000 open queues on one node, and the slowdown of a busy queue among them."""

    async def main(full: NodeProcess, empty: NodeProcess) -> list[Figure]:
        before = full.rss_bytes()
        async with Session.connect(HOST, full.port, SessionOptions(timeout_s=TIMEOUT_S)) as session:
            started = time.monotonic()
            await open_many(session, OTHER_QUEUES)
            took_s = time.monotonic() - started
            each = (full.rss_bytes() - before) / OTHER_QUEUES
            resident = resident_bytes(full) / MIB
            rates: dict[NodeProcess, list[float]] = {full: [], empty: []}
            for turn in range(BUSY_RUNS):
                for node in (full, empty) if turn % 2 else (empty, full):
                    rates[node].append(await trio.to_thread.run_sync(busy_rate, node))
            # The load has touched most of the data file by now, whose pages the kernel may reclaim.
            anonymous = full.rss_bytes() / MIB
        alone, beside = statistics.median(rates[empty]), statistics.median(rates[full])
        return [
            Figure(f"open {OTHER_QUEUES:,} queues", took_s, "s"),
            Figure("memory of an open queue", each / 1024, "KiB"),
            Figure(f"resident with {OTHER_QUEUES:,} queues", resident, "MiB", "< 1,024", resident < 1024),
            Figure("beside mapped files, after the runs", anonymous, "MiB", "< 1,024", anonymous < 1024),
            Figure("a busy queue alone", alone, "messages/s"),
            Figure(f"a busy queue beside {OTHER_QUEUES:,}", beside, "messages/s"),
            Figure("ratio", beside / alone, "x", ">= 0.9", beside >= 0.9 * alone),
        ]

    with fresh_node() as full, fresh_node() as empty:
        return trio.run(main, full, empty)


def many_connections() -> list[Figure]:
    """Measure 500 clients, each posting to and confirming from its own queue."""
    done = 0

    async def converse(session: Session, number: int) -> None:
        nonlocal done
        queue = await session.open_queue(f"bmq://bench.priority/client-{number}", read=True, write=True)
        for _ in range(MESSAGES_EACH):
            queue.post_nowait(bytes(SMALL_SIZE))
        taken = 0
        while taken < MESSAGES_EACH:
            for message in await queue.receive():
                queue.confirm(message)
                taken += 1
        done += taken

    async def main(node: NodeProcess) -> list[Figure]:
        before = node.rss_bytes()
        async with AsyncExitStack() as stack:
            started = time.monotonic()
            options = SessionOptions(timeout_s=TIMEOUT_S)
            sessions = [
                await stack.enter_async_context(Session.connect(HOST, node.port, options)) for _ in range(CONNECTIONS)
            ]
            connected_s = time.monotonic() - started
            started = time.monotonic()
            async with trio.open_nursery() as nursery:
                for number, session in enumerate(sessions):
                    nursery.start_soon(converse, session, number)
            conversed_s = time.monotonic() - started
            alive = sum(session.broker is not None for session in sessions)
            each = (node.rss_bytes() - before) / CONNECTIONS
        return [
            Figure("clients connected at once", alive, "", f">= {CONNECTIONS}", alive >= CONNECTIONS),
            Figure("connect them, one by one", connected_s, "s"),
            Figure("open, post and confirm, all at once", conversed_s, "s"),
            Figure("messages confirmed", done, "", f"= {CONNECTIONS * MESSAGES_EACH:,}"),
            Figure("memory of a client", each / 1024, "KiB"),
        ]

    with fresh_node() as node:
        return trio.run(main, node)


class _FanOut:
    """Consumers of one app each, with their received messages."""

    def __init__(self, run_id: int, queue: str) -> None:
        self.tallies = [ConsumerTally(run_id) for _ in range(APPS)]
        self.queue = queue

    async def open(self, session: Session, app: int) -> Queue:
        stream = StreamOptions(max_unconfirmed_messages=100_000, max_unconfirmed_bytes=64 * MIB)
        return await session.open_queue(f"{self.queue}?id=app{app}", read=True, options=stream)

    async def consume(self, queue: Queue, app: int) -> None:
        tally = self.tallies[app]
        while messages := await queue.receive():
            now_ns = monotonic_ns()
            for message in messages:
                if tally.deliver(message.payload, now_ns):
                    queue.confirm(message)
                    tally.confirmed += 1

    @property
    def delivered(self) -> int:
        return sum(tally.delivered for tally in self.tallies)

    async def settle(self, wanted: int) -> None:
        """Wait until all messages have arrived, or no more are arriving."""
        seen = -1
        while self.delivered != wanted and self.delivered != seen:
            seen = self.delivered
            await trio.sleep(REDELIVERY_S)


def fan_out() -> list[Figure]:
    """Measure 30 apps of one queue, with a consumer and connection each, and one producer with a schedule."""

    async def main(node: NodeProcess) -> list[Figure]:
        queue_uri = f"bmq://bench.apps/prices-{secrets.token_hex(4)}"
        plan = at(node, queue=queue_uri, consumers=0, rate=FAN_OUT_PER_S, duration_s=FAN_OUT_S, batch=1)
        fan = _FanOut(plan.run, queue_uri)
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(Session.connect(HOST, node.port)) for _ in range(APPS)]
            queues = [await fan.open(session, app) for app, session in enumerate(sessions)]
            async with trio.open_nursery() as nursery:
                for app, queue in enumerate(queues):
                    nursery.start_soon(fan.consume, queue, app)
                outcome = await trio.to_thread.run_sync(run, plan)
                await fan.settle(APPS * outcome.account.acked)
                for queue in queues:
                    await queue.close()
            left = 0
            for app, session in enumerate(sessions):
                queue = await fan.open(session, app)
                with trio.move_on_after(REDELIVERY_S / APPS):
                    left += len(await queue.receive())
        latency = Histogram()
        for tally in fan.tallies:
            tally.flush()
            latency.merge(tally.latency)
        last_ns = max(tally.last_delivery_ns for tally in fan.tallies)
        missing = APPS * outcome.account.acked - fan.delivered
        rate = outcome.rate(fan.delivered, last_ns)
        wanted = APPS * FAN_OUT_PER_S
        return [
            # The last messages arrive late by their latency: the rate of the run stays just below the schedule's.
            Figure(f"delivered to {APPS} apps", rate, "messages/s", f"{wanted:,.0f}, - 1 %", rate >= 0.99 * wanted),
            Figure("acked and not delivered", missing, "", "= 0", missing == 0),
            Figure("delivered and not confirmed", left, "", "= 0", left == 0),
            Figure("latency p50", latency.percentile(50) / 1e6, "ms"),
            Figure("latency p99", latency.percentile(99) / 1e6, "ms"),
        ]

    with fresh_node() as node:
        return trio.run(main, node)


def stored_messages() -> list[Figure]:
    """Measure the memory of an outstanding message, besides the mapped files that hold it."""
    figures = []
    for kind, domain in (("one app", "bench.priority"), ("three apps", "bench.fanout")):
        with fresh_node() as node:
            fill = partial(at, node, queue=f"bmq://{domain}/stored", consumers=0)
            # Allocations by the first messages, above all buffers, do not grow with the number of messages.
            run(fill(count=STORED_MESSAGES // 100))
            before = node.rss_bytes()
            run(fill(count=STORED_MESSAGES))
            each = (node.rss_bytes() - before) / STORED_MESSAGES
        figures.append(Figure(f"memory of a stored message, {kind}", each, "bytes", "<= 150", each <= 150))
    return figures


def recovery() -> list[Figure]:
    """Measure the time to readiness with 1,000,000 outstanding messages."""
    with fresh_node(RECOVERED_MESSAGES) as node:
        ready_s, each = node.ready_s, node.rss_bytes() / RECOVERED_MESSAGES
        outcome = run(at(node, queue="bmq://bench.fanout/prices", consumers=0, count=1000))
    return [
        Figure(f"recover {RECOVERED_MESSAGES:,} messages", ready_s, "s", "< 10", ready_s < 10),
        Figure("memory per message, all of the node's", each, "bytes"),
        Figure("posts taken after it", outcome.account.acked, ""),
    ]


# Reads a page and prints its size in bytes and the time in seconds, in its own process as Prometheus does.
READ_PAGE = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    sock.sendall(b"GET /metrics HTTP/1.1\\r\\nHost: bench\\r\\n\\r\\n")
    size, buffer = 0, bytearray(1 << 20)
    while count := sock.recv_into(buffer):
        size += count
        end = bytes(buffer[max(0, count - 5):count])
assert end == b"0\\r\\n\\r\\n", end
print(size, time.monotonic() - began)
"""


async def read_page(port: int) -> tuple[int, float]:
    """Read `/metrics`; return its size and the time in seconds."""
    done = await trio.run_process([sys.executable, "-c", READ_PAGE, str(port)], capture_stdout=True)
    size, took_s = done.stdout.split()
    return int(size), float(took_s)


async def post_for(queue: Queue, waits_ms: list[float], seconds: float) -> None:
    """Post one message after the other, and record the wait for each acknowledgment."""
    with trio.move_on_after(seconds):
        while True:
            began = time.monotonic()
            await queue.post(bytes(SMALL_SIZE))
            waits_ms.append((time.monotonic() - began) * 1000)
            await trio.sleep(0.0005)


def pages_of_metrics() -> list[Figure]:
    """Measure `/metrics` with 10,000 open queues, and the delay of a post while the page is made."""

    async def main(node: NodeProcess, port: int) -> list[Figure]:
        async with Session.connect(HOST, node.port, SessionOptions(timeout_s=TIMEOUT_S)) as session:
            await open_many(session, OTHER_QUEUES)
            queue = await session.open_queue("bmq://bench.priority/busy", write=True)
            await read_page(port)
            cpu_s = node.cpu_s()
            pages = [await read_page(port) for _ in range(PAGES)]
            cpu_s = (node.cpu_s() - cpu_s) / PAGES
            alone_ms: list[float] = []
            await post_for(queue, alone_ms, PAGES)
            beside_ms: list[float] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(post_for, queue, beside_ms, 1000.0)
                for _ in range(PAGES):
                    await read_page(port)
                nursery.cancel_scope.cancel()
        took_s = statistics.median(took_s for _, took_s in pages)
        return [
            Figure(f"/metrics of {OTHER_QUEUES:,} queues", took_s, "s", "< 0.2", took_s < 0.2),
            Figure("CPU of the node for it", cpu_s, "s"),
            Figure("its size", pages[0][0] / MIB, "MiB"),
            *_waits("a post alone", alone_ms),
            *_waits("a post meanwhile", beside_ms),
        ]

    port = free_port()
    with fresh_node(options=("--metrics-port", str(port))) as node:
        return trio.run(main, node, port)


def _waits(what: str, waits_ms: list[float]) -> list[Figure]:
    ordered = sorted(waits_ms)
    p50, p99 = (ordered[len(ordered) * percent // 100] for percent in (50, 99))
    return [
        Figure(f"{what}, p50", p50, "ms"),
        Figure(f"{what}, p99", p99, "ms"),
        Figure(f"{what}, longest of {len(ordered):,}", ordered[-1], "ms"),
    ]


CASES: dict[str, Callable[[], list[Figure]]] = {
    "queues": many_queues,
    "metrics": pages_of_metrics,
    "connections": many_connections,
    "fan-out": fan_out,
    "memory": stored_messages,
    "recovery": recovery,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the cost of many queues, clients, apps and messages to a node."
    )
    arguments = parse_cases(parser, CASES)
    measure_cases(arguments.cases or CASES, lambda name: CASES[name]())


if __name__ == "__main__":
    main()
