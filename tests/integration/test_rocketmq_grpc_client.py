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

from bmqctl.node_process import RocketProcess, RocketProxyProcess
from scripts.client_environment import CannotInstall, client_python
from tests.integration.grpc_topics import make_topics

PROGRAM = Path(__file__).with_name("grpc_client.py")
LITE_PROGRAM = Path(__file__).with_name("grpc_lite_client.py")
PACKAGE = "rocketmq-python-client==5.1.2"


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with the client."""
    try:
        return client_python(PACKAGE, "rocketmq-grpc")
    except CannotInstall as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["node", "proxy"])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RocketProcess | RocketProxyProcess]:
    """A node, or a proxy before one that does not serve gRPC itself."""
    config = tmp_path / "broker.conf"
    config.write_text("transactionCheckInterval=3000\n")
    is_alone = request.param == "node"
    with ExitStack() as stack:
        grpc_port = None if is_alone else 0
        node = stack.enter_context(RocketProcess(tmp_path / "store", config_file=config, grpc_port=grpc_port))
        make_topics(node.port)
        yield node if is_alone else stack.enter_context(RocketProxyProcess(tmp_path / "proxy", [node.nameserver]))


def run(python: Path, program: Path, served: RocketProcess | RocketProxyProcess, folder: Path) -> dict[str, Any]:
    """Run a program of the client; what it has seen."""
    done = subprocess.run(
        [str(python), str(program), served.endpoint],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_python_client_sends_and_consumes(
    served: RocketProcess | RocketProxyProcess, python: Path, tmp_path: Path
) -> None:
    seen = run(python, PROGRAM, served, tmp_path)
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
    assert "Traceback" not in served.output
    assert "fault of this broker" not in served.output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_python_client_consumes_lite_topics(
    served: RocketProcess | RocketProxyProcess, python: Path, tmp_path: Path
) -> None:
    seen = run(python, LITE_PROGRAM, served, tmp_path)
    assert seen["a"] == [f"a{number}" for number in range(10)]
    assert seen["orders"] == [["o0", 1], ["again", 1], ["again", 1], ["o2", 1]]
    assert seen["offsets"] == list(range(10))
    assert seen["everything"] == ["all-p", "all-q"]
    # The group begins anew with the second client, as its configuration says.
    assert seen["turns"] == [["1"], ["1", "2"]]
    assert seen["pulled"] == ["s0"]
    refused = seen["refused"]
    assert "42902" in refused["quota"]
    assert "40020" in refused["name"]
    assert "LITE" in refused["plain message"]
    assert refused["regular group"]
    assert refused["lite group"]
    assert "Traceback" not in served.output
    assert "fault of this broker" not in served.output
