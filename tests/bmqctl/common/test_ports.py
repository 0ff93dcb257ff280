from __future__ import annotations

import socket
import subprocess
import sys
from typing import Final

import pytest

from bmqctl.common.ports import free_port, free_ports, free_rocketmq_port
from tests.waiting import WAIT_S

HOST: Final = "127.0.0.1"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two sockets bound to a port"),
]


def test_a_port_that_was_returned_is_kept_from_those_who_look_for_one() -> None:
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind((HOST, port))


def test_a_server_of_another_process_listens_where_it_was_told_to() -> None:
    first = free_ports(3)
    code = "import socket, sys; [socket.create_server(('127.0.0.1', int(port))) for port in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *map(str, range(first, first + 3))], check=True, timeout=WAIT_S)


def test_kept_port_refuses_connections() -> None:
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect((HOST, free_port()))


def test_ports_in_a_row_are_not_returned_while_one_of_them_is_in_use() -> None:
    with socket.create_server((HOST, free_port())) as server:
        used = server.getsockname()[1]
        for _ in range(300):
            first = free_ports(2)
            assert used not in (first, first + 1)


def test_no_descriptor_is_kept_for_a_port_that_was_returned_long_ago() -> None:
    ports = [free_port() for _ in range(257)]
    with socket.socket() as other:
        other.bind((HOST, ports[0]))


@pytest.mark.parametrize("beside", [-2, 1])
def test_ports_that_a_broker_takes_beside_its_own_are_kept_too(beside: int) -> None:
    port = free_rocketmq_port()
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind((HOST, port + beside))
