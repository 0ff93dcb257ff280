"""Apache's own end-to-end suites, of a checkout of apache/rocketmq-e2e, against our node or any cluster.

There are three: `java` (client 5.2.0) and `go`, both by gRPC, and `v4` (Java client 4.9.3), by remoting. Each is run in
a copy of its folder. The Java ones need a Lombok and options of Java that are younger than they are, and build only the
wanted module; the one in Go makes topics with Apache's `mqadmin`, of the Java client's jars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bmqctl.systems.node_process import RocketProcess
from scripts.suites import grpc as conformance_grpc
from scripts.suites import rocketmq as conformance_rocketmq
from scripts.suites.java import output_lines, read_reports
from scripts.suites.results import failed_before, tell
from scripts.suites.rocketmq import Outcomes, Unfit

__all__ = ["SUITES", "judge", "read_go", "run", "run_all"]

SUITES: Final = ("v4", "java", "go")
CLUSTER: Final = "DefaultCluster"
CLIENT: Final = "5.2.0"

_MODULES: Final = {"v4": "e2e-v4", "java": "e2e"}
_MODULE_LINE: Final = re.compile(r"\s*<module>[^<]*</module>")
_LOMBOK: Final = re.compile(r"(<artifactId>lombok</artifactId>\s*<version>)[^<]*(</version>)")
_PERMANENT: Final = re.compile(r" -XX:MaxPermSize=\w+")
_ENDED: Final = re.compile(r"Tests run: .*(?: - in | -- in )\S+$")
# As in the suite's own `run.sh`, but one package at a time: each starts a JVM for every topic.
_GO_TEST: Final = ("test", "./mqgotest/...", "-p", "1", "-count", "1", "-timeout", "5m", "-json")


class Place(NamedTuple):
    """A cluster: its nameserver and its endpoint for gRPC, HOST:PORT each."""

    nameserver: str
    endpoint: str


class Wanted(NamedTuple):
    """A suite and its cases to run, or all. With `at_a_time` 1, Java cases run one by one."""

    suite: str
    cases: Sequence[str]
    at_a_time: int


# -- the runner


def run_all(home: Path, options: argparse.Namespace) -> int:
    """Run the suites that the options name; 0 if every case passed, 1 if some failed, 2 if one could not be run."""
    suites = SUITES if options.e2e == "all" else (options.e2e,)
    return max([run(suite, home, options) for suite in suites])


def run(suite: str, home: Path, options: argparse.Namespace) -> int:
    name = f"rocketmq-e2e-{suite}" + ("" if options.nameserver is None else "-other-broker")
    log = home / f"{name}.log"
    cases = [options.expression] if options.expression else []
    if options.failed:
        cases = failed_before(name, home)
        if not cases:
            print(f"conformance: {name}: nothing failed in its last run")
            return 0
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as folder, contextlib.ExitStack() as stack:
        if options.nameserver is None:
            _, properties = conformance_grpc.prepare(Path(folder), "")
            config = Path(folder) / "broker.conf"
            config.write_text(properties)
            command = [str(options.bmqctl.absolute())]
            node = RocketProcess(Path(folder) / "store", config_file=config, command=command)
            stack.enter_context(node)
            place = Place(node.nameserver, node.endpoint)
        else:
            place = Place(options.nameserver, options.endpoint)
        try:
            wanted = Wanted(suite, cases, options.workers)
            found, reasons = judge(wanted, options.checkout.resolve(), place, home, log)
        except Unfit as fault:
            print(f"conformance: {fault}", file=sys.stderr)
            return 2
    if not found:
        print(f"conformance: no case ran; see {log}", file=sys.stderr)
        return 2
    tell(name, found, reasons, home)
    print(f"{name}: its output is in {log}")
    return 1 if "failed" in found.values() else 0


def judge(wanted: Wanted, checkout: Path, place: Place, home: Path, log: Path) -> Outcomes:
    """Run a suite's cases; return their outcomes. Raises `Unfit`."""
    make = _run_go if wanted.suite == "go" else _run_java
    return make(wanted, checkout, place, home, log)


def _copied(checkout: Path, part: str, folder: Path) -> None:
    if not (checkout / part).is_dir():
        raise Unfit(f"{checkout} has no {part}: it is no checkout of apache/rocketmq-e2e")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkout / part, folder, ignore=shutil.ignore_patterns("target"))


def _found(tool: str, what: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise Unfit(f"{what} needs {tool} on the path")
    return path


# -- in Java


def _run_java(wanted: Wanted, checkout: Path, place: Place, home: Path, log: Path) -> Outcomes:
    maven, module, folder = _found("mvn", "the suite"), _MODULES[wanted.suite], home / f"rocketmq-e2e-{wanted.suite}"
    _copied(checkout, "java", folder)
    _edit(folder / "pom.xml", lambda text: _LOMBOK.sub(r"\g<1>1.18.34\2", _only(module, text)))
    for each in ("pom.xml", f"{module}/pom.xml"):
        _edit(folder / each, lambda text: _PERMANENT.sub("", text))
    settings = {
        "namesrvAddr": place.nameserver,
        "endPoint": place.endpoint,
        "rocketmqV5.client.version": CLIENT,
        "failIfNoTests": "false",
        "maven.test.failure.ignore": "true",
    }
    if wanted.at_a_time == 1:
        settings["junit.jupiter.execution.parallel.enabled"] = "false"
    if wanted.cases:
        settings["test"] = ",".join(case.replace(".", "#") for case in wanted.cases)
    words = [maven, "--batch-mode", "-pl", module, "-am", "test"]
    words += [f"-D{name}={value}" for name, value in settings.items()]
    _show(output_lines(words, folder, _environment({"cluster": CLUSTER})), log, _ENDED)
    reports = read_reports(folder / module / "target" / "surefire-reports")
    return Outcomes(reports.found, reports.reasons)


def _only(module: str, text: str) -> str:
    line = f"<module>{module}</module>"
    if line not in text:
        raise Unfit(f"the suite has no module {module}")
    return _MODULE_LINE.sub(lambda found: found[0] if line in found[0] else "", text)


def _edit(file: Path, change: Callable[[str], str]) -> None:
    file.write_text(change(file.read_text()))


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Our environment, with more, and without the variable that precedes the options."""
    return {name: value for name, value in os.environ.items() if name != "ALL_IP"} | dict(more)


def _show(lines: Iterable[str], log: Path, shown: re.Pattern[str]) -> None:
    with log.open("w") as out:
        for line in lines:
            out.write(line)
            told = shown.search(line.rstrip())
            if told is not None:
                print(told[0], flush=True)


# -- in Go


def _run_go(wanted: Wanted, checkout: Path, place: Place, home: Path, log: Path) -> Outcomes:
    go, java = _found("go", "the suite"), _found("java", "mqadmin")
    # It looks for mqadmin beside its own folder.
    parent = home / "rocketmq-e2e-go"
    _copied(checkout, "golang", parent / "golang")
    class_path = conformance_rocketmq.build(home / "rocketmq")
    mqadmin = parent / "rocketmq-admintools" / "bin" / "mqadmin"
    mqadmin.parent.mkdir(parents=True, exist_ok=True)
    started = [java, "-XX:TieredStopAtLevel=1", "-cp", class_path, "org.apache.rocketmq.tools.command.MQAdminStartup"]
    mqadmin.write_text(f'#!/bin/sh\nexec {shlex.join(started)} "$@"\n')
    words = [go, *_GO_TEST]
    if wanted.cases:
        words += ["-run", f"^({'|'.join(case.rpartition('.')[2] for case in wanted.cases)})$"]
    names = {"NAMESERVER": place.nameserver, "GRPC_ENDPOINT": place.endpoint, "CLUSTER_NAME": CLUSTER}
    with log.open("w") as out:
        return read_go(_kept(output_lines(words, parent / "golang", _environment(names)), out.write))


def _kept(lines: Iterable[str], keep: Callable[[str], object]) -> Iterable[str]:
    for line in lines:
        keep(line)
        yield line


def read_go(lines: Iterable[str]) -> Outcomes:
    """Read the outcomes of tests in the output of `go test -json`."""
    outcomes = Outcomes({}, {})
    said: dict[str, list[str]] = {}
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # The compiler's, or of a tool that the suite starts.
        package = str(event.get("Package", "")).rpartition("/")[2]
        name, action = f"{package}.{event.get('Test', '')}", event.get("Action")
        if action == "output":
            said.setdefault(name, []).append(event["Output"].strip())
        elif action in ("pass", "fail", "skip"):
            _end(outcomes, name, action, said.get(name, []))
    return outcomes


def _end(outcomes: Outcomes, name: str, action: str, said: list[str]) -> None:
    """Record the end of a test, or of a package, which is a case only if it failed and none of its tests did."""
    package, _, test = name.partition(".")
    failed = any(case.startswith(f"{package}.") for case, was in outcomes.found.items() if was == "failed")
    if not test and (action != "fail" or failed):
        return
    outcomes.found[name] = {"pass": "passed", "fail": "failed", "skip": "skipped"}[action]
    if action == "fail":
        wrong = [line for line in said if line.startswith(("Error:", "panic:", "FAIL"))]
        outcomes.reasons[name] = (wrong or said or [""])[0]
