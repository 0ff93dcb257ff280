"""The control pipe, written to as an operator's shell would."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.shell.loop.control_pipe import LINE_BYTES_MAX, ControlPipe, PipeInUse


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.ctl"


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def pipe(path: Path, lines: list[str]) -> Iterator[ControlPipe]:
    made = ControlPipe(path)
    made.on_line = lines.append
    yield made
    made.close()


def write(path: Path, data: bytes) -> int:
    """Write like a program that must not wait: open without blocking, write, close."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def test_each_line_is_given_once_it_is_whole(path: Path, pipe: ControlPipe, lines: list[str]) -> None:
    pipe.on_readable()  # nothing is there
    write(path, b"HELP\r\n\n  \nCMD DOMAINS")
    pipe.on_readable()
    assert lines == ["HELP"]
    write(path, b" HELP\n\xff\n")
    pipe.on_readable()
    assert lines == ["HELP", "CMD DOMAINS HELP", "\ufffd"]


def test_line_without_end_is_passed_over_and_not_kept(path: Path, pipe: ControlPipe, lines: list[str]) -> None:
    for _ in range(LINE_BYTES_MAX // 50_000 + 2):
        write(path, b"x" * 50_000)
        pipe.on_readable()
    write(path, b"tail\nEXIT\n")
    pipe.on_readable()
    assert lines == ["EXIT"]


def test_only_its_user_may_command(path: Path, pipe: ControlPipe) -> None:
    mode = path.stat().st_mode
    assert stat.S_ISFIFO(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_pipe_that_a_dead_node_left_is_replaced(path: Path) -> None:
    os.mkfifo(path)
    pipe = ControlPipe(path)
    pipe.close()
    assert not path.exists()


def test_second_reader_is_refused(path: Path, pipe: ControlPipe) -> None:
    with pytest.raises(PipeInUse, match="another node reads this control pipe"):
        ControlPipe(path)
    assert path.exists()


def test_other_files_are_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(PipeInUse, match="is in the way of the control pipe"):
        ControlPipe(path)
    assert path.read_text() == "precious"
