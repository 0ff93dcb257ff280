"""The runner of scripts/benchmark-cluster: three nodes on this machine, with the official client.

Strong consistency, messages of 1 KiB. Only the loss of an acknowledged message ends the run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bmqctl.bench.plan import Plan, monotonic_ns
from bmqctl.common.children import COMMAND
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess
from formats.bmq.disk.data import data_record_size
from scripts.bench.figures import MIB, Figure, fresh_queue, measure_cases, parse_cases, plan_for, run
from scripts.bench.watched_loop import read_steps
from scripts.judges.cluster_load import SECOND_NS, STRONG, Stream, wait_healed
from tests.rigs.cluster_processes import ClusterProcesses

SIZE = 1024
RUN_S = 6.0
RATE = 3_000.0
FAIL_OVER_RATE = 500.0
FAIL_OVER_S = 8.0
KILLED_AFTER_S = 2.0
HEALING_RATE = 500.0
DURABLE_RATE = 500.0
DURABLE_S = 4.0
BEFORE_HEALING_S = 4.0
AFTER_LOAD_BYTES = 256 * MIB
AFTER_LOAD_S = 10.0
AFTER_LOAD_ROLLS_S = 4.0
LONG_MS = 1.0
EVENTUAL = STRONG.removesuffix(".sc")
READY_S = 60.0


def as_it_is(cluster: ClusterProcesses) -> None:
    """Prepare nothing."""


@contextmanager
def fresh_cluster(prepare: Callable[[ClusterProcesses], None] = as_it_is) -> Iterator[ClusterProcesses]:
    """Start three nodes, healed, and remove them with their files; `prepare` may change their options."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-cluster-") as directory:
        cluster = ClusterProcesses(Path(directory))
        prepare(cluster)
        with cluster:
            wait_healed(cluster)
            yield cluster


def places(cluster: ClusterProcesses) -> dict[str, NodeProcess]:
    """The nodes that clients use: the primary of all partitions, which is the leader, and a replica."""
    leader = cluster.leader()
    return {
        "the primary": cluster.nodes[leader],
        "a replica": next(node for number, node in cluster.nodes.items() if number != leader),
    }


def official_at(node: NodeProcess, **changes: Any) -> Plan:
    official = {"client": "official", "batch": 1, "duration_s": RUN_S, "window": 1024}
    return plan_for(node, fresh_queue(STRONG), **(official | changes))


def cpu_s(cluster: ClusterProcesses) -> float:
    return sum(cluster.nodes[number].cpu_s() for number in cluster.running)


def throughput() -> list[Figure]:
    """Measure unlimited throughput from end to end, with producer and consumer at one node."""
    figures = []
    with fresh_cluster() as cluster:
        for where, node in places(cluster).items():
            before = cpu_s(cluster)
            outcome = run(official_at(node))
            account = outcome.account
            rate = outcome.rate(account.delivered, account.last_delivery_ns)
            each = (cpu_s(cluster) - before) / account.delivered
            figures += [
                Figure(f"clients at {where}", rate, "messages/s", ">= 6,000", rate >= 6_000),
                Figure("  processor time of all nodes, a message", each * 1e6, "us"),
            ]
    return figures


def latency() -> list[Figure]:
    """Measure latency at 3,000 messages/s, from the time a message was due to its delivery."""
    figures = []
    with fresh_cluster() as cluster:
        for where, node in places(cluster).items():
            account = run(official_at(node, rate=RATE)).account
            p50 = account.latency.percentile(50) / 1e6
            figures += [
                Figure(f"p50, clients at {where}", p50, "ms", "<= 1.5", p50 <= 1.5),
                Figure(f"p99, clients at {where}", account.latency.percentile(99) / 1e6, "ms"),
                Figure(f"p50 of acks, clients at {where}", account.ack_latency.percentile(50) / 1e6, "ms"),
            ]
    return figures


def durability() -> list[Figure]:
    """Measure the cost of fsync before each ack and every 100 ms: the same run by policy."""
    figures = []
    for policy in ("never", "100", "always"):

        def ask(cluster: ClusterProcesses, policy: str = policy) -> None:
            for node in cluster.nodes.values():
                node.options = ("--fsync", policy)

        with fresh_cluster(prepare=ask) as cluster:
            node = cluster.nodes[cluster.leader()]
            account = (outcome := run(official_at(node, duration_s=DURABLE_S))).account
            rate = outcome.rate(account.delivered, account.last_delivery_ns)
            paced = run(official_at(node, duration_s=DURABLE_S, rate=DURABLE_RATE)).account
        figures += [
            Figure(f"--fsync {policy}, as fast as it goes", rate, "messages/s"),
            Figure(f"--fsync {policy}, p50 at {DURABLE_RATE:,.0f}/s", paced.latency.percentile(50) / 1e6, "ms"),
            Figure(f"--fsync {policy}, p99 at {DURABLE_RATE:,.0f}/s", paced.latency.percentile(99) / 1e6, "ms"),
        ]
    return figures


def fail_over() -> list[Figure]:
    """Measure fail-over at 500 messages/s, with clients at the two replicas, when leader and primary are killed."""
    with fresh_cluster() as cluster:
        leader = cluster.leader()
        producer, consumer = (node.uri for number, node in cluster.nodes.items() if number != leader)
        stream = Stream(
            0, secrets.randbits(32), fresh_queue(STRONG), producer, consumer, rate=FAIL_OVER_RATE, size=SIZE
        )
        with stream:
            time.sleep(KILLED_AFTER_S)
            cluster.kill(leader)
            time.sleep(FAIL_OVER_S - KILLED_AFTER_S)
            stream.finish()
            stream.drain()
        account, gap_s = stream.account(), stream.longest_gap_s()
    return [
        Figure("longest time between two acks", gap_s, "s", "<= 1", gap_s <= 1),
        Figure("acked", account.acked, "", f"= {account.posted:,}", account.acked == account.posted),
        Figure("acked and not delivered", account.lost, "", "= 0", account.lost == 0),
        Figure("delivered out of order", account.reordered, "", "= 0", account.reordered == 0),
        Figure("delivered twice", account.duplicated, ""),
        Figure("connections lost by clients", stream.events.count("ConnectionLost"), "", "= 0"),
    ]


def cold_start() -> list[Figure]:
    """Measure `bmqctl start cluster -n 3` on an empty disk, until a message is acked by two nodes."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-cluster-") as directory:
        port = free_port()
        command = [*COMMAND, "start", "cluster", "-n", "3", "--dir", directory, "--port", str(port)]
        started = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if "ready" not in line:
                    raise SystemExit(f"benchmark-cluster: no cluster: {line!r}")
                ready_s = time.monotonic() - started
                broker = f"tcp://{HOST}:{port}"
                with Stream(
                    0, secrets.randbits(32), fresh_queue(STRONG), broker, broker, size=SIZE, wanted=1
                ) as stream:
                    stream.drain()
                    serving_s = (stream.ack_times[0][1] - int(started * SECOND_NS)) / SECOND_NS
            finally:
                process.send_signal(signal.SIGTERM)
    return [
        Figure("all nodes available", ready_s, "s"),
        Figure("first message acked", serving_s, "s", "<= 5", serving_s <= 5),
    ]


def enlarge(room: int, cluster: ClusterProcesses) -> None:
    """Let the cluster's partitions keep `room` unread bytes without a rollover."""
    for node in cluster.nodes.values():
        assert node.config_dir is not None
        _enlarge(room, node.config_dir)


def _enlarge(room: int, folder: Path) -> None:
    file = folder / "clusters.json"
    clusters = json.loads(file.read_text())
    partition = clusters["myClusters"][0]["partitionConfig"]
    partition["maxDataFileSize"] = max(partition["maxDataFileSize"], 2 * room)
    partition["maxJournalFileSize"] = max(partition["maxJournalFileSize"], room)
    file.write_text(json.dumps(clusters))
    file = folder / "domains" / f"{EVENTUAL}.json"
    domain = json.loads(file.read_text())
    limits = {"bytes": 2 * room, "messages": 10_000_000}
    domain["definition"]["parameters"]["storage"] |= {"domainLimits": limits, "queueLimits": limits}
    file.write_text(json.dumps(domain))


def percentile(stream: Stream, from_ns: int, until_ns: int, part: float) -> float:
    """Return a percentile of the time to the ack, in ms, of the messages due between the two times."""
    times = [now_ns - due_ns for due_ns, now_ns in stream.ack_times if from_ns <= due_ns < until_ns]
    return float(np.percentile(times, part)) / 1e6


def after_load() -> list[Figure]:
    """Measure acks at 3,000 messages/s right after full load, and the nodes' longest steps; the files roll over."""
    with (
        tempfile.TemporaryDirectory(prefix="bmqctl-steps-") as folder,
        fresh_cluster(partial(watch, folder)) as cluster,
    ):
        leader = cluster.leader()
        node = cluster.nodes[leader]
        queue = fresh_queue(STRONG)
        messages = AFTER_LOAD_BYTES // data_record_size(0, SIZE)
        run(plan_for(node, queue, size=SIZE, count=messages - int(AFTER_LOAD_ROLLS_S * RATE)))
        gc.disable()
        stream = Stream(0, secrets.randbits(32), queue, node.uri, node.uri, rate=RATE, size=SIZE)
        from_ns = monotonic_ns()
        with stream:
            time.sleep(AFTER_LOAD_S)
            stream.finish()
            stream.drain()
        until_ns = monotonic_ns()
        gc.enable()
        replicas = [number for number in cluster.nodes if number != leader]
        rolled = sum("ROLLOVER COMPLETE" in node.log for node in cluster.nodes.values())
        for number in list(cluster.running):
            cluster.stop(number)
        steps = {
            number: [each for each in read_steps(Path(folder, str(number))) if from_ns <= each.start_ns < until_ns]
            for number in cluster.nodes
        }
    longest = {number: max((each.own for each in found), default=0.0) for number, found in steps.items()}
    account = stream.account()
    figures = [
        Figure(f"{name} of acks", percentile(stream, from_ns, until_ns, part), "ms")
        for name, part in (("p50", 50), ("p99", 99), ("longest time", 100))
    ]
    for who, numbers in (("the primary", [leader]), ("a replica", replicas)):
        worst = max(longest[number] for number in numbers)
        name = f"longest step of {who}, without waits for a processor"
        figures.append(Figure(name, worst, "ms", "<= 10", worst <= 10))
    return [
        *figures,
        Figure("nodes whose files rolled over", rolled, "", f"= {len(steps)}", rolled == len(steps)),
        Figure("acked and not delivered", account.lost, "", "= 0", account.lost == 0),
    ]


def watch(folder: str, cluster: ClusterProcesses) -> None:
    """Have the nodes write their long steps to files, and roll over after a while of load."""
    for number, node in cluster.nodes.items():
        node.command = (
            sys.executable,
            "-m",
            "scripts.bench.watched_loop",
            str(Path(folder, str(number))),
            str(LONG_MS),
        )
        assert node.config_dir is not None
        file = node.config_dir / "clusters.json"
        clusters = json.loads(file.read_text())
        sizes = {"maxDataFileSize": AFTER_LOAD_BYTES, "numPartitions": 1}
        clusters["myClusters"][0]["partitionConfig"].update(sizes)
        file.write_text(json.dumps(clusters))


def healing(missing_mib: int, size: int) -> list[Figure]:
    """Measure the healing of a replica that missed many messages, under 500 messages/s."""
    missing = missing_mib * MIB
    with fresh_cluster(partial(enlarge, missing)) as cluster:
        leader = cluster.leader()
        down = next(number for number in cluster.nodes if number != leader)
        primary = cluster.nodes[leader]
        cluster.kill(down)
        run(plan_for(primary, fresh_queue(EVENTUAL), consumers=0, size=size, count=missing // size))
        # Flush older data first; pauses of the measuring process do not count against the cluster.
        os.sync()
        gc.disable()
        stream = Stream(0, secrets.randbits(32), fresh_queue(STRONG), primary.uri, primary.uri, rate=HEALING_RATE)
        with stream:
            time.sleep(1)
            before_ns = monotonic_ns()
            time.sleep(BEFORE_HEALING_S)
            started_ns = monotonic_ns()
            cluster.start(down)
            ready_ns = monotonic_ns()

            cluster.nodes[down].wait_for("is available", READY_S + missing / (10 * MIB))
            healed_ns = monotonic_ns()

            stream.finish()
            stream.drain()
        quiet = percentile(stream, before_ns, before_ns + int(BEFORE_HEALING_S * SECOND_NS), 99)
        meanwhile = percentile(stream, ready_ns, healed_ns, 99)
        took_s = (healed_ns - started_ns) / SECOND_NS
        rate = missing_mib / took_s
        account = stream.account()
    return [
        Figure(f"healed {missing_mib:,} MiB in messages of {size:,} bytes", took_s, "s"),
        Figure("rate, from the process's start on", rate, "MiB/s", ">= 95.4", rate >= 95.4),
        Figure("p99 of acks before, one replica down", quiet, "ms"),
        Figure("p99 of acks meanwhile", meanwhile, "ms", f"<= {2 * quiet:,.2f}", meanwhile <= 2 * quiet),
        Figure("acked and not delivered", account.lost, "", "= 0", account.lost == 0),
    ]


CASES: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
    "throughput": lambda arguments: throughput(),
    "latency": lambda arguments: latency(),
    "durability": lambda arguments: durability(),
    "fail-over": lambda arguments: fail_over(),
    "cold-start": lambda arguments: cold_start(),
    "after-load": lambda arguments: after_load(),
    "healing": lambda arguments: healing(arguments.healing_mib, arguments.healing_size),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a cluster of three nodes on this machine.")
    parser.add_argument("--healing-mib", type=int, default=954, help="MiB that the replica lacks (%(default)s: 1 GB)")
    parser.add_argument("--healing-size", type=int, default=SIZE, help="size of their messages in bytes (%(default)s)")
    arguments = parse_cases(parser, CASES)
    measure_cases(arguments.cases or CASES, lambda name: CASES[name](arguments))


if __name__ == "__main__":
    main()
