"""`bmqctl.testing` as a plugin of somebody else's test suite, and the process that it wraps."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from bmqctl.common import ports
from bmqctl.testing import NodeFailed, NodeProcess, free_port
from tests.waiting import WAIT_S

SUITE = """
import socket

def test_node(bmq_node, tmp_path):
    assert bmq_node.uri == f"tcp://127.0.0.1:{bmq_node.port}"
    assert bmq_node.data_dir.is_relative_to(tmp_path)
    socket.create_connection(("127.0.0.1", bmq_node.port)).close()
    print(f"port={bmq_node.port}")
"""


def test_a_suite_that_uses_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "bmqctl.testing", "-W", "error", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    port = int(done.stdout.partition("port=")[2].split()[0])
    # The node is gone with the test.
    NodeProcess(tmp_path / "next", port=port).start().close()


def test_a_port_is_kept_over_restarts(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "store") as node:
        first = (node.port, node.pid)
        assert 0 < node.ready_s < node.timeout_s
        node.restart(signal.SIGKILL)
        assert node.port == first[0]
        assert node.pid != first[1]
        assert node.stop() == 0
    node.close()


def test_a_node_that_does_not_start_says_why(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "store", config_dir=tmp_path / "missing")
    with pytest.raises(NodeFailed, match="does not exist") as failed:
        node.start()
    assert failed.value.exit_code == 2


def test_a_program_that_never_says_that_it_is_ready_is_ended(tmp_path: Path) -> None:
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
    node = NodeProcess(tmp_path / "store", command=sleeper, timeout_s=0.5)
    with pytest.raises(NodeFailed, match=r"not ready in 0\.5 s") as failed:
        node.start()
    assert failed.value.exit_code is None


@pytest.fixture
def few_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Leave a process six ports, and workers a part of them."""
    limits = tmp_path / "ip_local_port_range"
    limits.write_text(f"{ports._FIRST_PORT + 6}\t60999\n")
    monkeypatch.setattr(ports, "_PORT_RANGE", limits)
    monkeypatch.setattr(ports, "_LEFT", [])
    monkeypatch.setattr(ports, "_reserve", lambda host, some: True)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return set(range(ports._FIRST_PORT, ports._FIRST_PORT + 6))


def test_no_port_is_given_again_before_all_others(few_ports: set[int]) -> None:
    for _ in range(5):
        assert {free_port() for _ in few_ports} == few_ports


def test_ports_in_use_are_passed_over(few_ports: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    last = max(few_ports)
    monkeypatch.setattr(ports, "_reserve", lambda host, some: some[0] == last)
    assert [free_port() for _ in range(3)] == [last] * 3
    monkeypatch.setattr(ports, "_reserve", lambda host, some: False)
    with pytest.raises(OSError, match=r"127\.0\.0\.1 has no free port"):
        free_port()


@pytest.mark.parametrize(
    ("worker", "count", "places"),
    [
        ("gw0", "3", [0, 1]),
        ("gw2", "3", [4, 5]),
        ("gw4", "3", [2, 3]),  # it has the place of one that has crashed
        ("gw1", "9", [1]),
        ("master", "3", range(6)),
        ("gw1", "", range(6)),
    ],
)
def test_workers_have_ports_of_their_own(
    few_ports: set[int], monkeypatch: pytest.MonkeyPatch, worker: str, count: str, places: Iterable[int]
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", count)
    assert {free_port() for _ in few_ports} == {min(few_ports) + place for place in places}


def test_ports_are_below_those_that_the_kernel_gives_away() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < free_port() < first for _ in range(50))
