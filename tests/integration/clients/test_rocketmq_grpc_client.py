"""RocketMQ 5's official Python client, which speaks gRPC, as the judge of our node.

Its package has a name that other clients have, too, so it is in an environment of its own, made once.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bmqctl.systems.node_process import RocketProcess, RocketProxyProcess
from scripts.judges.client_environment import CannotInstall, client_python
from tests.rigs.grpc_topics import make_topics

PROGRAM = Path(__file__).parents[2] / "rigs" / "programs" / "grpc_client.py"
LITE_PROGRAM = Path(__file__).parents[2] / "rigs" / "programs" / "grpc_lite_client.py"
PACKAGE = "rocketmq-python-client==5.1.2"


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with the client."""
    try:
        return client_python(PACKAGE, "rocketmq-grpc")
    except CannotInstall as reason:
        pytest.skip(str(reason))


class Runs:
    """A node and a proxy before another one, each with all programs of the client, which wait most of the time."""

    def __init__(self, stack: ExitStack, python: Path, folder: Path) -> None:
        config = folder / "broker.conf"
        config.write_text("transactionCheckInterval=3000\n")
        node = stack.enter_context(RocketProcess(folder / "node", config_file=config))
        other = stack.enter_context(RocketProcess(folder / "other", config_file=config, grpc_port=0))
        proxy = stack.enter_context(RocketProxyProcess(folder / "proxy", [other.nameserver]))
        for each in (node, other):
            make_topics(each.port)
        self.served: dict[str, RocketProcess | RocketProxyProcess] = {"node": node, "proxy": proxy}
        self._running: dict[tuple[str, Path], subprocess.Popen[str]] = {}
        for name, served in self.served.items():
            for program in (PROGRAM, LITE_PROGRAM):
                home = folder / f"{name}-{program.stem}"
                home.mkdir()
                running = subprocess.Popen(
                    [str(python), str(program), served.endpoint],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=home,
                    env={**os.environ, "HOME": str(home), "PYTHONPATH": ""},
                )
                stack.callback(running.wait)
                stack.callback(running.kill)
                self._running[name, program] = running

    def seen(self, name: str, program: Path) -> dict[str, Any]:
        """Wait for a program to end; what it has seen."""
        running = self._running[name, program]
        out, errors = running.communicate(timeout=280)
        assert running.returncode == 0, errors
        seen: dict[str, Any] = json.loads(out.splitlines()[-1])
        return seen


@pytest.fixture(scope="module")
def runs(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with ExitStack() as stack:
        yield Runs(stack, python, tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node", "proxy"])
def test_python_client_sends_and_consumes(runs: Runs, name: str) -> None:
    seen = runs.seen(name, PROGRAM)
    assert seen["received"] == [number for number in range(30) if number % 3 != 1]
    assert seen["ids"]
    assert seen["properties"]
    assert seen["keys"]
    assert not seen["corrupted"]
    assert seen["attempts"] == [1]
    assert seen["rest"] == 0
    assert seen["pushed"] == [["again", 1], ["again", 2], ["x", 1], ["y", 1]]
    assert seen["ordered"] == [str(number) for number in range(6)]
    assert seen["offsets"] == list(range(6))
    assert seen["late"] == ["late"]
    assert seen["took"] > 2.5
    assert seen["not recalled"] == 0
    assert seen["settled"] == ["commit", "orphan"]
    assert seen["unsettled"] == 0
    assert "Traceback" not in runs.served[name].output
    assert "fault of this broker" not in runs.served[name].output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node", "proxy"])
def test_python_client_consumes_lite_topics(runs: Runs, name: str) -> None:
    seen = runs.seen(name, LITE_PROGRAM)
    assert seen["a"] == [f"a{number}" for number in range(10)]
    assert seen["orders"] == [["o0", 1], ["again", 1], ["again", 1], ["o2", 1]]
    assert seen["offsets"] == list(range(10))
    assert seen["everything"] == ["all-p", "all-q"]
    # The group starts again with the second client, as its configuration says.
    assert seen["turns"] == [["1"], ["1", "2"]]
    assert seen["pulled"] == ["s0"]
    refused = seen["refused"]
    assert "42902" in refused["quota"]
    assert "40020" in refused["name"]
    assert "LITE" in refused["plain message"]
    assert refused["regular group"]
    assert refused["lite group"]
    assert "Traceback" not in runs.served[name].output
    assert "fault of this broker" not in runs.served[name].output
