"""The runner of scripts/conformance-client: the client library's tests with processes, against BlazingMQ's own broker.

The tests are those of `tests/integration/clients/test_client_library.py`, under asyncio and trio, and the programs of
the library's page of the manual. In a test run their broker is our node; here, the executable of FOLDER.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from scripts.judges.children import ending_with_children

__all__ = ["Case", "main", "read_cases", "rows"]

BROKER = "bmqbrkr.tsk"
VARIABLE = "BMQCTL_REFERENCE_BROKER"
ROOT = Path(__file__).parents[2]
TESTS = ("tests/integration/clients/test_client_library.py", "tests/docs/test_guides.py")
# Only the library's page, and all of its tests.
CHOSEN = "library and not guides or the_client_library"
BACKENDS = ("asyncio", "trio")
CASE_S_MAX = 120

_NAME = re.compile(r"test_(?P<step>\w+?)(?:\[(?P<backend>\w+)\])?")


class Case(NamedTuple):
    """The outcome of one test: `passed`, `failed` or `skipped`, and the reason of the latter two."""

    step: str
    backend: str
    outcome: str
    reason: str


def main(words: Sequence[str] | None = None) -> int:
    """Run the tests and print a table; return 0 if all that ran passed, 1 if some failed, 2 if none could be run."""
    options = _parser().parse_args(words)
    program = options.folder / BROKER
    if not program.is_file() or not os.access(program, os.X_OK):
        print(f"conformance-client: {program} is not an executable file", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-client-") as scratch:
        report = Path(scratch) / "report.xml"
        chosen = CHOSEN if options.expression is None else f"({CHOSEN}) and ({options.expression})"
        settings = ["-q", "-p", "no:cacheprovider", f"--timeout={CASE_S_MAX}", f"--junitxml={report}", f"-k={chosen}"]
        with (Path(scratch) / "output").open("w+") as output:
            subprocess.run(
                [sys.executable, "-m", "pytest", *settings, *TESTS],
                cwd=ROOT,
                env=os.environ | {VARIABLE: str(program.absolute())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
            output.seek(0)
            told = output.read()
        cases = read_cases(report) if report.exists() else []
    if options.verbose or not cases:
        print(told, file=sys.stderr)
    outcomes = [case.outcome for case in cases]
    if not outcomes or set(outcomes) == {"skipped"}:
        print("conformance-client: no test ran", file=sys.stderr)
        return 2
    _print(cases, program)
    return 1 if "failed" in outcomes else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/conformance-client",
        description="Run the client library's tests, under asyncio and trio, against BlazingMQ's own broker.",
        epilog="Exit codes: 0 all that ran passed, 1 some failed, 2 none could be run.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=f"the folder of {BROKER}")
    parser.add_argument("-k", dest="expression", metavar="EXPR", help="only tests whose names match, as in pytest")
    parser.add_argument("-v", dest="verbose", action="store_true", help="print pytest's output, too")
    return parser


def read_cases(report: Path) -> list[Case]:
    """Read the outcomes of a report in JUnit's format, as pytest writes it."""
    found = []
    for each in ElementTree.parse(report).getroot().iter("testcase"):
        named = _NAME.fullmatch(each.get("name", ""))
        assert named is not None, f"a test of another form: {each.attrib}"
        outcome, reason = "passed", ""
        for child in each:
            if child.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if child.tag == "skipped" else "failed"
                reason = (child.get("message") or "").partition("\n")[0]
        # The programs of the manual are asyncio's.
        found.append(Case(named["step"].replace("_", " "), named["backend"] or BACKENDS[0], outcome, reason))
    return found


def rows(cases: Iterable[Case]) -> list[tuple[str, ...]]:
    """Return a row for each step: its name, and its outcome with each of `BACKENDS`."""
    table: dict[str, dict[str, str]] = {}
    for case in cases:
        table.setdefault(case.step, {})[case.backend] = case.outcome
    return [(step, *(found.get(each, "") for each in BACKENDS)) for step, found in table.items()]


def _print(cases: Sequence[Case], program: Path) -> None:
    table = Table("step", *BACKENDS, title=f"bmqctl.client with {program}", title_justify="left")
    for row in rows(cases):
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for step, backend, outcome, reason in cases:
        if outcome != "passed":
            print(f"{outcome}: {step} ({backend}): {reason}")
    counts = {outcome: sum(case.outcome == outcome for case in cases) for outcome in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


if __name__ == "__main__":
    with ending_with_children():
        sys.exit(main())
