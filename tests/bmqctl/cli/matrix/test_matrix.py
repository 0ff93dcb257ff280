"""Every command on odd machines: it works, or says in one line why it does not.

A run is a command of `examples.EXAMPLES` under a condition of `conditions.CONDITIONS` or with changed words; `forks`
makes its process. Every run ends by itself or by SIGTERM, with a documented exit code and without a traceback.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_ports
from bmqctl.stores.rocketmq.build import BuildOptions, build_log_store
from bmqctl.stores.rocketmq.build_files import StoreSizes
from bmqctl.systems.node_process import NodeProcess, RocketProcess
from broker.bmq.config.local_cluster import write_local_cluster
from tests.bmqctl.cli.matrix.conditions import CONDITIONS
from tests.bmqctl.cli.matrix.examples import EXAMPLES, QUEUE, TOPIC, Example, commands
from tests.bmqctl.cli.matrix.forks import Outcome, Run
from tests.bmqctl.stores.blazingmq.small_store import EXTENSIONS, build_small_store, small_lines
from tests.golden.archives import only

pytestmark = [pytest.mark.process, pytest.mark.timeout(1800)]

# Those of the manual, and of a program that SIGPIPE or SIGINT ends.
CODES = (0, 1, 2, 3, 130, 141)
# `tool --mode syschk` exits like the original: with 256 minus the number of the step that failed.
CODES_OF_SYSCHK = (252, 253, 254)
PORTS = 4
LINES_MAX = 5
# The command whose word at this position may be empty.
PAYLOAD = ("post", 3)
STATES = ("CERTIFICATE ", "CLUSTER ", "DISK ", "GROUP ", "QUEUE ")
# A run that takes longer hangs. Spark takes half a minute on a busy machine.
LIMIT_S = 120.0
SLOW_LIMIT_S = 300.0
START_MS = 1_767_225_600_000
SIZES = StoreSizes(1 << 16, 100 * 20, 50, 40)
# Messages of the interpreter about what no program should let happen.
INTERPRETER = ("Traceback", "Exception ignored", "Fatal Python error", "Warning:")
TOO_FEW = "Too many open files"
DEFINITIONS = '{"system": "RocketMQ"}'
ODD = "a \udcff[1]*?\n{b}'\""


class Ground(NamedTuple):
    """The places that the examples name: brokers that run, a store and configurations; and the process that forks."""

    root: Path
    places: Mapping[str, str]
    forks: subprocess.Popen[str]


def test_every_command_has_an_example() -> None:
    assert sorted(commands()) == sorted(EXAMPLES)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Ground]:
    root = tmp_path_factory.mktemp("matrix")
    lines = small_lines()
    (root / "lines.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (root / "file.json").write_text(DEFINITIONS)
    config, *_ = write_local_cluster(root / "cluster", 3, "127.0.0.1", free_ports(3))
    with NodeProcess(root / "node") as node, RocketProcess(root / "rocketmq") as rocket, _forks() as forks:
        for uri in (QUEUE, TOPIC.format(nameserver=rocket.nameserver)):
            assert CliRunner().invoke(app, ["post", uri, "payload", "--broker", node.uri]).exit_code == 0
        made = Ground(
            root,
            {
                "bmq": str(build_small_store(root / "store")),
                "export": str(root / "export"),
                "config": str(config),
                "file": str(root / "file.json"),
                "lines": str(root / "lines.jsonl"),
                "broker": node.uri,
                "address": node.address,
                "nameserver": rocket.nameserver,
            },
            forks,
        )
        if "spark-verify" in pytestconfig.getoption("--slow-command"):
            export = _run(made, "spark-export", label="export", words=("{bmq}", "--out", "{export}"))
            assert [each.code for each in _outcomes(made, [export])] == [0]
        yield made


@contextmanager
def _forks() -> Iterator[subprocess.Popen[str]]:
    """Start the process that forks the runs, which ends with its input."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bmqctl.cli.matrix.forks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "1"},
    ) as process:
        yield process


def _run(
    ground: Ground,
    name: str,
    condition: str = "usual",
    *,
    label: str = "",
    words: tuple[str, ...] | None = None,
    changed: Mapping[str, str] = MappingProxyType({}),
) -> Run:
    """Return a run of an example, perhaps with other words and places, with a folder of its own and free ports.

    `label` distinguishes runs of the same command under the same condition; the folder's name ends with it.
    """
    example = EXAMPLES[name]
    folder = ground.root / "runs" / condition / name / (label or "run")
    folder.mkdir(parents=True)
    first = free_ports(PORTS)
    ports = {f"port{number or ''}": str(first + number) for number in range(PORTS)}
    places = {**ground.places, **ports, "folder": str(folder), **changed}
    given = [each.format(**places) for each in (*name.split(), *(example.words if words is None else words))]
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    environment |= CONDITIONS[condition].environment
    environment = {variable: value for variable, value in environment.items() if value}
    return Run(
        name,
        condition,
        [base64.b64encode(os.fsencode(each)).decode() for each in given],
        environment,
        str(folder),
        first if example.listens else None,
        SLOW_LIMIT_S if example.slow else LIMIT_S,
    )


def _outcomes(ground: Ground, runs: list[Run]) -> list[Outcome]:
    assert ground.forks.stdin is not None
    assert ground.forks.stdout is not None
    ground.forks.stdin.write("".join(f"{run.to_json()}\n" for run in runs) + "\n")
    ground.forks.stdin.flush()
    return [Outcome.from_json(ground.forks.stdout.readline()) for _ in runs]


def _fault(outcome: Outcome, example: Example) -> str | None:
    """Return what is wrong with an outcome."""
    if outcome.hangs:
        return "hangs"
    if outcome.code not in (*CODES, *(CODES_OF_SYSCHK if outcome.name == "tool" else ())):
        return f"exit code {outcome.code}"
    for text in INTERPRETER:
        if text in outcome.errors + outcome.out:
            return f"prints {text!r}"
    if TOO_FEW in outcome.errors + outcome.out and "(ulimit -" not in outcome.errors + outcome.out:
        return f"names no remedy for {TOO_FEW!r}"
    # With 1 a command has found something, which its output tells.
    has_found = outcome.code == 1 and outcome.out
    if outcome.code not in (example.code, 0, 141) and not has_found and not _hides_errors(outcome):
        # A check tells its reason on standard output, as plugins do.
        lines = (outcome.errors or outcome.out).splitlines()
        if not any(line.startswith(("bmqctl ", "bmqctl: ", "Error: ", *STATES)) or " ERROR " in line for line in lines):
            return f"exit code {outcome.code} without a reason"
        if len(lines) > LINES_MAX:
            return f"{len(lines)} lines about exit code {outcome.code}"
    return None


def _lost(outcome: Outcome, usual: Outcome) -> str | None:
    """Return what is wrong with an outcome whose standard output could not be written."""
    if EXAMPLES[outcome.name].listens:
        return None if outcome.code == 0 else f"ends with {outcome.code} since nobody reads that it is ready"
    if not usual.out:
        return None
    if outcome.condition == "stdout unread":
        return None if outcome.code == 141 else f"exit code {outcome.code} though nobody reads"
    if outcome.code == 0:
        return "exit code 0 though its output is lost"
    told = outcome.condition == "all closed" or "standard output: " in outcome.errors
    return None if told else "does not say that its output is lost"


def _hides_errors(outcome: Outcome) -> bool:
    return outcome.condition.startswith(("stderr", "all"))


def _faults(outcomes: list[Outcome]) -> list[str]:
    found = []
    for outcome in outcomes:
        fault = _fault(outcome, EXAMPLES[outcome.name])
        if fault is not None:
            found.append(
                f"{outcome.condition}: bmqctl {outcome.name}: {fault}\n{outcome.out[-500:]}\n{outcome.errors[-900:]}"
            )
    return found


@pytest.fixture(scope="module")
def outcomes(ground: Ground, pytestconfig: pytest.Config) -> list[Outcome]:
    """All commands under all conditions; of the slow ones those of --slow-command."""
    slow = pytestconfig.getoption("--slow-command")
    return _outcomes(
        ground,
        [
            _run(ground, name, condition)
            for condition in CONDITIONS
            for name, example in EXAMPLES.items()
            if not example.slow or name in slow
        ],
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_commands(outcomes: list[Outcome], condition: str) -> None:
    faults = _faults([each for each in outcomes if each.condition == condition])
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("condition", [each for each in CONDITIONS if each.startswith(("stdout", "all"))])
def test_lost_output_is_told(outcomes: list[Outcome], condition: str) -> None:
    usual = {each.name: each for each in outcomes if each.condition == "usual"}
    found = [
        f"bmqctl {each.name}: {fault}\n{each.errors}"
        for each in outcomes
        if each.condition == condition and (fault := _lost(each, usual[each.name])) is not None
    ]
    assert not found, "\n".join(found)


def test_too_few_descriptors_are_no_lack_of_space(outcomes: list[Outcome]) -> None:
    found = [each for each in outcomes if each.name == "start node" and each.condition.endswith(" descriptors")]
    told = [each for each in found if each.code]
    assert told
    for each in told:
        assert "raise the limit of open files (ulimit -n)" in each.errors
        assert "No space left" not in each.errors


def test_examples_work_on_a_usual_machine(outcomes: list[Outcome]) -> None:
    wrong = [
        f"{each.name}: {each.code}\n{each.out}\n{each.errors}"
        for each in outcomes
        if each.condition == "usual" and EXAMPLES[each.name].code not in (None, each.code)
    ]
    assert not wrong, "\n".join(wrong)


def _texts(name: str) -> Iterator[int]:
    """Yield the positions of an example's words that are no options."""
    return (index for index, word in enumerate(EXAMPLES[name].words) if not word.startswith("-"))


def _with(name: str, index: int, word: str) -> tuple[str, ...]:
    words = EXAMPLES[name].words
    return (*words[:index], word, *words[index + 1 :])


def test_empty_words_are_refused(ground: Ground) -> None:
    runs = [
        _run(ground, name, label=f"empty {index}", words=_with(name, index, ""))
        for name in EXAMPLES
        for index in _texts(name)
        if (name, index) != PAYLOAD
    ]
    found = _outcomes(ground, runs)
    faults = [f"bmqctl {each.name}: {each.code}\n{each.errors}" for each in found if each.code not in (2, 3)]
    assert not faults + _faults(found), "\n".join(faults + _faults(found))
    empty_host = [each for each in found if each.name == "console" and "--host is empty" in each.errors]
    assert len(empty_host) == 1


def test_words_that_are_no_utf8(ground: Ground) -> None:
    runs = [
        _run(ground, name, label=f"bytes {index}", words=_with(name, index, f"{word}\udcff"))
        for name, example in EXAMPLES.items()
        if not example.slow
        for index in _texts(name)
        if not (word := example.words[index]).startswith(("{folder}", "{port"))
    ]
    found = _outcomes(ground, runs)
    assert not _faults(found), "\n".join(_faults(found))


def test_paths_of_any_bytes(ground: Ground) -> None:
    runs = []
    for name, example in EXAMPLES.items():
        if not example.slow:
            links = {}
            for place in ("bmq", "config", "file", "lines"):
                link = ground.root / f"{place} {ODD}"
                if not link.is_symlink():
                    link.symlink_to(ground.places[place])
                links[place] = str(link)
            runs.append(_run(ground, name, label=ODD, changed=links))
    found = _outcomes(ground, runs)
    assert not _faults(found), "\n".join(_faults(found))
    # These paths give the same as a usual one, but none can stand in a configuration.
    wrong = [each for each in found if EXAMPLES[each.name].code not in (None, each.code) and each.name != "config init"]
    assert not wrong, "\n".join(f"bmqctl {each.name}: {each.code}\n{each.errors}" for each in wrong)


def test_addresses_of_ipv6(ground: Ground) -> None:
    places = {
        place: ground.places[place].replace("127.0.0.1", "[::1]") for place in ("broker", "address", "nameserver")
    }
    runs = [
        _run(
            ground,
            name,
            label="IPv6",
            words=tuple(word.replace("127.0.0.1", "[::1]") for word in example.words),
            changed=places,
        )
        for name, example in EXAMPLES.items()
        if not example.slow
    ]
    found = _outcomes(ground, runs)
    assert not _faults(found), "\n".join(_faults(found))
    # The brokers listen at the other address only.
    assert all(each.code == 0 for each in found if EXAMPLES[each.name].listens)


def _special_files(folder: Path, store: Path) -> Iterator[Path]:
    """Yield files that are no regular ones, and stores with such files."""
    (folder / "loop").symlink_to("loop")
    yield folder / "loop"
    os.mkfifo(folder / "pipe")
    yield folder / "pipe"
    with socket.socket(socket.AF_UNIX) as bound:
        # A path of a socket is short.
        before = Path.cwd()
        os.chdir(folder)
        bound.bind("socket")
        os.chdir(before)
    yield folder / "socket"
    yield from (Path("/dev/zero"), Path("/dev/null"))
    for extension in EXTENSIONS:
        copy = folder / f"store{extension}"
        shutil.copytree(store, copy)
        file = only(copy, extension)
        file.unlink()
        os.mkfifo(file)
        yield copy


def test_special_files_where_a_store_is_read(ground: Ground) -> None:
    folder = ground.root / "special"
    folder.mkdir()
    runs = [
        _run(ground, name, label=place.name, changed={"bmq": str(place)})
        for place in _special_files(folder, Path(ground.places["bmq"]))
        for name, example in EXAMPLES.items()
        if "{bmq}" in example.words and not example.slow
    ]
    found = _outcomes(ground, runs)
    assert not _faults(found), "\n".join(_faults(found))


def test_special_files_in_a_rocketmq_store(ground: Ground) -> None:
    """Each command names the log file, index file or table that is a pipe."""
    runs = []
    for number, place in enumerate(("commitlog/00000000000000000000", "index/20261121051104000", "config/topics.json")):
        store = ground.root / f"rocketmq {number}"
        store.mkdir()
        build_log_store(['{"topic": "a", "payload": "x"}'], store, START_MS, BuildOptions(SIZES))
        file = store / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        os.mkfifo(file)
        runs += [
            _run(ground, name, label=store.name, changed={"bmq": str(store)})
            for name in EXAMPLES
            if name.startswith(("journal ", "replay", "doctor")) and "{bmq}" in EXAMPLES[name].words
        ]
    found = _outcomes(ground, runs)
    assert not _faults(found), "\n".join(_faults(found))
