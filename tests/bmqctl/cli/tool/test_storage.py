"""The storage mode on the stores that the reference's broker wrote."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bmqctl.cli.tool.log import Log
from bmqctl.cli.tool.storage import StorageInspector
from bmqctl.cli.tool.store_files import Cursor, DataCursor, JournalCursor, QlistCursor
from bmqctl.cli.tool.store_print import kind_of, print_data, print_record
from formats.bmq.disk.journal import MessageRecord
from formats.errors import FormatError
from tests.families import examples
from tests.golden.archives import only, storage_records, unpack_store

ORDERS = "bmq://bmq.test.persistent.priority/orders-1"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_store("single-clean", tmp_path_factory.mktemp("store"))


@pytest.fixture
def stem(store: Path) -> str:
    return str(only(store, ".bmq_journal")).removesuffix(".bmq_journal")


class Typed:
    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    async def next_line(self) -> str | None:
        return next(self._lines, None)


def inspect(*lines: str, path: str = "") -> str:
    out = io.StringIO()
    trio.run(StorageInspector(Log(r"%s %m\n", out=out)).run, Typed(iter(lines)), path)
    return out.getvalue()


def fields(text: str) -> dict[str, str]:
    return dict(re.findall(r"^ {4}(\S[^:]*?) *: (.*)$", text, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single-clean", "single-crash", "cluster-node0"])
def test_records_are_printed_as_the_references_tools_do(name: str, tmp_path: Path) -> None:
    cursor = JournalCursor(only(unpack_store(name, tmp_path), ".bmq_journal"))
    for expected in storage_records(name):
        assert cursor.forward()
        record = cursor.record()
        assert (kind_of(record), str(cursor.index), str(cursor.offset)) == (
            expected["RecordType"],
            expected["Index"],
            expected["Offset"],
        )
        printed = fields(print_record(record))
        if printed.get("AppKey") == "** NULL **":
            printed["AppKey"] = "0000000000"
        assert printed.items() >= {name: expected[name] for name in printed if name in expected}.items()
        assert {"PrimaryLeaseId", "SequenceNumber", "Timestamp", "Epoch"} <= printed.keys()
    cursor.close()


def test_every_message_is_found_in_the_data_file(store: Path) -> None:
    journal, data = JournalCursor(only(store, ".bmq_journal")), DataCursor(only(store, ".bmq_data"))
    found = 0
    while journal.forward():
        record = journal.record()
        if isinstance(record, MessageRecord):
            assert data.seek(record.message_offset_dwords * 8)
            assert data.record().crc32c(data.content()) == record.crc32c
            assert f"DataRecord index: {data.index}, offset: {data.offset}" in print_data(data)
            found += 1
    assert found == sum(record["RecordType"] == "MESSAGE" for record in storage_records("single-clean"))
    assert not data.seek(3)
    journal.close()
    data.close()


def test_a_walk_forwards_and_backwards(stem: str) -> None:
    text = inspect(
        f'open path="{stem}*"', "j p=1", "j n=3", "j n=0", "j p=2", "j p=5", "j r=4", "j next=1", "j prev=1",
        "j record=2", "j l=2", "j list=-3", "d n=2", "q n=1", "q l=9", "q r=0", "close",
    )  # fmt: skip
    assert re.findall(r"\nRecord index: (\d+)", text) == ["2", "2", "0", "4", "5", "4", "2"]
    assert re.findall(r"\nRecord Index: (\d+), Record Type: \w+", text) == ["3", "4", "3", "2", "1"]
    assert re.findall(r"DataRecord index: (\d+), offset: (\d+)", text) == [("1", "128")]
    assert re.findall(r"QueueUriRecord index: (\d+), offset: (\d+)", text) == [("0", "36"), ("0", "36")]
    assert re.findall(r"\nRecord Index: (\d+), Queue Uri: bmq:", text) == ["1", "2", "3", "4", "5"]
    assert text.count("INFO Ran out of records while iterating.") == 3


def test_records_are_looked_for_by_their_type(stem: str) -> None:
    types = ("jop", "qop", "message", "confirm", "delete", "jop")
    text = inspect(
        f'open path="{stem}.*"', *(f'j type="{kind}"' for kind in types), 'j type="other"',
        *['j type="qop"'] * 21,
    )  # fmt: skip
    kinds = re.findall(r"\n(\w+) Record:", text)
    assert kinds[:6] == ["JOURNAL_OP", "QUEUE_OP", "MESSAGE", "CONFIRM", "DELETION", "JOURNAL_OP"]
    assert "ERROR Invalid record type: other" in text
    assert "ERROR Ran out of records while iterating." in text


def test_a_payload_is_dumped(stem: str) -> None:
    text = inspect(
        f'open path="{stem}*"', 'j dump="payload"', 'j type="message"', 'j dump="payload"', 'j dump="header"', "j r=0",
        'j dump="payload"',
    )  # fmt: skip
    assert "ERROR Only printing message is supported (received UNDEFINED)" in text
    assert "ERROR Only printing message is supported (received JOURNAL_OP)" in text
    assert "ERROR Unknown dump option: header" in text
    assert re.search(r"First \d+ bytes of payload: \n     0:   [0-9A-F]{2}", text)


def test_queues_are_listed_with_their_apps(stem: str) -> None:
    text = inspect(f'open path="{stem}*"', "q n=2", "queues", "q n=1")
    assert "Total number of queue instances: 6" in text
    listed = re.findall(r"Queue URI +: (\S+)", text.partition("Total number")[2].partition("QueueUriRecord")[0])
    assert listed == sorted(listed)
    assert len(listed) == 6
    assert re.findall(r"AppId +: (\w+)", text.partition("fanout/prices-1\n")[2])[:3] == ["foo", "bar", "baz"]
    # The list leaves the cursor where it was.
    assert re.findall(r"QueueUriRecord index: (\d)", text) == ["1", "2"]


def test_all_records_of_a_queue_are_dumped(stem: str) -> None:
    text = inspect(f'open path="{stem}*"', f'dump uri="{ORDERS}"')
    key = re.findall(r"queueKey \[(\w+)\]", text)[0]
    of_queue = [record for record in storage_records("single-clean") if record.get("QueueKey") == key]
    for title, kind in (
        ("MessageRecord", "MESSAGE"),
        ("ConfirmRecord", "CONFIRM"),
        ("DeletionRecord", "DELETION"),
        ("QueueOpRecord", "QUEUE_OP"),
    ):
        assert text.count(f"INFO {title}: ") == sum(record["RecordType"] == kind for record in of_queue)
    assert text.count("DataRecord index: ") == text.count("INFO MessageRecord: ")
    assert text == inspect(f'open path="{stem}*"', f'dump uri="{ORDERS}" key="{key.lower()}"')


def test_headers_are_printed(stem: str) -> None:
    text = inspect("metadata", "metadata", path=f"{stem}.bmq_journal")
    printed = fields(text)
    last = storage_records("single-clean")[-1]
    assert (printed["FileType"], printed["RecordWords"]) == ("JOURNAL", "15")
    assert (printed["Last Valid Record Offset"], printed["Record Type"]) == (last["Offset"], "JOURNAL_OP")
    assert printed["SyncPoint SeqNum"] == last["SyncPtSequenceNumber"]
    assert "FileId (FileKey)" in inspect(f'open path="{stem}.bmq_data"', "metadata")
    assert "Qlist File Header" in inspect(f'open path="{stem}.bmq_qlist"', "metadata")


def test_mistakes_are_reported(stem: str, tmp_path: Path) -> None:
    text = inspect(
        "close", "queues", "metadata", "d n=1", "q n=1", "j n=1", 'dump uri="x"', "dump", 'dump uri="x" key="1"',
        "open", 'open path="/x/y"', 'open path="/x/*"', f'open path="{tmp_path}/none.bmq_data"', "help", "help me",
        "quit now", "sing", "open path=x", f'open path="{stem}*"', f'open path="{stem}*"', "j", "j n=x",
        'j n="x"', "j n=-1", "j x=1",
        'dump uri="x"', f'dump uri="{ORDERS}" key="0000000000"', "quit", "queues",
    )  # fmt: skip
    for expected in (
        "ERROR No storage is open",
        "INFO Qlist file is not open.",
        "ERROR You must open a data file to use that command.",
        "ERROR You must open a qlist file to use that command.",
        "ERROR You must open a journal file to use that command.",
        "ERROR All three files need to be opened.",
        "ERROR 'uri' is mandatory",
        "ERROR 'key' length must be 10 characters.",
        "ERROR Invalid path provided in command.",
        "ERROR Invalid file extension in specified path [/x/y]",
        "ERROR /x/.bmq_data: No such file or directory",
        "none.bmq_data: No such file or directory",
        'j type={"message", "confirm", "delete", "qop", "jop"}',
        "ERROR 'help' takes no arguments.",
        "ERROR 'quit' takes no arguments.",
        "ERROR Unknown command: 'sing'.  Try 'help'.",
        "'x' is no value",
        "ERROR A storage is already open.",
        "one of n, next, p, prev, r, record, l and list is needed",
        "'n' must be a number",
        "ERROR Queue URI not found",
        "ERROR Queue URI/Key combo not found",
    ):
        assert expected in text
    assert "Total number" not in text


def test_files_of_another_kind_are_refused(stem: str, tmp_path: Path) -> None:
    for name, content in (("a.bmq_journal", b""), ("b.bmq_data", b"garbage" * 20), ("c.bmq_qlist", bytes(100))):
        (tmp_path / name).write_bytes(content)
        assert "ERROR FileHeader" in inspect(f'open path="{tmp_path / name}"')
    shutil.copy(f"{stem}.bmq_data", tmp_path / "d.bmq_journal")
    assert "this is a DATA file" in inspect(f'open path="{tmp_path / "d.bmq_journal"}"')


@pytest.mark.slow
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(32, 759), value=st.integers(0, 255), kind=st.sampled_from(["journal", "data", "qlist"]))
def test_a_damaged_file_is_walked_to_its_end_or_to_the_damage(
    store: Path, tmp_path: Path, at: int, value: int, kind: str
) -> None:
    cursors: dict[str, type[Cursor[Any]]] = {"journal": JournalCursor, "data": DataCursor, "qlist": QlistCursor}
    source = only(store, f".bmq_{kind}")
    damaged = tmp_path / source.name
    content = bytearray(source.read_bytes()[:20_000])
    content[at] = value
    damaged.write_bytes(content)
    printed = inspect(
        f'open path="{damaged}"', "j l=1000", "d l=1000", "q l=1000", "j n=1", "d n=1", "q n=1", "metadata"
    )
    assert printed
    try:
        cursor = cursors[kind](damaged)
    except FormatError:
        return
    count = 0
    try:
        while cursor.forward():
            cursor.record()
            count += 1
    except FormatError:
        pass
    finally:
        cursor.close()
    assert count <= len(content) // 8
