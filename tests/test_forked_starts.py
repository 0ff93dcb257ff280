"""Forked commands start and end like those of a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bmqctl.common.children import COMMAND
from bmqctl.systems.node_process import NodeProcess
from tests import forked_starts

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not forked_starts.CAN_FORK, reason="there are no descriptors of processes"),
]


@pytest.fixture(autouse=True, scope="module")
def _forks() -> Iterator[None]:
    """Fork commands, whatever earlier tests have left in the environment, and even with `--fresh-starts`."""
    with forked_starts.forking():
        yield


def is_forked(words: tuple[str, ...] = ("--version",), **options: Any) -> bool:
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        process.communicate()
        return isinstance(process, forked_starts._Forked)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--version",), 0),
        (("--help",), 0),
        (("nonsense",), 2),
        (("journal", "summary", "nowhere"), 2),
        (("context", "list", "--output", "json"), 0),
    ],
)
def test_output_and_code_are_those_of_a_new_interpreter(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    environment = {**os.environ, "COLUMNS": "60", "XDG_CONFIG_HOME": str(tmp_path)}
    found = [
        subprocess.run([*program, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        for program in (COMMAND, forked_starts.NEW_INTERPRETER)
    ]
    assert is_forked(words)
    forked, fresh = found
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)
    assert forked.returncode == code


def test_forked_command_reads_its_input_and_reports_lost_output(tmp_path: Path) -> None:
    """Standard input, a file as standard output, and one that is full."""
    words = ["tool", "--broker", "tcp://127.0.0.1:1"]
    for program in (COMMAND, forked_starts.NEW_INTERPRETER):
        with (tmp_path / "out").open("w") as out, Path("/dev/full").open("w") as full:
            done = subprocess.run([*program, *words], input="exit\n", stdout=out, text=True, check=False)
            assert done.returncode == 0
            lost = subprocess.run([*program, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert lost.returncode != 0
        assert "No space left on device" in lost.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_node_ends_as_one_that_a_new_interpreter_runs(tmp_path: Path, how: signal.Signals) -> None:
    found = []
    for program in (COMMAND, forked_starts.NEW_INTERPRETER):
        node = NodeProcess(tmp_path / "store", command=program).start()
        assert isinstance(node._process, forked_starts._Forked) == (program is COMMAND)
        assert node.is_running
        found.append((node.open_files(), node.stop(how), node.is_running))
    assert found[0] == found[1]


def test_options_that_a_fork_cannot_take_start_a_new_interpreter() -> None:
    assert is_forked()
    assert not is_forked(env={**os.environ, "PYTHONHASHSEED": "1"})
    assert not is_forked(umask=0o077)
    assert not is_forked(preexec_fn=lambda: None)
    before = os.umask(0o027)
    try:
        assert not is_forked()
    finally:
        os.umask(before)
