"""Posts and confirms that a relay keeps for its next upstream: sent, and forgotten, in slices."""

from __future__ import annotations

import pytest

from broker.bmq.relay import posts
from broker.bmq.relay.confirms import SENT_PER_UNIT as CONFIRMS_SENT_PER_UNIT
from broker.bmq.relay.posts import RETRY_MS, SENT_PER_UNIT
from broker.bmq.relay.upstream import UpstreamState
from formats.bmq.codes import AckStatus, PutFlag
from tests.broker.bmq.relay.hop_rig import DOMAINS, QUEUE, HopClient, World
from tests.broker.bmq.relay.hop_slices import LAST, MANY, break_link, fill, relay_of, slices, slow, values
from tests.broker.bmq.rig import ACK, WRITE, guid


@pytest.fixture
def world() -> World:
    world = World(DOMAINS)
    world.make_primary(0)
    return world


def test_posts_that_nobody_waits_for(world: World) -> None:
    """Posts that are dropped at once; their room is given back in slices, with their memory."""
    producer = world.client(1)
    producer.open(0, QUEUE, WRITE | ACK)
    relay = relay_of(world)
    world.part(0, 1)
    for number in range(MANY):
        producer.put(0, guid(number), b"x")
    room = relay.posts.room
    assert (room.messages, room.bytes) == (MANY, MANY)
    slow(world, amount=1)
    producer.drop()
    assert not relay.unacknowledged
    left = room.messages
    assert MANY - 8 <= left < MANY
    for _ in slices(world):
        assert left - 8 <= room.messages < left
        assert room.bytes == room.messages
        left = room.messages
    assert room.messages == 0


def post_without_upstream(world: World) -> HopClient:
    """A producer at a hop that has lost its primary, which posts."""
    producer = world.client(1)
    producer.open(1, QUEUE, WRITE | ACK)
    world.part(0, 1)
    for number in range(MANY):
        producer.put(1, guid(number), b"#%d" % number, flags=PutFlag.ACK_REQUESTED)
    assert len(relay_of(world).unacknowledged) == MANY
    return producer


def find_again(world: World) -> None:
    world.join(0, 1)
    world.nodes[1].queues.primary_active(0, 0, True)
    world.run()


def test_posts_that_were_kept_go_up_in_slices_before_later_ones(world: World) -> None:
    producer = post_without_upstream(world)
    relay, root = relay_of(world), world.nodes[0].rig.node.queues[QUEUE]
    slow(world, amount=1)
    find_again(world)
    arrived, seen = len(root.messages), 0
    for number in slices(world):
        if relay.opens.state is UpstreamState.OPENING:
            producer.put(1, guid(MANY + number), b"#%d" % (MANY + number), flags=PutFlag.ACK_REQUESTED)
            assert len(root.messages) - arrived <= SENT_PER_UNIT
            arrived = len(root.messages)
            seen += 1
    assert seen >= MANY // SENT_PER_UNIT
    assert relay.opens.state is UpstreamState.OPEN
    assert list(root.messages) == [guid(number) for number in range(MANY)] + [
        guid(MANY + number) for number in range(1, seen + 1)
    ]
    assert not relay.unacknowledged


@pytest.mark.parametrize("waits", [False, True])
def test_an_upstream_that_is_lost_before_it_has_all_posts(world: World, waits: bool) -> None:
    post_without_upstream(world)
    relay, root = relay_of(world), world.nodes[0].rig.node.queues[QUEUE]
    slow(world, amount=1)
    find_again(world)
    assert 0 < len(root.messages) < MANY
    if waits:
        world.part(0, 1)
        for _ in slices(world):
            assert relay.opens.upstream is None
        find_again(world)
    else:
        break_link(world)
    for _ in slices(world):
        pass
    assert relay.opens.state is UpstreamState.OPEN
    assert list(root.messages) == [guid(number) for number in range(MANY)]
    assert not relay.unacknowledged


def test_posts_that_follow_a_refused_one_wait_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    post_without_upstream(world)
    relay, root = relay_of(world), world.nodes[0].rig.node.queues[QUEUE]
    send = relay.posts._send_kept
    refused: list[bytes] = []

    def refuse_first(post: bytes) -> int:
        if refused:
            return send(post)
        refused.append(post)
        relay.posts.on_acks((post,), AckStatus.NOT_READY)
        return 0

    monkeypatch.setattr(relay.posts, "_send_kept", refuse_first)
    slow(world, amount=1)
    find_again(world)
    assert relay.opens.state is UpstreamState.OPENING
    world.wait(RETRY_MS)
    for _ in slices(world):
        pass
    assert list(relay.unacknowledged) == [guid(number) for number in range(MANY)]
    world.wait(RETRY_MS)
    assert list(root.messages) == [guid(number) for number in range(MANY)]
    assert not relay.unacknowledged


@pytest.mark.parametrize("breaks", [False, True])
def test_confirms_that_were_kept_go_up_in_slices(world: World, breaks: bool) -> None:
    consumer = world.client(1)
    consumer.read(1, QUEUE, messages_max=MANY)
    fill(world)
    relay, root = relay_of(world), world.nodes[0].rig.node.queues[QUEUE]
    assert values(consumer) == list(range(MANY))
    world.part(0, 1)
    first = MANY // 2
    consumer.confirm(1, *(guid(number) for number in range(first)))
    slow(world, amount=1)
    find_again(world)
    assert relay.opens.state is UpstreamState.OPENING
    consumer.confirm(1, *(guid(number) for number in range(first, MANY)))
    if breaks:
        world.part(0, 1)
        for _ in slices(world):
            assert relay.opens.upstream is None
        find_again(world)
    left, seen = len(root.messages), 0
    for _ in slices(world):
        assert left - len(root.messages) <= CONFIRMS_SENT_PER_UNIT
        left = len(root.messages)
        seen += 1
    assert seen >= MANY // CONFIRMS_SENT_PER_UNIT - breaks
    assert not root.messages


def test_a_post_that_comes_while_only_confirms_are_left_to_be_sent(world: World) -> None:
    consumer, producer = world.client(1), world.client(1)
    consumer.read(1, QUEUE, messages_max=MANY)
    producer.open(1, QUEUE, WRITE | ACK)
    fill(world)
    relay, root = relay_of(world), world.nodes[0].rig.node.queues[QUEUE]
    world.part(0, 1)
    consumer.confirm(1, *(guid(number) for number in range(MANY)))
    slow(world, amount=1)
    find_again(world)
    assert relay.opens.state is UpstreamState.OPENING
    assert not relay.posts.has_unsent
    producer.put(1, guid(MANY), LAST, flags=PutFlag.ACK_REQUESTED)
    for _ in slices(world):
        pass
    assert list(root.messages) == [guid(MANY)]
    assert not relay.unacknowledged


def test_old_posts_are_given_up_some_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posts, "EXPIRED_MAX", 30)
    producer = post_without_upstream(world)
    relay = relay_of(world)
    relay.now.ms += relay.config.deduplication_time_ms
    left = []
    while relay.unacknowledged:
        relay.around.timers.run(relay.now.ms)
        left.append(len(relay.unacknowledged))
    assert left == [70, 40, 10, 0]
    assert [ack.status for ack in producer.acks()] == [AckStatus.UNKNOWN] * MANY
