"""Steps of at most a slice, however many messages there are, with nothing out of order in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.common.installed import is_compiled
from broker.bmq.core.messages import Content, Message, message_of
from broker.bmq.core.redelivery import MOVES_PER_UNIT, Lot, Returning
from broker.bmq.core.work import Work
from broker.bmq.queue import backlog, delivery, root_queue
from broker.bmq.queue.delivery import Delivery
from broker.bmq.queue.queue import Queue
from broker.bmq.store import chunked
from broker.common.clock import Now
from tests.broker.bmq.queue.posting import QUEUE, ROOMY, numbers, post, producing, reading
from tests.broker.bmq.rig import DOMAINS, Client, Rig, Wanted, guid, start

AMOUNT = 10
MANY = 25 * AMOUNT
MEMORY = "bmq://memory/q"


@pytest.fixture
def rig() -> Rig:
    return slicing(start())


def slicing(rig: Rig) -> Rig:
    """Slices are short, so that little is much."""
    rig.node.work.amount = rig.node.work.left = AMOUNT
    return rig


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the messages offered or sent since the last call."""
    if is_compiled():
        pytest.skip("compiled code does not look up the methods that are replaced here")
    counted = 0

    def counting(name: str) -> None:
        original = getattr(Delivery, name)

        def either(self: Delivery, *args: object) -> object:
            nonlocal counted
            counted += 1
            return original(self, *args)

        monkeypatch.setattr(Delivery, name, either)

    counting("offer")
    counting("send")

    def taken() -> int:
        nonlocal counted
        was, counted = counted, 0
        return was

    return taken


def fill(rig: Rig, messages: int = MANY, uri: str = MEMORY) -> Queue:
    """A queue of numbered messages, whose numbers are their payloads."""
    producing(rig, uri)
    queue = rig.node.queues[uri]
    for number in range(messages):
        add(queue, number)
    rig.node.work.finish()
    return queue


def add(queue: Queue, number: int) -> None:
    queue.post_one(guid(number), Content(b"%d" % number, 0, 0, False, 0))


def all_steps(rig: Rig, looks: Callable[[], int]) -> list[int]:
    """End steps until there is nothing left to do: how many messages each looked at."""
    found = []
    while any(rig.node.end_step()):
        found.append(looks())
    return [*found, looks()]


def subscribing(rig: Rig, *wanted: Wanted) -> Client:
    client = rig.connect()
    client.open(1, MEMORY, 2)
    client.subscribe(1, *wanted)
    return client


def check_steps(rig: Rig, looks: Callable[[], int], least: int) -> None:
    """Each of the steps from here on does its part and no more; the one before has begun it."""
    first = looks()
    steps = all_steps(rig, looks)
    # A message that is sent is offered before.
    assert max(first, *steps) <= 2 * AMOUNT + 2
    assert first + sum(steps) >= least


# -- delivering


def test_a_consumer_that_comes_gets_what_waits_in_slices(rig: Rig, looks: Callable[[], int]) -> None:
    fill(rig)
    consumer = reading(rig, MEMORY)
    check_steps(rig, looks, MANY)
    assert numbers(consumer) == list(range(MANY))


def test_messages_between_slices_do_not_overtake(rig: Rig) -> None:
    queue = fill(rig)
    consumer = reading(rig, MEMORY)
    late = count(MANY)
    while any(rig.node.end_step()):
        add(queue, next(late))
    assert numbers(consumer) == list(range(next(late)))


def test_confirms_between_slices_send_nothing_by_themselves(rig: Rig, looks: Callable[[], int]) -> None:
    fill(rig)
    consumer = reading(rig, MEMORY)
    first = numbers(consumer)
    assert 0 < len(first) <= AMOUNT
    looks()
    consumer.confirm(1, *map(guid, first))
    assert looks() == 0
    rig.node.work.finish()
    assert numbers(consumer) == list(range(len(first), MANY))


def test_large_messages_make_short_slices() -> None:
    rig = slicing(start())
    producing(rig, MEMORY)
    queue = rig.node.queues[MEMORY]
    for number in range(40):
        queue.post_one(guid(number), Content(bytes(1 << 16), 0, 0, False, 0))
    consumer = reading(rig, MEMORY)
    assert len(consumer.pushes()) == 2
    rig.node.work.finish()
    assert len(consumer.pushes()) == 38


# -- what was put aside


def test_messages_put_aside_are_looked_at_in_slices(rig: Rig, looks: Callable[[], int]) -> None:
    subscribing(rig, Wanted("x > 1"))
    queue = fill(rig)
    app = queue.apps["__default"]
    assert len(app.aside) == MANY
    looks()
    other = subscribing(rig, Wanted("x > 2"))
    check_steps(rig, looks, MANY)
    assert len(app.aside) == MANY
    assert list(app.aside) == [guid(number) for number in range(MANY)]
    looks()
    other.subscribe(1, Wanted())
    check_steps(rig, looks, MANY)
    assert numbers(other) == list(range(MANY))


def test_posts_while_it_is_looked_at_stay_behind_it(rig: Rig) -> None:
    subscribing(rig, Wanted("x > 1"))
    queue = fill(rig)
    consumer = subscribing(rig, Wanted())
    late = count(MANY)
    while any(rig.node.end_step()):
        add(queue, next(late))
    assert numbers(consumer) == list(range(next(late)))


def test_groups_that_stay_what_they_were_are_not_looked_at_again(rig: Rig, looks: Callable[[], int]) -> None:
    first = subscribing(rig, Wanted("x > 1"))
    fill(rig)
    looks()
    for _ in range(3):
        second = subscribing(rig, Wanted("x > 1", messages_max=7))
        rig.node.disconnect(second.session, "gone")
    first.subscribe(1, Wanted("x > 1", messages_max=3))
    first.close(1, MEMORY, 2)
    again = subscribing(rig, Wanted("x > 1"))
    assert sum(all_steps(rig, looks)) == 0
    assert len(rig.node.queues[MEMORY].apps["__default"].aside) == MANY
    # Nothing is lost for all that.
    again.subscribe(1, Wanted())
    rig.node.work.finish()
    assert numbers(again) == list(range(MANY))


def test_messages_that_wait_for_room_go_in_slices_and_before_later_ones(rig: Rig, looks: Callable[[], int]) -> None:
    blocked = subscribing(rig, Wanted(messages_max=0), Wanted("x > 1"))
    queue = fill(rig)
    assert len(queue.apps["__default"].aside) == MANY
    looks()
    blocked.subscribe(1, Wanted(), Wanted("x > 1"))
    add(queue, MANY)
    check_steps(rig, looks, MANY // 2)
    assert numbers(blocked) == list(range(MANY + 1))


# -- redelivery


def test_messages_of_a_consumer_that_leaves_go_to_others_in_order_and_in_slices(
    rig: Rig, looks: Callable[[], int]
) -> None:
    first, second = reading(rig, MEMORY), reading(rig, MEMORY)
    queue = fill(rig)
    third = reading(rig, MEMORY)
    assert numbers(first) == list(range(0, MANY, 2))
    assert numbers(second) == list(range(1, MANY, 2))
    looks()
    rig.node.disconnect(first.session, "gone")
    late = count(MANY)
    while any(rig.node.end_step()):
        assert looks() <= 2 * AMOUNT + 2
        add(queue, next(late))
    got = numbers(second), numbers(third)
    assert all(each == sorted(each) for each in got)
    assert sorted([*got[0], *got[1]]) == [*range(0, MANY, 2), *range(MANY, next(late))]


def test_consumers_that_come_and_go_cost_what_they_had(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(rig)
    looked = 0
    original = Message.__dict__["offset"]

    class Counted:
        def __get__(self, message: Message, kind: object = None) -> int:
            nonlocal looked
            looked += 1
            return int(original.__get__(message, kind))

        def __set__(self, message: Message, value: int) -> None:
            original.__set__(message, value)

    keeper = reading(rig, MEMORY, messages_max=0)
    monkeypatch.setattr(Message, "offset", Counted())
    for _ in range(20):
        consumer = reading(rig, MEMORY, messages_max=3)
        assert numbers(consumer) == [0, 1, 2]
        rig.node.disconnect(consumer.session, "gone")
        rig.node.work.finish()
    assert looked < 20 * 30
    monkeypatch.undo()
    keeper.configure(1)
    rig.node.work.finish()
    assert numbers(keeper) == list(range(MANY))


def test_messages_of_a_lost_consumer_lose_one_attempt_each_in_slices() -> None:
    domain = replace(DOMAINS["memory"], delivery_attempts_max=2)
    rig = slicing(start(domains=[domain]))
    consumer = reading(rig, MEMORY)
    queue = fill(rig)
    assert len(numbers(consumer)) == MANY
    app = queue.apps["__default"]
    rig.node.disconnect(consumer.session, "gone")
    assert len(app.attempts) <= AMOUNT
    while any(rig.node.end_step()):
        assert queue.statistics.rejects <= MANY
    assert set(app.attempts.values()) == {1}
    assert len(app.attempts) == MANY
    again = reading(rig, MEMORY)
    rig.node.work.finish()
    rig.node.disconnect(again.session, "gone")
    rig.node.work.finish()
    # Poisonous ones keep a distance, so that it had but the first.
    assert len(queue.messages) == MANY - 1


def test_a_confirm_of_what_is_on_its_way_back_counts(rig: Rig) -> None:
    first = reading(rig, MEMORY)
    fill(rig)
    assert len(numbers(first)) == MANY
    rig.node.disconnect(first.session, "gone")
    second = reading(rig, MEMORY)
    second.confirm(1, guid(0), guid(MANY - 1))
    rig.node.work.finish()
    assert numbers(second) == list(range(1, MANY - 1))


def test_a_configuration_does_not_touch_what_a_consumer_holds(rig: Rig) -> None:
    consumer = reading(rig, MEMORY)
    queue = fill(rig)
    (stream,) = queue.apps["__default"].streams
    held = dict(stream.unconfirmed)
    consumer.configure(1, messages_max=MANY + 2)
    assert all(stream.unconfirmed[key] is value for key, value in held.items())
    for number in range(MANY, MANY + 5):
        add(queue, number)
    assert numbers(consumer) == list(range(MANY + 2))
    # And it counts when it has wanted nothing for a while.
    consumer.configure(1, consume=False)
    consumer.configure(1, messages_max=MANY + 3)
    assert numbers(consumer) == [MANY + 2]
    consumer.confirm(1, *map(guid, range((MANY + 3) // 5)))
    rig.node.work.finish()
    assert numbers(consumer) == [MANY + 3, MANY + 4]


def test_subscriptions_that_become_one_hold_what_both_held(rig: Rig) -> None:
    consumer = subscribing(rig, Wanted(messages_max=3), Wanted("1 > 0", messages_max=3))
    queue = fill(rig, 4)
    assert numbers(consumer) == [0, 1, 2, 3]
    consumer.subscribe(1, Wanted("1 > 0", messages_max=5))
    add(queue, 4)
    add(queue, 5)
    rig.node.work.finish()
    first = numbers(consumer)
    (stream,) = queue.apps["__default"].streams
    assert len(stream.unconfirmed) == 4 + len(first)
    assert sum(each.holds for each in [*stream.subscriptions, *stream.former]) == len(stream.unconfirmed)


# -- the order of what comes back

# Messages that return, as lots of numbers, and the ones that the app has finished with by then.
lots = st.lists(st.lists(st.integers(0, 400), unique=True, max_size=60), max_size=5)


@pytest.mark.slow
@given(lots, st.lists(st.integers(0, 400), unique=True), st.sets(st.integers(0, 400)), st.integers(1, 6))
def test_all_comes_back_in_order(lots: list[list[int]], waiting: list[int], done: set[int], amount: int) -> None:
    messages = {number: _message(number) for number in range(401)}
    taken: set[int] = set(waiting)
    given: list[Lot] = []
    for lot in lots:
        given.append({guid(number): messages[number] for number in lot if number not in taken})
        taken |= set(lot)
    line = deque(messages[number] for number in sorted(waiting))
    returning = Returning(1)
    for each in given:
        returning.add(each)
    now = Now(0, 0)
    work = Work(now, amount)
    finished = returning.settle(line, work)
    dying = iter(sorted(done))
    while not finished:
        # Between slices messages go, and files are replaced: what is gone keeps its old place.
        _end(messages, next(dying, None))
        assert sum(1 for each in [*line, *returning] if each.outstanding) == sum(
            1 for number in taken if messages[number].outstanding
        )
        for number in taken:
            if messages[number].outstanding:
                messages[number].offset += 1000
        now.ms += 1
        work.end_step()
        finished = returning.settle(line, work)
    alive = [each.size for each in line if each.outstanding]
    assert alive == sorted(number for number in taken if messages[number].outstanding)


def _message(number: int) -> Message:
    message = message_of(guid(number), number, Content(b"", 0, 0, False, 0), 1)
    message.offset = number
    return message


def _end(messages: dict[int, Message], number: int | None) -> None:
    if number is not None:
        messages[number].outstanding = 0


def test_bringing_back_does_no_more_than_a_slice() -> None:
    now = Now(0, 0)
    work = Work(now, AMOUNT)
    line: deque[Message] = deque()
    returning = Returning(1)
    returning.add({guid(number): _message(number) for number in range(10_000)})
    slices = 0
    while not returning.settle(line, work):
        slices += 1
        now.ms += 1
        work.end_step()
    assert slices >= 10_000 / (AMOUNT * MOVES_PER_UNIT) / 2
    assert [each.size for each in line] == list(range(10_000))


# -- tasks


def test_tasks_take_turns_and_none_is_forgotten() -> None:
    now = Now(0, 0)
    work = Work(now, 4)
    done: list[tuple[str, int]] = []

    def task(name: str, slices: int, units: int) -> Iterator[None]:
        for number in range(slices):
            work.left -= units
            done.append((name, number))
            yield

    work.add(task("a", 3, 4))
    work.add(task("b", 2, 1))
    work.add(task("c", 1, 1))
    assert len(work.tasks) == 3
    steps = []
    while work.end_step():
        steps.append(len(done))
        now.ms += 1
    assert steps[0] == 1
    assert sorted(done) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]
    assert work.left == 4


def test_many_queues_are_looked_after_in_slices() -> None:
    rig = slicing(start(domains=[replace(DOMAINS["memory"], message_ttl_s=1)], limits=ROOMY, ledger_size=1 << 20))
    client = rig.connect()
    for number in range(200):
        client.open(number + 1, f"bmq://memory/q{number}", 4 | 8)
        add(rig.node.queues[f"bmq://memory/q{number}"], number)
    rig.now.ms += 5000
    began_ms = rig.now.ms
    rig.node.tick()
    left = [sum(1 for queue in rig.node.queues.values() if queue.messages)]
    while any(rig.node.end_step()):
        left.append(sum(1 for queue in rig.node.queues.values() if queue.messages))
    assert left[-1] == 0
    assert rig.now.ms == began_ms
    assert all(before - after <= 2 * AMOUNT for before, after in zip([200, *left], left, strict=False))


def test_a_durable_queue_expires_and_keeps_its_books(rig: Rig) -> None:
    rig = slicing(start(domains=[replace(DOMAINS["priority"], message_ttl_s=1)]))
    producer = producing(rig)
    post(producer, *range(100))
    rig.now.ms += 5000
    rig.now.wall_s += 5
    rig.node.tick()
    between = rig.restart()
    assert 0 < len(between.node.queues[QUEUE].messages) < 100
    rig.node.work.finish()
    assert not rig.node.queues[QUEUE].messages
    assert rig.node.partitions[0].records.due == 0
    assert not rig.faults()


def test_expiry_goes_on_until_nothing_is_too_old(caplog: pytest.LogCaptureFixture) -> None:
    """Expiry continues even if the clock moves between the slices."""
    caplog.set_level("INFO")
    rig = slicing(start(domains=[replace(DOMAINS["memory"], message_ttl_s=1)]))
    queue = fill(rig)
    rig.now.ms += 5000
    rig.node.tick()
    sizes = [len(queue.messages)]
    while any(rig.node.end_step()):
        rig.now.ms += 1
        sizes.append(len(queue.messages))
    assert sizes[-1] == 0
    assert all(before - after <= 2 * AMOUNT for before, after in zip([MANY, *sizes], sizes, strict=False))
    assert caplog.text.count("messages due to TTL expiration") == 1


# -- dictionaries


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Dictionaries of messages are full soon: this many are in each at most."""
    for module in (backlog, chunked, delivery, root_queue):
        monkeypatch.setattr(module, "FULL", AMOUNT)
    return AMOUNT


def test_no_dictionary_has_to_move_very_many_messages(rig: Rig, small_chunks: int) -> None:
    """Messages are posted, sent, confirmed in any order, given back and put aside."""
    queue = fill(rig)
    app = queue.apps["__default"]
    consumer = subscribing(rig, Wanted(messages_max=MANY))
    rig.node.work.finish()
    check_chunks(queue.messages, app.streams[0].unconfirmed)
    got = numbers(consumer)
    assert got == list(range(MANY))
    gone = {*got[::3], *got[-2 * AMOUNT :]}
    consumer.confirm(1, *map(guid, sorted(gone, key=lambda number: number % 7)))
    left = [number for number in range(MANY) if number not in gone]
    assert [int(queue.log.read(each)) for each in queue.messages.values()] == left
    # Remaining messages are recognized as duplicates, whichever dictionary has them.
    for number in left[::7]:
        add(queue, number)
    assert len(queue.messages) == len(left)
    consumer.subscribe(1)
    other = subscribing(rig, Wanted("x > 1"))
    consumer.session.end("gone")
    rig.node.work.finish()
    assert len(app.aside) == len(left)
    check_chunks(queue.messages, app.aside)
    other.subscribe(1, Wanted(messages_max=MANY))
    rig.node.work.finish()
    assert numbers(other) == left


def check_chunks(messages: backlog.Backlog, held: chunked.Chunked[Any]) -> None:
    """Each has several dictionaries, and none of them is large."""
    for chunks in ([*(part.entries for part in messages.older), messages.newest], held.chunks):
        assert AMOUNT / 2 < max(map(len, chunks)) <= AMOUNT
        assert len(chunks) > 3
