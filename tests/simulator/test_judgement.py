"""Exceptions that the judges of simulated worlds make, each for single messages."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.queue.purges import purge
from broker.bmq.queue.root_queue import COMPARED_AFTER_MS
from broker.bmq.queue.routing import Stream
from broker.bmq.relay.handover import Nobody
from broker.common.clock import Now
from formats.bmq.codes import AckStatus
from formats.bmq.control import ber
from formats.bmq.control.messages import CloseQueue, ControlMessage, QueueHandleParameters
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.journal import ConfirmReason, RecordType
from formats.bmq.disk.journal_packing import pack_confirm, pack_message
from formats.bmq.wire.ack import build_ack_event
from formats.bmq.wire.event import EventType, build_event, build_schema_event
from formats.bmq.wire.put import append_put
from tests.broker.bmq.queue.test_consistency import QUEUE, STRONG
from tests.broker.bmq.rig import ACK, READ, WRITE, guid, start
from tests.simulator.actors.clients import Consumer
from tests.simulator.actors.malformed import Malformer, has_whole_message, is_malformed
from tests.simulator.faults.not_ready import NotReady
from tests.simulator.faults.rotting import just_written, rotted_at
from tests.simulator.judges.accounts import check_room, check_usage, check_waiting
from tests.simulator.judges.attempts import Attempts
from tests.simulator.judges.invariants import Post, Promise, Records, Violation, payload_of
from tests.simulator.judges.journals import Journals, JournalView
from tests.simulator.judges.passage import Broker, Passage
from tests.simulator.judges.prompt import follows
from tests.simulator.machines.clock import Clock
from tests.simulator.machines.disk import Disk
from tests.simulator.machines.ends import refused_in
from tests.simulator.machines.network import SILENCE_US_MAX, Network
from tests.simulator.worlds.cluster import ClusterWorld
from tests.simulator.worlds.features import Feature
from tests.simulator.worlds.world import PRIORITY, World

URI = "bmq://priority/p"


class Reader(NamedTuple):
    name: str
    sessions: int = 1


def records(*numbers: int) -> Records:
    """Make the records of one producer's posts to one queue."""
    found = Records({URI: ("__default",)}, {URI: Promise.KEPT})
    for number in numbers:
        found.posted(Post(guid(number), URI, "p0", number, 10))
    return found


def hand_out(found: Records, number: int, sessions: int = 1) -> None:
    post = found.posts[guid(number)]
    found.push(Reader("c0", sessions), URI, "__default", post.guid, payload_of(post))
    found.step_ends()


def test_one_of_several_consumers_gets_messages_in_order_while_it_is_with_one_broker() -> None:
    found = records(1, 2, 3)
    found.by_consumer = True
    hand_out(found, 3)
    hand_out(found, 2, sessions=2)
    with pytest.raises(Violation, match="after number 2"):
        hand_out(found, 1, sessions=2)


def test_room_for_records_that_are_not_due_is_noticed() -> None:
    host = World(1, features=frozenset()).hosts[0]
    host.start()
    assert host.node is not None
    check_room(host.node)
    next(iter(host.node.partitions.values())).adopt(1)
    with pytest.raises(Violation, match="reserves room for 1 records, and 0 are due"):
        check_room(host.node)


def test_messages_that_a_queue_or_its_domain_counts_and_does_not_have_are_noticed() -> None:
    rig = start()
    rig.connect().open(1, URI, WRITE | ACK)
    queue = rig.node.queues[URI]
    check_usage(rig.node)
    queue.domain_usage.add(10)
    with pytest.raises(Violation, match=r"domain 'priority' counts \(1, 10\) .* its queues \(0, 0\)"):
        check_usage(rig.node)
    queue.usage.add(10)
    with pytest.raises(Violation, match="counts 1 messages, and has 0"):
        check_usage(rig.node)


def test_clients_that_a_domain_does_not_admit_are_noticed() -> None:
    rig = start()
    for client in (rig.connect(), rig.connect()):
        client.open(1, URI, READ | WRITE | ACK)
    queue = rig.node.queues[URI]
    check_usage(rig.node)
    queue.configure_domain(replace(queue.config, producers_max=1))
    with pytest.raises(Violation, match="2 producers, and its domain admits 1"):
        check_usage(rig.node)
    queue.configure_domain(replace(queue.config, producers_max=2, consumers_max=1))
    with pytest.raises(Violation, match="2 consumers, and its domain admits 1"):
        check_usage(rig.node)


def test_bytes_of_posts_that_wait_no_longer_are_noticed() -> None:
    rig = start()
    waiting = rig.node.partitions[0].rollovers._waiting
    waiting.add(lambda: None, 10)
    check_waiting(rig.node)
    waiting._posts.clear()
    with pytest.raises(Violation, match="counts 10 bytes of waiting posts, and there are 0"):
        check_waiting(rig.node)


def test_a_message_that_its_domain_keeps_from_an_app_is_noticed() -> None:
    found = records()
    found.wants[URI, "__default"] = lambda x: x == 1
    found.posted(Post(guid(1), URI, "p0", 1, 10, x=1))
    found.posted(Post(guid(2), URI, "p0", 2, 10, x=2))
    for number in (1, 2):
        found.ack(guid(number), AckStatus.SUCCESS)
    assert [post.number for post in found.missing(found.views[URI]["__default"])] == [1]
    hand_out(found, 1)
    with pytest.raises(Violation, match="which its domain keeps it from"):
        hand_out(found, 2)


def test_a_consumer_reads_no_message_by_the_shape_of_another() -> None:
    """A schema id is a number, and a bit that says whether the number has another shape from now on."""
    consumer = Consumer(World(1), "c0", [(PRIORITY, "")])
    for schema_id, shape in ((3, 1), (2, 1), (3, 2), (2, 2), (4, 1), (1, 3), (0, 0)):
        consumer._learn(0, schema_id, shape)
    for schema_id, shape in ((2, 1), (1, 0), (0, 1)):
        with pytest.raises(Violation, match="takes properties of shape"):
            consumer._learn(0, schema_id, shape)


def test_a_message_is_missing_only_while_it_must_live() -> None:
    found = records(1)
    found.lives_us[URI] = 1000
    found.ack(guid(1), AckStatus.SUCCESS)
    view = found.views[URI]["__default"]
    assert list(found.missing(view))
    found.clock.us = 1000
    assert not list(found.missing(view))


def test_a_post_that_a_broker_has_refused_may_come_after_later_ones() -> None:
    """A refused post out of order: the posts that came with it keep their order."""
    found = records(1, 2, 3)
    found.refused(guid(1))
    hand_out(found, 3)
    hand_out(found, 1)
    with pytest.raises(Violation, match="after number 3"):
        hand_out(found, 2)


def test_copies_on_a_majority_are_not_there_to_stay_while_another_node_has_a_newer_lease() -> None:
    """A node with a newer lease, which one of the majority would follow."""
    journals = Journals(0, 2, lambda guid: None)
    for node_id, position in enumerate(((1, 57), (2, 1), (1, 57))):
        view = journals.views[node_id] = JournalView()
        view.position = position
        view.numbers = {(1, 56)} if node_id == 1 else {(1, 56), (1, 57)}
    assert journals.is_settled((1, 56))
    assert not journals.is_settled((1, 57))
    journals.views[0].position = (3, 1)
    assert not journals.is_settled((1, 57))
    journals.views[2].position = (3, 1)
    assert journals.is_settled((1, 57))


def with_record(journals: Journals, nodes: int, holders: set[int]) -> None:
    """Let all have one record, and some another one after it."""
    for node_id in range(nodes):
        view = journals.views[node_id] = JournalView()
        view.position = (1, 2) if node_id in holders else (1, 1)
        view.numbers = {(1, 1), (1, 2)} if node_id in holders else {(1, 1)}
        for number in view.numbers:
            journals.copies.held(node_id, number)


def test_confirms_of_apps_that_do_not_want_a_message_come_before_its_record() -> None:
    view, key, foo = JournalView(), b"queue", b"foo__"
    confirm, message = bytearray(JOURNAL_RECORD_SIZE), bytearray(JOURNAL_RECORD_SIZE)
    pack_confirm(confirm, 0, 1, 1, 0, ConfirmReason.AUTO_CONFIRMED, key, foo, guid(1))
    pack_message(message, 0, 1, 2, 0, 1, 0, key, 0, guid(1), 0)
    view.take(RecordType.CONFIRM, bytes(confirm))
    view.take(RecordType.MESSAGE, bytes(message))
    assert view.kept[guid(1)].confirmed == {foo}
    assert view.kept[guid(1)].is_wanted


def test_a_damaged_node_counts_for_the_records_that_it_has_had() -> None:
    """A damaged node, which tells a new primary nothing, so that this one must hear of more of the others."""
    journals = Journals(0, 3, lambda guid: None)
    with_record(journals, 5, {0, 1})
    assert not journals.is_settled((1, 2))
    journals.damaged = {0}
    assert not journals.is_settled((1, 2))
    journals.copies.held(2, (1, 2))
    journals.damaged = {2}
    assert journals.is_settled((1, 2))


def test_a_damaged_node_may_be_healed_by_a_primary_that_has_yet_to_write_a_record() -> None:
    """A node with all that it had, once healed: with one that lacks the record, too, it makes a quorum."""
    journals = Journals(0, 2, lambda guid: None)
    with_record(journals, 3, {0})
    journals.damaged = {1}
    assert not journals.is_settled((1, 2))


@pytest.mark.parametrize("missing", [1, 90])
def test_an_event_that_begins_with_a_whole_post_says_what_can_be(missing: int) -> None:
    """The second of two posts is incomplete, or both are."""
    puts = bytearray()
    for number in (1, 2):
        append_put(puts, 1, guid(number), b"data" * 10, crc32c(b"data" * 10))
    event = build_event(EventType.PUT, puts[:-missing])
    assert is_malformed(event)
    assert has_whole_message(event) == (missing == 1)


def test_a_close_that_says_what_cannot_be_has_a_count_below_zero() -> None:
    """Change only numbers that no valid request has: an old request with another number would be carried out."""
    parameters = QueueHandleParameters(uri=QUEUE, q_id=1, flags=WRITE, read_count=0, write_count=1)
    event = build_schema_event(ber.encode(ControlMessage(r_id=7, choice=CloseQueue(handle_parameters=parameters))))
    malformer = Malformer(Random(1), lambda: True)
    for _ in range(40):
        stretched = malformer.stretched(event)
        assert stretched is not None
        close = ber.decode(ControlMessage, stretched[8:]).choice
        assert isinstance(close, CloseQueue)
        found = close.handle_parameters
        assert min(found.read_count, found.write_count, found.admin_count) < 0
        assert found.q_id == 1


def test_which_posts_are_refused_by_what_goes_from_broker_to_broker() -> None:
    """A broker sends again by itself what its upstream was not ready for: that is no refusal."""
    statuses = (AckStatus.SUCCESS, AckStatus.UNKNOWN, AckStatus.NOT_READY, AckStatus.LIMIT_BYTES)
    acks = [(int(status), 0, guid(number), 1) for number, status in enumerate(statuses)]
    events = build_event(EventType.CONTROL, b"not looked at...") + build_ack_event(acks)
    assert list(refused_in(memoryview(events))) == [guid(1), guid(3)]


def test_a_payload_does_not_rot_that_was_written_a_moment_ago_and_waits_for_copies() -> None:
    """The only payload that is spared; later it may rot, as it will be compared with its checksum."""
    rig = start(domains=dict(STRONG))
    partition = rig.node.partitions[0]
    partition.kept.copies_wanted = 2
    partition.kept.is_copied = True
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.put(1, guid(1), b"one")
    partition.kept.copied(partition.sequence_number)
    client.put(1, guid(2), b"another")
    second = rig.node.queues[QUEUE].messages[guid(2)]
    spared = (partition.files.data.name, second.offset, partition.files.data_end)
    rig.now.ms += COMPARED_AFTER_MS
    assert just_written(rig.node) == [spared]
    rotten = [Disk(Random(seed), rig.directory.after_crash()) for seed in range(100)]
    assert sum(disk.rot_running(disk.random, lambda directory: True, [spared]) for disk in rotten) > 90
    assert not any(second.offset <= at for disk in rotten for _, at, _, _ in disk.running_rot)
    rig.now.ms += 1
    assert just_written(rig.node) == []
    name, start_at, end = spared
    assert [list(rotted_at(rig.node, name, at)) for at in (start_at - 1, start_at, end - 1)] == [
        [],
        [guid(2)],
        [guid(2)],
    ]


def test_a_post_is_given_up_before_its_time_only_if_its_payload_has_rotted() -> None:
    world = ClusterWorld(1, nodes=3, features=frozenset())
    for number in (1, 2):
        world.records.posted(Post(guid(number), PRIORITY, "p0", number, 10, rotted=number == 1))
    world.records.ack(guid(1), AckStatus.UNKNOWN)
    with pytest.raises(Violation, match=r"number 2 .* is given up before its time"):
        world.records.ack(guid(2), AckStatus.UNKNOWN)


def test_a_removed_message_that_waited_for_copies_has_no_place_after_a_rollover() -> None:
    """The partition still waits for copies of its record, and its files have it no longer."""
    rig = start(domains=dict(STRONG))
    partition = rig.node.partitions[0]
    partition.kept.copies_wanted = 2
    partition.kept.is_copied = True
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.put(1, guid(1), b"one")
    assert len(just_written(rig.node)) == 1
    purge(rig.node.queues[QUEUE])
    partition.roll_over()
    assert [each.message.guid for each in partition.kept.awaiting] == [guid(1)]
    assert just_written(rig.node) == []


def test_a_repetition_is_another_message_after_its_queue_has_forgotten_the_first() -> None:
    found = records(1, 2)
    found.windows_us[URI] = 1_000_000
    for number in (1, 2):
        hand_out(found, number)
        found.confirm_sent(URI, "__default", guid(number))
        found.confirmed(URI, "__default", [guid(number)])
    found.clock.us = 900_000
    with pytest.raises(Violation, match="which had confirmed it"):
        hand_out(found, 1)
    found.clock.us = 1_100_000
    hand_out(found, 2)
    # It is done with once more, and may not have been removed yet.
    found.confirm_sent(URI, "__default", guid(2))
    hand_out(found, 2)


@pytest.mark.parametrize(("owes", "at_us"), [(True, 1_100_000), (False, 900_000)])
def test_an_app_that_is_done_with_it_late_does_not_make_it_the_first_message_again(*, owes: bool, at_us: int) -> None:
    """A repetition at an app that died of the first message, or at an app that is not there to stay."""
    found = Records({URI: ("foo", "bar")}, {URI: Promise.KEPT})
    found.views[URI]["bar"].owes = owes
    found.windows_us[URI] = 1_000_000
    post = Post(guid(1), URI, "p0", 1, 10)
    found.posted(post)
    for app in ("foo", "bar"):
        found.confirm_sent(URI, app, guid(1))
    found.confirmed(URI, "foo", [guid(1)])
    found.posted_again(post)
    found.clock.us = at_us
    found.confirm_sent(URI, "bar", guid(1))
    found.clock.us = 1_200_000
    assert all(found.may_be_new(post, app) for app in ("foo", "bar"))
    assert found.is_unordered(post, "bar") != owes


def test_an_app_without_a_claim_may_get_what_is_posted_again_after_another_app_was_done_with_it() -> None:
    """A node may have forgotten that the message was there, as with a loss of power."""
    found = Records({URI: ("foo", "baz")}, {URI: Promise.KEPT})
    for number in (1, 2):
        found.posted(Post(guid(number), URI, "p0", number, 10))
    found.views[URI]["baz"].owes = False
    found.push(Reader("fbaz"), URI, "baz", guid(2), payload_of(found.posts[guid(2)]))
    found.step_ends()
    found.confirm_sent(URI, "foo", guid(1))
    assert not found.is_unordered(found.posts[guid(1)], "baz")
    found.posted_again(found.posts[guid(1)])
    found.push(Reader("fbaz"), URI, "baz", guid(1), payload_of(found.posts[guid(1)]))
    assert not found.is_unordered(found.posts[guid(1)], "foo")


def test_a_post_that_a_relay_has_given_up_for_its_age_counts_as_refused() -> None:
    """Two posts that leave a relay, one of which has been there for as long as the queue remembers it."""
    found = records(1, 2, 3)
    passage = Passage(found, lambda host, uri: True)
    queue: Any = SimpleNamespace(uri=URI, now=Now(), config=DomainConfig("priority", Mode.PRIORITY))
    queue.posts = SimpleNamespace(unacknowledged={})
    kept_ms = queue.config.deduplication_time_ms
    node: Any = None
    broker = Broker(node)
    for number, ms in ((1, 0), (2, 1), (3, 500)):
        queue.now.ms = ms
        queue.posts.unacknowledged[guid(number)] = SimpleNamespace(posted_ms=ms)
        passage._note_expired(broker, queue)
    queue.now.ms = kept_ms
    del queue.posts.unacknowledged[guid(1)], queue.posts.unacknowledged[guid(2)]
    passage._note_expired(broker, queue)
    assert [post.number for post in found.posts.values() if post.refused] == [1]


def test_a_link_of_two_machines_that_have_lost_power_is_held_by_nobody() -> None:
    """Each end is gone with its machine; before, one end holds a link over which nothing comes."""
    network = Network(Clock(), Random(0))
    ends: list[Any] = [SimpleNamespace(machine=name) for name in ("n0", "n1")]
    link = network.connect(*ends)
    found = [(link.is_held, link.is_whole)]
    for end in ends:
        link.abandon(end)
        found.append((link.is_held, link.is_whole))
    assert found == [(True, True), (True, False), (False, False)]


def attempts_of(found: Records, limit: int) -> tuple[Attempts, Any]:
    """Make the judge of a queue's attempts, and a host whose node has the queue."""
    rig = start()
    client = rig.connect()
    client.open(1, URI, WRITE | ACK)
    world: Any = SimpleNamespace(features=frozenset({Feature.ATTEMPTS}), seed=0, records=found, is_busy=True)
    world.domains, world.promises = {"priority": rig.node.domains["priority"].config}, {}
    world.domains["fanout"] = world.domains["priority"]
    attempts, host = Attempts(world), SimpleNamespace(node=rig.node, name="n0")
    attempts._limits[URI] = limit
    world.hosts = [host]
    return attempts, host


def test_a_message_is_delivered_as_often_as_its_queue_allows_and_may_be_removed_then() -> None:
    found = records(1)
    found.ack(guid(1), AckStatus.SUCCESS)
    attempts, host = attempts_of(found, 2)
    links: list[Any] = [object(), object(), object()]
    for link in links[:2]:
        assert guid(1) in found.views[URI]["__default"].owed
        attempts.pushed(link, host, URI, "__default", guid(1))
        attempts.died(link, host)
    assert guid(1) not in found.views[URI]["__default"].owed
    with pytest.raises(Violation, match="after 2 consumers have died of it, and 2 may"):
        attempts.pushed(links[2], host, URI, "__default", guid(1))


def test_a_death_counts_for_what_was_not_confirmed_and_until_a_broker_is_lost() -> None:
    attempts, host = attempts_of(records(1), 2)
    links: list[Any] = [object() for _ in range(5)]
    for link in links[:2]:
        attempts.pushed(link, host, URI, "__default", guid(1))
        attempts.confirmed(link, "__default", guid(1))
        attempts.died(link, host)
    for link in links[2:]:
        attempts.pushed(link, host, URI, "__default", guid(1))
        attempts.died(link, host)
        attempts.link_lost()


def test_attempts_that_a_held_message_gets_back_when_its_queue_moves_are_noticed() -> None:
    found = records(1)
    attempts, host = attempts_of(found, 3)
    queue = host.node.queues[URI]
    app = queue.apps["__default"]
    stream = Stream(app, Nobody(), 0, 0)
    held: Any = (object(), object())
    stream.unconfirmed.add(guid(1), held)
    app.streams.append(stream)
    for left in (1, 2):
        attempts._left["n0", URI] = {(stream, guid(1)): 2}
        app.attempts[guid(1)] = left
        attempts._look_at_held(host, queue)
    attempts._left["n0", URI] = {(stream, guid(1)): 2}
    del app.attempts[guid(1)]
    with pytest.raises(Violation, match=r"gives number 1 .* 3 attempts for '__default', and it had 2"):
        attempts._look_at_held(host, queue)


def test_a_link_to_a_machine_that_has_lost_power_is_not_whole_until_its_other_end_finds_out() -> None:
    clock = Clock()
    dialing, listening = (SimpleNamespace(machine=name, asks=True, lost=lambda reason: None) for name in ("a", "b"))
    link = Network(clock, Random(1)).connect(dialing, listening)
    was_whole = link.is_whole
    link.abandon(listening)
    assert (was_whole, link.is_whole, link.is_cut) == (True, False, False)
    while link in link.network.links:
        clock.step()
    assert 0 < clock.us <= SILENCE_US_MAX + link.network.delay_us_max


def test_a_replica_that_knows_of_the_next_primary_is_not_in_the_quorum_of_the_last() -> None:
    world = ClusterWorld(1, nodes=3, features=frozenset())
    for host in world.hosts:
        host.start()
    for client in world.clients:
        client.dial()
    world.run_until(1_000_000)
    (primary,) = [host for host in world.hosts if world.leads(host, PRIORITY)]
    assert [follows(host, primary, PRIORITY) for host in world.hosts] == [True] * 3
    replica = next(host for host in world.hosts if host is not primary)
    assert replica.member is not None
    _, lease_id = replica.member.metadata.primary_of(0)
    replica.member.metadata._primaries.tell(0, replica.node_id, lease_id + 1)
    assert not follows(replica, primary, PRIORITY)


def test_posts_are_refused_until_their_sender_knows_it() -> None:
    not_ready = NotReady()
    events = []
    for number in range(4):
        put = bytearray()
        append_put(put, 1, guid(number), b"x", crc32c(b"x"))
        events.append(build_event(EventType.PUT, put))
    passes, first, answered = not_ready.part(events[0] + build_event(EventType.CONTROL, b"not looked at..."))
    assert passes == build_event(EventType.CONTROL, b"not looked at...")
    assert first == build_ack_event([(int(AckStatus.NOT_READY), 0, guid(0), 1)])
    not_ready.is_armed = False
    _, second, later = not_ready.part(events[1])
    assert second
    not_ready.end(answered)
    assert not_ready.part(events[2])[:2] == (events[2], b"")
    assert not_ready.is_over
    not_ready.is_armed = True
    _, _, answered = not_ready.part(events[3])
    not_ready.end(later)
    assert not not_ready.part(events[0])[0], "it is another refusal"
    assert answered != later
