"""Exceptions at every call within a step: what sessions share is as before, or the node asks to end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from broker.admin.environment import Context, Environment
from broker.admin.service import Admin
from formats.codes import AckStatus
from formats.control.messages import (
    AdminCommand,
    ClientType,
    CloseQueue,
    ConfigureStream,
    ConsumerInfo,
    ControlMessage,
    Disconnect,
    Expression,
    OpenQueue,
    StreamParameters,
    SubQueueIdInfo,
    Subscription,
)
from formats.wire.confirm import build_confirm_event
from tests.broker.injecting import Outcome, Story, inject_everywhere
from tests.broker.rig import ACK, READ, WRITE, Client, guid, handle, put_event, start

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
OTHER = "bmq://priority/other"

# Functions that look at what came and change nothing: wherever they fail, a session ends, and never the node.
PURE = ("next_frame", "iter_puts", "iter_confirms", "decode", "check_open", "parse_uri", "make_subscriptions")


def story(uri: str = QUEUE, *, waiting: int = 0, **options: object) -> Story:
    """A node with a witness, who is on a queue of its own, and a producer and two consumers on another.

    The consumers have three messages each; `waiting` more have no consumer with room.
    """
    rig = start(**options)  # type: ignore[arg-type]
    witness, producer, first, second = (rig.connect() for _ in range(4))
    witness.open(1, OTHER, WRITE | ACK)
    witness.read(2, OTHER)
    producer.open(1, uri, WRITE | ACK)
    app = "foo" if "fanout" in uri else ""
    for consumer in (first, second):
        consumer.read(1, uri, app, 1 if app else 0, messages_max=3 if waiting else 8)
    for number in range(1, 7 + waiting):
        producer.post(1, guid(number), b"%d" % number)
    for client in (witness, producer, first, second):
        client.take()
        client.inbox.clear()
    return Story(rig, {"witness": witness, "producer": producer, "first": first, "second": second})


def is_served(told: Story) -> None:
    """The witness posts, reads and confirms."""
    witness = told.clients["witness"]
    witness.inbox.clear()
    number = guid(1000)
    assert witness.post(1, number, b"payload") is AckStatus.SUCCESS
    assert [push.guid for push in witness.pushes()] == [number]
    witness.confirm(2, number)
    # The others can be sent what waits, and the producer's next message is taken.
    if not told.clients["producer"].session.finished:
        assert told.clients["producer"].session.handles is not None
    assert not told.rig.faults()


def request(client: Client, choice: object) -> bytes:
    return client._schema_event(ControlMessage(r_id=99, choice=choice))  # type: ignore[arg-type]


def by(told: Story, actor: str, sends: bytes) -> Story:
    return replace(told, actor=actor, sends=sends)


def post() -> Story:
    return by(story(), "producer", put_event(1, guid(50), b"payload"))


def post_to_nobody_with_room() -> Story:
    return by(story(waiting=2), "producer", put_event(1, guid(50), b"payload"))


def post_to_apps() -> Story:
    return by(story(FANOUT), "producer", put_event(1, guid(50), b"payload"))


def _posts(count: int) -> Story:
    return by(story(), "producer", b"".join(put_event(1, guid(50 + number), b"payload") for number in range(count)))


def posts() -> Story:
    return _posts(3)


def broadcast() -> Story:
    return by(story("bmq://broadcast/q"), "producer", put_event(1, guid(50), b"payload"))


def in_memory() -> Story:
    return by(story("bmq://memory/q"), "producer", put_event(1, guid(50), b"payload"))


def _held(told: Story, name: str) -> bytes:
    queue = next(queue for uri, queue in told.rig.node.queues.items() if uri != OTHER)
    app = next(app for app in queue.apps.values() if app.streams)
    stream = next(each for each in app.streams if each.sink is told.clients[name].session)
    return next(iter(stream.unconfirmed))


def confirm() -> Story:
    told = story()
    return by(told, "first", build_confirm_event([(1, _held(told, "first"), 0)]))


def confirm_where_others_wait() -> Story:
    told = story(waiting=2)
    return by(told, "first", build_confirm_event([(1, _held(told, "first"), 0)]))


def confirm_of_one_app() -> Story:
    told = story(FANOUT)
    return by(told, "first", build_confirm_event([(1, _held(told, "first"), 1)]))


def open_a_new_queue() -> Story:
    told = story()
    opening = OpenQueue(handle_parameters=handle(7, "bmq://priority/new", READ | WRITE | ACK))
    return by(told, "first", request(told.clients["first"], opening))


def open_for_an_app() -> Story:
    told = story(FANOUT)
    info = SubQueueIdInfo(sub_id=2, app_id="bar")
    opening = OpenQueue(handle_parameters=handle(1, f"{FANOUT}?id=bar", READ, sub_id_info=info))
    return by(told, "first", request(told.clients["first"], opening))


def open_an_app_that_nobody_knows() -> Story:
    told = story(FANOUT)
    info = SubQueueIdInfo(sub_id=2, app_id="odd")
    opening = OpenQueue(handle_parameters=handle(1, f"{FANOUT}?id=odd", READ, sub_id_info=info))
    return by(told, "first", request(told.clients["first"], opening))


def _configuring(told: Story, name: str, messages_max: int) -> Story:
    consumer = ConsumerInfo(
        max_unconfirmed_messages=messages_max,
        max_unconfirmed_bytes=1 << 20,
        consumer_priority=0,
        consumer_priority_count=1,
    )
    wanted = Subscription(s_id=0, expression=Expression(text=""), consumers=(consumer,))
    choice = ConfigureStream(q_id=1, stream_parameters=StreamParameters(subscriptions=(wanted,)))
    return by(told, name, request(told.clients[name], choice))


def configure() -> Story:
    return _configuring(story(waiting=2), "first", 100)


def close() -> Story:
    told = story(waiting=2)
    closing = CloseQueue(handle_parameters=handle(1, QUEUE, READ), is_final=True)
    return by(told, "first", request(told.clients["first"], closing))


def close_a_producer() -> Story:
    told = story()
    closing = CloseQueue(handle_parameters=handle(1, QUEUE, WRITE | ACK), is_final=False)
    return by(told, "producer", request(told.clients["producer"], closing))


def disconnect() -> Story:
    told = story(waiting=2)
    return by(told, "first", request(told.clients["first"], Disconnect()))


def hang_up() -> Story:
    return replace(story(waiting=2), actor="first", hangs_up=True)


def _commanding(told: Story, command: str) -> Story:
    rig = told.rig
    rig.node.run_command = Admin(Context(rig.node, Environment({}, (), "node", "", lambda name: True))).run
    admin = rig.connect(client_type=ClientType.TCPADMIN)
    told.clients["admin"] = admin
    return by(told, "admin", request(admin, AdminCommand(command=command)))


def purge() -> Story:
    return _commanding(story(waiting=2), "DOMAINS DOMAIN priority QUEUE q PURGE *")


def purge_an_app() -> Story:
    return _commanding(story(FANOUT), "DOMAINS DOMAIN fanout QUEUE q PURGE foo")


def list_messages() -> Story:
    return _commanding(story(), "DOMAINS DOMAIN priority QUEUE q LIST 0 UNLIMITED")


def tick() -> Story:
    told = story()
    session = told.clients["first"].session
    told.rig.now.ms += 3500
    return replace(told, actor="first", act=lambda server: server._node.tick_session(session))


STORIES = [
    post,
    post_to_nobody_with_room,
    post_to_apps,
    posts,
    broadcast,
    in_memory,
    confirm,
    confirm_where_others_wait,
    confirm_of_one_app,
    open_a_new_queue,
    open_for_an_app,
    open_an_app_that_nobody_knows,
    configure,
    close,
    close_a_producer,
    disconnect,
    hang_up,
    purge,
    purge_an_app,
    list_messages,
    tick,
]


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    """Hundreds of tracebacks tell nothing."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("build", STORIES)
def test_every_call(build: Callable[[], Story]) -> None:
    partly: tuple[Callable[[], Story], ...] = ()
    if build is posts:
        partly = (lambda: _posts(1), lambda: _posts(2))
    outcome = inject_everywhere(build, is_served, partly)
    check_kinds(outcome)


def check_kinds(outcome: Outcome) -> None:
    assert outcome.sessions
    for where, why in outcome.on_purpose.items():
        name = where.split(": ", 1)[1].split(" <- ")[0]
        assert name.rpartition(".")[2] not in PURE, f"{where}: {why}"
