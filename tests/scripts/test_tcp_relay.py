"""The relay that stands between a client and a broker in the reference's suite."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import WAIT_S

RELAY = Path(__file__).resolve().parents[2] / "scripts" / "judges" / "tcp_relay.py"


@pytest.fixture
def remote() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        yield listener


@pytest.fixture
def relay(remote: socket.socket) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and where it listens."""
    where = f"localhost:{remote.getsockname()[1]}"
    words = [sys.executable, str(RELAY), "-r", where]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = re.fullmatch(r"Listening on 127\.0\.0\.1:(\d+)\n", process.stdout.readline())
        assert told
        yield process, int(told[1])
        process.kill()


def test_bytes_go_both_ways(remote: socket.socket, relay: tuple[subprocess.Popen[str], int]) -> None:
    with socket.create_connection(("127.0.0.1", relay[1]), WAIT_S) as here, remote.accept()[0] as there:
        here.sendall(b"ping" * 50_000)
        received = b""
        while len(received) < 200_000:
            received += there.recv(1 << 20)
        assert received == b"ping" * 50_000
        there.sendall(b"pong")
        assert here.recv(10) == b"pong"
        there.close()
        assert here.recv(10) == b""


def test_killed_it_cuts_its_connections(remote: socket.socket, relay: tuple[subprocess.Popen[str], int]) -> None:
    process, port = relay
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as here, remote.accept()[0] as there:
        process.kill()
        assert here.recv(10) == b""
        assert there.recv(10) == b""


def test_a_remote_that_is_away_closes_the_connection(
    remote: socket.socket, relay: tuple[subprocess.Popen[str], int]
) -> None:
    remote.close()
    with socket.create_connection(("127.0.0.1", relay[1]), WAIT_S) as here:
        assert here.recv(10) == b""


def test_at_its_end_it_says_what_it_has_carried(
    remote: socket.socket, relay: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = relay
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as here, remote.accept()[0] as there:
        here.sendall(b"ping!")
        assert there.recv(10) == b"ping!"
        there.sendall(b"pong")
        assert here.recv(10) == b"pong"
        process.terminate()
        told, _ = process.communicate(timeout=WAIT_S)
    assert told == "1 connections, 5 bytes there, 4 bytes back\n"
    assert process.returncode == 0
