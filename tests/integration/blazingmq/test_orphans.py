"""Nodes whose parent has ended: none is left, whichever way it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bmqctl.common.children import COMMAND, UNTIL_INPUT_ENDS
from bmqctl.common.ports import free_port, free_ports
from bmqctl.systems.node_process import (
    HOST,
    LOG_NAME,
    ControllerProcess,
    NodeProcess,
    ProxyProcess,
    RocketProcess,
    RocketProxyProcess,
)
from scripts.judges.children import descendants, is_running
from tests.waiting import WAIT_S, eventually

ENDS = [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]

# Starts a node without a `with` block, and ends by the signal's default action.
PROGRAM = """
import sys, time
from pathlib import Path
from bmqctl.systems import node_process
node = getattr(node_process, sys.argv[1])(Path(sys.argv[2])).start()
print("ready", flush=True)
time.sleep(600)
"""
# Sends itself the signals that end it, before its loop begins, or once it has ended.
SIGNALLED = """
import os, signal
from broker.shell.loop.server import Server
close, run = Server._close, Server.run
def send():
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
def close_late(self):
    close(self)
    send()
async def run_early(self, on_ready):
    send()
    await run(self, on_ready)
{}
from bmqctl.app import main
main()
"""
SUITE = """
import time

def test_node({fixture}, capfd):
    with capfd.disabled():
        print("ready", flush=True)
    time.sleep(600)
"""


@contextmanager
def started(command: Sequence[str], ready: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a program, wait until it prints `ready`, and give it and the processes that it has started."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children: list[int] = []
    try:
        said = ""
        while ready not in said:
            line = process.stdout.readline()
            assert line, f"{command} ended, and printed {said}"
            said += line
        children = descendants(process.pid)
        yield process, children
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def check_ended(process: subprocess.Popen[str], children: list[int], how: signal.Signals, count: int = 1) -> None:
    """End the parent, and wait until none of its processes runs."""
    assert len(children) == count
    process.send_signal(how)
    process.wait(WAIT_S)
    eventually(lambda: not any(is_running(child) for child in children), state=lambda: children)


@pytest.mark.parametrize("how", ENDS, ids=lambda how: how.name)
@pytest.mark.parametrize("kind", ["NodeProcess", "RocketProcess", "ControllerProcess"])
def test_a_node_ends_with_the_program_that_started_it(tmp_path: Path, kind: str, how: signal.Signals) -> None:
    with started([sys.executable, "-c", PROGRAM, kind, str(tmp_path / "store")], "ready") as (process, children):
        check_ended(process, children, how)
    if kind == "NodeProcess":
        assert "BMQbrkr stopped" in (tmp_path / "store" / LOG_NAME).read_text()


@pytest.mark.parametrize("how", ENDS, ids=lambda how: how.name)
@pytest.mark.parametrize(("fixture", "count"), [("bmq_proxy", 2), ("rocketmq_node", 1)])
def test_nodes_of_the_fixtures_end_with_the_suite(
    tmp_path: Path, fixture: str, count: int, how: signal.Signals
) -> None:
    (tmp_path / "test_it.py").write_text(SUITE.format(fixture=fixture))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "bmqctl.testing", "-W", "error", "--basetemp"]
    with started([*command, str(tmp_path / "base"), str(tmp_path / "test_it.py")], "ready") as (process, children):
        check_ended(process, children, how, count)


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGKILL], ids=lambda how: how.name)
def test_a_cluster_ends_with_the_command_that_started_it(tmp_path: Path, how: signal.Signals) -> None:
    words = ["start", "cluster", "-n", "3", "--dir", str(tmp_path), "--port", str(free_ports(3))]
    with started([*COMMAND, *words], "cluster of 3 ready") as (process, children):
        check_ended(process, children, how, 3)


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGKILL], ids=lambda how: how.name)
def test_a_group_ends_with_the_command_that_started_it(tmp_path: Path, how: signal.Signals) -> None:
    first = free_ports(30)
    ports = {"--nameserver-port": 0, "--controller-port": 1, "--port": 4, "--grpc-port": 6, "--remoting-port": 7}
    words = [word for option, at in ports.items() for word in (option, str(first + at))]
    command = [*COMMAND, "start", "rocketmq", "-n", "3", "--store", str(tmp_path), *words]
    with started(command, "rocketmq group of 3 ready") as (process, children):
        check_ended(process, children, how, 3)


def test_a_cluster_of_a_program_ends_with_the_program(tmp_path: Path) -> None:
    """Grandchildren end, too: the command of the cluster ends, and its nodes with it."""
    with started([sys.executable, "-c", PROGRAM, "ClusterProcess", str(tmp_path)], "ready") as (process, children):
        check_ended(process, children, signal.SIGKILL, 4)


def test_the_end_of_the_terminal_is_ignored_under_nohup(tmp_path: Path) -> None:
    words = ["start", "cluster", "-n", "3", "--dir", str(tmp_path), "--port", str(free_ports(3))]
    with started(["nohup", *COMMAND, *words], "cluster of 3 ready") as (process, children):
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert not any(is_running(child) for child in children)


@pytest.mark.parametrize(
    "make",
    [
        NodeProcess,
        RocketProcess,
        ControllerProcess,
        lambda folder: ProxyProcess(folder, [f"{HOST}:{free_port()}"]),
        lambda folder: RocketProxyProcess(folder, [f"{HOST}:{free_port()}"]),
    ],
    ids=["node", "rocketmq", "controller", "proxy", "rocketmq proxy"],
)
def test_a_process_that_closes_its_files_is_not_cut_short(tmp_path: Path, make: Callable[[Path], NodeProcess]) -> None:
    """A second signal comes after a second, which on a busy machine may be while it closes."""
    node = make(tmp_path / "store")
    node.command = (sys.executable, "-c", SIGNALLED.format("Server._close = close_late"))
    with node:
        assert node.stop() == 0
    assert "stopped" in node.log


def test_a_signal_that_comes_before_the_loop_ends_it(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "store")
    node.command = (sys.executable, "-c", SIGNALLED.format("Server.run = run_early"))
    node.start()
    assert node.wait() == 0
    assert "BMQbrkr stopped" in node.log


def test_a_command_that_does_not_end_by_itself_is_killed(tmp_path: Path) -> None:
    """The watch ends a process that ignores SIGTERM."""
    program = (
        "import signal, time\n"
        "from bmqctl.common import children\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "children._ENDING = ((signal.SIGTERM, 0.01), (signal.SIGKILL, 0.0))\n"
        "children.end_with_input()\n"
        "time.sleep(600)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, timeout=WAIT_S, check=False)
    assert done.returncode == -signal.SIGKILL


def test_input_that_has_ended_ends_any_command(tmp_path: Path) -> None:
    words = ["start", "proxy", "--upstream", "127.0.0.1:1", "--port", str(free_port()), "--data-dir", str(tmp_path)]
    command = [*COMMAND, UNTIL_INPUT_ENDS, *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode in (0, -signal.SIGTERM)
