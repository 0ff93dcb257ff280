"""Nodes that end: by themselves, which is reported, or as the cluster is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest

from bmqctl.systems import cluster_run
from bmqctl.systems.cluster_run import Member, run_members

pytestmark = pytest.mark.process

# A node that has not come to its handlers of signals: SIGTERM kills it.
NODE: Final = "import os, signal, sys; print('there', flush=True); os.kill(os.getpid(), {}); signal.pause()"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    def start(member: Member) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", NODE.format(*member.words)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    monkeypatch.setattr(cluster_run, "_start", start)
    # The test's own handlers, should the nodes end first.
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)

    def given(*signals: int, ready: Callable[[], None] = lambda: None) -> int:
        members = [Member(f"node{index}", (str(number),), ("start",)) for index, number in enumerate(signals, 1)]
        return run_members(members, "there", ready)

    return given


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_cluster_that_is_stopped_while_its_nodes_start_ends_with_0(
    number: int, run: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    # Signal 0 changes nothing.
    assert run(0, 0, 0, ready=lambda: os.kill(os.getpid(), number)) == 0
    assert capfd.readouterr().err == ""


def test_a_node_that_ends_by_itself_is_told(run: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(signal.SIGTERM, signal.SIGKILL) == 1
    lines = sorted(capfd.readouterr().err.splitlines())
    assert lines == [
        "bmqctl: node1 was killed by SIGTERM; to start it again: bmqctl start",
        "bmqctl: node2 was killed by SIGKILL; to start it again: bmqctl start",
    ]
