"""Long work at a relay, done in slices: the queue as others see it between them, and at the end."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from broker.bmq.core.messages import Content
from broker.bmq.relay.relay import RelayQueue
from broker.bmq.relay.upstream import UpstreamState
from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import CloseQueue, ConfigureStream
from tests.broker.bmq.relay.hop_rig import DOMAINS, FANOUT, QUEUE, HopClient, World
from tests.broker.bmq.relay.hop_slices import (
    AMOUNT,
    LAST,
    MANY,
    Other,
    block,
    break_link,
    events,
    fill,
    relay_of,
    slices,
    slow,
    unblock,
    values,
)
from tests.broker.bmq.rig import ACK, READ, WRITE, Wanted, guid

POISON = "bmq://poison/q"


@pytest.fixture
def world() -> World:
    world = World(DOMAINS)
    world.make_primary(0)
    return world


def test_a_lost_upstream(world: World) -> None:
    """The next one is there when all is forgotten that the last one left, and sends it again, once and in order."""
    consumer = world.client(1)
    consumer.read(1, QUEUE, messages_max=MANY)
    other = Other(world)
    block(consumer)
    fill(world)
    relay = relay_of(world)
    assert len(relay.messages) == MANY
    slow(world)
    break_link(world)
    app = relay.apps["__default"]
    left = [len(relay.messages)]
    assert MANY - AMOUNT <= left[0] < MANY
    for _ in slices(world):
        assert other.is_served()
        if relay.opens.state is UpstreamState.OPEN:
            break
        assert relay.upstream is not None
        assert next(app.waiting(), None) is None
        assert left[-1] - AMOUNT <= len(relay.messages) == app.messages < left[-1]
        left.append(len(relay.messages))
    assert len(left) > MANY // AMOUNT - 2
    assert len(relay.messages) == MANY
    unblock(consumer)
    for _ in slices(world):
        pass
    assert values(consumer) == list(range(MANY))
    consumer.confirm(1, *(guid(number) for number in range(MANY)))
    assert not relay.messages
    assert not world.nodes[0].rig.node.queues[QUEUE].messages


def test_an_upstream_that_is_lost_before_all_is_forgotten(world: World) -> None:
    consumer = world.client(1)
    consumer.read(1, QUEUE, messages_max=MANY)
    block(consumer)
    fill(world)
    relay = relay_of(world)
    slow(world)
    break_link(world)
    world.part(0, 1)
    assert relay.upstream is None
    for _ in slices(world):
        assert relay.opens.upstream is None
    assert not relay.messages


def test_an_app_that_nobody_reads_any_longer_and_that_is_read_again(world: World) -> None:
    """Old messages are dropped while new ones arrive in order, also when these are given back."""
    consumer = world.client(1)
    consumer.read(1, FANOUT, "foo", 1, messages_max=MANY)
    holder = world.client(1)
    holder.read(2, FANOUT, "bar", 1, messages_max=1)
    block(consumer)
    fill(world, FANOUT)
    relay = relay_of(world, FANOUT)
    old = dict(relay.messages)
    slow(world)
    consumer.disconnect()
    world.run()
    assert len(relay.messages) >= MANY - AMOUNT
    again = world.client(1)
    again.read(1, FANOUT, "foo", 1, messages_max=MANY)
    world.run()
    seen = 0
    for _ in slices(world):
        seen += 1
    assert seen > 1
    assert values(again) == list(range(MANY))
    last = world.client(1)
    last.read(1, FANOUT, "foo", 1, messages_max=MANY)
    again.drop()
    for _ in slices(world):
        pass
    assert values(last) == list(range(MANY))
    last.confirm(1, *(guid(number) for number in range(MANY)), sub_id=1)
    assert set(relay.messages) == {guid(0)}
    assert relay.usage.messages == len(relay.messages)
    assert relay.messages[guid(0)] is old[guid(0)]


def test_messages_of_a_lost_consumer_are_rejected_before_its_upstream_hears_of_it(world: World) -> None:
    consumer, stays = world.client(1), world.client(1)
    for client in (consumer, stays):
        client.read(1, POISON, "foo", 1, messages_max=MANY)
    other = Other(world)
    block(stays)
    fill(world, POISON)
    assert len(consumer.pushes()) == MANY
    root = world.nodes[0].rig.node.queues[POISON].apps["foo"]
    slow(world)
    world.wire.clear()
    consumer.drop()
    rejected = [len([each for each in events(world, 1, 0) if isinstance(each, bytes)])]
    assert rejected[0] <= AMOUNT
    for _ in slices(world):
        assert other.is_served()
        sent = events(world, 1, 0)
        rejects = [each for each in sent if isinstance(each, bytes)]
        assert len(rejects) - rejected[-1] <= AMOUNT
        rejected.append(len(rejects))
        if len(rejects) < MANY:
            assert not any(isinstance(each, (ConfigureStream, CloseQueue)) for each in sent)
        assert len(root.attempts) == len(rejects)
    assert len(rejected) > MANY // AMOUNT
    sent = events(world, 1, 0)
    assert {each for each in sent if isinstance(each, bytes)} == {guid(number) for number in range(MANY)}
    assert any(isinstance(each, ConfigureStream) for each in sent)
    assert any(isinstance(each, CloseQueue) for each in sent)
    assert set(dict(root.attempts.items()).values()) == {2}
    unblock(stays)
    for _ in range(2 * MANY):
        for _ in slices(world):
            pass
        world.wait(4000)
        stays.take()
        if len(stays.session.handles[1].streams[1].unconfirmed) == MANY:
            break
    assert len(stays.session.handles[1].streams[1].unconfirmed) == MANY


def readers(world: World) -> tuple[HopClient, HopClient]:
    """Two consumers at the hop, one of the first half and one of the second, whose links take nothing."""
    low, high = world.client(1), world.client(1)
    for client, text in ((low, f"x < {MANY // 2}"), (high, f"x >= {MANY // 2}")):
        client.open(1, QUEUE, READ)
        client.subscribe(1, Wanted(text, messages_max=MANY))
        block(client)
    return low, high


def test_messages_no_longer_wanted_below_the_hop(world: World) -> None:
    low, high = readers(world)
    other = Other(world)
    fill(world, with_x=True)
    relay = relay_of(world)
    assert len(relay.messages) == MANY
    slow(world)
    elsewhere = world.client(0)
    elsewhere.open(1, QUEUE, READ)
    elsewhere.subscribe(1, Wanted(f"x >= {MANY // 2}"))
    world.wire.clear()
    high.drop()
    left, seen = len(relay.messages), 0
    for _ in slices(world):
        assert other.is_served()
        assert left - len(relay.messages) <= AMOUNT
        left = len(relay.messages)
        if relay.apps["__default"].returning is not None:
            seen += 1
            assert not any(isinstance(each, (ConfigureStream, CloseQueue)) for each in events(world, 1, 0))
    assert seen > MANY // AMOUNT // 2
    assert left == MANY // 2
    assert values(elsewhere) == list(range(MANY // 2, MANY))
    unblock(low)
    for _ in slices(world):
        pass
    assert values(low) == list(range(MANY // 2))


def test_messages_wanted_again_before_they_are_forgotten(world: World) -> None:
    low, high = readers(world)
    fill(world, with_x=True)
    slow(world)
    high.drop()
    again = world.client(1)
    again.open(1, QUEUE, READ)
    again.world = None  # its answer takes some slices
    with pytest.raises(ValueError, match="not enough values"):
        again.subscribe(1, Wanted(f"x >= {MANY // 2}", messages_max=MANY))
    got: list[int] = []
    for _ in slices(world):
        got += values(again)
    assert got == list(range(MANY // 2, MANY))
    unblock(low)
    for _ in slices(world):
        pass
    assert values(low) == list(range(MANY // 2))


def test_messages_that_the_root_removes_between_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that leaves gives back what is in the node's own store, some of it with each slice."""
    consumer, stays = world.client(1), world.client(1)
    consumer.read(1, QUEUE, messages_max=MANY)
    fill(world)
    stays.read(1, QUEUE, messages_max=MANY)
    relay = relay_of(world)
    read, reads = relay.arrivals.read, 0
    gone = {guid(number) for number in range(0, MANY, 2)}

    def counted(wanted: bytes) -> object:
        nonlocal reads
        reads += 1
        return None if wanted in gone else read(wanted)

    monkeypatch.setattr(relay.arrivals, "read", counted)
    slow(world)
    consumer.drop()
    before, seen = reads, 0
    assert before <= AMOUNT
    for _ in slices(world):
        assert reads - before <= AMOUNT
        before = reads
        seen += 1
    assert seen > MANY // AMOUNT
    assert values(stays) == list(range(1, MANY, 2))
    assert len(relay.messages) == MANY // 2


def test_a_hop_that_becomes_the_primary(world: World) -> None:
    """The relay's consumers get back the messages that they hold, and other consumers the rest, in order."""
    held = MANY // 2
    first, second = world.client(1), world.client(1)
    for client in (first, second):
        client.read(1, QUEUE, messages_max=held // 2)
    fill(world)
    got = [values(first), values(second)]
    assert sorted(got[0] + got[1]) == list(range(held))
    slow(world)
    world.make_primary(1, world.crash(0))
    queue = world.nodes[1].rig.node.queues[QUEUE]
    assert queue.is_root
    other = world.client(1)
    other.open(9, FANOUT, WRITE | ACK)
    streams = [client.session.handles[1].streams[0] for client in (first, second)]
    late = world.client(1)
    late.read(1, QUEUE, messages_max=MANY)
    seen = before = 0
    for number in slices(world):
        assert other.post(9, guid(1000 + number), b"x") is AckStatus.SUCCESS
        now = sum(len(stream.unconfirmed) for stream in streams)
        assert now - before <= 2 * AMOUNT
        before = now
        if number == 2:
            # They confirm what they have got back, and what they have not.
            first.confirm(1, *(guid(each) for each in got[0]))
            assert queue.post_one(guid(MANY), Content(LAST, crc32c(LAST), 0, False, 0))
        if queue.apps["__default"].is_behind and before < held // 2:
            seen += 1
            assert not first.payloads()
            assert not late.payloads()
    assert seen > held // AMOUNT // 2
    found = [values(first), values(second), values(late)]
    assert not found[1]
    assert sorted(found[0] + found[2]) == list(range(held, MANY + 1))
    assert [sorted(each) for each in found] == found
    assert set(streams[1].unconfirmed) == {guid(number) for number in got[1]}
    first.confirm(1, *(guid(number) for number in found[0]))
    late.confirm(1, *(guid(number) for number in found[2]))
    second.drop()
    for _ in slices(world):
        pass
    again = values(first) + values(late)
    assert sorted(again) == got[1]
    for stream in (streams[0], late.session.handles[1].streams[0]):
        for each in stream.subscriptions:
            assert each.holds == len(stream.unconfirmed)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_primary_that_becomes_a_hop(world: World, leaves: bool) -> None:
    first, second = world.client(0), world.client(0)
    first.read(1, QUEUE, messages_max=MANY)
    fill(world)
    assert values(first) == list(range(MANY))
    stream = first.session.handles[1].streams[0]
    slow(world, 0)
    world.make_primary(1, world.nodes[0].rig)
    relay = world.nodes[0].rig.node.queues[QUEUE]
    assert isinstance(relay, RelayQueue)
    held, seen = len(stream.unconfirmed), 0
    assert held <= AMOUNT
    confirmed = set(range(MANY - 10, MANY)) | {0}
    for number in slices(world, 0):
        if len(relay.delivery.inherited):
            seen += 1
            assert relay.opens.upstream is None
            assert len(stream.unconfirmed) - held <= AMOUNT
            held = len(stream.unconfirmed)
            assert held == len(relay.messages)
        if number == 2:
            first.confirm(1, *(guid(each) for each in confirmed))
            held = len(stream.unconfirmed)
        if number == 4 and leaves:
            first.drop()
    root = world.nodes[1].rig.node.queues[QUEUE]
    left = set(range(MANY)) - confirmed
    assert set(root.messages) == {guid(each) for each in left}
    assert seen >= (4 if leaves else MANY // AMOUNT - 4)
    if not leaves:
        assert set(stream.unconfirmed) == set(relay.messages) == set(root.messages)
    slow(world, 0, 1000)
    second.read(1, QUEUE, messages_max=MANY)
    if not leaves:
        assert not second.payloads()
        first.drop()
        world.run()
    assert values(second) == sorted(left)
    second.confirm(1, *(guid(each) for each in left))
    assert not root.messages
    assert not relay.messages


def test_a_message_that_has_gone_from_the_store_is_not_handed_out_without_its_payload(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A former root reads what consumers hold when the next one sends it again, maybe for another app as well."""
    foo, bar = world.client(0), world.client(0)
    foo.read(1, FANOUT, app="foo", sub_id=1, messages_max=MANY)
    bar.open(1, FANOUT, READ, "bar", 2)
    fill(world, FANOUT)
    slow(world, 0)
    world.make_primary(1, world.nodes[0].rig)
    relay = world.nodes[0].rig.node.queues[FANOUT]
    assert isinstance(relay, RelayQueue)
    assert relay.delivery.inherited
    monkeypatch.setattr(relay.arrivals, "read", lambda wanted: None)
    monkeypatch.setattr(relay.log, "_find", lambda wanted: None)
    for _ in slices(world, 0):
        pass
    bar.configure(1, "bar", subscription_id=2)
    world.wait(200)
    assert bar.payloads() == []
    assert "#QUEUE_UNKNOWN_MESSAGE" in caplog.text


def test_primary_takes_back_messages_that_a_hop_no_longer_wants(world: World) -> None:
    """The primary serves others while it goes through the relay's messages, and delivers none of the app's."""
    low, high = readers(world)
    fill(world, with_x=True)
    root = world.nodes[0].rig.node.queues[QUEUE]
    app = root.apps["__default"]
    (hop,) = app.streams
    assert len(hop.unconfirmed) == MANY
    elsewhere = world.client(0)
    elsewhere.open(1, QUEUE, READ)
    elsewhere.subscribe(1, Wanted(f"x >= {MANY // 2}"))
    other = world.client(0)
    other.open(9, FANOUT, WRITE | ACK)
    slow(world, 0)
    high.drop()
    left, seen = len(hop.unconfirmed), 0
    assert left >= MANY - AMOUNT
    for number in slices(world, 0):
        assert other.post(9, guid(1000 + number), b"x") is AckStatus.SUCCESS
        assert left - len(hop.unconfirmed) <= AMOUNT
        left = len(hop.unconfirmed)
        if left > MANY // 2:
            seen += 1
            assert not elsewhere.payloads()
    assert seen > MANY // 2 // AMOUNT
    assert values(elsewhere) == list(range(MANY // 2, MANY))
    unblock(low)
    assert values(low) == list(range(MANY // 2))
    assert set(hop.unconfirmed) == {guid(number) for number in range(MANY // 2)}
    assert [each.holds for each in hop.subscriptions] == [MANY // 2]
