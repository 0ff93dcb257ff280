"""The commands of the page of daily acts, each run in its order against a node of each system."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from bmqctl.common.children import COMMAND
from bmqctl.systems.node_process import NodeProcess, RocketProcess
from tests.waiting import WAIT_S

PAGE = Path(__file__).resolve().parents[2] / "docs" / "use" / "daily-acts.md"
ACTS = re.findall(r"^\|[^|]*\| `bmqctl (.*)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
STARTS = ["start node", "start rocketmq"]


@pytest.mark.process
def test_each_act_succeeds(tmp_path: Path) -> None:
    assert len(ACTS) >= 40
    assert [act for act in ACTS if act.startswith("start")] == STARTS
    with NodeProcess(tmp_path / "bmq-data") as node, RocketProcess(tmp_path / "rocketmq-data") as rocket:
        environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "BMQCTL_USER_PASSWORD": "secret"}
        failed = []
        for act in ACTS[len(STARTS) :]:
            line = act.replace("30114", str(node.port)).replace("9876", str(rocket.nameserver_port))
            done = subprocess.run(
                [*COMMAND, *shlex.split(line)],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            if done.returncode:
                failed.append(f"{act}: exit code {done.returncode}: {done.stdout}")
        assert failed == []
