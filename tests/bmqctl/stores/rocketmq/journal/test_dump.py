"""`bmqctl journal dump` on stores of RocketMQ: what the Java client read back, filters, forms and damage."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmqctl.stores.blazingmq.read.wanted import PayloadForm
from bmqctl.stores.rocketmq.dump.dump import FollowEnded, LogFollower
from bmqctl.stores.rocketmq.dump.rows import rows_of
from bmqctl.stores.rocketmq.dump.text import CsvLines, JsonLines
from bmqctl.stores.rocketmq.read import filters as filters_module
from bmqctl.stores.rocketmq.read.columns import LogColumns
from bmqctl.stores.rocketmq.read.files import log_files
from bmqctl.stores.rocketmq.read.filters import first_at
from bmqctl.stores.rocketmq.read.payload import BodyReader
from bmqctl.stores.rocketmq.read.records import search
from bmqctl.stores.rocketmq.read.scan import LogFault, Loss
from bmqctl.testing import RocketProcess
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.properties import decode_properties
from tests.bmqctl.stores.conftest import Outcome
from tests.bmqctl.stores.rocketmq.logs import FILE_BYTES, V6, Written, message, write_log
from tests.golden.rocketmq.stores import read_back
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S

Run = Callable[..., Outcome]


def lines(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def offsets(outcome: Outcome) -> list[int]:
    return [line["offset"] for line in lines(outcome)]


@pytest.fixture
def log(tmp_path: Path) -> Written:
    return write_log(tmp_path / "store", (message(number) for number in range(600)))


def test_golden_records_are_what_the_java_client_read(run: Run, golden_store: Path) -> None:
    outcome = run("dump", "--payload", "hex", "--payload-limit", 0, golden_store)
    assert outcome.code == 0
    rows = {row["offset"]: row for row in lines(outcome)}
    for offset, found in read_back().items():
        row = rows[offset]
        assert row["topic"] == found["topic"]
        assert (row["queue_id"], row["queue_offset"]) == (found["queueId"], found["queueOffset"])
        assert row["offset_id"] == found["offsetMsgId"]
        assert row["stored_ms"] == found["storeTimestamp"]
        assert f"/{row['born_host']}" == found["bornHost"]
        assert row["reconsume_times"] == found["reconsumeTimes"]
        if "bodyB64" in found:
            assert bytes.fromhex(row["payload_hex"]) == base64.b64decode(found["bodyB64"])
    assert set(read_back()) <= set(rows)


def test_filters_select(run: Run, log: Written) -> None:
    def numbers(*arguments: object) -> list[int]:
        outcome = run("dump", *arguments, log.root)
        assert outcome.code == 0
        return [line["flag"] for line in lines(outcome)]

    at = log.offsets
    assert numbers() == list(range(600))
    assert numbers("--queue-id", 1, "--limit", 2) == [1, 5]
    assert numbers("--tag", "paid", "--queue-id", 3, "--queue-id", 0, "--limit", 2) == [3, 7]
    assert numbers("--key", "k17", "--key", "k5") == [5, 17]
    assert numbers("--id", f"{77:032X}") == [77]
    assert numbers("--id", f"{77:032x}") == [77]
    assert numbers("--id", f"0A00000100002A9F{at[40]:016X}") == [40]
    assert numbers("--offset", at[9], "--offset", at[400]) == [9, 400]
    assert numbers("--offset-gt", at[590], "--offset-lt", at[594]) == [591, 592, 593]
    assert numbers("--since", 1_795_400_590, "--until", "2026-11-23T02:23:13") == list(range(590, 593))
    assert numbers("--topic", "orders", "--limit", 1) == [0]
    assert numbers("--topic", "order") == []
    assert numbers("--key", "k1", "--tag", "open") == []


def test_missing_record_is_reported(run: Run, log: Written) -> None:
    missing = run("dump", "--id", "AB" * 16, log.root)
    assert (missing.code, missing.out) == (1, "")
    assert f"no record has the id {'AB' * 16}" in missing.err
    missing = run("dump", "--offset", log.offsets[3] + 1, log.root)
    assert (missing.code, missing.out) == (1, "")
    assert f"no record at offset {log.offsets[3] + 1}" in missing.err
    # The place of another record, but not of this broker.
    assert run("dump", "--id", f"0B00000100002A9F{log.offsets[40]:016X}", log.root).code == 1


def test_damage_is_a_row_and_an_exit_code(run: Run, log: Written) -> None:
    log.overwrite(log.offsets[5] + 4, b"\0")
    outcome = run("dump", "--limit", 7, log.root)
    assert outcome.code == 1
    rows = lines(outcome)
    assert [row["offset"] for row in rows] == log.offsets[:7]
    assert rows[5] == {
        "offset": log.offsets[5],
        "size": log.offsets[6] - log.offsets[5],
        "fault": "holds no record",
    }
    assert run("dump", "--offset-gt", log.offsets[4], "--tag", "open", log.root).code == 1
    assert run("dump", "--offset-gt", log.offsets[5], log.root).code == 0
    assert run("dump", "--offset", log.offsets[6], log.root).code == 0


def test_bodies_as_stored_are_for_rocketmq(run: Run, golden: Callable[[str], Path], log: Written) -> None:
    outcome = run("dump", "--payload", "stored", golden("single-clean"))
    assert outcome.code == 2
    assert "--payload stored is for stores of RocketMQ" in outcome.err
    row = lines(run("dump", "--payload", "stored", "--payload-limit", 2, "--limit", 1, log.root))[0]
    assert (row["body_hex"], row["payload_omitted"]) == ("626F", row["body_size"] - 2)
    assert "payload" not in row


def test_options_of_the_other_system_are_refused(run: Run, log: Written, tmp_path: Path) -> None:
    for option, value in (
        ("--queue", "bmq://a.b/c"),
        ("--guid", "40" * 16),
        ("--partition", 0),
        ("--seqnum-gt", "1-1"),
    ):
        outcome = run("dump", option, value, log.root)
        assert outcome.code == 2
        assert f"{option} is for those of BlazingMQ" in outcome.err
    assert run("dump", "--output", "json-pretty", log.root).code == 2
    other = tmp_path / "blazing"
    other.mkdir()
    outcome = run("dump", "--topic", "orders", other)
    assert outcome.code == 2
    assert "is no store of RocketMQ" in outcome.err
    contradicting = run("dump", "--offset", 0, "--tag", "paid", log.root)
    assert contradicting.code == 2
    assert run("dump", "--follow", "--until", 5, log.root).code == 2


def test_one_file_of_the_log(run: Run, log: Written) -> None:
    second = [offset for offset in log.offsets if FILE_BYTES <= offset < 2 * FILE_BYTES]
    assert offsets(run("dump", log.path(FILE_BYTES))) == second
    checkpoint = log.root / "config" / "x.json"
    checkpoint.parent.mkdir()
    checkpoint.write_text("{}")
    assert run("dump", checkpoint).code == 2


def test_csv_and_table_and_arrow_have_the_same_rows(run: Run, log: Written, tmp_path: Path) -> None:
    expected = lines(run("dump", "--limit", 9, "--payload", "auto", log.root))
    text = run("dump", "--limit", 9, "--payload", "auto", "--output", "csv", log.root).out
    for row, line in zip(csv.DictReader(io.StringIO(text)), expected, strict=True):
        assert {name: value for name, value in row.items() if value} == {
            name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in line.items()
        }
    table = run("dump", "--limit", 9, "--payload", "auto", "--output", "table", log.root).out
    assert "payload=body 8" in table
    arrow = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out.parquet"
    assert run("dump", "--limit", 9, "--payload", "auto", "--out", out, log.root).code == 0
    for row, line in zip(arrow.read_table(out).to_pylist(), expected, strict=True):
        assert {name: value for name, value in row.items() if value is not None} == {
            name: json.dumps(value) if isinstance(value, dict) else value for name, value in line.items()
        }


def test_payloads_are_decompressed(run: Run, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    text = b"a body " * 100

    def by_arrow(name: str) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, name) as stream:
            stream.write(text)
        return bytes(sink.getvalue())

    bodies = [
        (1, zlib.compress(text)),
        (0x301, zlib.compress(text)),
        (0x101, by_arrow("lz4")),
        (0x201, by_arrow("zstd")),
    ]
    broken = [(1, b"nonsense"), (0x201, b"nonsense"), (0x501, text), (0x301, zlib.compress(text)[:-9])]
    written = write_log(
        tmp_path, (message(n, body=body, flags=flags) for n, (flags, body) in enumerate(bodies + broken))
    )
    outcome = run("dump", "--payload", "auto", "--payload-limit", 6, written.root)
    assert outcome.code == 1
    assert "4 payloads could not be read" in outcome.err
    rows = lines(outcome)
    for row in rows[: len(bodies)]:
        assert (row["payload"], row["payload_size"], row["payload_omitted"]) == ("a body", 700, 694)
    assert all("payload_fault" in row for row in rows[len(bodies) :])


def test_times_are_found_by_bisection(log: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters_module, "_PIECE_BYTES", 1000)
    files = log_files(log.root)
    for number in (0, 1, 250, 599):
        found = first_at(files, log.records[number].stored_ms)
        assert found <= log.offsets[number]
        assert found > log.offsets[number] - 1500
    assert first_at((), 5) == 0


def test_follower_goes_from_file_to_file(tmp_path: Path) -> None:
    every = [message(number) for number in range(900)]
    write_log(tmp_path, every[:10])
    follower = LogFollower(tmp_path)

    def polled() -> Iterator[int]:
        for chunk in follower.poll():
            assert not chunk.faults
            yield from chunk.records.offsets.tolist()

    assert list(polled()) == []
    written = write_log(tmp_path, every[:500])
    torn = encode_record(message(500, 0))[:60]
    end = written.offsets[-1] + len(encode_record(written.records[-1]))
    written.overwrite(end, torn)
    assert list(polled()) == written.offsets[10:]
    assert list(polled()) == []
    whole = write_log(tmp_path, every)
    assert list(polled()) == whole.offsets[500:]
    (chunk,) = LogFollower(tmp_path, whole.offsets[899]).poll()
    assert chunk.records.offsets.tolist() == whole.offsets[899:]


def test_follower_tells_damage_at_the_place_where_it_waited(tmp_path: Path) -> None:
    every = [message(number) for number in range(20)]
    write_log(tmp_path, every[:10])
    follower = LogFollower(tmp_path)
    written = write_log(tmp_path, every)
    written.overwrite(written.offsets[10] + 4, b"\0")
    (chunk,) = follower.poll()
    assert [fault.offset for fault in chunk.faults] == [written.offsets[10]]
    assert chunk.records.offsets.tolist() == written.offsets[11:]


def test_follower_tells_of_files_that_were_deleted_before_it_read_them(tmp_path: Path) -> None:
    every = [message(number) for number in range(1500)]
    first = write_log(tmp_path, every[:10])
    follower = LogFollower(tmp_path)
    written = write_log(tmp_path, every)
    first.path(0).unlink()
    chunks = list(follower.poll())
    end = written.offsets[10]
    assert chunks[0].faults == [
        LogFault(end, FILE_BYTES - end, "deleted by the broker before it was read", Loss.MISSING)
    ]
    assert next(follower.poll(), None) is None


@pytest.mark.parametrize("change", ["deleted", "cut", "shorter", "another"])
def test_follower_ends_when_the_log_is_no_more(tmp_path: Path, change: str) -> None:
    every = [message(number) for number in range(1000)]
    written = write_log(tmp_path, every)
    follower = LogFollower(tmp_path, written.offsets[990])
    assert [len(chunk.records) for chunk in follower.poll()] == [10]
    assert list(follower.poll()) == []
    if change == "deleted":
        shutil.rmtree(tmp_path / "commitlog")
    elif change == "cut":
        written.overwrite(written.offsets[999], bytes(200))
    elif change == "shorter":
        written.path(written.offsets[999]).unlink()
    else:
        write_log(tmp_path, [each._replace(flag=1) for each in every])
    with pytest.raises(FollowEnded, match="deleted" if change == "deleted" else "no longer exists"):
        list(follower.poll())


@pytest.mark.process
def test_follow_goes_on_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from bmqctl.app import main; main()", "journal", "dump", "--follow"]
    with RocketProcess(tmp_path / "store") as node:
        with Remote(node.port) as remote:
            remote.send_message("followed", b"0")
        command = [*program, "--topic", "followed", "--payload", "text", "--offset-gt", "0", str(tmp_path / "store")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            found = []
            for life in range(2):
                with Remote(node.port) as remote:
                    for number in range(20):
                        remote.send_message("followed", b"%d" % (20 * life + number + 1))
                    found += [json.loads(process.stdout.readline())["payload"] for _ in range(20)]
                    node.kill()
                if not life:
                    node.start()
            assert found == [str(number + 1) for number in range(40)]
            shutil.rmtree(tmp_path / "store")
            assert process.wait(WAIT_S) == 1
            assert "it was deleted" in process.stderr.read()


@pytest.mark.process
def test_follow_prints_what_is_written(log: Written) -> None:
    program = [sys.executable, "-c", "from bmqctl.app import main; main()", "journal", "dump", "--follow"]
    command = [*program, "--limit", "3", "--offset-gt", str(log.offsets[597]), str(log.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline())["flag"] for _ in range(2)]
        write_log(log.root, (message(number) for number in range(601)))
        found.append(json.loads(process.stdout.readline())["flag"])
        assert found == [598, 599, 600]
        assert process.wait(WAIT_S) == 0


PROPERTIES = st.one_of(
    st.binary(max_size=20),
    st.lists(st.sampled_from([b"a\1b\2", b"KEYS\1k\2", b"x\1\2", b'q"\1\\\2', b"\2", b"n\1v", "é\1ü\2".encode()])).map(
        b"".join
    ),
)


@pytest.mark.parametrize(
    "properties", [b"\1\1\2\2", b"\2\1\1", b"\1\1\2", b"a\1b\1c\2", b"\2\2\1", b"a\1b\2\1\1\2", b"", b"a"]
)
def test_separators_in_odd_places(properties: bytes) -> None:
    data = encode_record(message(0)._replace(physical_offset=0, properties=properties))
    records = search(memoryview(data), 0, len(data)).records
    assert [json.loads(line) for line in JsonLines().text(records).splitlines()] == rows_of(records)


@pytest.mark.parametrize("properties", [b" \1\2 \1", b"a\1b\2KEYS\1k\2a\1c\2", b"a\1b\2a\1b"])
def test_of_a_repeated_property_the_last_counts(properties: bytes) -> None:
    names = decode_properties(properties)
    data = b""
    for text in (b"a\1b\2x\1y\2", properties, b"b\1a\2"):
        data += encode_record(message(0)._replace(physical_offset=len(data), properties=text))
    records = search(memoryview(data), 0, len(data)).records
    expected = [{"a": "b", "x": "y"}, names, {"b": "a"}]
    texts = [json.dumps(each) for each in expected]
    assert [json.loads(line)["properties"] for line in JsonLines().text(records).splitlines()] == expected
    assert json.dumps(names) in JsonLines().text(records).decode()
    table = CsvLines()
    rows = csv.DictReader(io.StringIO((table.names + table.text(records)).decode(), newline=""))
    assert [row["properties"] for row in rows] == texts
    assert LogColumns(None).of(records)["properties"] == texts


@given(
    st.lists(
        st.builds(
            message,
            st.integers(0, 99),
            version=st.sampled_from([Magic.V1, Magic.V2]),
            born=st.sampled_from(["127.0.0.1", V6]),
            topic=st.sampled_from(["a", "%RETRY%g", 'q"', "é"]),
            stored_ms=st.sampled_from([0, 1, 1_795_400_000_001, 253_402_300_800_000, -5, 1 << 62]),
            flags=st.sampled_from([0, int(SystemFlag.MULTI_TAGS)]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(PROPERTIES, min_size=4, max_size=4),
    st.lists(st.sampled_from([b"text", b"\xff\xfe", 'é"%s'.encode(), b"", zlib.compress(b"long " * 99)]), min_size=4),
    st.sampled_from([None, *PayloadForm]),
)
def test_lines_and_columns_are_the_rows(
    messages: list[Record], properties: list[bytes], bodies: list[bytes], form: PayloadForm | None
) -> None:
    data = b""
    for each, text, body in zip(messages, properties, bodies, strict=False):
        flags = each.system_flags | (len(body) > 8)
        made = each._replace(
            physical_offset=len(data), properties=text, body=body, body_crc=body_crc(body), system_flags=flags
        )
        data += encode_record(made)
    records = search(memoryview(data), 0, len(data)).records
    assert len(records) == len(messages)
    reader = None if form is None else BodyReader(form, 6)
    rows = rows_of(records, (), reader)
    assert [json.loads(line) for line in JsonLines(reader).text(records).splitlines()] == rows
    table = CsvLines(reader)
    for row, found in zip(
        csv.DictReader(io.StringIO((table.names + table.text(records)).decode(), newline="")), rows, strict=True
    ):
        assert {name: value for name, value in row.items() if value} == {
            name: json.dumps(value) if isinstance(value, dict) else str(value)
            for name, value in found.items()
            if value != ""
        }
    columns = LogColumns(reader).of(records)
    for number, row in enumerate(rows):
        found = {name: values[number] for name, values in columns.items() if values[number] is not None}
        assert {**found, "properties": json.loads(found["properties"])} == row
