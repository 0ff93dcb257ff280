"""The runner of scripts/benchmark-steps: the longest step of a node with very many messages stored.

The node is the broker's own core on mapped files in a temporary directory, without its shell, so that each step can be
measured: the one that begins a case, then all that follow from it. Between them another client posts a message; its
wait for the acknowledgment is the other figure. Clock times include other load on the machine; CPU times are the
process's own.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from pathlib import Path

from scripts.bench.step_cases.cluster import CLUSTER_CASES, ClusterBench
from scripts.bench.step_cases.common import Outcome
from scripts.bench.step_cases.hops import HOP_CASES, HopBench
from scripts.bench.step_cases.node import CASES, Bench

MESSAGES = 1_000_000
WANTED_MS = 50.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmark-steps", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="how many are stored")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=sorted((*CASES, *HOP_CASES, *CLUSTER_CASES)),
        default=[*CASES, *HOP_CASES, *CLUSTER_CASES],
        metavar="CASE",
        help="of these",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args()
    gc.disable()
    found: list[Outcome] = []
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="benchmark-steps-") as folder:
            if name in CLUSTER_CASES:
                cluster = ClusterBench(Path(folder), options.messages)
                found += CLUSTER_CASES[name](cluster)
                cluster.close()
                del cluster
            elif name in HOP_CASES:
                hops = HopBench(Path(folder), options.messages)
                found += HOP_CASES[name](hops)
                hops.close()
                del hops
            else:
                uri, run = CASES[name]
                bench = Bench(Path(folder), options.messages, uri)
                found += run(bench)
                bench.close()
                del bench
        gc.collect()
        print(f"{name}: done", file=sys.stderr)
    if options.json:
        print(json.dumps([each._asdict() for each in found], indent=2))
        return
    print(f"{options.messages} messages; milliseconds, wanted below {WANTED_MS:.0f} for the longest step")
    print(f"{'case':40} {'first':>8} {'longest':>8} {'CPU':>8} {'delay':>8} {'steps':>7} {'total':>8}")
    for each in found:
        print(
            f"{each.case:40} {each.first_ms:8.1f} {each.longest_ms:8.1f} {each.longest_cpu_ms:8.1f} "
            f"{each.delay_ms:8.1f} {each.steps:7} {each.total_ms:8.0f}"
        )


if __name__ == "__main__":
    main()
