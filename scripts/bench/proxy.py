"""The runner of scripts/benchmark-proxy: the cost of a proxy on this machine, and the outages that it bridges.

Messages of 1 KiB, the official client. Only the loss of an acknowledged message ends a run.
"""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bmqctl.systems.node_process import NodeProcess, ProxyProcess
from scripts.bench.cluster import EVENTUAL, RUN_S, SIZE
from scripts.bench.figures import Figure, fresh_queue, measure_cases, parse_cases, plan_for, run
from scripts.judges.cluster_load import STRONG, Stream, wait_healed
from scripts.judges.reference_process import Running
from scripts.mixtures.cluster import MixedCluster
from scripts.mixtures.config import EVENTUAL as MIXED_EVENTUAL
from tests.rigs.cluster_processes import ClusterProcesses

RATE = 3_000.0
ROUNDS = 3
ROUND_S = 5.0
OUTAGE_RATE = 1_000.0
OUTAGE_S = 60.0
AROUND_S = 5.0
# The files of a node that is measured beside another program's.
SIZES = {"maxDataFileSize": 1 << 30, "maxJournalFileSize": 256 << 20, "maxQlistFileSize": 8 << 20}


@contextmanager
def node_and_proxies(count: int) -> Iterator[tuple[NodeProcess, list[ProxyProcess]]]:
    """Start a node, and a chain of `count` proxies to it."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-proxy-") as directory:
        node = NodeProcess(Path(directory) / "node")
        chain: list[ProxyProcess] = []
        try:
            node.start()
            for number in range(count):
                upstream = chain[-1].address if chain else node.address
                chain.append(ProxyProcess(Path(directory) / f"proxy{number}", [upstream]).start())
                chain[-1].wait_available()
            yield node, chain
        finally:
            for broker in reversed([node, *chain]):
                broker.close()


class Way(NamedTuple):
    """The measurements of one placement of producer and consumer: latency, and processor time per message."""

    p50_ms: float
    p99_ms: float
    node_us: float
    proxy_us: float


def measured(domain: str, producer: NodeProcess, consumer: NodeProcess, node: NodeProcess, proxy: NodeProcess) -> Way:
    stream = Stream(0, secrets.randbits(32), fresh_queue(domain), producer.uri, consumer.uri, rate=RATE, size=SIZE)
    with stream:
        before = node.cpu_s(), proxy.cpu_s()
        time.sleep(ROUND_S)
        stream.finish()
        stream.drain()
        node_s, proxy_s = node.cpu_s() - before[0], proxy.cpu_s() - before[1]
    account = stream.account()
    if account.lost:
        raise SystemExit(f"benchmark-proxy: {account.lost} messages are lost")
    percentile, count = account.latency.percentile, account.delivered
    return Way(percentile(50) / 1e6, percentile(99) / 1e6, node_s / count * 1e6, proxy_s / count * 1e6)


def by_turns(domain: str, node: NodeProcess, proxy: NodeProcess) -> list[Figure]:
    """Measure the same load with producer and consumer at a node, and with either or both behind a proxy to it."""
    ways = {
        "at the node": (node, node),
        "producer behind the proxy": (proxy, node),
        "consumer behind the proxy": (node, proxy),
        "both behind the proxy": (proxy, proxy),
    }
    rounds = [{name: measured(domain, *way, node, proxy) for name, way in ways.items()} for _ in range(ROUNDS)]
    found = {name: Way(*map(median, zip(*(each[name] for each in rounds), strict=True))) for name in ways}
    direct = found.pop("at the node")
    figures = [
        Figure("p50, at the node", direct.p50_ms, "ms"),
        Figure("  p99", direct.p99_ms, "ms"),
        Figure("  processor time of the node, a message", direct.node_us, "us"),
    ]
    for name, way in found.items():
        added, hops = way.p50_ms - direct.p50_ms, ways[name].count(proxy)
        part = way.proxy_us / hops / direct.node_us
        figures += [
            Figure(f"p50, {name}", way.p50_ms, "ms"),
            Figure("  p99", way.p99_ms, "ms"),
            Figure("  added to p50", added, "ms", "<= 0.3", added <= 0.3),
            Figure("  processor time of the node, a message", way.node_us, "us"),
            Figure("  of the proxy", way.proxy_us, "us"),
            Figure(f"  a hop of {hops}, beside the node without a proxy", 100 * part, "%", "<= 50", part <= 0.5),
        ]
    return figures


def hop() -> list[Figure]:
    """Measure a proxy to a single node, with eventual consistency."""
    with node_and_proxies(1) as (node, (proxy,)):
        return by_turns(EVENTUAL, node, proxy)


def cluster_hop() -> list[Figure]:
    """Measure a proxy to the primary of three nodes, with strong consistency."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-proxy-") as directory:
        cluster = ClusterProcesses(Path(directory) / "cluster")
        with cluster:
            wait_healed(cluster)
            primary = cluster.nodes[cluster.leader()]
            with ProxyProcess(Path(directory) / "proxy", [primary.address]) as proxy:
                proxy.wait_available()
                return by_turns(STRONG, primary, proxy)


def throughput() -> list[Figure]:
    """Measure unlimited throughput, with producer and consumer behind no proxy, one, and three in a chain."""
    with node_and_proxies(3) as (node, chain):
        return unlimited(EVENTUAL, {"at the node": node, "behind a proxy": chain[0], "behind three": chain[2]})


def reference(program: Path) -> list[Figure]:
    """Measure unlimited throughput of another program's node, and behind its proxy, with the same clients."""
    with (
        tempfile.TemporaryDirectory(prefix="bmqctl-proxy-") as directory,
        MixedCluster(Path(directory), program, [1], count=1, sizes=SIZES, partitions=4, proxies=[True]) as cluster,
    ):
        cluster.wait_healed()
        places = {"at the other program's node": cluster.nodes[1], "behind its proxy": cluster.proxies[0]}
        return unlimited(MIXED_EVENTUAL, places)


def unlimited(domain: str, places: Mapping[str, Running]) -> list[Figure]:
    """Measure unlimited throughput at each broker, the first of which is the node."""
    figures: list[Figure] = []
    alone_us = 0.0
    for what, broker in places.items():
        plan = plan_for(broker, fresh_queue(domain), client="official", batch=1, duration_s=RUN_S, window=1024)
        before = broker.cpu_s()
        outcome = run(plan)
        used_us = (broker.cpu_s() - before) / outcome.account.delivered * 1e6
        rate = outcome.rate(outcome.account.delivered, outcome.account.last_delivery_ns)
        figures.append(Figure(f"clients {what}", rate, "messages/s"))
        figures.append(Figure("  processor time of that broker, a message", used_us, "us"))
        if alone_us:
            part = used_us / alone_us
            figures.append(Figure("  as a part of the node's", 100 * part, "%", "<= 50", part <= 0.5))
            figures.append(Figure("  for each of the two times that a message passes it", 50 * part, "%"))
        alone_us = alone_us or used_us
    return figures


def outage(outage_s: float) -> list[Figure]:
    """Measure an outage: 1,000 posts/s through a proxy to three nodes, all killed for `outage_s`."""
    with tempfile.TemporaryDirectory(prefix="bmqctl-proxy-") as directory:
        cluster = ClusterProcesses(Path(directory) / "cluster")
        proxy = ProxyProcess(Path(directory) / "proxy", [node.address for node in cluster.nodes.values()])
        with cluster, proxy:
            wait_healed(cluster)
            proxy.wait_available()
            stream = Stream(
                0,
                secrets.randbits(32),
                fresh_queue(STRONG),
                proxy.uri,
                proxy.uri,
                rate=OUTAGE_RATE,
                window=1 << 20,
                size=SIZE,
            )
            with stream:
                time.sleep(AROUND_S)
                for number in cluster.nodes:
                    cluster.kill(number)
                time.sleep(outage_s)
                most_kept = proxy.rss_bytes()
                for number in cluster.nodes:
                    cluster.start(number)
                back = time.monotonic()
                proxy.wait_for("leader status: ACTIVE")
                time.sleep(AROUND_S)
                stream.finish()
                stream.drain()
                drained_s = time.monotonic() - back
            account, gap_s = stream.account(), stream.longest_gap_s()
            noticed = [event for event in stream.events if event not in ("Connected", "Disconnected")]
    return [
        Figure("the cluster was away", outage_s, "s"),
        Figure("longest time between two acks", gap_s, "s"),
        Figure("posted", account.posted, ""),
        Figure("acked", account.acked, "", f"= {account.posted:,}", account.acked == account.posted),
        Figure("acked and not delivered", account.lost, "", "= 0", account.lost == 0),
        Figure("delivered twice", account.duplicated, "", "= 0", account.duplicated == 0),
        Figure("delivered out of order", account.reordered, "", "= 0", account.reordered == 0),
        Figure("session events of the clients, but begin and end", len(noticed), "", "= 0", not noticed),
        Figure("from the nodes' start to the last delivery", drained_s, "s"),
        Figure("memory of the proxy at the end of the outage", most_kept / (1 << 20), "MiB"),
    ]


CASES: dict[str, Callable[[argparse.Namespace], list[Figure]]] = {
    "hop": lambda arguments: hop(),
    "cluster-hop": lambda arguments: cluster_hop(),
    "throughput": lambda arguments: throughput(),
    "reference": lambda arguments: reference(arguments.reference),
    "outage": lambda arguments: outage(arguments.outage_s),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the cost of a proxy, and the outages that it bridges, on this machine."
    )
    parser.add_argument(
        "--outage-s", type=float, default=OUTAGE_S, help="seconds of the cluster's outage (%(default)s)"
    )
    parser.add_argument(
        "--reference", type=Path, metavar="PROGRAM", help="another broker's executable, as bmqbrkr, for that case"
    )
    arguments = parse_cases(parser, CASES)
    if arguments.reference is None and "reference" in arguments.cases:
        parser.error("reference: name the other broker's executable with --reference PROGRAM")
    if arguments.reference is not None and not os.access(arguments.reference, os.X_OK):
        parser.error(f"--reference: {arguments.reference} is not an executable file")
    names = arguments.cases or [each for each in CASES if arguments.reference or each != "reference"]
    measure_cases(names, lambda name: CASES[name](arguments))


if __name__ == "__main__":
    main()
