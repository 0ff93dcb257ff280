"""The runner of scripts/conformance: the reference's suites, from a checkout, against our programs.

The broker's suite (CHECKOUT of bloomberg/blazingmq) starts executables that the environment names; wrapper scripts
replace them and start bmqctl. The client's suite (--sdk, CHECKOUT of bloomberg/blazingmq-sdk-python) needs a running
broker: our node on the checkout's broker configuration. The Java client's (--java) starts brokers from a folder: see
`java`. RocketMQ's Java client (--rocketmq), its administration tool (--mqadmin), npm's client ali-ons (--npm) and
version 5's clients for Node.js, Java, Go and Python (--grpc) need no checkout: Maven, npm, Go and pip fetch them.
Apache's end-to-end suites (--e2e) are those of a checkout of apache/rocketmq-e2e: see `e2e`.

Each suite has its own environment outside the tree, since the broker's Python package and the official client are both
named `blazingmq`. The results of the cases are kept there too, and a run reports changes.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bmqctl.systems.node_process import NodeProcess, RocketProcess
from scripts.judges.children import ending_with_children
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.suites import ali_ons as conformance_ali_ons
from scripts.suites import e2e as conformance_e2e
from scripts.suites import grpc as conformance_grpc
from scripts.suites import java as conformance_java
from scripts.suites import mqadmin as conformance_mqadmin
from scripts.suites import pairs as conformance_pairs
from scripts.suites import rocketmq as conformance_rocketmq
from scripts.suites.results import Results, failed_before, tell

__all__ = ["clean_environment", "main", "read_report"]

BMQCTL = Path(sys.executable).with_name("bmqctl")
SINGLE_NODE = "single and (legacy_mode or fsm_mode)"

# The names under which the broker's suite installs the programs; it looks for no others.
BROKER = ("BLAZINGMQ_BROKER", "bmqbrkr.tsk")
TOOL = ("BLAZINGMQ_TOOL", "bmqtool.tsk")
STORAGE_TOOL = ("BLAZINGMQ_STORAGETOOL", "bmqstoragetool.tsk")

# The suite reads only standard output, where the reference logs; Python's paths are the suite's, not ours.
WRAPPER = """#!/bin/sh
unset PYTHONPATH PYTHONPYCACHEPREFIX
exec {program} {words} "$@" 2>&1
"""

# The wrapper of our own scripts: the relay that the suite finds on its path by default, and the storage tool.
SCRIPT = """#!/bin/sh
unset PYTHONPATH PYTHONPYCACHEPREFIX
exec {python} {script} {words} "$@"
"""

CASE_TIMEOUT_S = 300


class Suite(NamedTuple):
    """One suite, ready to run."""

    name: str
    folder: Path  # the working directory of pytest
    cases: list[str]  # pytest's arguments for all cases
    python: Path
    arguments: list[str]
    environment: dict[str, str]


def main(words: Sequence[str] | None = None) -> int:
    """Run a suite; return 0 if every case that ran passed, 1 if some failed, 2 if it could not be run."""
    parser = _parser()
    options = parser.parse_args(words)
    by_grpc = options.rocketmq and (options.grpc or options.e2e or options.pairs)
    if by_grpc and (options.nameserver is None) != (options.endpoint is None):
        parser.error("with --grpc, --e2e or --pairs, --nameserver and --endpoint go together")
    if options.rocketmq and options.e2e:
        if options.checkout is None:
            parser.error("--e2e needs a checkout of apache/rocketmq-e2e")
        return conformance_e2e.run_all(_home(), options)
    if options.rocketmq and options.pairs:
        return conformance_pairs.run(_home(), options)
    if options.rocketmq and options.grpc:
        languages = conformance_grpc.LANGUAGES if options.grpc == "all" else (options.grpc,)
        return max([_run_grpc(language, _home(), options) for language in languages])
    if options.rocketmq:
        return _run_mqadmin(_home(), options) if options.mqadmin else _run_rocketmq(_home(), options)
    if options.checkout is None:
        parser.error("name a checkout, or --rocketmq")
    checkout: Path = options.checkout.resolve()
    suite_folder = "tests/integration" if options.sdk else "src/integration-tests"
    wanted = checkout / (conformance_java.NEEDED if options.java else suite_folder)
    if not wanted.is_dir():
        print(f"conformance: {checkout} has no {wanted.relative_to(checkout)}", file=sys.stderr)
        return 2
    home = _home()
    if options.java:
        return _run_java(checkout, home, options)
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as scratch, contextlib.ExitStack() as stack:
        if options.sdk:
            suite = stack.enter_context(_client_suite(checkout, home, options.bmqctl, Path(scratch)))
        else:
            try:
                suite = _broker_suite(checkout, home, Path(scratch), options)
            except FileNotFoundError as fault:
                print(f"conformance: {fault}", file=sys.stderr)
                return 2
        report = Path(scratch) / "report.jsonl"
        cases = failed_before(suite.name, home) if options.failed else suite.cases
        if cases:
            _run(suite, cases, report, options)
        found, reasons = read_report(report)
    if not found:
        print("conformance: no case ran", file=sys.stderr)
        return 2
    tell(suite.name, found, reasons, home)
    return 1 if "failed" in found.values() else 0


def _home() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bmqctl" / "conformance"
    home.mkdir(parents=True, exist_ok=True)
    return home


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/conformance",
        description="Run the reference's own suites against our node, tool and storage tool.",
        epilog="Exit codes: 0 all that ran passed, 1 some failed, 2 it could not be run. "
        "Logs of failed cases: ${XDG_CACHE_HOME:-~/.cache}/bmqctl/conformance/logs.",
    )
    parser.add_argument(
        "checkout",
        type=Path,
        nargs="?",
        help="a checkout of bloomberg/blazingmq (with --sdk or --java: of the SDK; with --e2e: of rocketmq-e2e)",
    )
    parser.add_argument(
        "--rocketmq", action="store_true", help="without CHECKOUT: use our RocketMQ node through the Java client 5.4.0"
    )
    parser.add_argument(
        "--mqadmin",
        action="store_true",
        help="with --rocketmq: use the node through the commands of Apache's mqadmin 5.4.0; -k has names of them",
    )
    parser.add_argument(
        "--npm", action="store_true", help="with --rocketmq: npm's client ali-ons 3.12.0 instead of the Java client"
    )
    parser.add_argument(
        "--grpc",
        nargs="?",
        const="all",
        choices=("all", *conformance_grpc.LANGUAGES),
        metavar="LANGUAGE",
        help=f"with --rocketmq: version 5's clients, or one of them ({', '.join(conformance_grpc.LANGUAGES)}), instead",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="with --rocketmq: let each client of one protocol send to all of the other; -k names some of them",
    )
    parser.add_argument(
        "--e2e",
        nargs="?",
        const="all",
        choices=("all", *conformance_e2e.SUITES),
        metavar="SUITE",
        help="with --rocketmq: run the suites of CHECKOUT, or one of them (v4, java, go); with -n 1 case by case",
    )
    parser.add_argument(
        "--endpoint",
        metavar="HOST:PORT",
        help="with --grpc, --e2e or --pairs, and --nameserver: where the cluster's proxy listens",
    )
    parser.add_argument(
        "--apache",
        action="store_true",
        help="with --mqadmin: Apache's own nameserver and broker instead of our node; their results are kept apart",
    )
    parser.add_argument(
        "--nameserver",
        metavar="HOST:PORT",
        help="with --rocketmq: a cluster that runs already, instead of our node; its results are kept apart",
    )
    parser.add_argument("--sdk", action="store_true", help="CHECKOUT is the Python SDK's: run its integration tests")
    parser.add_argument(
        "--java", action="store_true", help="CHECKOUT is the Java SDK's: build it, and run its integration tests (*IT)"
    )
    parser.add_argument(
        "--broker",
        type=Path,
        metavar="PROGRAM",
        help="a bmqbrkr.tsk instead of our node, to compare; its results are kept apart (not with --sdk)",
    )
    parser.add_argument(
        "--tool",
        type=Path,
        metavar="FOLDER",
        help="with the broker's suite: the reference's bmqtool.tsk and bmqstoragetool.tsk of FOLDER instead of ours; "
        "results are kept apart",
    )
    parser.add_argument(
        "-k",
        dest="expression",
        metavar="EXPR",
        help="only cases whose names match, as in pytest; with --java as Failsafe has it.test: SessionIT#test*; with "
        "--rocketmq names with commas",
    )
    parser.add_argument("-m", dest="marks", metavar="MARKS", default=SINGLE_NODE, help=f"default: {SINGLE_NODE}")
    parser.add_argument("-n", dest="workers", type=int, default=2, help="cases at a time (default: 2)")
    parser.add_argument("-v", dest="verbose", action="store_true", help="pytest's own output instead of one dot a case")
    parser.add_argument(
        "--bmqctl", type=Path, default=BMQCTL, metavar="PROGRAM", help="the bmqctl to test, instead of this checkout's"
    )
    parser.add_argument("--failed", action="store_true", help="only cases that failed in their last run")
    return parser


# -- the two suites


def _broker_suite(checkout: Path, home: Path, scratch: Path, options: argparse.Namespace) -> Suite:
    programs = _programs(scratch, options)
    source = checkout / "src" / "python"
    python = _environment(home / "broker", (source / "requirements-test.txt", source / "requirements.txt"))
    # The suite links a folder of plugins into each node's folder; it may be empty.
    (scratch / "plugins").mkdir()
    # The suite writes a log for each case, and removes it if the case passes.
    logs = home / "logs"
    logs.mkdir(exist_ok=True)
    environment = clean_environment(home) | programs
    environment |= {"PYTHONPATH": str(source), "BLAZINGMQ_PLUGINS": str(scratch / "plugins")}
    _script(scratch / "tproxy", "tcp_relay.py")
    environment["PATH"] = f"{environment['PATH']}:{scratch}"
    arguments = [f"-m={options.marks}", f"--bmq-log-dir={logs}", f"-n={options.workers}", f"--timeout={CASE_TIMEOUT_S}"]
    name = "broker" + ("-other-broker" if options.broker else "") + ("-other-tool" if options.tool else "")
    return Suite(name, checkout / "src" / "integration-tests", ["."], python, arguments, environment)


def _programs(scratch: Path, options: argparse.Namespace) -> dict[str, str]:
    """Return the variables that name the broker and the tools. Raises `FileNotFoundError` for a missing one."""
    bmqctl = shlex.quote(str(options.bmqctl.absolute()))
    if options.broker is None:
        broker = _program(scratch / BROKER[1], WRAPPER.format(program=bmqctl, words="start node"))
    else:
        broker = _executable(options.broker, "--broker")
    if options.tool is None:
        tool = _program(scratch / TOOL[1], WRAPPER.format(program=bmqctl, words="tool"))
        storage_tool = _script(scratch / STORAGE_TOOL[1], "storage_tool.py", f"--bmqctl {bmqctl}")
    else:
        tool = _executable(options.tool / TOOL[1], "--tool")
        storage_tool = _executable(options.tool / STORAGE_TOOL[1], "--tool")
    return {BROKER[0]: str(broker), TOOL[0]: str(tool), STORAGE_TOOL[0]: str(storage_tool)}


def _executable(program: Path, option: str) -> Path:
    """Return the absolute path of a program that an option names. Raises `FileNotFoundError` if it is not one."""
    if not os.access(program, os.X_OK) or not program.is_file():
        raise FileNotFoundError(f"{option}: {program} is not an executable file")
    return program.absolute()


def _script(file: Path, script: str, words: str = "") -> Path:
    path = shlex.quote(str(Path(__file__).parents[1] / "judges" / script))
    return _program(file, SCRIPT.format(python=shlex.quote(sys.executable), script=path, words=words))


def _program(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file


@contextlib.contextmanager
def _client_suite(checkout: Path, home: Path, bmqctl: Path, scratch: Path) -> Iterator[Suite]:
    python = _environment(home / "sdk", (checkout / "requirements-test.txt",), "blazingmq")
    config = checkout / "tests" / "broker-config"
    with NodeProcess(scratch / "store", config_dir=config, command=[str(bmqctl.absolute())]) as node:
        environment = clean_environment(home) | {"BMQ_BROKER_URI": node.uri}
        yield Suite("sdk", checkout, ["tests/integration"], python, ["-pno:cacheprovider"], environment)


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment for a suite, without our Python's settings, and without bytecode files in its checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BMQ"))}
    return environment | {"PYTHONPYCACHEPREFIX": str(home / "pycache"), "PYTHONUNBUFFERED": "1"}


def _environment(folder: Path, requirements: Sequence[Path], *packages: str) -> Path:
    """Return the Python of a virtual environment with a suite's requirements, made once for each state of them."""
    needed = [*packages, "pytest-reportlog"]
    stamp = hashlib.sha256(b"\0".join([*(file.read_bytes() for file in requirements), *map(str.encode, needed)]))
    python = folder / "bin" / "python"
    mark = folder / "requirements.sha256"
    if not mark.exists() or mark.read_text() != stamp.hexdigest():
        print(f"conformance: installing the suite's requirements into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*pip, "-r", str(requirements[0]), *needed], check=True, stdin=subprocess.DEVNULL)
        mark.write_text(stamp.hexdigest())
    return python


# -- running


def _run_java(checkout: Path, home: Path, options: argparse.Namespace) -> int:
    """Run the Java SDK's tests; their log, and the state of the last run, are kept under the broker's name."""
    name = "java" if options.broker is None else "java-other-broker"
    log = home / f"{name}.log"
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as folder:
        scratch = Path(folder)
        broker = options.broker or _program(
            scratch / "bmqbrkr.tsk",
            WRAPPER.format(program=shlex.quote(str(options.bmqctl.absolute())), words="start node"),
        )
        tests = options.expression
        if options.failed:
            tests = ",".join(case.partition("[")[0].replace(".", "#", 1) for case in failed_before(name, home))
            if not tests:
                print("conformance: nothing failed in its last run")
                return 0
        wanted = conformance_java.JavaRun(checkout, broker, scratch, log, tests, options.workers)
        try:
            found, reasons, unsteady = conformance_java.run(wanted, clean_environment(home))
        except conformance_java.Unfit as fault:
            print(f"conformance: {fault}", file=sys.stderr)
            return 2
    for case, reason in sorted(unsteady.items()):
        print(f"unsteady, passed when run again: {case}\n       {reason}")
    tell(name, found, reasons, home)
    print(f"{name}: Maven's output is in {log}")
    return 1 if "failed" in found.values() else 0


def _run_rocketmq(home: Path, options: argparse.Namespace) -> int:
    """Run RocketMQ's Java client, or npm's; its output and the node's are kept."""
    name = ("rocketmq-npm" if options.npm else "rocketmq") + ("" if options.nameserver is None else "-other-broker")
    log = home / f"{name}.log"
    cases = options.expression.split(",") if options.expression else []
    if options.failed:
        cases = failed_before(name, home)
        if not cases:
            print("conformance: nothing failed in its last run")
            return 0
    judge: Callable[[str, Sequence[str], Path, float], conformance_rocketmq.Outcomes]
    try:
        if options.npm:
            judge = partial(conformance_ali_ons.judge, conformance_ali_ons.build(home / "rocketmq-npm"))
        else:
            judge = partial(conformance_rocketmq.judge, conformance_rocketmq.build(home / "rocketmq"))
    except conformance_rocketmq.Unfit as fault:
        print(f"conformance: {fault}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as folder, contextlib.ExitStack() as stack:
        nameserver = options.nameserver
        if nameserver is None:
            config = Path(folder) / "broker.conf"
            config.write_text(conformance_rocketmq.CONFIG)
            command = [str(options.bmqctl.absolute())]
            node = stack.enter_context(RocketProcess(Path(folder) / "store", config_file=config, command=command))
            nameserver = node.nameserver
        found, reasons = judge(nameserver, cases, log, CASE_TIMEOUT_S)
    if not found:
        print(f"conformance: no case ran; see {log}", file=sys.stderr)
        return 2
    tell(name, found, reasons, home)
    return 1 if "failed" in found.values() else 0


def _run_grpc(language: str, home: Path, options: argparse.Namespace) -> int:
    name = f"rocketmq-grpc-{language}" + ("" if options.nameserver is None else "-other-broker")
    log = home / f"{name}.log"
    cases = options.expression.split(",") if options.expression else []
    if options.failed:
        cases = failed_before(name, home)
        if not cases:
            print(f"conformance: {name}: nothing failed in its last run")
            return 0
    with tempfile.TemporaryDirectory(prefix="bmqctl-conformance-") as folder, contextlib.ExitStack() as stack:
        try:
            program = conformance_grpc.build(language, home / f"rocketmq-grpc-{language}")
            if options.nameserver is None:
                authority, properties = conformance_grpc.prepare(Path(folder))
                config = Path(folder) / "broker.conf"
                config.write_text(properties)
                command = [str(options.bmqctl.absolute())]
                node = stack.enter_context(RocketProcess(Path(folder) / "store", config_file=config, command=command))
                place = conformance_grpc.Place(node.nameserver, node.endpoint, authority)
            else:
                place = conformance_grpc.Place(options.nameserver, options.endpoint)
            found, reasons = conformance_grpc.judge(program, place, cases, log, CASE_TIMEOUT_S)
        except conformance_rocketmq.Unfit as fault:
            print(f"conformance: {fault}", file=sys.stderr)
            return 2
    if not found:
        print(f"conformance: no case ran; see {log}", file=sys.stderr)
        return 2
    tell(name, found, reasons, home)
    return 1 if "failed" in found.values() else 0


def _run_mqadmin(home: Path, options: argparse.Namespace) -> int:
    name = "mqadmin-apache" if options.apache else "mqadmin"
    log = home / f"{name}.log"
    wanted = options.expression.split(",") if options.expression else None
    try:
        class_path = conformance_rocketmq.build(home / "rocketmq")
        apache = (
            conformance_rocketmq.build(home / "rocketmq-apache", conformance_mqadmin.APACHE) if options.apache else ""
        )
    except conformance_rocketmq.Unfit as fault:
        print(f"conformance: {fault}", file=sys.stderr)
        return 2
    command = [str(options.bmqctl.absolute())]

    def start(config: str, folder: Path) -> RocketProcess | ReferenceProcess:
        if options.apache:
            return ReferenceProcess(apache, folder, conformance_mqadmin.PROVIDERS + config, ["-Xmx512m"])
        file = folder.with_suffix(".conf")
        file.write_text(config)
        return RocketProcess(folder, config_file=file, command=command)

    groups = conformance_mqadmin.chosen(wanted, of_apache=options.apache)
    found, reasons = conformance_mqadmin.run_groups(class_path, start, groups, log)
    for case, outcome in found.items():
        print(f"{outcome:8}{case}")
    tell(name, found, reasons, home)
    print(f"{name}: what the commands printed is in {log}")
    return 1 if "failed" in found.values() else 0


def _run(suite: Suite, cases: Sequence[str], report: Path, options: argparse.Namespace) -> None:
    """Run pytest to its end; at SIGINT or SIGTERM it ends early, and completed cases count."""
    words = [str(suite.python), "-m", "pytest", *suite.arguments, *cases, f"--report-log={report}"]
    words += ["-v"] if options.verbose else ["-q", "--no-header", "--no-summary"]
    if options.expression:
        words.append(f"-k={options.expression}")
    # In a new session, it receives Ctrl-C once, from here.
    process = subprocess.Popen(
        words, cwd=suite.folder, env=suite.environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)


def read_report(report: Path) -> tuple[Results, dict[str, str]]:
    """Read the result of each case, and the reasons of failures; a failure in any phase is a failure of the case."""
    found: Results = {}
    reasons: dict[str, str] = {}
    if not report.exists():
        return found, reasons
    with report.open() as lines:
        for line in lines:
            entry = json.loads(line)
            if entry.get("$report_type") != "TestReport":
                continue
            case, outcome = entry["nodeid"], entry["outcome"]
            if outcome != "passed":
                found[case] = "failed" if found.get(case) == "failed" else outcome
            elif entry["when"] == "call":
                found.setdefault(case, outcome)
            if outcome == "failed":
                reasons.setdefault(case, f"{entry['when']}: {_reason(entry['longrepr'])}")
    return found, reasons


def _reason(told: Any) -> str:
    if isinstance(told, dict) and (crash := told.get("reprcrash")):
        where = f"{Path(crash['path']).name}:{crash['lineno']}: "
        return where + str(crash["message"]).partition("\n")[0]
    return str(told).strip().rpartition("\n")[2]


if __name__ == "__main__":
    with ending_with_children():
        sys.exit(main())
