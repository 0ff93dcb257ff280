"""Peaks of queues and their apps, by the newest records of a journal."""

from __future__ import annotations

import random

import pytest

from broker.bmq.store import peaks as peaks_module
from broker.bmq.store.peaks import Peak, Peaks
from broker.bmq.store.recovery import recover
from formats.bmq.disk.journal import ConfirmReason, QueueOpType
from formats.bmq.disk.keys import NULL_KEY
from tests.broker.bmq.store.writing import APP_KEYS, KEY, Partition, outstanding

SIZE = len(b"message 1")


def found(partition: Partition, rows: int = 1000) -> dict[str, Peak]:
    """The peaks by app; "" for the queue."""
    peaks = Peaks(partition.files, recover(partition.files).queues)
    while not peaks.is_told:
        peaks.advance(rows)
    names = {NULL_KEY: "", **{key: app for app, key in APP_KEYS.items()}}
    return {names[app_key]: peak for key, app_key, peak in peaks.found() if key == KEY}


def of(messages: int) -> Peak:
    return Peak(messages, messages * SIZE)


def posted(count: int) -> Partition:
    partition = Partition().create()
    for number in range(count):
        partition.post(number)
    return partition


def test_confirmed_messages_count_for_the_peak() -> None:
    partition = posted(4)
    for number in range(3):
        partition.confirm(number, "foo")
    partition.confirm(0, "bar").delete(0)
    assert found(partition) == {"": of(1), "foo": of(3), "bar": of(1), "baz": of(1)}
    assert found(partition, rows=1) == found(partition)


def test_messages_that_come_and_go_one_by_one_have_a_peak_of_one() -> None:
    partition = Partition().create()
    for number in range(5):
        partition.post(number).confirm(number, "foo").confirm(number, "bar").delete(number)
    assert found(partition) == {app: of(1) for app in ("", *APP_KEYS)}


def test_nothing_more_was_there_where_nothing_went() -> None:
    assert found(Partition()) == {}
    assert found(posted(3)) == {}


@pytest.mark.parametrize("is_before", [False, True])
def test_apps_that_do_not_want_a_message_did_not_have_it(*, is_before: bool) -> None:
    partition = Partition().create()
    for number in range(2):
        if is_before:
            partition.confirm(number, "foo", reason=ConfirmReason.AUTO_CONFIRMED)
        partition.post(number)
        if not is_before:
            partition.confirm(number, "foo", reason=ConfirmReason.AUTO_CONFIRMED)
    partition.confirm(0, "bar").delete(0)
    assert {app: peak.messages for app, peak in found(partition).items() if app != "foo"} == {"": 1, "bar": 1, "baz": 1}
    # A file named after a message has it for a moment.
    assert found(partition).get("foo", of(0)).messages == (0 if is_before else 1)


def test_an_app_that_came_later_did_not_have_what_was_there() -> None:
    partition = Partition().create(apps=("foo", "bar")).post(1, ref_count=2).create(apps=("baz",), added=True)
    partition.post(2).confirm(1, "foo").delete(1)
    assert found(partition) == {"": of(1), "foo": of(1), "bar": of(1)}


@pytest.mark.parametrize(("app", "wanted"), [("", ["", *APP_KEYS]), ("bar", ["bar"])])
def test_purged_messages_count_for_the_peak(app: str, wanted: list[str]) -> None:
    partition = posted(3).operate(QueueOpType.PURGE, app=app).post(9)
    assert found(partition) == {holder: of(2) for holder in wanted}


def test_messages_of_before_the_window_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = posted(6)
    for number in range(6):
        partition.delete(number)
    assert found(partition)[""] == of(6)
    monkeypatch.setattr(peaks_module, "RECORDS_MAX", 8)
    assert found(partition)[""] == of(2)


def test_older_records_are_not_looked_at() -> None:
    partition = posted(3)
    for number in range(3):
        partition.delete(number)
    assert found(partition)[""] == of(3)
    # The time of the last record is a field of 64 bits from byte 12 on.
    at = partition.files.journal_end - 60 + 12
    buffer = partition.files.journal.buffer
    later = int.from_bytes(buffer[at : at + 8], "big") + 61
    buffer[at : at + 8] = later.to_bytes(8, "big")
    assert found(partition) == {}


@pytest.mark.parametrize("seed", range(20))
def test_peaks_are_those_of_a_queue_that_was_watched(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition().create()
    there: dict[int, set[str]] = {}
    most = dict.fromkeys(("", *APP_KEYS), 0)
    for number in range(40):
        partition.post(number)
        there[number] = set(APP_KEYS)
        levels = {"": len(there)} | {app: sum(app in apps for apps in there.values()) for app in APP_KEYS}
        most = {holder: max(most[holder], level) for holder, level in levels.items()}
        for each in chance.sample(sorted(there), min(len(there), chance.randrange(4))):
            app = chance.choice(sorted(there[each]))
            there[each].remove(app)
            if there[each]:
                partition.confirm(each, app)
            else:
                partition.delete(each)
                del there[each]
    left = outstanding(*partition.reopen())
    assert left == there
    levels = {"": len(left)} | {app: sum(app in apps for apps in left.values()) for app in APP_KEYS}
    peaks = found(partition, chance.randrange(1, 30))
    assert {holder: level + peaks.get(holder, of(0)).messages for holder, level in levels.items()} == most
