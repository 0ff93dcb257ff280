"""Connections from balancers: the loop knows their clients by the header of the PROXY protocol, and by it alone."""

from __future__ import annotations

import logging
import time
from typing import Final

import pytest
import trio
import trio.testing

from broker.common.networks import read_networks
from broker.shell.connections import greetings
from tests.broker.bmq.rig import Rig, identity, start
from tests.broker.shell.loop.served import Served, serve

CLIENT: Final = "192.0.2.7:56324"
HEADER: Final = b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 30114\r\n"
LOCAL: Final = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
HERE, ELSEWHERE = read_networks("127.0.0.0/8"), read_networks("192.0.2.0/24")


def rig() -> Rig:
    # The loop sets its clock to that of the machine, which may have started a minute ago.
    return start(ms=time.monotonic_ns() // 1_000_000)


def names(served: Served) -> list[str]:
    return [each.description for each in served.node.sessions.values()]


@pytest.mark.parametrize("cut", [0, 1, len(HEADER) - 1])
def test_a_session_has_the_address_of_the_header(cut: int) -> None:
    async def test(served: Served) -> None:
        peer = await served.connect()
        await peer.send(HEADER[:cut])
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(HEADER[cut:])
        await peer.say_who(identity())
        (name,) = names(served)
        assert CLIENT in name

    serve(rig(), test, balancers=HERE)


def test_bytes_after_a_header_belong_to_the_session() -> None:
    async def test(served: Served) -> None:
        peer = await served.connect()
        send = peer.send

        async def with_header(data: bytes) -> None:
            await send(HEADER + data)

        peer.send = with_header  # type: ignore[method-assign]
        await peer.say_who(identity())
        assert CLIENT in names(served)[0]

    serve(rig(), test, balancers=HERE)


def test_a_balancers_own_connection_has_the_balancers_address() -> None:
    async def test(served: Served) -> None:
        peer = await served.connect()
        await peer.send(LOCAL)
        await peer.say_who(identity())
        assert peer.name in names(served)[0]

    serve(rig(), test, balancers=HERE)


@pytest.mark.parametrize("header", [HEADER, LOCAL])
def test_others_are_not_believed(header: bytes) -> None:
    async def test(served: Served) -> None:
        peer = await served.connect()
        await peer.send(header)
        assert await peer.is_closed()
        other = await served.client()
        assert other.name in names(served)[0]

    serve(rig(), test, balancers=ELSEWHERE)


def refusals(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if each.levelno == logging.ERROR)


def test_a_balancer_without_a_header_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def test(served: Served) -> None:
        peer = await served.connect()
        await peer.send(b"\0" * 100)
        assert await peer.is_closed()
        assert served.node.sessions == {}

    serve(rig(), test, balancers=HERE)
    assert "no header of the PROXY protocol" in refusals(caplog)
    assert "proxyProtocolFrom" in refusals(caplog)


def test_a_header_that_does_not_come_is_not_awaited_forever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(greetings, "GREETING_S", 0.05)

    async def test(served: Served) -> None:
        peer = await served.connect()
        await peer.send(HEADER[:20])
        assert await peer.is_closed()

    serve(rig(), test, balancers=HERE)
    assert "no header of the PROXY protocol within 0.05 s" in refusals(caplog)


def test_connections_without_a_header_are_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(greetings, "GREETINGS_MAX", 2)

    async def test(served: Served) -> None:
        first, second, third = [await served.connect() for _ in range(3)]
        assert await first.is_closed()
        for each in (second, third):
            await each.send(HEADER)
            await each.say_who(identity())

    serve(rig(), test, balancers=HERE)
    assert "more than 2 connections have sent no header" in refusals(caplog)


def test_a_probe_that_says_nothing_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def test(served: Served) -> None:
        probe = await served.connect()
        await probe.stream.send_eof()
        assert await probe.is_closed()

    serve(rig(), test, balancers=HERE)
    assert refusals(caplog) == ""
