"""Dialing a peer that speaks TLS: it is whom it should be, or is not, or never finishes the handshake."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

import pytest
import trio
import trustme

from broker.bmq.session.session import Session
from broker.common.clock import Now
from broker.shell.connections import dialing
from broker.shell.connections.dialing import Endpoint
from broker.shell.loop.server import Listener, Server, listen
from formats.bmq.control import ber
from formats.bmq.control.messages import NegotiationMessage
from formats.bmq.wire.event import HEARTBEAT_REQUEST, build_schema_event
from tests.broker.bmq.rig import bare_proxy, identity
from tests.rigs.machine_speed import slowness
from tests.waiting import WAIT_S

HOST = "localhost"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def client_side(authority: trustme.CA, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def server_side(authority: trustme.CA, certificate: trustme.LeafCert) -> ssl.SSLContext:
    """Asks for a certificate, and accepts the authority's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Dialer:
    """A broker that dials; `outcome` is the address that it has connected to, or why it has not."""

    def __init__(self, listeners: tuple[Listener, ...] = ()) -> None:
        now = Now(int(time.time()), time.monotonic_ns() // 1_000_000)
        self.node = bare_proxy(now)
        self.server = Server(self.node, listeners)

    def dial(self, place: Endpoint, told: Callable[[str], None]) -> None:
        def connected(address: str) -> Session:
            session = self.node.connect(address)
            session.send_event(HEARTBEAT_REQUEST)
            told(address)
            return session

        self.server.dial(place, connected, told)


def run(test: Callable[[Dialer, Server], object], listeners: tuple[Listener, ...] = ()) -> None:
    """Run `test` beside a broker."""
    dialer = Dialer(listeners)

    async def main() -> None:
        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                ready = trio.Event()
                nursery.start_soon(dialer.server.run, ready.set)
                await ready.wait()
                await test(dialer, dialer.server)  # type: ignore[misc]
                dialer.server.stop()

    trio.run(main)


def test_a_peer_with_the_right_certificate_hears_what_is_said(authority: trustme.CA) -> None:
    """The peer is shown the broker's own certificate."""
    seen: list[object] = []

    async def test(dialer: Dialer, server: Server) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        told: list[str] = []
        context = client_side(authority, authority.issue_cert("node1"))
        dialer.dial(Endpoint(HOST, listener.socket.getsockname()[1], context), told.append)
        theirs = server_side(authority, authority.issue_cert(HOST))
        stream = trio.SSLStream(await listener.accept(), theirs, server_side=True, https_compatible=True)
        async with stream:
            said = b""
            while len(said) < len(HEARTBEAT_REQUEST):
                said += await stream.receive_some()
            assert said == HEARTBEAT_REQUEST
            seen.append(stream.getpeercert())
        assert told == [f"{HOST}:{listener.socket.getsockname()[1]}"]
        await listener.aclose()

    run(test)
    (certificate,) = seen
    assert certificate["subjectAltName"] == (("DNS", "node1"),)  # type: ignore[index]


@pytest.mark.parametrize("which", ["another authority", "another host", "no TLS"])
def test_a_peer_that_is_not_whom_it_should_be_is_not_spoken_to(authority: trustme.CA, which: str) -> None:
    told: list[str] = []

    async def test(dialer: Dialer, server: Server) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        ended = trio.Event()

        def note(outcome: str) -> None:
            told.append(outcome)
            ended.set()

        dialer.dial(Endpoint(HOST, listener.socket.getsockname()[1], client_side(authority)), note)
        plain = await listener.accept()
        if which == "no TLS":
            await plain.send_all(HEARTBEAT_REQUEST * 10)
        else:
            issuer = trustme.CA() if which == "another authority" else authority
            names = (HOST,) if which == "another authority" else ("elsewhere.example.com",)
            stream = trio.SSLStream(plain, server_side(authority, issuer.issue_cert(*names)), server_side=True)
            with pytest.raises(trio.BrokenResourceError):
                await stream.do_handshake()
        await ended.wait()
        await plain.aclose()
        await listener.aclose()

    run(test)
    (reason,) = told
    assert reason.startswith("TLS: ")
    expected = {
        "another authority": "certificate verify failed: unable to get local issuer certificate",
        "another host": "Hostname mismatch, certificate is not valid for 'localhost'.",
        "no TLS": "wrong version number",
    }
    assert expected[which] in reason


def test_a_peer_that_never_finishes_is_given_up_and_keeps_nobody_waiting(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialing, "DIAL_S", 0.5)
    told: list[str] = []

    async def test(dialer: Dialer, server: Server) -> None:
        (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        (other,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        ended = trio.Event()

        def note(outcome: str) -> None:
            told.append(outcome)
            if len(told) == 2:
                ended.set()

        dialer.dial(Endpoint(HOST, silent.socket.getsockname()[1], client_side(authority)), note)
        stream = await silent.accept()
        # Its first message, which is not answered.
        assert await stream.receive_some()
        dialer.dial(Endpoint(HOST, other.socket.getsockname()[1]), note)
        await ended.wait()
        await stream.aclose()
        await silent.aclose()
        await other.aclose()

    before = time.process_time()
    run(test)
    assert told[0].startswith(HOST)
    assert told[1] == "Connection timed out"
    # It has slept until then.
    assert time.process_time() - before < 0.4 * slowness()


@pytest.mark.parametrize(
    ("names", "common_name", "known"),
    [
        (("node1", "east1.example.com"), None, {"node1", "east1.example.com"}),
        (("10.0.0.1", "node1"), None, {"node1"}),
        (("node1",), "node2", {"node1"}),
        ((), "node2", {"node2"}),
    ],
)
def test_the_names_of_who_has_connected(
    authority: trustme.CA, names: tuple[str, ...], common_name: str | None, known: set[str]
) -> None:
    """A peer with a certificate has its names; a peer without one has none."""
    port = listen("127.0.0.1", 0)
    certificate = authority.issue_cert(*names, common_name=common_name)
    listener = Listener(port, server_side(authority, authority.issue_cert(HOST)))
    seen: list[frozenset[str]] = []

    async def test(dialer: Dialer, server: Server) -> None:
        for context in (client_side(authority, certificate), client_side(authority)):
            async with await connect(port, context) as stream:
                await stream.send_all(build_schema_event(ber.encode(NegotiationMessage(choice=identity()))))
                assert await stream.receive_some()
                *_, session = dialer.node.sessions.values()
                seen.append(session.entrance.certified())

    run(test, (listener,))
    assert seen == [frozenset(known), frozenset()]


async def connect(port: socket.socket, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    plain = await trio.open_tcp_stream("127.0.0.1", port.getsockname()[1])
    return trio.SSLStream(plain, context, server_hostname=HOST, https_compatible=True)


def test_a_certificate_of_another_authority_does_not_get_in(authority: trustme.CA) -> None:
    port = listen("127.0.0.1", 0)
    listener = Listener(port, server_side(authority, authority.issue_cert(HOST)))

    async def test(dialer: Dialer, server: Server) -> None:
        stream = await connect(port, client_side(authority, trustme.CA().issue_cert("node1")))
        await stream.do_handshake()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        await trio.aclose_forcefully(stream)

    run(test, (listener,))


def test_a_connection_that_is_over_before_tls_begins_harms_nobody(authority: trustme.CA) -> None:
    port = listen("127.0.0.1", 0)
    listener = Listener(port, server_side(authority, authority.issue_cert(HOST)))

    async def test(dialer: Dialer, server: Server) -> None:
        with socket.create_connection(("127.0.0.1", port.getsockname()[1])) as sock:
            # It is reset, not ended.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        async with await connect(port, client_side(authority)) as stream:
            await stream.do_handshake()
        assert dialer.node.faults.others == 0

    run(test, (listener,))
