"""The console beside a node as a process, with a program in its place that ends with its standard input."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from bmqctl.common import children
from bmqctl.console import process as console_process
from bmqctl.console.process import run_console
from tests.waiting import eventually

pytestmark = pytest.mark.process

# Notes its words in the file that they begin with, after `console` and what comes before it.
PROGRAM = "import sys; open(sys.argv[3], 'a').write(' '.join(sys.argv[4:]) + chr(10)); sys.stdin.read()"
ENDS_AT_ONCE = PROGRAM.replace("sys.stdin.read()", "sys.exit(3)")


def play(monkeypatch: pytest.MonkeyPatch, program: str, patience_s: float = 60.0) -> socket.socket:
    """Put a program in the console's place, and open the socket that it is given."""
    monkeypatch.setattr(children, "COMMAND", (sys.executable, "-S", "-c", program))
    monkeypatch.setattr(console_process, "_PATIENCE_S", patience_s)
    monkeypatch.setattr(console_process, "_AGAIN_S", 0.01)
    return socket.create_server(("127.0.0.1", 0))


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_it_starts_once_the_node_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sock = play(monkeypatch, PROGRAM)
    file = tmp_path / "started"
    with run_console(sock, [str(file), "--broker", "b"]) as begin:
        assert lines(file) == []
        begin()
        begin()
        (line,) = eventually(lambda: lines(file) or None)
        assert line == f"--broker b --listen-fd {sock.fileno()}"
    assert sock.fileno() == -1
    assert len(lines(file)) == 1


def test_it_starts_without_a_node_that_is_ready_too_late(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sock = play(monkeypatch, PROGRAM, patience_s=0.01)
    with run_console(sock, [str(tmp_path / "started")]):
        eventually(lambda: lines(tmp_path / "started") or None)


def test_it_does_not_start_beside_a_node_that_ends_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with run_console(play(monkeypatch, PROGRAM), [str(tmp_path / "started")]):
        pass
    assert lines(tmp_path / "started") == []


def test_it_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with run_console(play(monkeypatch, ENDS_AT_ONCE), [str(tmp_path / "started")]) as begin:
        begin()
        eventually(lambda: len(lines(tmp_path / "started")) > 2)
    said = capfd.readouterr().err.splitlines()
    assert said[:2] == [
        "bmqctl: the console ended with 3; it is started again in 0.01 s",
        "bmqctl: the console ended with 3; it is started again in 0.02 s",
    ]


def test_it_is_tried_again_where_no_process_is_to_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "started"
    sock = play(monkeypatch, PROGRAM)
    monkeypatch.setattr(children, "COMMAND", (str(tmp_path / "none"),))
    with run_console(sock, [str(file)]) as begin:
        begin()
        said = eventually(lambda: capfd.readouterr().err or None)
        assert said.startswith("bmqctl: the console did not start: No such file or directory; it is started again in")
        monkeypatch.setattr(children, "COMMAND", (sys.executable, "-S", "-c", PROGRAM))
        eventually(lambda: lines(file) or None)
