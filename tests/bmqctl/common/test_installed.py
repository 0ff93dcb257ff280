"""Advice on what to install: extras, and compiled modules."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.cli.run.start import COMMANDS
from bmqctl.common import installed
from bmqctl.common.installed import advise_compiling, installing
from bmqctl.common.ports import free_ports
from tests.integration.rocketmq_groups.group_rig import OFFSETS, PORTS_OF_GROUP

ADVICE = (
    "bmqctl {}: the modules are interpreted, and slower than compiled; BMQCTL_COMPILE=1 pip install . in a checkout, "
    "with a C compiler, compiles them\n"
)
# The words of each command of `start`, and the function that runs a broker, with its module.
STARTS: dict[str, list[tuple[list[str], str, str]]] = {
    "node": [(["--data-dir", "data"], "broker.bmq.assembly.app", "run_node")],
    "proxy": [(["--upstream", "127.0.0.1:1", "--data-dir", "data"], "broker.bmq.assembly.app", "run_proxy")],
    "cluster": [(["--dir", "cluster"], "bmqctl.cli.run.start_blazingmq", "run_members")],
    "rocketmq": [
        (["--store", "store"], "broker.rocketmq.assembly.app", "run_rocketmq"),
        (["-n", "3", "--store", "group"], "bmqctl.cli.run.start_rocketmq_group", "run_members"),
    ],
    "rocketmq-controller": [(["--store", "controller"], "broker.rocketmq.assembly.controller", "run_controller")],
    "rocketmq-nameserver": [(["--store", "nameserver"], "broker.rocketmq.assembly.nameserver", "run_nameserver")],
    "rocketmq-proxy": [(["--nameserver", "127.0.0.1:1"], "broker.rocketmq.assembly.proxy", "run_rocketmq_proxy")],
}


async def group_is_ready(nodes: object) -> list[str]:
    return ["127.0.0.1:10911"]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """A function that makes the modules seem compiled or interpreted to a program that nobody has advised yet."""
    # Also undone is what a test leaves in the environment.
    monkeypatch.setenv(installed._ADVISED, "")
    return lambda compiled: monkeypatch.setattr(installed, "is_compiled", lambda: compiled)


def test_an_extra_is_installed_from_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installing("plots") == "pip install '.[plots]' in a checkout of bmqctl"
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert installing("plots") == "pip install '.[plots]' in a checkout of bmqctl; the single file does not have it"


def test_advice_is_printed_once_for_all_processes_of_a_command(
    build: Callable[[bool], None], capsys: pytest.CaptureFixture[str]
) -> None:
    build(False)
    advise_compiling("bench")
    advise_compiling("start node")
    assert capsys.readouterr().err == ADVICE.format("bench")


def test_compiled_modules_need_no_advice(build: Callable[[bool], None], capsys: pytest.CaptureFixture[str]) -> None:
    build(True)
    advise_compiling("bench")
    assert capsys.readouterr().err == ""


def test_advice_that_cannot_be_printed_is_left_out(
    build: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    build(False)
    monkeypatch.setattr(sys, "stderr", Full())
    advise_compiling("bench")


def test_all_commands_that_start_a_broker_are_known_here() -> None:
    assert STARTS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    ("command", "words", "module", "run"), [(name, *each) for name, found in STARTS.items() for each in found]
)
def test_start_of_interpreted_modules_gives_advice(
    command: str,
    words: list[str],
    module: str,
    run: str,
    is_compiled: bool,
    build: Callable[[bool], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build(is_compiled)
    monkeypatch.chdir(tmp_path)

    def be_ready(*words: Any) -> int:
        """Call the last argument, as a broker does that is ready."""
        assert os.environ[installed._ADVISED] == ("" if is_compiled else "1")
        words[-1]()
        return 0

    if module.endswith("start_rocketmq_group"):
        first = free_ports(PORTS_OF_GROUP)
        words = [*words, *(word for option, at in OFFSETS.items() for word in (option, str(first + at)))]
    monkeypatch.setattr(import_module(module), run, be_ready)
    monkeypatch.setattr("bmqctl.cli.run.start_rocketmq_group._wait_ready", group_is_ready)
    done = CliRunner().invoke(app, ["start", command, *words], catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "" if is_compiled else ADVICE.format(f"start {command}"))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_bench_of_interpreted_modules_gives_advice(
    is_compiled: bool, build: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(is_compiled)
    monkeypatch.setattr("bmqctl.cli.run.bench_series.run_series", lambda *words: [])
    monkeypatch.setattr("bmqctl.cli.run.bench.print_report", lambda *words, **options: None)
    done = CliRunner().invoke(app, ["bench", "--count", "1"], catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "" if is_compiled else ADVICE.format("bench"))


@pytest.mark.process
@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_doctor_looks_at_the_modules(is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmqctl.systems.doctor.facts.is_compiled", lambda: is_compiled)
    done = CliRunner().invoke(app, ["doctor", "--output", "csv"], catch_exceptions=False)
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("modules,")]
    expected = "modules,ok," if is_compiled else "modules,warning,"
    assert line.startswith(expected)
    assert ("BMQCTL_COMPILE=1 pip install ." in line) is not is_compiled
