"""Exceptions at every call with which a proxy relays messages, acknowledgments and confirms: what it keeps is whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.bmq.relay.relay import RelayQueue
from broker.bmq.session.client import Client as LinkClient
from broker.bmq.session.session import Session
from broker.common.faults import Inconsistent
from formats.bmq.codes import AckStatus, PutFlag
from formats.bmq.wire.confirm import build_confirm_event
from tests.broker.bmq.injecting import Injected, Injector, one_of_a_kind
from tests.broker.bmq.proxy.tree import Below, Link, Tree, TreeClient
from tests.broker.bmq.rig import ACK, DOMAINS, WRITE, Client, guid, identity, put_event
from tests.families import mostly_slow

# Faults are injected into calls, of which compiled ones are not seen.
pytestmark = pytest.mark.interpreted

URI = "bmq://priority/q"


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Step:
    """Bytes that a session of a proxy takes; the witness has a queue of its own there."""

    tree: Tree
    proxy: Below
    link: Link
    session: Session
    data: bytes
    clients: tuple[TreeClient, ...]

    def take(self) -> None:
        """One step, as the loop takes it."""
        node = self.proxy.node
        try:
            self.session.receive(memoryview(bytearray(self.data)))
        except Injected as error:
            node.faults.end_session(self.session, error)
        node.end_failed()
        node.end_step()


def build() -> tuple[Tree, Below, Link, TreeClient, TreeClient]:
    """A producer and a consumer at a proxy; the consumer has three messages, and nothing is on its way."""
    tree = Tree(dict(DOMAINS))
    root = tree.root()
    proxy = tree.proxy("proxy")
    link = tree.join(proxy, root.node)
    tree.wait(1000)
    producer, consumer = tree.client(proxy.node), tree.client(proxy.node)
    producer.open(1, URI, WRITE | ACK)
    consumer.read(1, URI)
    for number in range(3):
        producer.post(1, guid(number), b"payload")
    tree.run()
    for client in (producer, consumer):
        client.take()
        client.inbox.clear()
        client.tree = None
    return tree, proxy, link, producer, consumer


def put() -> Step:
    tree, proxy, link, producer, consumer = build()
    return Step(tree, proxy, link, producer.session, put_event(1, guid(50), b"payload"), (producer, consumer))


def put_singly() -> Step:
    """Build the step of a post that the proxy does not forward unchanged, for its flags."""
    tree, proxy, link, producer, consumer = build()
    event = put_event(1, guid(50), b"payload", flags=PutFlag.ACK_REQUESTED | 4)
    return Step(tree, proxy, link, producer.session, event, (producer, consumer))


def confirm() -> Step:
    tree, proxy, link, producer, consumer = build()
    event = build_confirm_event([(1, guid(0), 0), (1, guid(1), 0)])
    return Step(tree, proxy, link, consumer.session, event, (producer, consumer))


def push() -> Step:
    tree, proxy, link, producer, consumer = build()
    other = Client(link.above)
    other.negotiate(identity())
    other.open(1, URI, WRITE | ACK)
    other.send(put_event(1, guid(60), b"payload") + put_event(1, guid(61), b"payload"))
    return Step(tree, proxy, link, link.lower, bytes(link.upper.take_output()), (producer, consumer))


def ack() -> Step:
    """Build the step of an event with acknowledgments, which the messages accompany."""
    tree, proxy, link, producer, consumer = build()
    producer.session.receive(memoryview(bytearray(put_event(1, guid(50), b"payload"))))
    proxy.node.end_step()
    up = bytes(link.lower.take_output())
    link.upper.receive(memoryview(bytearray(up)))
    return Step(tree, proxy, link, link.lower, bytes(link.upper.take_output()), (producer, consumer))


def state(step: Step) -> Any:
    """The proxy's state, wherever it is held."""
    found = {}
    for uri, queue in step.proxy.node.queues.items():
        assert isinstance(queue, RelayQueue)
        room = queue.posts.room
        apps = {app.app_id: (app.messages, app.bytes) for app in queue.apps.values()}
        messages = {key: message.outstanding for key, message in queue.messages.items()}
        found[uri] = (sorted(queue.unacknowledged), room.bytes, room.messages, messages, apps, queue.usage.messages)
    return found


def check(step: Step) -> None:
    """Each message is with one consumer or waits; what the room counts is what is on its way."""
    alive = [session.client for session in step.proxy.node.sessions.values() if not session.finished]
    for queue in step.proxy.node.queues.values():
        assert isinstance(queue, RelayQueue)
        assert queue.posts.room.messages == len(queue.unacknowledged)
        for app in queue.apps.values():
            wanted = sorted(key for key, message in queue.messages.items() if message.outstanding & app.bit)
            places = [message.guid for message in app.waiting()]
            for stream in app.streams:
                assert not isinstance(stream.sink, LinkClient) or stream.sink in alive
                places += stream.unconfirmed
            assert sorted(places) == wanted
            assert app.messages == len(wanted)


def go_on(step: Step) -> None:
    """The links that are left, or new ones, carry over what there is: whatever was posted comes to somebody, once."""
    tree, proxy = step.tree, step.proxy
    root = step.link.above
    if step.link.lower.finished or step.link.upper.finished:
        tree.cut(step.link)
        tree.join(proxy, root)
        tree.wait(1000)
    tree.run()
    client = tree.client(proxy.node)
    client.open(1, URI, WRITE | ACK)
    client.read(2, URI)
    assert client.post(1, guid(70), b"payload") is AckStatus.SUCCESS
    tree.run()
    got = [each.guid for each in client.pushes()]
    for other in step.clients:
        if not other.session.finished:
            got += [each.guid for each in other.pushes()]
    assert guid(70) in got
    check(step)


@pytest.mark.parametrize("make", mostly_slow([put_singly, put, confirm, push, ack], 4))
def test_every_call_of_a_proxy(make: Callable[..., Step], calls: slice) -> None:
    step = make()
    before = state(step)
    probe = Injector()
    with probe.active():
        step.take()
    after = state(step)
    assert before != after
    kinds = {"on purpose": 0, "a session": 0, "nothing": 0}
    for at in one_of_a_kind(probe.sites, calls):
        step = make()
        injector = Injector(at)
        raised: Inconsistent | Injected | None = None
        try:
            with injector.active():
                step.take()
        except (Inconsistent, Injected) as error:
            raised = error
        if not injector.where:
            continue
        if raised is not None:
            # The loop ends the process for both.
            kinds["on purpose"] += 1
            continue
        faults = step.proxy.node.faults
        assert faults.of_sessions + faults.others + injector.is_lost == 1, injector.where
        kinds["a session" if faults.of_sessions else "nothing"] += 1
        check(step)
        go_on(step)
    assert kinds["on purpose"]
    assert kinds["a session"]
