"""Stores whose names and numbers no broker writes: rows without them, or an error that names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bmqctl.pipeline.source.stores import StoreError
from bmqctl.stores.rocketmq.read.filters import LogFilters, LogSelector
from bmqctl.stores.rocketmq.read.records import search
from formats.rocketmq.files.record import encode_record
from tests.bmqctl.pipeline.reading import read_rows
from tests.bmqctl.pipeline.rocketmq.queued import numbered, write_queues
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, Written, message, write_log

NO_TEXT = os.fsdecode(b"or\xff")


def written_store(root: Path) -> Written:
    written = write_log(root, numbered(message(n, queue_id=0) for n in range(10)))
    write_queues(root, written.records)
    return written


@pytest.mark.parametrize("number", [-1, (1 << 63) - 1])
def test_a_message_with_an_offset_that_no_queue_has_is_of_none(tmp_path: Path, number: int) -> None:
    write_log(tmp_path, [message(0), message(1)._replace(queue_offset=number)])
    (row,) = read_rows(tmp_path, table="queues")
    assert (row["queue_id"], row["max_offset"], row["messages"]) == (0, 1, 1)
    (topic,) = read_rows(tmp_path, table="topics")
    assert topic["messages"] == 1


@pytest.mark.parametrize("name", ["99999999999999999999", "2147483648", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_folder_that_no_queue_has_is_no_queue(tmp_path: Path, name: str) -> None:
    written_store(tmp_path)
    topic = tmp_path / "consumequeue" / "orders"
    (topic / "0").rename(topic / "2147483647")
    before = read_rows(tmp_path, table="queues")
    assert {row["queue_id"] for row in before} == {2147483647}
    (topic / "2147483647").rename(topic / name)
    assert {row["queue_id"] for row in read_rows(tmp_path, table="queues")} == {0}


def test_a_folder_whose_name_is_no_text_is_shown(tmp_path: Path, small_splits: None) -> None:
    # Splits begin where consume queues say, if the begin of the file is far.
    large = numbered(message(n, queue_id=0, body=bytes(60_000)) for n in range(30))
    written = write_log(tmp_path, large, file_bytes=1 << 21)
    write_queues(tmp_path, written.records)
    topics = tmp_path / "consumequeue"
    (topics / "orders").rename(topics / NO_TEXT)
    assert {row["topic"] for row in read_rows(tmp_path, table="queues")} == {"or?"}
    assert {row["topic"] for row in read_rows(tmp_path, table="topics")} == {"or?"}
    assert any("or?" in row["file"] + row["reason"] for row in read_rows(tmp_path, table="faults"))
    rows = read_rows(tmp_path, table="messages", recordsPerPartition="1")
    assert [row["offset"] for row in rows] == written.offsets


def test_no_message_is_of_a_topic_that_is_no_text() -> None:
    records = search(memoryview(encode_record(message(0))), 0, FILE_BYTES).records
    assert len(LogSelector(LogFilters(frozenset({"orders", NO_TEXT}))).select(records)) == 1
    assert len(LogSelector(LogFilters(frozenset({NO_TEXT}))).select(records)) == 0


@pytest.mark.parametrize(
    ("name", "table", "text"),
    [
        ("consumerOffset.json", "groups", '{"offsetTable":{"orders@g\\ud800":{0:3}}}'),
        ("topics.json", "topics", '{"topicConfigTable":{"t\\ud800":{"topicName":"t"}}}'),
    ],
)
def test_a_table_with_half_of_a_surrogate_pair_is_refused_by_the_file_s_name(
    tmp_path: Path, name: str, table: str, text: str
) -> None:
    written_store(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(text)
    with pytest.raises(StoreError, match=f"{name}: .*half of a surrogate pair"):
        read_rows(tmp_path, table=table)


def test_an_offset_of_a_queue_that_cannot_be_is_refused_by_the_file_s_name(tmp_path: Path) -> None:
    written_store(tmp_path)
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@g":{0:3}}}')
    assert [(row["queue_id"], row["lag"]) for row in read_rows(tmp_path, table="groups")] == [(0, 7)]
    path.write_text('{"offsetTable":{"orders@g":{99999999999:3}}}')
    with pytest.raises(StoreError, match=f"{path}: .*'orders@g' has a queue 99999999999; .* ends in .bak"):
        read_rows(tmp_path, table="groups")
