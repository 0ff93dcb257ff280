"""Filters let through what a look at every row lets through, and say so when they cannot be met."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.read.filters import Filters, places
from bmqctl.stores.blazingmq.read.reader import JournalReader
from bmqctl.stores.blazingmq.read.wanted import BadFilter, parse_number, parse_time
from bmqctl.stores.rocketmq.read.filters import parse_time_ms
from formats.bmq.disk import journal_packing
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType, initial_bytes
from formats.bmq.disk.numbers import RecordNumber
from tests.bmqctl.stores.blazingmq.dump.slow_rows import JournalRows
from tests.golden.archives import only

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]
Row = dict[str, Any]

ORDERS = "bmq://bmq.test.persistent.priority/orders-1"
PRICES = "bmq://bmq.test.persistent.fanout/prices-1"
GUID = "4000010000000178B210BF1837EE82B1"
OTHER = "40000000000000CDB805BF1837EE82B1"


def number(row: Row) -> tuple[int, int]:
    return row["primary_lease_id"], row["sequence_number"]


CASES: list[tuple[list[str], Callable[[Row], bool]]] = [
    (["--type", "confirm"], lambda row: row["type"] == "CONFIRM"),
    (["--type", "queue-op", "--type", "JOURNAL-OP"], lambda row: row["type"] in ("QUEUE_OP", "JOURNAL_OP")),
    (["--guid", GUID], lambda row: row.get("guid") == GUID),
    (["--guid", GUID.lower(), "--guid", OTHER], lambda row: row.get("guid") in (GUID, OTHER)),
    (["--guid", GUID, "--type", "deletion"], lambda row: row.get("guid") == GUID and row["type"] == "DELETION"),
    (["--queue", ORDERS], lambda row: row.get("queue_uri") == ORDERS),
    (["--queue", "CC79523FB7"], lambda row: row.get("queue_uri") == ORDERS),
    (["--queue", ORDERS, "--queue", PRICES], lambda row: row.get("queue_uri") in (ORDERS, PRICES)),
    (["--queue", PRICES, "--type", "message"], lambda row: row.get("queue_uri") == PRICES and row["type"] == "MESSAGE"),
    (["--app", "foo"], lambda row: row.get("app_id") == "foo"),
    (["--app", "foo", "--app", "bar"], lambda row: row.get("app_id") in ("foo", "bar")),
    (["--since", "1795237871"], lambda row: row["timestamp"] >= 1795237871),
    (
        ["--since", "2026-11-21T05:11:09", "--until", "2026-11-21T05:11:11Z"],
        lambda row: 869 <= row["timestamp"] - 1795237000 < 871,
    ),
    (["--until", "2026-11-21T05:11:09+00:00"], lambda row: row["timestamp"] < 1795237869),
    (["--since", "2026-11-21T05:11:08.5"], lambda row: row["timestamp"] >= 1795237869),
    (["--seqnum-gt", "1-400"], lambda row: number(row) > (1, 400)),
    (["--seqnum-gt", "1-100", "--seqnum-lt", "2-3"], lambda row: (1, 100) < number(row) < (2, 3)),
    (["--seqnum-lt", "1-2"], lambda row: number(row) < (1, 2)),
    (["--seqnum-gt", "3-0"], lambda row: False),
    (["--offset-gt", "104", "--offset-lt", "344"], lambda row: 104 < row["offset"] < 344),
    (["--offset-gt", "105"], lambda row: row["offset"] > 105),
    (["--offset-lt", "44"], lambda row: False),
    (["--offset-gt", str(1 << 62)], lambda row: False),
    (["--seqnum-gt", f"{1 << 70}-{1 << 70}"], lambda row: False),
    (["--seqnum-lt", f"1-{1 << 70}"], lambda row: row["primary_lease_id"] == 1),
    (["--since", str((1 << 63) - 1)], lambda row: False),
    (
        ["--offset-lt", str(1 << 62), "--until", str((1 << 63) - 1), "--type", "queue-op"],
        lambda row: row["type"] == "QUEUE_OP",
    ),
    (["--seqnum", "1-4", "--seqnum", "2-70"], lambda row: number(row) in ((1, 4), (2, 70))),
    (["--offset", "44", "--offset", "36104"], lambda row: row["offset"] in (44, 36104)),
    (
        ["--since", "1795237869", "--offset-lt", "30000", "--queue", ORDERS, "--type", "deletion"],
        lambda row: (
            row["timestamp"] >= 1795237869
            and row["offset"] < 30000
            and row.get("queue_uri") == ORDERS
            and row["type"] == "DELETION"
        ),
    ),
]


@pytest.mark.parametrize(("arguments", "passes"), CASES, ids=[" ".join(arguments) for arguments, _ in CASES])
@pytest.mark.parametrize("name", ["single-clean", "single-crash"])
def test_a_filter_is_a_look_at_every_row(
    run: Run, golden: Golden, name: str, arguments: list[str], passes: Callable[[Row], bool]
) -> None:
    file = only(golden(name), ".bmq_journal")
    outcome = run("dump", *arguments, "--output", "json-line", file)
    expected = [row for row in JournalRows(file).rows() if passes(row)]
    assert [json.loads(line) for line in outcome.out.splitlines()] == expected
    assert outcome.code == (1 if "no record" in outcome.err else 0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--guid", "12"], "32 hexadecimal digits"),
        (["--since", "yesterday"], "is not a time"),
        (["--until", "99999999999999999999999"], "is not a time"),
        (["--seqnum", "17"], "is not a sequence number"),
        (["--seqnum-gt", "1--2"], "is not a sequence number"),
        (["--since", "2", "--until", "2"], "--since must be before --until"),
        (["--seqnum-gt", "1-5", "--seqnum-lt", "1-5"], "--seqnum-gt must be below"),
        (["--offset-gt", "5", "--offset-lt", "5"], "--offset-gt must be below"),
        (["--seqnum", "1-1", "--offset", "44"], "combined with other filters"),
        (["--offset", "44", "--type", "message"], "combined with other filters"),
        (["--seqnum", "1-1", "--since", "0"], "combined with other filters"),
        (["--guid", GUID, "--type", "queue-op"], "only records of type message, confirm, deletion"),
        (["--queue", ORDERS, "--type", "journal-op"], "only records of type"),
        (["--app", "foo", "--type", "message"], "only records of type confirm, queue-op"),
        (["--queue", "bmq://nowhere/q"], "bmq://bmq.gold.ttl/short-1"),
        (["--app", "nobody"], "__default, bar, baz, foo"),
        (["--partition", "0"], "--partition is for the directory of a store"),
    ],
)
def test_contradictions_get_one_line(run: Run, golden: Golden, arguments: list[str], reason: str) -> None:
    outcome = run("dump", *arguments, only(golden("single-clean"), ".bmq_journal"))
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert reason in line


def test_missing_guid_gives_exit_code_1(run: Run, golden: Golden) -> None:
    file = only(golden("single-clean"), ".bmq_journal")
    outcome = run("dump", "--guid", GUID, "--guid", "0" * 32, "--output", "json-line", file)
    assert outcome.code == 1
    assert len(outcome.out.splitlines()) == 2
    assert outcome.err == f"bmqctl journal dump: no record has the GUID {'0' * 32}\n"
    outcome = run("dump", "--seqnum", "1-1", "--seqnum", "7-1", "--output", "json-pretty", file)
    assert json.loads(outcome.out)["SequenceNumbersNotFound"] == [{"leaseId": "7", "sequenceNumber": "1"}]
    assert (outcome.code, "7-1" in outcome.err) == (1, True)
    # Nothing is missed where the limit ended the search.
    assert run("dump", "--seqnum", "1-1", "--seqnum", "7-1", "--limit", 1, file).code == 0


@pytest.mark.parametrize("extension", [".bmq_data", ".bmq_qlist", ".bmq_csl"])
def test_journal_options_on_another_file(run: Run, golden: Golden, extension: str) -> None:
    file = only(golden("single-clean"), extension)
    outcome = run("dump", "--guid", GUID, file)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert "--guid is for journals" in line
    assert ("bmqctl journal ledger dump" in line) == (extension == ".bmq_csl")


def test_parsing() -> None:
    assert parse_number("3-17") == RecordNumber(3, 17)
    assert parse_time("17") == 17
    assert parse_time("1970-01-01T00:00:17.25") == 18
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    for text in ("", "-1", "1-", "-", "1-2-3", "a-b", "1-2x"):
        with pytest.raises(BadFilter):
            parse_number(text)
    for parse in (parse_time, parse_time_ms):
        with pytest.raises(BadFilter, match="is not a time"):
            parse("9" * 5000)


def _long_journal(path: Path, count: int, gap: range = range(0), step_s: int = 1) -> None:
    """Records 1-1, 1-2, ... one every `step_s` seconds, with zeros at the places in `gap`, preallocated."""
    content = bytearray(initial_bytes(FileType.JOURNAL, 0)) + bytes(count * JOURNAL_RECORD_SIZE)
    for place in range(count):
        if place not in gap:
            offset = 44 + place * JOURNAL_RECORD_SIZE
            journal_packing.pack_deletion(
                content, offset, 1, place + 1, 10_000 + place * step_s, 0, b"queue", bytes(16)
            )
    path.write_bytes(content)
    os.truncate(path, len(content) + (1 << 24))


@pytest.mark.parametrize("gap", [range(0), range(4900, 9000), range(20_000)])
def test_ranges_are_looked_up(tmp_path: Path, stack: ExitStack, gap: range) -> None:
    """Bisection comes to the same places as a walk, whatever lies between."""
    file = tmp_path / "bmq_0.20261121_051104.bmq_journal"
    _long_journal(file, 20_000, gap)
    there = [place for place in range(20_000) if place not in gap]
    reader = stack.enter_context(JournalReader(file))
    for wanted in (0, 1, 4899, 4900, 5000, 8999, 9000, 15_000, 19_999, 20_000, 30_000):
        start, end = places(reader, Filters(seqnum_gt=RecordNumber(1, wanted)))
        assert end is None
        assert [place for place in there if place >= start] == [place for place in there if place + 1 > wanted]
        start, end = places(reader, Filters(seqnum_lt=RecordNumber(1, wanted)))
        assert end is not None
        assert [place for place in there if start <= place < end] == [place for place in there if place + 1 < wanted]


def test_ranges_read_little(tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "bmq_0.20261121_051104.bmq_journal"
    _long_journal(file, 200_000)
    read = 0
    preadv = os.preadv

    def counting(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal read
        count = preadv(descriptor, buffers, offset)
        read += count
        return count

    monkeypatch.setattr(os, "preadv", counting)
    reader = stack.enter_context(JournalReader(file))
    start, end = places(reader, Filters(seqnum_gt=RecordNumber(1, 150_000), seqnum_lt=RecordNumber(1, 150_101)))
    found = [int(index) for chunk in reader.chunks(start, end) for index in chunk.index]
    assert found == list(range(150_000, 150_100))
    assert 0 < read < 4_000_000


@pytest.mark.slow
def test_clocks_may_go_back_a_little(run: Run, tmp_path: Path) -> None:
    """A new primary's clock is 50 minutes slow: times are still found on both sides."""
    file = tmp_path / "bmq_0.20261121_051104.bmq_journal"
    content = bytearray(initial_bytes(FileType.JOURNAL, 0)) + bytes(4000 * JOURNAL_RECORD_SIZE)
    for place in range(4000):
        behind = 3000 if place >= 2000 else 0
        offset = 44 + place * JOURNAL_RECORD_SIZE
        time = 100_000 + 10 * place - behind
        journal_packing.pack_deletion(content, offset, 1 + (place >= 2000), place + 1, time, 0, b"queue", bytes(16))
    file.write_bytes(content)
    for since, until in ((117_500, 118_500), (119_900, 120_100), (100_000, 117_001), (130_000, 140_000)):
        found = run("dump", "--since", since, "--until", until, "--output", "json-line", file).out.splitlines()
        expected = [row["index"] for row in JournalRows(file).rows() if since <= row["timestamp"] < until]
        assert expected
        assert [json.loads(line)["index"] for line in found] == expected
