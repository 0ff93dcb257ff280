"""The runner of scripts/mixed: clusters of our nodes and the reference's, under load, with faults.

A scenario is drawn from a seed: the program of each node, the sizes of files, the proxies, and a sequence of faults and
of episodes with their own queues. Each tenth scenario is a single node that both programs run in turn. Meanwhile the
official client sends streams through strongly consistent queues, in some scenarios with a fan-out and consumers with
expressions. In the end every acknowledged message has arrived as posted, in the order of its producer; the nodes are
killed at one moment, `bmqctl journal validate` finds no fault in any store, `journal diff` no difference between two of
them, and the reference's storage tool reads each journal.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bmqctl.systems.node_process import NodeFailed
from scripts.judges.cluster_load import Refused
from scripts.mixtures.faults import Differs
from scripts.mixtures.scenario import EVERYTHING, Scenario
from scripts.mixtures.table import print_table

__all__ = ["main"]


def run_scenario(seed: int, tools: Path, keep: Path | None, only: list[str] | None, program: str | None) -> bool:
    """Run a scenario in its own folder; a failed one is moved to `keep`."""
    print(f"scenario {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bmqctl-mixed-") as name:
        scenario = Scenario(seed, tools, Path(name), lambda text: print(f"  {text}", flush=True), only, program)
        try:
            print(f"  {scenario.run()}", flush=True)
        except (Differs, NodeFailed, Refused, TimeoutError) as fault:
            print(f"  FAILED after {', '.join(scenario.events) or 'nothing'}: {fault}", flush=True)
            if keep is not None:
                shutil.copytree(
                    name, keep / f"scenario-{seed}", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.ctl")
                )
            return False
    return True


def run_apart(seed: int, words: list[str]) -> bool:
    """Run a scenario in its own process, and print its output in one piece."""
    command = [sys.executable, "-m", "scripts.mixtures.blazingmq", *words, "--seed", str(seed), "--scenarios", "1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("mixed:")]
    print("\n".join(lines), flush=True)
    return done.returncode == 0


def main() -> None:
    """Run scenarios; exit code 1 if one failed."""
    parser = argparse.ArgumentParser(description="Clusters of our nodes and the reference's, under load and faults.")
    parser.add_argument("--reference", type=Path, required=True, help="folder with bmqbrkr.tsk and bmqstoragetool.tsk")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first scenario (%(default)s)")
    parser.add_argument("--scenarios", type=int, default=10, help="number of scenarios (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="scenarios run at a time (%(default)s)")
    parser.add_argument("--keep", type=Path, help="directory for the nodes' files and logs of what failed")
    names = ", ".join(EVERYTHING)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"use these events instead of random ones: {names}")
    parser.add_argument("--program", choices=("ours", "theirs"), help="run this program on all nodes and proxies")
    parser.add_argument("--table", action="store_true", help="measure clusters of either program instead, alternately")
    parser.add_argument("--rounds", type=int, default=3, help="with --table: number of rounds (%(default)s)")
    parser.add_argument("--healing-mib", type=int, default=128, help="with --table: MiB to heal (%(default)s)")
    arguments = parser.parse_args()
    for name in ("bmqbrkr.tsk", "bmqstoragetool.tsk"):
        if not (arguments.reference / name).is_file():
            parser.error(f"{arguments.reference} has no {name}; unpack the reference's executables there")
    if unknown := set(arguments.only or ()) - set(EVERYTHING):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}")
    if arguments.table:
        print_table((arguments.reference / "bmqbrkr.tsk").absolute(), arguments.rounds, arguments.healing_mib, print)
        return
    seeds = range(arguments.seed, arguments.seed + arguments.scenarios)
    reference = arguments.reference.absolute()
    if arguments.jobs == 1:
        asked = (reference, arguments.keep, arguments.only, arguments.program)
        passed = [run_scenario(seed, *asked) for seed in seeds]
    else:
        words = ["--reference", str(reference)]
        words += ["--keep", str(arguments.keep)] if arguments.keep is not None else []
        words += ["--program", arguments.program] if arguments.program else []
        words += ["--only", *arguments.only] if arguments.only else []
        with ThreadPoolExecutor(arguments.jobs) as pool:
            passed = list(pool.map(lambda seed: run_apart(seed, words), seeds))
    failed = [seed for seed, fine in zip(seeds, passed, strict=True) if not fine]
    print(f"mixed: {len(passed) - len(failed)} of {len(passed)} passed; failed: {failed or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
