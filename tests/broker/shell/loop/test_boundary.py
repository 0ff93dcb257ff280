"""Faults of the program itself: one session's ends that session, one of the node's own ends the loop by name."""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.session.authentication import Authentications, Denied, Granted, Outcome
from broker.bmq.session.session import Session
from broker.common.faults import TOLD_MAX, WINDOW_MS, Faults, Inconsistent
from broker.shell.connections.dialing import Endpoint
from broker.shell.loop import server as shell
from formats.bmq.control.messages import AdminCommandResponse, OpenQueue, OpenQueueResponse
from formats.bmq.wire.event import EventType
from tests.broker.bmq.rig import ACK, READ, WRITE, Rig, guid, handle, identity, put_event, start
from tests.broker.shell.loop.served import HOST, Peer, Served, serve

URI = "bmq://priority/q"

ERRORS = [
    struct.error("argument out of range"),
    OverflowError("too large"),
    OSError(24, "Too many open files"),
    AssertionError(),
    KeyError("x"),
    RecursionError("too deep"),
    MemoryError(),
]


@pytest.fixture
def rig() -> Rig:
    # The loop sets its clock to that of the machine, which may have started a minute ago.
    return start(ms=time.monotonic_ns() // 1_000_000)


def fail_with(error: Exception) -> Callable[..., None]:
    def fail(*args: object, **named: object) -> None:
        raise error

    return fail


async def works(peer: Peer, queue_id: int) -> None:
    """A client opens the queue, posts, and has its ACK."""
    opened = await peer.ask(OpenQueue(handle_parameters=handle(queue_id, URI, WRITE | ACK)))
    assert isinstance(opened, OpenQueueResponse)
    await peer.send(put_event(queue_id, guid(queue_id), b"payload"))
    assert (await peer.event())[0] is EventType.ACK


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
def test_one_session_ends_and_no_other(
    rig: Rig, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    resolve = rig.node.resolve_domain
    monkeypatch.setattr(rig.node, "resolve_domain", lambda name: fail_with(error)() if name == "odd" else resolve(name))

    async def test(served: Served) -> None:
        other, faulty = await served.client(), await served.client()
        await works(other, 1)
        with pytest.raises(EOFError):
            await faulty.ask(OpenQueue(handle_parameters=handle(1, "bmq://odd/q", READ)))
        await works(other, 2)
        assert rig.node.faults.of_sessions == 1
        assert len(rig.node.sessions) == 1

    serve(rig, test)
    (record,) = (each for each in caplog.records if each.name == "broker.faults")
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "the session is closed because of a fault of this broker" in record.getMessage()


def test_inconsistency_ends_the_loop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.node, "resolve_domain", fail_with(Inconsistent("a change", KeyError("x"))))  # type: ignore[arg-type]

    async def test(served: Served) -> None:
        faulty = await served.client()
        await faulty.send(b"")
        with pytest.raises(EOFError):
            await faulty.ask(OpenQueue(handle_parameters=handle(1, URI, READ)))

    with pytest.raises(Inconsistent, match="a change was interrupted by KeyError: 'x'"):
        serve(rig, test)


def _patch_session(session: Session, name: str, error: Exception, patch: pytest.MonkeyPatch) -> None:
    """Let a method of one session fail; its instances have slots, so the class is patched."""
    method = getattr(Session, name)

    def fails(self: Session, *given: object) -> object:
        if self is session:
            raise error
        return method(self, *given)

    patch.setattr(Session, name, fails)


async def _write(rig: Rig, served: Served, peer: Peer, error: Exception, patch: pytest.MonkeyPatch) -> None:
    _patch_session(served.session_of(peer), "take_output", error, patch)
    await peer.command("HELP")


async def _tick(rig: Rig, served: Served, peer: Peer, error: Exception, patch: pytest.MonkeyPatch) -> None:
    _patch_session(served.session_of(peer), "tick", error, patch)
    await peer.event()


async def _end(rig: Rig, served: Served, peer: Peer, error: Exception, patch: pytest.MonkeyPatch) -> None:
    """Fail in the request of a session whose end in its own step succeeds."""
    patch.setattr(rig.node, "run_command", fail_with(error))
    await peer.command("HELP")


@pytest.mark.parametrize("work", [_write, _tick, _end])
def test_each_kind_of_work_for_a_session_ends_it_alone(
    rig: Rig, work: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(served: Served) -> None:
        other, faulty = await served.client(), await served.administrator()
        with pytest.raises(EOFError):
            await work(rig, served, faulty, KeyError("x"), monkeypatch)
        await works(other, 1)
        assert rig.node.faults.of_sessions == 1

    serve(rig, test)


def test_a_connection_that_cannot_be_taken_in_is_closed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(served: Served) -> None:
        other = await served.client()
        with monkeypatch.context() as patch:
            patch.setattr(rig.node, "connect", fail_with(MemoryError()))
            assert await (await served.connect()).is_closed()
        await works(other, 1)
        assert (rig.node.faults.of_sessions, rig.node.faults.others) == (0, 1)

    serve(rig, test)


def test_a_dialed_connection_that_cannot_be_taken_in_has_failed(rig: Rig) -> None:
    async def test(served: Served) -> None:
        reasons: list[str] = []
        told = trio.Event()

        def failed(reason: str) -> None:
            reasons.append(reason)
            told.set()

        def connected(address: str) -> Session:
            raise MemoryError

        with socket.create_server((HOST, 0)) as listener:
            served.server.dial(Endpoint(HOST, listener.getsockname()[1]), connected, failed)
            await told.wait()
        assert reasons == ["a fault of this broker"]
        assert rig.node.faults.others == 1

    serve(rig, test)


class Broken:
    """A source that can be read, and whose reading fails."""

    work = "reading what is broken"

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.failed = trio.Event()

    def fileno(self) -> int:
        return self.reading

    def on_readable(self) -> None:
        os.read(self.reading, 1)
        self.failed.set()
        raise ValueError("no line")


def test_a_source_that_fails_ends_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    source = Broken()

    async def test(served: Served) -> None:
        served.server.watch(source)
        os.write(source.writing, b"x")
        await source.failed.wait()
        await works(await served.client(), 1)
        assert rig.node.faults.others == 1
        assert "reading what is broken failed because of a fault of this broker" in caplog.text

    serve(rig, test)
    os.close(source.reading)
    os.close(source.writing)


def _settle(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rig.node.role, "settle", fail_with(KeyError("x")))


def _sync(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rig.node, "before_sending", fail_with(OSError(5, "Input/output error")))


def _timer(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    rig.node.timers.at(0, fail_with(KeyError("x")))


def _partition(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredPartition, "tick", fail_with(KeyError("x")))


def _thread(rig: Rig, patch: pytest.MonkeyPatch) -> None:
    """Ask for nothing here: see the test."""


@pytest.mark.parametrize(
    ("break_it", "name"),
    [
        (_settle, "a step of the loop"),
        (_sync, "a step of the loop"),
        (_timer, "the timed action fail_with.<locals>.fail"),
        (_partition, "the upkeep of queues and partitions"),
        (_thread, "work in a thread"),
    ],
)
def test_a_fault_of_the_node_ends_the_loop_by_name(
    rig: Rig, break_it: Callable[[Rig, pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(served: Served) -> None:
        break_it(rig, monkeypatch)
        if break_it is _thread:
            served.server.in_thread(lambda: None, fail_with(KeyError("x")))
        peer = await served.connect()
        with suppress(EOFError):
            await peer.say_who(identity())
        assert await peer.is_closed()

    with pytest.raises(Inconsistent, match=f"^{name} was interrupted by "):
        serve(rig, test)


def test_the_count_is_among_the_statistics() -> None:
    environment = Environment({}, (), "node", "", lambda name: True)
    rig = start(administer=lambda node: Admin(CommandContext(node, environment)).run)

    async def test(served: Served) -> None:
        rig.node.faults.note("something", KeyError("x"))
        answer = await (await served.administrator()).command("STAT SHOW")
        assert isinstance(answer, AdminCommandResponse)
        lines = answer.text.splitlines()
        assert [word.strip() for word in lines[-1].split("|")] == ["this process", "", "1"]
        assert [word.strip() for word in lines[-3].split("|")] == ["", "sessions ended", "others"]

    serve(rig, test)


def test_few_tracebacks_are_logged_however_many_faults_there_are(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults(rig.now)
    caplog.set_level(logging.ERROR)
    for number in range(TOLD_MAX + 5):
        faults.note(f"work {number}", KeyError("x"))
    assert len(caplog.records) == TOLD_MAX
    assert faults.others == TOLD_MAX + 5
    rig.now.ms += WINDOW_MS
    faults.note("later work", KeyError("x"))
    assert [each.getMessage() for each in caplog.records[TOLD_MAX:]] == [
        "5 more faults were not logged in the last 60 s",
        "later work failed because of a fault of this broker: KeyError: 'x'",
    ]


def test_slow_authenticators_keep_nobody_from_looking_up_names(rig: Rig) -> None:
    answers = threading.Event()

    async def test(served: Served) -> None:
        server = served.server
        looked_up, written, authenticated = trio.Event(), trio.Event(), trio.Event()
        for _ in range(2):
            assert server.authenticate(answers.wait, lambda result: authenticated.set())
        server.look_up(lambda: None, lambda result: looked_up.set())
        server.in_thread(lambda: None, lambda result: written.set())
        await looked_up.wait()
        await written.wait()
        assert not authenticated.is_set()
        answers.set()
        await authenticated.wait()

    try:
        serve(rig, test, threads_max=2)
    finally:
        answers.set()


def test_so_many_peers_may_wait_to_be_known(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "AUTHENTICATIONS_MAX", 2)
    answers = threading.Event()

    async def test(served: Served) -> None:
        server = served.server
        done = trio.Event()
        assert server.authenticate(answers.wait, lambda result: None)
        assert server.authenticate(answers.wait, lambda result: done.set())
        assert not server.authenticate(answers.wait, lambda result: None)
        answers.set()
        await done.wait()
        assert server.authenticate(answers.wait, lambda result: None)

    try:
        serve(rig, test, threads_max=1)
    finally:
        answers.set()


def test_a_peer_that_may_not_wait_is_denied(rig: Rig) -> None:
    outcomes: list[Outcome] = []

    class Slow:
        mechanism = "SLOW"
        blocking = True

        def authenticate(self, data: bytes, peer: str) -> Granted:
            raise AssertionError("nobody asks")

    authentications = Authentications([Slow()], None)
    authentications.attach(lambda work, done: False)
    authentications.begin("slow", b"", "peer", outcomes.append)
    (outcome,) = outcomes
    assert isinstance(outcome, Denied)
    assert "Too many peers are being authenticated" in outcome.reason
