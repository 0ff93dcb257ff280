"""Exceptions at every call within a step: what sessions share is as before, or the node asks to end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.relay.guests import Guests
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import (
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
from formats.bmq.wire.confirm import build_confirm_event
from formats.bmq.wire.reject import build_reject_event
from tests.broker.bmq.injecting import Outcome, Story, inject_everywhere
from tests.broker.bmq.rig import ACK, DOMAINS, READ, WRITE, Client, guid, handle, identity, put_event, start

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
OTHER = "bmq://priority/other"
POISON, POISON_APPS = "bmq://poison/q", "bmq://poisonfanout/q"
MORTAL = (
    DomainConfig("poison", Mode.PRIORITY, delivery_attempts_max=2),
    DomainConfig("poisonfanout", Mode.FANOUT, ("foo", "bar"), delivery_attempts_max=1),
)
SMALL = PartitionLimits(journal=4 << 10, data=64 << 10, qlist=4 << 10)

# Functions that look at what came and change nothing: wherever they fail, a session ends, and never the node.
PURE = ("next_frame", "iter_puts", "iter_confirms", "decode", "check_open", "parse_uri", "make_subscriptions")


def story(uri: str = QUEUE, *, waiting: int = 0, **options: object) -> Story:
    """A node with a witness, who is on a queue of its own, and a producer and two consumers on another.

    The consumers have three messages each; `waiting` more have no consumer with room.
    """
    environment = Environment({}, (), "node", "", lambda name: True)
    administer = lambda node: Admin(CommandContext(node, environment)).run  # noqa: E731
    rig = start(administer=administer, make_door=Guests, **options)  # type: ignore[arg-type]
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
    stream = next(each for each in app.streams if each.sink is told.clients[name].session.client)
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


def _rejecting(uri: str, rejected_before: int = 0, count: int = 2) -> Story:
    """A proxy has messages that may have killed its consumers, the first of them `rejected_before` times."""
    told = story(uri, domains=[*DOMAINS.values(), *MORTAL])
    proxy = told.clients["proxy"] = Client(told.rig.node)
    proxy.negotiate(replace(identity(), client_type=ClientType.TCPBROKER, cluster_node_id=-1))
    # It has heard of the node's status.
    proxy.inbox.clear()
    app = "foo" if uri == POISON_APPS else ""
    for name in ("first", "second"):
        told.clients[name].close(1, uri, READ, app=app, sub_id=1 if app else 0)
    proxy.read(3, uri, app, 1 if app else 0)
    held = [push.guid for push in proxy.pushes()][:count]
    event = build_reject_event((3, each, 1 if app else 0) for each in held)
    for _ in range(rejected_before):
        proxy.send(build_reject_event([(3, held[0], 0)]))
    return by(told, "proxy", event)


def reject() -> Story:
    return _rejecting(*REJECTS[reject])


def reject_for_the_last_time() -> Story:
    return _rejecting(*REJECTS[reject_for_the_last_time])


def reject_for_one_app() -> Story:
    return _rejecting(*REJECTS[reject_for_one_app])


REJECTS: dict[Callable[[], Story], tuple[str, int]] = {
    reject: (POISON, 0),
    reject_for_the_last_time: (POISON, 1),
    reject_for_one_app: (POISON_APPS, 0),
}


def hang_up_with_poison() -> Story:
    told = story(POISON_APPS, domains=[*DOMAINS.values(), *MORTAL])
    return replace(told, actor="first", hangs_up=True)


def _full_journal() -> Story:
    """A journal so full that the next message makes it roll over; what is alive takes little of it."""
    told = story(limits=SMALL)
    producer, partition = told.clients["producer"], told.rig.node.partitions[0]
    journal = partition.files.journal.name
    number = 100
    while partition.files.journal_end <= partition.room.journal_late:
        number += 1
        producer.post(1, guid(number), b"payload")
        for name in ("first", "second"):
            told.clients[name].confirm(1, guid(number))
    assert partition.files.journal.name == journal
    for client in told.clients.values():
        client.take()
        client.inbox.clear()
    return told


def post_that_rolls_over() -> Story:
    return by(_full_journal(), "producer", put_event(1, guid(50), b"payload"))


def _rollover_alone() -> Story:
    told = _full_journal()
    return replace(told, actor="producer", act=lambda server: told.rig.node.partitions[0].roll_over())


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
    return replace(told, actor="first", act=lambda server: told.rig.node.tick_session(session))


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
    reject,
    reject_for_the_last_time,
    reject_for_one_app,
    hang_up_with_poison,
    post_that_rolls_over,
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


@pytest.mark.slow
@pytest.mark.parametrize("build", STORIES)
def test_every_call(build: Callable[[], Story], calls: slice) -> None:
    partly: tuple[Callable[[], Story], ...] = ()
    if build is posts:
        partly = (lambda: _posts(1), lambda: _posts(2))
    elif build in REJECTS:
        partly = (partial(_rejecting, *REJECTS[build], count=1),)
    elif build is post_that_rolls_over:
        partly = (_rollover_alone,)
    outcome = inject_everywhere(build, is_served, calls, partly)
    check_kinds(outcome)


def check_kinds(outcome: Outcome) -> None:
    assert outcome.sessions
    for where, why in outcome.on_purpose.items():
        name = where.split(": ", 1)[1].split(" <- ")[0]
        # A rollover reads the old files, and is one change all the same.
        assert why.startswith("the rollover of partition") or name.rpartition(".")[2] not in PURE, f"{where}: {why}"
