"""RocketMQ's official Java client as the judge of our node, or of any cluster: see `rocketmq_judge/`.

Maven fetches the client once, into its own repository, and builds the program that uses it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["CONFIG", "Outcomes", "Unfit", "build", "judge", "judge_with", "read_line"]

SOURCE = Path(__file__).parents[1] / "judges" / "rocketmq_judge"

# Transactions are checked sooner than by default: the judge waits for that.
CONFIG = """transactionCheckInterval=2000
transactionTimeOut=1000
"""

_LINE = re.compile(r"case (\S+) (passed|failed)(?: (.*))?")


class Unfit(Exception):
    """A missing prerequisite of the judge; the text names it."""


class Outcomes(NamedTuple):
    """The result of each case, with the reason of each failure."""

    found: dict[str, str]
    reasons: dict[str, str]


def build(home: Path, source: Path = SOURCE) -> str:
    """Build the judge, or another program, in a folder, unless it is there; return the Java class path. Raises
    `Unfit`.
    """
    maven = shutil.which("mvn")
    if maven is None or shutil.which("javac") is None:
        raise Unfit("the Java client needs Maven (mvn) and a JDK (8 or later) on the path")
    sources = sorted(path for path in source.rglob("*") if path.is_file())
    stamp = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    mark, path_file = home / "stamp", home / "classpath.txt"
    if not mark.exists() or mark.read_text() != stamp:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source, home)
        goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={path_file}"]
        done = subprocess.run(
            [maven, "--batch-mode", "--quiet", *goals],
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Unfit(f"Maven cannot build {home}: {(done.stdout + done.stderr)[-2000:]}")
        mark.write_text(stamp)
    return f"{home / 'target' / 'classes'}:{path_file.read_text().strip()}"


def judge(class_path: str, nameserver: str, cases: Sequence[str], log: Path, timeout_s: float) -> Outcomes:
    """Let the client use a cluster; return the outcome of each case. Its other output goes to the log."""
    # One compiler: most of a short program's time is its own start.
    words = ["java", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.logRoot=" + str(log.parent), "-cp", class_path]
    return judge_with([*words, "Judge", nameserver, *cases], log, timeout_s)


def judge_with(
    words: Sequence[str], log: Path, timeout_s: float, environment: Mapping[str, str] | None = None
) -> Outcomes:
    """Run a judge; return its outcome of each case. All of its output goes to the log, too."""
    outcomes = Outcomes({}, {})
    with (
        log.open("w") as out,
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                out.write(line)
                out.flush()
                read_line(line, outcomes)
            process.wait(timeout_s)
        finally:
            process.kill()
    return outcomes


def read_line(line: str, outcomes: Outcomes) -> None:
    """Add the outcome in a line of a judge's output, if any."""
    told = _LINE.match(line)
    if told is not None:
        name, outcome, reason = told.groups()
        outcomes.found[name] = outcome
        if outcome == "failed":
            outcomes.reasons[name] = reason or ""
