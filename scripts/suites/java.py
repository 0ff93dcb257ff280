"""The integration tests of the Java SDK (`*IT.java`), built by Maven from a copy of a checkout, against our broker.

The tests start their brokers themselves, "from a folder": each gets `bmqbrkr.tsk` of that folder, in a new folder in it
with the SDK's own configuration on a free port. Ours is a script of that name which starts bmqctl. A start costs a test
20 s: the SDK waits that long, whatever the broker reports.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

__all__ = ["MODULE", "JavaRun", "Unfit", "output_lines", "read_reports", "run"]

MODULE = "bmq-sdk"
NEEDED = f"{MODULE}/src/test/java/com/bloomberg/bmq/it"
"""The path by which a checkout is recognised."""

# None of these affects the tests' results; Spotless would change the sources.
QUIET = ("skipUnitTests", "spotbugs.skip", "spotless.check.skip", "maven.javadoc.skip", "jacoco.skip", "flatten.skip")

PROGRESS = re.compile(r"Tests run: .*(?: - in | -- in )(?P<name>\S+)$")


class Unfit(Exception):
    """Missing requirements of the tests; the text names them."""


class JavaRun(NamedTuple):
    """A run: `tests` as Failsafe selects them (`SessionIT`, `SessionIT#test*`), None for all.

    `forks` classes run at a time. A failed test is run up to `reruns` times more; one that then passes is `unsteady`.
    """

    checkout: Path
    broker: Path
    scratch: Path
    log: Path
    tests: str | None = None
    forks: int = 1
    reruns: int = 1


class Reports(NamedTuple):
    """The result of each test, the reasons of failures, and the tests that passed when repeated."""

    found: dict[str, str]
    reasons: dict[str, str]
    unsteady: dict[str, str]


def run(wanted: JavaRun, environment: dict[str, str]) -> Reports:
    """Build the copy, run its tests, read their reports. Raises `Unfit`."""
    maven = shutil.which("mvn", path=environment.get("PATH"))
    if maven is None or shutil.which("javac", path=environment.get("PATH")) is None:
        raise Unfit("the Java SDK needs Maven (mvn) and a JDK (8, 11 or 17) on the path")
    source = wanted.scratch / "sdk"
    shutil.copytree(wanted.checkout, source, ignore=shutil.ignore_patterns(".git", "target"))
    folder = wanted.scratch / "broker"
    folder.mkdir()
    (folder / "bmqbrkr.tsk").symlink_to(wanted.broker.absolute())
    words = [maven, "--batch-mode", "--projects", MODULE, "verify", f"-Dit.brokerDir={folder}"]
    words += [f"-D{name}=true" for name in QUIET]
    words += ["-DfailsafeArgLine=", f"-Dfailsafe.forkCount={wanted.forks}"]
    words += [f"-Dfailsafe.rerunFailingTestsCount={wanted.reruns}"]
    words += [f"-Dit.test={wanted.tests}", "-Dfailsafe.failIfNoSpecifiedTests=false"] if wanted.tests else []
    with wanted.log.open("w") as log:
        for line in output_lines(words, source, environment):
            log.write(line)
            told = PROGRESS.search(line.rstrip())
            if told is not None:
                print(told[0], flush=True)
    reports = read_reports(source / MODULE / "target" / "failsafe-reports")
    if not reports.found:
        raise Unfit(f"no test ran; Maven's output is in {wanted.log}")
    return reports


def output_lines(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Yield the output of a program; all processes that it has started, brokers too, end with it."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            yield from process.stdout
        process.wait()
    except KeyboardInterrupt:
        print("conformance: cut short; what ran counts", file=sys.stderr)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def read_reports(folder: Path) -> Reports:
    """Read Failsafe's reports, one file for each class."""
    reports = Reports({}, {}, {})
    for file in sorted(folder.glob("TEST-*.xml")):
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            _read_case(case, reports)
    return reports


def _read_case(case: ElementTree.Element, reports: Reports) -> None:
    name = ".".join(filter(None, (case.get("classname", "").rpartition(".")[2], case.get("name"))))
    fault = next((each for each in case if each.tag in ("failure", "error")), None)
    if fault is not None:
        reports.found[name] = "failed"
        reports.reasons[name] = _reason(fault)
    elif case.find("skipped") is not None:
        reports.found[name] = "skipped"
    else:
        reports.found[name] = "passed"
        first = next((each for each in case if each.tag in ("flakyFailure", "flakyError")), None)
        if first is not None:
            reports.unsteady[name] = _reason(first)


def _reason(fault: ElementTree.Element) -> str:
    """Return one line: the message, or else the kind of the exception, and its place in the test."""
    message = (fault.get("message") or fault.get("type") or "").strip().partition("\n")[0]
    where = re.search(r"\((\w+(?:IT|Test)\.java:\d+)\)", "".join(fault.itertext()))
    return f"{where[1]}: {message}" if where else message
