"""Faults at every call of a step: what becomes of the node, compared with one where the event never came.

A story builds a node with its clients; one of them sends something, through the real edge of the loop. That is done
again and again, each time with an exception at another call that the broker's code makes within the step.
"""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any, cast

from broker.bmq.queue.queue import App, Message, Queue
from broker.bmq.session.client import Client as LinkClient
from broker.bmq.session.session import Session
from broker.shell.host.calls import READABLE
from broker.shell.loop.server import Server
from tests.broker.bmq.rig import Client, Rig

__all__ = [
    "Ended",
    "Injected",
    "Injector",
    "Outcome",
    "Story",
    "check_places",
    "fingerprint",
    "inject_everywhere",
    "one_of_a_kind",
    "without_places",
]

ROOT = Path(__file__).parents[3]
OURS = (str(ROOT / "broker"), str(ROOT / "formats"))
# Fault handlers are not themselves given faults.
HANDLING = str(ROOT / "broker" / "common" / "faults.py")


class Injected(Exception):
    """An exception that no step expects."""


@dataclass
class Injector:
    """Counts the calls that our code makes, and fails instead of making one of them (from 0; -1 for none).

    `sites` says of each call from where it was made.
    """

    at: int = -1
    count: int = 0
    sites: list[tuple[str, str, int]] = field(default_factory=list)
    where: str = ""
    is_lost: bool = False

    def __call__(self, frame: FrameType, event: str, what: object) -> None:
        if event == "call":
            caller, name = frame.f_back, frame.f_code.co_qualname
            ours = frame.f_code.co_filename.startswith(OURS)
        elif event == "c_call":
            caller, name = frame, getattr(what, "__qualname__", repr(what))
            ours = False
        else:
            return
        if frame.f_code.co_filename == HANDLING or caller is None:
            return
        if not ours and not caller.f_code.co_filename.startswith(OURS):
            return
        if self.at < 0:
            self.sites.append((name, caller.f_code.co_qualname, caller.f_lineno))
        if self.count == self.at:
            self.where = f"{name} <- {caller.f_code.co_qualname}"
            self.count += 1
            raise Injected(self.where)
        self.count += 1

    @contextmanager
    def active(self) -> Iterator[None]:
        hook, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.unraisablehook = hook

    def _on_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """An abandoned generator is closed, and exceptions that it then raises go nowhere."""
        assert isinstance(unraisable.exc_value, Injected)
        self.is_lost = True


class Wire:
    """A socket of the kernel that takes the options of TCP."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.fileno = sock.fileno
        self.setblocking = sock.setblocking
        self.close = sock.close

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Set nothing: a socket of this family has no such option."""


@dataclass
class Story:
    """A node with its clients by name; `actor` is the one whose step it will be. `act` is what is done in it."""

    rig: Rig
    clients: dict[str, Client]
    sends: bytes = b""
    actor: str = "actor"
    # Whether the actor's connection breaks instead.
    hangs_up: bool = False
    # Something else than what comes over the link: the loop does it.
    act: Callable[[Server], None] | None = None

    @property
    def faulty(self) -> Session:
        return self.clients[self.actor].session


@dataclass(frozen=True)
class Ended:
    """The end of a step: the reason for the node's end, or the clients that were ended and the node's state then."""

    on_purpose: str = ""
    clients: frozenset[str] = frozenset()
    state: Any = None
    noted: int = 0


@dataclass
class Outcome:
    """All injections: those ending the node, those ending only a session, and those without effect."""

    on_purpose: dict[str, str] = field(default_factory=dict)
    sessions: Counter[str] = field(default_factory=Counter)
    nothing: Counter[str] = field(default_factory=Counter)


def _step(story: Story, injector: Injector) -> Ended:
    """Let the actor's bytes come in at the edge of the loop."""
    node = story.rig.node
    ours, theirs = socket.socketpair()
    server = Server(node, [])
    with ours, theirs:
        server._attach(cast(socket.socket, Wire(theirs)), story.faulty)
        ours.sendall(story.sends)
        if story.hangs_up:
            ours.close()
        fd = theirs.fileno()
        with server._boundary("a step of the loop"), injector.active():
            if story.act is not None:
                story.act(server)
            else:
                server._on_ready(fd, READABLE)
            server._flush()
        failure = server._failure
        server._close()
        if failure is None:
            _reap(story)
    if failure is not None:
        return Ended(str(failure))
    ended = frozenset(name for name, client in story.clients.items() if client.session.finished)
    return Ended("", ended, fingerprint(story), node.faults.others)


def _reap(story: Story) -> None:
    """The links of sessions that are over are closed."""
    node = story.rig.node
    for session in list(node.sessions.values()):
        if session.finished:
            node.disconnect(session, "over")


def _expected(build: Callable[[], Story], applied: bool, ended: frozenset[str], actor: str) -> Any:
    """Compute the node's state with or without the event, and with these sessions ended after it."""
    story = build()
    if applied:
        _step(story, Injector())
    node = story.rig.node
    for name in sorted(ended, key=lambda name: name == actor):
        session = story.clients[name].session
        node.faults.end_session(session, Injected())
        node.end_failed()
    _reap(story)
    return fingerprint(story)


def inject_everywhere(
    build: Callable[[], Story],
    check: Callable[[Story], None],
    part: slice,
    partly: tuple[Callable[[], Story], ...] = (),
) -> Outcome:
    """Fail at each call of a part of the step's in turn, and compare. `check` sees that others are served afterwards.

    `partly` are stories in which only some of the event's messages come: it may have been cut between two of them.
    """
    probe = Injector()
    before = build()
    result = _step(before, probe)
    assert not result.on_purpose
    assert probe.count > 0
    known: dict[tuple[bool, frozenset[str], int], Any] = {}

    def expected(applied: bool, ended: frozenset[str], which: int = 0) -> Any:
        key = (applied, ended, which)
        if key not in known:
            known[key] = _expected(build if not which else partly[which - 1], applied, ended, before.actor)
        return known[key]

    outcome = Outcome()
    for at in one_of_a_kind(probe.sites, part):
        injector = Injector(at)
        story = build()
        ended = _step(story, injector)
        where = f"{at}: {injector.where}"
        if not injector.where:
            # Sessions are flushed in no order, and what is remembered is not looked up again.
            assert at > probe.count * 0.9 - 10, f"call {at} of {probe.count} was not made"
            continue
        if ended.on_purpose:
            outcome.on_purpose[where] = ended.on_purpose
            continue
        by_fault = ended.clients - result.clients
        if ended.noted or injector.is_lost:
            outcome.nothing[where] += 1
        elif story.actor in ended.clients:
            outcome.sessions[where] += 1
            states = [expected(False, ended.clients), expected(True, ended.clients)]
            states += [expected(True, ended.clients, which) for which in range(1, len(partly) + 1)]
            assert ended.state in states, f"{where}\n{_difference(ended.state, states[0])}"
        else:
            wanted = expected(True, ended.clients)
            (outcome.sessions if by_fault else outcome.nothing)[where] += 1
            injector.is_lost = not by_fault
            if not by_fault:
                # An authorizer that fails refuses; numpy asks objects for attributes, and takes it for a no.
                assert ended.state in (wanted, expected(False, ended.clients)), where
            elif partly:
                # The event's later messages have gone elsewhere at once.
                assert without_places(ended.state) == without_places(wanted), where
            else:
                assert ended.state == wanted, f"{where}\n{_difference(ended.state, wanted)}"
        check_places(story.rig)
        faults = story.rig.node.faults
        assert faults.of_sessions + faults.others + injector.is_lost == 1, where
        assert not any(
            client.session.finished and client.session in story.rig.node.sessions.values()
            for client in story.clients.values()
        )
        check(story)
    return outcome


def one_of_a_kind(sites: list[tuple[str, str, int]], part: slice) -> list[int]:
    """Return a part of the calls that are made; of those in a loop only the first two and the last count."""
    places: dict[tuple[str, str, int], list[int]] = {}
    for at, site in enumerate(sites):
        places.setdefault(site, []).append(at)
    return sorted({at for found in places.values() for at in (*found[:2], found[-1])})[part]


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = sorted(set(found) | set(wanted), key=repr)
        return "\n".join(
            f"{key!r}: {_difference(found.get(key), wanted.get(key))}"
            for key in keys
            if found.get(key) != wanted.get(key)
        )
    return f"{found!r} is not {wanted!r}"


# -- what a node is


def fingerprint(story: Story) -> dict[str, Any]:
    """All that sessions share, and the files; without statistics, and without what is only remembered to be faster."""
    node = story.rig.node
    names = {id(client.session.client): name for name, client in story.clients.items()}
    files = {name: sha256(content.data).hexdigest() for name, content in story.rig.directory.files.items()}
    return {
        "queues": {uri: _queue(queue, names) for uri, queue in node.queues.items()},
        "partitions": {
            number: (
                partition.primary_lease_id,
                partition.sequence_number,
                partition.records.due,
                tuple(partition.files.ends),
                sorted(partition.records.stores),
                len(partition.kept.awaiting),
            )
            for number, partition in node.partitions.items()
        },
        "ledger": (node.ledger.number, node.ledger.end, sorted(node.ledger.state.queues)),
        "files": files,
        "sessions": {
            names.get(id(session.client), session.description): {
                queue_id: (handle.queue.uri, handle.writes, sorted(handle.streams))
                for queue_id, handle in session.handles.items()
            }
            for session in node.sessions.values()
        },
    }


def _queue(queue: Queue, names: dict[int, str]) -> dict[str, Any]:
    apps = [*queue.apps.values(), *queue.unregistered.values()]
    return {
        "messages": {
            guid: (message.size, message.offset, message.outstanding) for guid, message in queue.messages.items()
        },
        "awaiting": {guid: [id_ for _, id_, _ in posters] for guid, posters in queue.awaiting.items()},
        "writers": queue.writers,
        "usage": (queue.usage.messages, queue.usage.bytes, queue.usage.state),
        "domain": (queue.domain_usage.messages, queue.domain_usage.bytes, queue.domain_usage.state),
        "gone": queue.history.size,
        "apps": {app.app_id: _app(app, names) for app in apps},
    }


def _app(app: App, names: dict[int, str]) -> dict[str, Any]:
    return {
        "id": (app.key, app.bit, app.messages, app.bytes),
        "waiting": [message.guid for message in (*app.redelivery, *_pending(app)) if message.outstanding & app.bit],
        "returning": sorted(message.guid for message in app.returning or ()),
        "aside": sorted(app.aside),
        "attempts": dict(app.attempts),
        "streams": [
            (
                names.get(id(stream.sink), "?"),
                stream.queue_id,
                stream.sub_queue_id,
                stream.readers,
                sorted(stream.unconfirmed),
                [
                    (each.subscription_id, each.messages_left, each.bytes_left, each.messages_freed, each.bytes_freed)
                    for each in stream.subscriptions
                ],
            )
            for stream in app.streams
        ],
    }


def without_places(state: dict[str, Any]) -> dict[str, Any]:
    """A fingerprint that does not say which consumer has which message, or that it waits."""
    queues = {
        uri: {**queue, "apps": {app_id: app["id"] for app_id, app in queue["apps"].items()}}
        for uri, queue in state["queues"].items()
    }
    return {**state, "queues": queues}


def _pending(app: App) -> Iterator[Message]:
    """Yield what waits for an app; there is too little to be packed."""
    for item in app.pending:
        assert isinstance(item, Message)
        yield item


def check_places(rig: Rig) -> None:
    """Each message is in exactly one place for each app that wants it, and the counts are right."""
    alive = [session.client for session in rig.node.sessions.values() if not session.finished]
    for queue in rig.node.queues.values():
        for app in queue.apps.values():
            wanted = {guid for guid, message in queue.messages.items() if message.outstanding & app.bit}
            places = [message.guid for message in (*_pending(app), *app.redelivery) if message.outstanding & app.bit]
            places += app.aside
            places += [message.guid for message in app.returning or () if message.outstanding & app.bit]
            for stream in app.streams:
                assert not isinstance(stream.sink, LinkClient) or stream.sink in alive
                places += stream.unconfirmed
            assert sorted(places) == sorted(wanted - set(queue.awaiting)), f"{queue.uri} {app.app_id}"
            assert app.messages == len(wanted)
        assert queue.usage.messages == len(queue.messages)
