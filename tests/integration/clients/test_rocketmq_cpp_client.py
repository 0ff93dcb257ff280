"""RocketMQ's C++ client, as PyPI's `rocketmq` 0.4.4 has it, as the judge of our node.

Its package has a name that another client has, too, so it is in an environment of its own, made once.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bmqctl.systems.node_process import HOST
from bmqctl.testing import RocketProcess, RocketProxyProcess, rocketmq_node
from scripts.judges.cpp_client import CannotInstall, cpp_python

__all__ = ["rocketmq_node"]

PROGRAM = Path(__file__).parents[2] / "rigs" / "programs" / "cpp_client.py"


class Served(NamedTuple):
    """The process that serves the client, and the address that the client is given."""

    process: RocketProcess | RocketProxyProcess
    address: str


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with the client."""
    try:
        return cpp_python()
    except CannotInstall as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["node", "one port", "proxy"])
def served(rocketmq_node: RocketProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A node, by its nameserver or by the port that is the broker, too, or a proxy before it."""
    if request.param == "node":
        yield Served(rocketmq_node, rocketmq_node.nameserver)
        return
    if request.param == "one port":
        yield Served(rocketmq_node, f"{HOST}:{rocketmq_node.remoting_port}")
        return
    with RocketProxyProcess(tmp_path / "proxy", [rocketmq_node.nameserver]) as proxy:
        yield Served(proxy, proxy.nameserver)


def test_cpp_client_sends_and_consumes(served: Served, python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(python), str(PROGRAM), served.address],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["sent"] == [0] * 20
    assert seen["tag"] == sorted(f"k{number}" for number in range(1, 30, 2))
    assert seen["ordered"] == [f"k{number}" for number in range(20)]
    assert seen["late"] == ["k30"]
    assert seen["pulled"] == sorted(f"body {number}" for number in range(20))
    assert "Traceback" not in served.process.output
    assert "fault of this broker" not in served.process.output
