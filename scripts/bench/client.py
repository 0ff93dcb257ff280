"""The runner of scripts/benchmark-client: the client library and the official Python client, compared in one run.

One node, one producer and then one consumer. The programs take turns, each in its own process; the median of the
rounds' ratios is printed. Processor times are those of the client's process with all its threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import anyio

from bmqctl.client import Queue, connect
from scripts.bench.figures import MIB, Figure, fresh_queue, print_figures
from scripts.mixtures.cluster import MixedCluster
from scripts.mixtures.config import EVENTUAL

SIZE = 1024
PAYLOAD = bytes(SIZE)
PROGRAMS = ("official", "asyncio", "trio")
RETRY_S = 0.001
WAIT_S = 120.0
STORE_SIZES = {"maxDataFileSize": 1024 * MIB, "maxJournalFileSize": 256 * MIB, "maxQlistFileSize": 32 * MIB}


class Measured(NamedTuple):
    """Seconds by the clock and by the processor for a program's batches, and for one awaited post."""

    post_s: float
    post_cpu_s: float
    consume_s: float
    consume_cpu_s: float
    single_s: float
    single_cpu_s: float


class _Stopwatch:
    """Wall and processor time since its creation."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, time.process_time() - self._cpu_began


def work_officially(uri: str, queue: str, count: int, singles: int) -> Measured:
    import blazingmq

    answered = threading.Event()
    received = threading.Event()
    acked = taken = wanted = 0

    def on_ack(ack: blazingmq.Ack) -> None:
        nonlocal acked
        assert ack.status is blazingmq.AckStatus.SUCCESS
        acked += 1
        if acked == wanted:
            answered.set()

    def on_message(message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        nonlocal taken
        assert len(message.data) == SIZE
        handle.confirm()
        taken += 1
        if taken == count + singles:
            received.set()

    def post() -> None:
        while True:
            try:
                session.post(queue, PAYLOAD, on_ack=on_ack)
            except blazingmq.Error:
                time.sleep(RETRY_S)  # its own buffer is full
            else:
                return

    session = blazingmq.Session(lambda event: None, on_message=on_message, broker=uri, host_health_monitor=None)
    session.open_queue(queue, write=True)
    wanted = count
    watch = _Stopwatch()
    for _ in range(count):
        post()
    assert answered.wait(WAIT_S)
    posting = watch.read()
    times = []
    watch = _Stopwatch()
    for _ in range(singles):
        answered.clear()
        wanted += 1
        began = time.perf_counter()
        post()
        assert answered.wait(WAIT_S)
        times.append(time.perf_counter() - began)
    _, single_cpu_s = watch.read()
    session.close_queue(queue)
    watch = _Stopwatch()
    session.open_queue(queue, read=True, options=blazingmq.QueueOptions(max_unconfirmed_messages=4096))
    assert received.wait(WAIT_S)
    consuming = watch.read()
    session.close_queue(queue)
    session.stop()
    return Measured(*posting, *consuming, median(times), single_cpu_s / singles)


async def work(uri: str, queue_uri: str, count: int, singles: int) -> Measured:
    async with connect(uri, timeout_s=WAIT_S) as session:
        queue = await session.open(queue_uri, write=True)
        watch = _Stopwatch()
        async with queue.batch() as batch:
            for _ in range(count):
                await batch.post(PAYLOAD)
        posting = watch.read()
        times = []
        watch = _Stopwatch()
        for _ in range(singles):
            began = time.perf_counter()
            await queue.post(PAYLOAD)
            times.append(time.perf_counter() - began)
        _, single_cpu_s = watch.read()
        await queue.close()
        watch = _Stopwatch()
        queue = await session.open(queue_uri, read=True, max_unconfirmed_messages=4096)
        await _consume(queue, count + singles)
        consuming = watch.read()
    return Measured(*posting, *consuming, median(times), single_cpu_s / singles)


async def _consume(queue: Queue, count: int) -> None:
    while count:
        messages = await queue.receive()
        for message in messages:
            assert len(message.payload) == SIZE
        queue.confirm_all(messages)
        count -= len(messages)


def program(name: str) -> Callable[[str, str, int, int], Measured]:
    if name == "official":
        return work_officially
    return lambda *given: anyio.run(partial(work, *given), backend=name)


def measure(name: str, uri: str, count: int, singles: int) -> Measured:
    """Run a program in its own process."""
    words = [sys.executable, "-m", "scripts.bench.client", "--worker", name, "--broker", uri]
    words += ["--queue", fresh_queue(EVENTUAL), "--count", str(count), "--singles", str(singles)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=10 * WAIT_S)
    return Measured(*json.loads(done.stdout))


@contextmanager
def broker(reference: Path | None) -> Iterator[str]:
    """Start one node, ours or the reference's; yield its address."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-client-") as directory:
        executable = (reference / "bmqbrkr.tsk").absolute() if reference else Path()
        foreign = (1,) if reference else ()
        with MixedCluster(Path(directory), executable, foreign, count=1, sizes=STORE_SIZES) as cluster:
            yield cluster.nodes[1].uri


def figures(rounds: list[dict[str, Measured]], count: int) -> list[Figure]:
    """Compare the library under both frameworks with the official client."""
    found = []

    def of(name: str, field: str) -> float:
        return float(median(getattr(each[name], field) for each in rounds))

    def ratio(name: str, field: str) -> float:
        return float(median(getattr(each["official"], field) / getattr(each[name], field) for each in rounds))

    for name in PROGRAMS:
        for kind in ("post", "consume"):
            found.append(Figure(f"{kind} in batches, {name}", count / of(name, f"{kind}_s"), "messages/s"))
            cpu_us = of(name, f"{kind}_cpu_s") / count * 1e6
            found.append(Figure(f"{kind} in batches, {name}: processor", cpu_us, "us/message"))
        found.append(Figure(f"post and await its ack, {name}", of(name, "single_s") * 1e6, "us"))
        found.append(Figure(f"post and await its ack, {name}: processor", of(name, "single_cpu_s") * 1e6, "us"))
    for name in PROGRAMS[1:]:
        for what, field, wanted in (
            ("post in batches", "post_s", 2.0),
            ("post in batches, by processor time", "post_cpu_s", 2.0),
            ("consume", "consume_s", 2.0),
            ("consume, by processor time", "consume_cpu_s", 2.0),
            ("post and await its ack", "single_s", 1.0),
            ("post and await its ack, by processor time", "single_cpu_s", 1.0),
        ):
            value = ratio(name, field)
            text = f"times as fast as the official client, {name}: {what}"
            found.append(Figure(text, value, "x", f">= {wanted:g}", value >= wanted))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reference", type=Path, help="a folder with bmqbrkr.tsk, which is then the broker")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=50_000, help="messages of the batches")
    parser.add_argument("--singles", type=int, default=1_000, help="posts that are awaited singly")
    parser.add_argument("--worker", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    parser.add_argument("--queue", help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.worker:
        measured = program(arguments.worker)(arguments.broker, arguments.queue, arguments.count, arguments.singles)
        print(json.dumps(measured))
        return
    load_before = os.getloadavg()[0]
    with broker(arguments.reference) as uri:
        rounds = [
            {name: measure(name, uri, arguments.count, arguments.singles) for name in PROGRAMS}
            for _ in range(arguments.rounds)
        ]
    whose = "the reference's broker" if arguments.reference else "a node of bmqctl"
    print_figures(f"clients at {whose}, {SIZE} bytes", figures(rounds, arguments.count), load_before)


if __name__ == "__main__":
    main()
