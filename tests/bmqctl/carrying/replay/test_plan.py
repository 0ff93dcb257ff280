"""The selection of messages, and their order."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from bmqctl.carrying.replay.messages import MessageSource, StoredMessage
from bmqctl.carrying.replay.names import BadRename, Renames
from bmqctl.carrying.replay.plan import ENTRY, Plan, Selection, StoreChanged, make_plan
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.wanted import BadFilter
from formats.bmq.disk.files import FileType
from formats.bmq.stores.outcomes import MessageOutcome
from tests.bmqctl.carrying.replay.stores import FANOUT, PRIORITY, START_S, build, guid, lines, message
from tests.golden.archives import only

ALL = frozenset({0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("replay") / "store", lines())


def chosen(store: Path, selection: Selection) -> list[int]:
    """The numbers of the messages, in the plan's order."""
    with ExitStack() as stack:
        plan = make_plan([only(store, ".bmq_journal")], selection, stack)
        found = [plan.sources[0].read(int(place)) for place in plan.entries["place"]]
        return [int.from_bytes(each.guid[1:], "big") for each in found if isinstance(each, StoredMessage)]


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), ALL),
        (Selection(queues=(PRIORITY,)), {10, 11, 12, 13, 14}),
        (Selection(queues=(PRIORITY, FANOUT)), ALL),
        (Selection(since=START_S + 4, until=START_S + 11), {4, 5, 10}),
        (Selection(guids=frozenset({bytes.fromhex(guid(2)), bytes.fromhex(guid(12))})), {2, 12}),
        (Selection(matches=lambda values: values["region"] == "eu"), {1, 3, 5, 11, 13}),
        (Selection(outcomes=frozenset({MessageOutcome.OUTSTANDING})), {0, 1, 2, 5, 10, 14}),
        (Selection(outcomes=frozenset({MessageOutcome.PARTIALLY_CONFIRMED})), {1, 2}),
        (Selection(outcomes=frozenset({MessageOutcome.CONFIRMED})), {3, 11}),
        (Selection(outcomes=frozenset({MessageOutcome.EXPIRED})), {4, 12}),
        (Selection(outcomes=frozenset({MessageOutcome.PURGED})), {13}),
        (Selection(outcomes=frozenset({MessageOutcome.PURGED, MessageOutcome.EXPIRED})), {4, 12, 13}),
        (Selection(outcomes=frozenset({MessageOutcome.NO_QUORUM})), set()),
        # An app is asked about what it was to get: baz came after message 5.
        (Selection(apps=("foo",)), {0, 1, 2, 3, 4, 5}),
        (Selection(apps=("baz",)), {0, 1, 2, 3, 4}),
        (Selection(apps=("foo",), outcomes=frozenset({MessageOutcome.OUTSTANDING})), {0, 5}),
        (Selection(apps=("foo",), outcomes=frozenset({MessageOutcome.CONFIRMED})), {1, 2, 3, 4}),
        (Selection(apps=("foo",), outcomes=frozenset({MessageOutcome.EXPIRED})), set()),
        (Selection(apps=("bar",), outcomes=frozenset({MessageOutcome.OUTSTANDING})), {0, 1, 5}),
        (Selection(apps=("bar",), outcomes=frozenset({MessageOutcome.EXPIRED})), {4}),
        (Selection(apps=("bar",), outcomes=frozenset({MessageOutcome.PARTIALLY_CONFIRMED})), {1}),
        # The last app's confirm has no record of its own.
        (Selection(apps=("baz",), outcomes=frozenset({MessageOutcome.CONFIRMED})), {3}),
        (Selection(apps=("baz", "foo"), outcomes=frozenset({MessageOutcome.OUTSTANDING})), {0, 1, 2, 5}),
        (
            Selection(apps=("baz",), since=START_S + 1, queues=(FANOUT,), outcomes=frozenset(MessageOutcome)),
            {1, 2, 3, 4},
        ),
        (Selection(queues=(PRIORITY,), outcomes=frozenset({MessageOutcome.OUTSTANDING}), since=START_S + 11), {14}),
    ],
)
def test_selection(store: Path, selection: Selection, wanted: set[int]) -> None:
    assert set(chosen(store, selection)) == wanted


def test_the_order_is_the_journal_s_even_where_its_clock_went_back(tmp_path: Path) -> None:
    times = [10, 11, 5, 12, 12]
    store = build(
        tmp_path / "store",
        [
            {"type": "QUEUE_OP", "queue_uri": PRIORITY},
            *(message(number, PRIORITY, timestamp=START_S + time) for number, time in enumerate(times)),
        ],
    )
    assert chosen(store, Selection()) == [0, 1, 2, 3, 4]
    with ExitStack() as stack:
        plan = make_plan([only(store, ".bmq_journal")], Selection(), stack)
        assert (plan.entries["time"] - START_S).tolist() == [10, 11, 11, 12, 12]


def test_journals_are_merged_by_time(tmp_path: Path) -> None:
    stores = []
    for partition, numbers in enumerate(([1, 2, 6], [3, 4, 5])):
        uri = f"{PRIORITY}-{partition}"
        stores.append(
            build(
                tmp_path / str(partition),
                [
                    {"type": "QUEUE_OP", "queue_uri": uri, "partition_id": partition},
                    *(message(number, uri, partition_id=partition) for number in numbers),
                ],
            )
        )
    with ExitStack() as stack:
        plan = make_plan([only(store, ".bmq_journal") for store in stores], Selection(), stack)
        assert plan.entries["journal"].tolist() == [0, 0, 1, 1, 1, 0]
        assert [plan.queues[number] for number in plan.entries["queue"].tolist()] == [
            f"{PRIORITY}-{journal}" for journal in plan.entries["journal"].tolist()
        ]


def test_a_journal_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """The others are replayed, and a replay that is resumed has the same messages once the journal is repaired."""
    journals = []
    for partition in (0, 1):
        uri = f"{PRIORITY}-{partition}"
        queue = {"type": "QUEUE_OP", "queue_uri": uri, "partition_id": partition}
        store = build(tmp_path / str(partition), [queue, message(partition, uri, partition_id=partition)])
        journals.append(only(store, ".bmq_journal"))
    whole = journals[1].read_bytes()
    with ExitStack() as stack:
        ends = make_plan(journals, Selection(), stack).ends
        journals[1].write_bytes(b"?" + whole[1:])
        plan = make_plan(journals, Selection(), stack)
        assert plan.queues == [f"{PRIORITY}-0"]
        assert [str(journals[1]) in each for each in plan.left_out] == [True]
        with pytest.raises(StoreChanged, match="it was sound when the replay began"):
            make_plan(journals, Selection(), stack, ends)
        assert make_plan(journals, Selection(), stack, plan.ends).digest() == plan.digest()
        journals[1].write_bytes(whole)
        assert make_plan(journals, Selection(), stack, plan.ends).digest() == plan.digest()
        only(journals[1].parent, FileType.DATA.extension).unlink()
        assert len(make_plan(journals, Selection(), stack).left_out) == 1
        journals[0].write_bytes(b"")
        with pytest.raises(NotAStoreFile):
            make_plan(journals, Selection(), stack)


def test_a_message_whose_properties_cannot_be_read_is_selected(tmp_path: Path) -> None:
    store = build(tmp_path / "store", lines())
    data = only(store, FileType.DATA.extension)
    data.write_bytes(data.read_bytes().replace(b"message 12", b"message xx"))
    assert set(chosen_places_of(store, Selection(matches=lambda values: False))) == {12}


def chosen_places_of(store: Path, selection: Selection) -> list[int]:
    with ExitStack() as stack:
        plan = make_plan([only(store, ".bmq_journal")], selection, stack)
        source = plan.sources[0]
        assert isinstance(source, MessageSource)
        records = [source.reader.read(int(place), 1) for place in plan.entries["place"]]
        return [number for number in ALL for record in records if bytes.fromhex(guid(number)) in record]


def test_later_messages_are_left_out_and_lost_ones_are_reported(store: Path) -> None:
    journal = only(store, ".bmq_journal")
    with ExitStack() as stack:
        whole = make_plan([journal], Selection(), stack)
        end = whole.ends[journal.name]
        part = make_plan([journal], Selection(), stack, {journal.name: end - 3})
        assert len(part.entries) == len(whole.entries) - 1
        assert part.digest() != whole.digest()
        assert make_plan([journal], Selection(), stack, whole.ends).digest() == whole.digest()
        with pytest.raises(StoreChanged, match=rf"has {end} records, and had {end + 1}"):
            make_plan([journal], Selection(), stack, {journal.name: end + 1})


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (Selection(queues=("bmq://nowhere/q",)), "--queue bmq://nowhere/q: not in the store"),
        (Selection(apps=("qux",)), "--app qux: not in the store; known names: __default, bar, baz, foo"),
        (Selection(since=2, until=1), "--since must be before --until"),
    ],
)
def test_impossible_selection_is_refused(store: Path, selection: Selection, reason: str) -> None:
    with ExitStack() as stack, pytest.raises(BadFilter, match=reason.replace("?", r"\?")):
        make_plan([only(store, ".bmq_journal")], selection, stack)


@pytest.mark.parametrize(
    ("rules", "targets"),
    [
        ([], ["bmq://a/x", "bmq://a/y", "bmq://b/x"]),
        (["bmq://a/x=bmq://c/z"], ["bmq://c/z", "bmq://a/y", "bmq://b/x"]),
        (["bmq://a/*=bmq://c/*"], ["bmq://c/x", "bmq://c/y", "bmq://b/x"]),
        (["bmq://a/*=bmq://c/all"], ["bmq://c/all", "bmq://c/all", "bmq://b/x"]),
        (["bmq://a/y=bmq://c/y", "bmq://*=bmq://d.*"], ["bmq://d.a/x", "bmq://c/y", "bmq://d.b/x"]),
    ],
)
def test_renames(rules: list[str], targets: list[str]) -> None:
    queues = ["bmq://a/x", "bmq://a/y", "bmq://b/x"]
    assert Renames(rules).targets(queues, queues) == targets


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("bmq://a/x", "write FROM=TO"),
        ("=bmq://a/x", "write FROM=TO"),
        ("bmq://a/x=bmq://a/*", "TO has a * but FROM does not"),
        ("bmq://a/z=bmq://b/z", "--rename bmq://a/z: the store has no such queue"),
        ("bmq://a/x=b/z", "b/z: Invalid scheme"),
        ("bmq://a/x=bmq://a/z?id=foo", "not to one of its apps"),
        ("bmq://a/x=bmq://a/x", "the queue with key 0102030405 has no name in this store"),
    ],
)
def test_renames_that_lead_nowhere(rule: str, reason: str) -> None:
    queues = ["bmq://a/x", "0102030405"]
    with pytest.raises(BadRename, match=reason.replace("*", r"\*")):
        Renames([rule]).targets(queues, queues)


def test_the_messages_of_a_second_are_spread_over_it() -> None:
    entries = np.zeros(6, ENTRY)
    entries["time"] = [100, 100, 100, 100, 103, 103]
    plan = Plan([], entries, [], {})
    assert plan.due_s(np.arange(6), 1.0).tolist() == [0.0, 0.25, 0.5, 0.75, 3.0, 3.5]
    assert plan.due_s(np.arange(6), 2.0).tolist() == [0.0, 0.125, 0.25, 0.375, 1.5, 1.75]
    # The rest of a replay begins at once.
    assert plan.due_s(np.array([3, 4, 5]), 1.0).tolist() == [0.0, 3.0, 3.5]
    assert plan.due_s(np.arange(0), 1.0).tolist() == []
