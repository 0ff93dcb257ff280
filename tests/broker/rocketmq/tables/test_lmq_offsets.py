"""Offsets of groups in the two files that brokers keep them in: of both the newer counts, and either has all."""

from __future__ import annotations

from broker.rocketmq.tables.offsets import Offsets

LMQ = "%LMQ%devices"

# As LmqConsumerOffsetManager writes it.
ORIGINAL = b"""{
\t"dataVersion":{
\t\t"counter":3,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000000
\t},
\t"lmqOffsetTable":{
\t\t"%LMQ%one@%LMQ%devices":17
\t},
\t"offsetTable":{
\t\t"orders@billing":{0:5,1:6
\t\t}
\t}
}"""


def test_the_originals_file_is_read_with_both_of_its_tables() -> None:
    offsets = Offsets(ORIGINAL)
    assert offsets.get("%LMQ%one", LMQ, 0) == 17
    assert offsets.queues("orders", "billing") == {0: 5, 1: 6}


def test_a_file_has_groups_of_light_queues_in_a_table_of_their_own_where_it_is_wanted() -> None:
    offsets = Offsets(ORIGINAL, parts_lmq=True)
    offsets.commit("orders", LMQ, 3, 1)
    offsets.commit("%LMQ%two", LMQ, 0, 2)
    offsets.commit("%LMQ%two", "billing", 0, 4)
    text = offsets.file(1_700_000_000_001).decode()
    assert '"%LMQ%two@%LMQ%devices":2' in text
    assert text.index("dataVersion") < text.index("lmqOffsetTable") < text.index("offsetTable")
    again = Offsets(text.encode(), parts_lmq=True)
    assert sorted(again.all()) == sorted(offsets.all())
    # Other brokers are sent the usual table alone.
    assert b"lmqOffsetTable" not in again.body()
    assert Offsets(again.body()).get("%LMQ%one", LMQ, 0) == 17
    usual = Offsets(text.encode())
    usual.commit("orders", "billing", 0, 6)
    assert b"lmqOffsetTable" not in usual.file(0)
    assert Offsets(usual.file(0)).get("%LMQ%one", LMQ, 0) == 17


def test_forgotten_group_is_in_neither_table() -> None:
    offsets = Offsets(ORIGINAL, parts_lmq=True)
    offsets.forget_group(LMQ)
    assert b"%LMQ%" not in offsets.file(0)


def test_the_newer_of_two_files_counts() -> None:
    older = Offsets(b"")
    older.commit("orders", "billing", 0, 1)
    for files in ((older.file(5), ORIGINAL), (ORIGINAL, older.file(5)), (b"", ORIGINAL), (ORIGINAL, b"")):
        assert Offsets(*files).queues("orders", "billing") == {0: 5, 1: 6}
    newer = older.file(5)
    older.commit("orders", "billing", 0, 2)
    newer = older.file(1_800_000_000_000)
    assert Offsets(ORIGINAL, newer).queues("orders", "billing") == {0: 2}
