"""The selection of messages of a RocketMQ store, and what is read of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bmqctl.carrying.replay.log_plan import LogSelection, make_log_plan, text_values
from bmqctl.carrying.replay.messages import StoredRecord
from bmqctl.carrying.replay.plan import Plan, StoreChanged
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.wanted import BadFilter
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.filters import LogFilters
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC
from formats.errors import FormatError
from formats.rocketmq.files.record import body_crc
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.properties import decode_properties
from tests.bmqctl.stores.rocketmq.logs import Written, message, write_log

DELAYED = {"DELAY": "5", "REAL_TOPIC": "orders", "REAL_QID": "2"}
FIRST_MS = 1_795_400_000_001


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Messages 0 to 9 of a topic, two of another, two that wait and one that waited, and a dead letter."""
    root = tmp_path_factory.mktemp("replay") / "store"
    made = write_log(
        root,
        [
            *(message(number, properties={"n": str(number)}) for number in range(10)),
            *(message(number, topic="prices", queue_id=0, queue_offset=number - 10) for number in (10, 11)),
            *(
                message(number, topic=DELAY_TOPIC, queue_id=4, queue_offset=number - 12, properties=DELAYED)
                for number in (12, 13, 14)
            ),
            message(15, topic="%DLQ%billing", queue_id=0, queue_offset=0),
        ],
    )
    config = root / "config"
    config.mkdir()
    # Of the delayed ones the first has come.
    (config / "delayOffset.json").write_text(json.dumps({"offsetTable": {"5": 1}}))
    offsets = {"orders@billing": {"0": 2, "1": 1, "2": 0}, "prices@audit": {"0": 1}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return made


@pytest.fixture
def planned() -> Iterator[Callable[..., Plan]]:
    with ExitStack() as stack:

        def plan(root: Path, selection: LogSelection | None = None, **more: Any) -> Plan:
            return make_log_plan(open_store(root), selection or LogSelection(), stack, **more)

        yield plan


def stored(plan: Plan) -> list[StoredRecord]:
    found = [plan.sources[0].read(int(place)) for place in plan.entries["place"]]
    return [each for each in found if isinstance(each, StoredRecord)]


def numbers(plan: Plan) -> list[int]:
    return [int(decode_properties(each.record.properties)["KEYS"][1:]) for each in stored(plan)]


def having(**filters: Any) -> LogSelection:
    return LogSelection(LogFilters(**filters))


ORDERS = [*range(10)]


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (LogSelection(), [*range(12)]),
        (having(topics=frozenset({"orders"})), ORDERS),
        (having(topics=frozenset({"%DLQ%billing", "prices"})), [10, 11, 15]),
        (having(queue_ids=frozenset({1, 2})), [1, 2, 5, 6, 9]),
        (having(tags=frozenset({"paid"})), [1, 3, 5, 7, 9, 11]),
        (having(keys=frozenset({"k3", "k10"})), [3, 10]),
        (having(ids=frozenset({f"{4:032X}"})), [4]),
        (having(since_ms=FIRST_MS + 3000, until_ms=FIRST_MS + 6000), [3, 4, 5]),
        (LogSelection(groups=frozenset({"billing"})), [2, 3, 5, 6, 7, 8, 9]),
        (LogSelection(groups=frozenset({"billing", "audit"})), [2, 3, 5, 6, 7, 8, 9, 11]),
        (LogSelection(groups=frozenset({"audit"}), delayed=True), [11, 13, 14]),
        (LogSelection(LogFilters(topics=frozenset({"orders"})), delayed=True), [*ORDERS, 13, 14]),
        (LogSelection(LogFilters(topics=frozenset({"prices"})), delayed=True), [10, 11]),
        (LogSelection(LogFilters(queue_ids=frozenset({2})), delayed=True), [2, 6, 13, 14]),
        (LogSelection(LogFilters(keys=frozenset({"k13"})), delayed=True), [13]),
        # Numbers are texts in RocketMQ, and may be compared as either.
        (LogSelection(matches=lambda values: isinstance(n := values.get("n"), int) and n > 7), [8, 9]),
        (LogSelection(matches=lambda values: values.get("n") == "7"), [7]),
    ],
)
def test_options_select(
    written: Written, planned: Callable[..., Plan], selection: LogSelection, wanted: list[int]
) -> None:
    plan = planned(written.root, selection)
    assert numbers(plan) == wanted
    assert plan.damaged == 0


def test_waiting_messages_know_where_they_go(written: Written, planned: Callable[..., Plan]) -> None:
    plan = planned(written.root, LogSelection(LogFilters(keys=frozenset({"k13"})), delayed=True))
    (found,) = stored(plan)
    assert (found.topic, found.queue_id, found.delay_level) == ("orders", 2, 5)
    assert plan.queues == ["orders"]


def test_times_are_milliseconds_and_never_fall(tmp_path: Path, planned: Callable[..., Plan]) -> None:
    root = write_log(tmp_path / "store", [message(n, stored_ms=ms) for n, ms in enumerate((5000, 4000, 7000))]).root
    plan = planned(root)
    assert plan.entries["time"].tolist() == [5000, 5000, 7000]
    assert plan.due_s(plan.entries["place"].argsort(), 1.0).tolist() == [0.0, 0.0005, 2.0]


def test_bodies_are_decompressed_and_checked(tmp_path: Path, planned: Callable[..., Plan]) -> None:
    packed = zlib.compress(b"much " * 500)
    made = write_log(
        tmp_path / "store",
        [
            message(0, body=packed, flags=SystemFlag.COMPRESSED),
            message(1, body=b"soft", body_crc=body_crc(b"hard")),
            message(2, body=b"none", flags=SystemFlag.COMPRESSED),
            message(3, body=b"x" * 60_000),
            message(4, body=b"y" * 60_000),
        ],
    )
    plan = planned(made.root)
    source = plan.sources[0]
    places = plan.entries["place"].tolist()
    first = source.read(places[0])
    assert isinstance(first, StoredRecord)
    assert (first.record.body, first.compressed) == (b"much " * 500, True)
    with pytest.raises(FormatError, match=f"Record.body at offset {places[1]}: the checksum of the body differs"):
        source.read(places[1])
    with pytest.raises(FormatError, match=f"at offset {places[2]}"):
        source.read(places[2])
    # In any order, over the ends of files.
    for number, letter in ((4, b"y"), (3, b"x"), (4, b"y")):
        found = source.read(places[number])
        assert isinstance(found, StoredRecord)
        assert found.record.body == letter * 60_000
    with pytest.raises(FormatError, match="no file has this offset any more"):
        source.read(1 << 40)
    with pytest.raises(FormatError, match="no message's record any more"):
        source.read(made.records[-1].physical_offset + 61_000)


def test_damage_costs_the_messages_that_it_touches(tmp_path: Path, planned: Callable[..., Plan]) -> None:
    made = write_log(tmp_path / "store", map(message, range(5)))
    made.overwrite(made.offsets[2] + 4, b"\0\0\0\0")
    plan = planned(made.root)
    assert numbers(plan) == [0, 1, 3, 4]
    assert plan.damaged == 1
    garbage = tmp_path / "garbage"
    write_log(garbage, [message(0)]).overwrite(0, bytes(range(256)) * 8)
    nothing = planned(garbage)
    assert (len(nothing.entries), nothing.damaged) == (0, 1)


def test_a_plan_is_made_again_though_the_log_has_grown(tmp_path: Path, planned: Callable[..., Plan]) -> None:
    made = write_log(tmp_path / "store", map(message, range(5)))
    plan = planned(made.root)
    write_log(tmp_path / "store", map(message, range(9)))
    again = planned(made.root, ends=plan.ends)
    assert again.digest() == plan.digest()
    assert numbers(planned(made.root)) == [*range(9)]
    write_log(tmp_path / "store", map(message, range(3)))
    with pytest.raises(StoreChanged, match="has a commit log up to"):
        planned(made.root, ends=plan.ends)


def test_names_that_are_not_there_are_told(written: Written, planned: Callable[..., Plan], tmp_path: Path) -> None:
    with pytest.raises(BadFilter, match=r"--topic nope: not in the store; known names: %DLQ%billing, SCHEDULE_TOPIC"):
        planned(written.root, having(topics=frozenset({"nope"})))
    with pytest.raises(BadFilter, match="--group nope: has no progress in the store; known names: audit, billing"):
        planned(written.root, LogSelection(groups=frozenset({"nope"})))
    missing = f"{99:032X}"
    assert planned(written.root, having(ids=frozenset({missing}))).unseen == (missing,)
    root = write_log(tmp_path / "store", [message(0)]).root
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text("{")
    with pytest.raises(NotAStoreFile, match=r"consumerOffset\.json: "):
        planned(root, LogSelection(groups=frozenset({"g"})))


def test_texts_that_look_like_values() -> None:
    texts = {"a": "1", "b": "-20", "c": "007", "d": "true", "e": "1.5", "f": "9" * 30, "g": "-", "h": "\u0661"}
    assert text_values(texts) == {**texts, "a": 1, "b": -20, "d": True}
