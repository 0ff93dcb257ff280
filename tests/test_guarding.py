"""The watch over ports: given ones, and others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port
from tests.guarding.sitecustomize import FOLDER, PortWatch

HOST = "127.0.0.1"
BIND = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1])))"
GIVE_AND_BIND = (
    "import socket; from bmqctl.common.ports import free_port; socket.create_server(('127.0.0.1', free_port()))"
)


@pytest.fixture
def watch(tmp_path: Path) -> PortWatch:
    return PortWatch(tmp_path)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with closing(socket.socket()) as made:
        yield made


@pytest.mark.parametrize(
    ("event", "address"),
    [
        ("socket.bind", (HOST, 8080)),
        ("socket.bind", ("", 8080)),
        ("socket.bind", (HOST, 40_000)),
        ("socket.connect", (HOST, 30_114)),
        ("socket.connect", ("localhost", 10_911)),
    ],
)
def test_ports_that_nobody_gave(watch: PortWatch, sock: socket.socket, event: str, address: tuple[str, int]) -> None:
    watch(event, (sock, address))
    (line,) = watch.take_misused()
    assert line.startswith(f"{event} of {address[0]}:{address[1]}, given by nobody, by ")
    assert watch.take_misused() == []
    watch(event, (sock, address))
    assert len(watch.take_misused()) == 1


@pytest.mark.parametrize(
    ("event", "address"),
    [
        ("socket.bind", (HOST, 0)),
        ("socket.connect", (HOST, 1)),
        ("socket.connect", (HOST, 60_999)),
        ("socket.connect", ("192.0.2.1", 30_114)),
        ("socket.listen", (HOST, 8080)),
    ],
)
def test_ports_that_nobody_has_to_give(
    watch: PortWatch, sock: socket.socket, event: str, address: tuple[str, int]
) -> None:
    watch(event, (sock, address))
    assert watch.take_misused() == []


def test_other_sockets(watch: PortWatch) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        watch("socket.bind", (sock, (HOST, 8080)))
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        watch("socket.bind", (sock, "name"))
    assert watch.take_misused() == []


def run(code: str, *words: str, folder: Path) -> None:
    environment = {**os.environ, FOLDER: str(folder)}
    subprocess.run([sys.executable, "-c", code, *words], env=environment, check=True, capture_output=True)


@pytest.mark.process
def test_children_are_watched(watch: PortWatch, tmp_path: Path) -> None:
    port = free_port()
    run(BIND, str(port), folder=tmp_path)
    (line,) = watch.take_misused()
    assert f"socket.bind of {HOST}:{port}" in line
    assert str(port) in line.partition("by ['-c'")[2]
    (tmp_path / "given").write_text(f"{port}\n")
    run(BIND, str(port), folder=tmp_path)
    run(GIVE_AND_BIND, folder=tmp_path)
    assert watch.take_misused() == []


SUITE = """
import socket
from bmqctl.common.ports import free_port

GIVEN = free_port()

def test_given():
    socket.create_server(("127.0.0.1", GIVEN)).close()

def test_other():
    try:
        socket.create_server(("127.0.0.1", PORT)).close()
    except OSError:
        pass
"""


@pytest.mark.process
def test_a_test_that_uses_a_port_of_its_own_choice_fails(tmp_path: Path) -> None:
    suite = tmp_path / "test_it.py"
    suite.write_text(SUITE.replace("PORT", str(free_port())))
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.port_watch",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(suite),
    ]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "given by nobody" in done.stdout
