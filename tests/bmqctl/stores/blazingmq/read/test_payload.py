"""Payloads and properties as they were posted."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmqctl.stores.blazingmq.read import payload
from bmqctl.stores.blazingmq.read.payload import PayloadReader
from bmqctl.stores.blazingmq.read.wanted import PayloadForm
from formats.bmq.disk.data import DataHeaderFlags, data_record_size, write_data_record
from formats.bmq.disk.files import FileType, initial_bytes
from formats.bmq.wire.properties import Property, PropertyType, encode_properties
from formats.errors import FormatError
from tests.golden.archives import only, truth

if TYPE_CHECKING:
    from tests.bmqctl.stores.conftest import Outcome

Run = Callable[..., "Outcome"]
Golden = Callable[[str], Path]

# In the order that the encodings have.
PROPERTIES = [
    Property("char", PropertyType.CHAR, b"c"),
    Property("flag", PropertyType.BOOL, True),
    Property("int", PropertyType.INT32, -3),
    Property("long", PropertyType.INT64, 1 << 40),
    Property("raw", PropertyType.BINARY, b"\0\xff"),
    Property("short", PropertyType.SHORT, -2),
    Property("text", PropertyType.STRING, "näme"),
]
AS_JSON = {
    "flag": True,
    "char": {"type": "CHAR", "value": "63"},
    "short": {"type": "SHORT", "value": -2},
    "int": {"type": "INT32", "value": -3},
    "long": 1 << 40,
    "text": "näme",
    "raw": {"type": "BINARY", "value": "00FF"},
}


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "posted"), [("single-crash", "single"), ("cluster-node0", "cluster")])
def test_payloads_are_what_the_client_posted(run: Run, golden: Golden, name: str, posted: str) -> None:
    outcome = run("dump", "--payload", "hex", "--payload-limit", 0, "--type", "message", golden(name))
    assert outcome.code == 0
    dumped = {row["guid"]: row for row in rows(outcome)}
    compared = 0
    for message in truth(posted):
        row = dumped.get((message["guid"] or "").upper())
        if row is None:
            continue
        content = bytes.fromhex(row["payload_hex"])
        assert (len(content), row["payload_size"]) == (message["size"], message["size"])
        assert hashlib.sha256(content).hexdigest() == message["sha256"]
        assert set(row.get("properties", {})) == set(message["properties"] or {})
        compared += 1
    assert compared > 200


def a_data_file(path: Path, *messages: tuple[bytes, int, int]) -> list[int]:
    """A DATA file of (application data, flags, schema id); where each lies, in double words."""
    content = bytearray(initial_bytes(FileType.DATA, 0))
    places = []
    for data, flags, schema_id in messages:
        offset = len(content)
        places.append(offset // 8)
        content += bytes(data_record_size(0, len(data)))
        write_data_record(content, offset, data, b"", flags, schema_id)
    path.write_bytes(content)
    return places


@pytest.mark.parametrize("limit", [0, 1, 5, 6, 1000])
def test_both_encodings_of_properties(tmp_path: Path, limit: int) -> None:
    file = tmp_path / "data"
    flag = int(DataHeaderFlags.MESSAGE_PROPERTIES)
    older, newer = encode_properties(PROPERTIES, 0), encode_properties(PROPERTIES, 1)
    text = b"hello " * 100
    places = a_data_file(
        file,
        (text, 0, 0),
        (zlib.compress(text), 0, 0),
        (older + text, flag, 0),
        (zlib.compress(older + text), flag, 0),
        (newer + text, flag, 3),
        (newer + zlib.compress(text), flag, 3),
    )
    with PayloadReader(file, PayloadForm.AUTO, limit) as reader:
        for number, place in enumerate(places):
            found = reader.read(place, number % 2)
            assert found.head == (text[:limit] if limit else text)
            assert found.size == len(text)
            assert found.properties == (PROPERTIES if number >= 2 else [])


def test_payloads_and_properties_are_printed(run: Run, tmp_path: Path) -> None:
    """All types of properties; text, and what is none; dumped lines build the same store."""
    queue = "bmq://a.b/q"
    lines = [
        {"type": "MESSAGE", "queue_uri": queue, "payload": "hällo", "properties": AS_JSON},
        {"type": "MESSAGE", "queue_uri": queue, "payload_hex": "FFFE"},
        {"type": "MESSAGE", "queue_uri": queue, "payload": "long " * 1000, "compression": "ZLIB"},
        {"type": "MESSAGE", "queue_uri": queue, "payload": "x", "properties": AS_JSON, "schema_id": 0},
    ]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)))
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    everything = run("dump", "--payload", "auto", "--payload-limit", 0, tmp_path / "store")
    first, binary, long, older = (row for row in rows(everything) if row["type"] == "MESSAGE")
    assert (first["payload"], first["payload_size"], first["properties"]) == ("hällo", 6, AS_JSON)
    assert (binary["payload_hex"], "payload" in binary) == ("FFFE", False)
    assert (long["payload"], long["compression"], long["payload_size"]) == ("long " * 1000, "ZLIB", 5000)
    assert (older["properties"], "schema_id" in older) == (AS_JSON, False)
    cut = [
        row for row in rows(run("dump", "--payload", "auto", "--payload-limit", 2, tmp_path / "store")) if "guid" in row
    ]
    # The limit goes through a character of two bytes, which is left out.
    assert [row.get("payload") for row in cut] == ["h", None, "lo", "x"]
    assert [row.get("payload_omitted") for row in cut] == [4, None, 4998, None]
    forced = [row["payload"] for row in rows(run("dump", "--payload", "text", tmp_path / "store")) if "guid" in row]
    assert forced[1] == r"\xff\xfe"


def test_dumped_payloads_build_the_same_store(run: Run, golden: Golden, tmp_path: Path) -> None:
    store = golden("single-clean")
    dumped = run("dump", "--payload", "auto", "--payload-limit", 0, "--type", "message", store).out
    (tmp_path / "lines").write_text(dumped)
    built = run("build", tmp_path / "lines", "--out", tmp_path / "store")
    assert built.code == 0, built.err
    again = rows(run("dump", "--payload", "auto", "--payload-limit", 0, "--type", "message", tmp_path / "store"))
    differs = {"index", "offset", "data_offset", "partition_id", "crc32c"}
    for old, new in zip(map(json.loads, dumped.splitlines()), again, strict=True):
        assert {k: v for k, v in old.items() if k not in differs} == {k: v for k, v in new.items() if k not in differs}
        assert old["crc32c"] == new["crc32c"]


def test_a_dumped_store_builds_the_same_store(run: Run, golden: Golden, tmp_path: Path) -> None:
    """All records, with names and apps; the files differ in their names and in what the ledger says of the past."""
    store = golden("single-clean")
    dumped = run("dump", "--payload", "auto", "--payload-limit", 0, store).out
    (tmp_path / "lines").write_text(dumped)
    assert run("build", tmp_path / "lines", "--out", tmp_path / "store").code == 0
    for extension in (".bmq_journal", ".bmq_data", ".bmq_qlist"):
        assert only(tmp_path / "store", extension).read_bytes() == only(store, extension).read_bytes()


def test_payload_of_the_reference_tool(run: Run, golden: Golden) -> None:
    store = golden("single-clean")
    options = ("--type", "message", "--limit", 20)
    found = json.loads(run("dump", "--payload", "hex", "--output", "json-pretty", *options, store).out)["Records"]
    plain = rows(run("dump", "--payload", "hex", *options, store))
    assert [record["Payload"] for record in found] == [row["payload_hex"] for row in plain]


def test_damaged_data(run: Run, copy: Path, tmp_path: Path) -> None:
    journal, data = only(copy, ".bmq_journal"), only(copy, ".bmq_data")
    content = bytearray(data.read_bytes())
    content[40:52] = b"\xff" * 12
    data.write_bytes(content[: len(content) // 2])
    outcome = run("dump", "--payload", "auto", journal)
    assert outcome.code == 1
    faults = [row["payload_fault"] for row in rows(outcome) if "payload_fault" in row]
    assert faults[0].startswith("DataHeader.message_words at offset 40:")
    assert 10 < len(faults) < 297
    assert f"{len(faults)} payloads could not be read" in outcome.err
    pretty = run("dump", "--payload", "hex", "--output", "json-pretty", journal)
    assert (pretty.code, "Payload" in json.loads(pretty.out)["Records"][2]) == (1, False)
    data.unlink()
    outcome = run("dump", "--payload", "auto", journal)
    assert (outcome.code, "--data-file" in outcome.err, outcome.out) == (2, True, "")
    outcome = run("dump", "--payload", "auto", "--data-file", journal, journal)
    assert (outcome.code, "is a JOURNAL file, not a DATA file" in outcome.err) == (2, True)
    outcome = run("dump", "--data-file", journal, journal)
    assert outcome.code == 2


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads that inflate beyond the limit of all brokers are refused, a step at a time."""
    monkeypatch.setattr(payload, "DECOMPRESSED_SIZE_MAX", 1 << 16)
    monkeypatch.setattr(payload, "INFLATE_STEP", 1 << 10)
    file = tmp_path / "data"
    flag = int(DataHeaderFlags.MESSAGE_PROPERTIES)
    bomb = zlib.compress(bytes(1 << 20))
    claim = zlib.compress(b"\x1b\xff\xff\xff\0\1" + bytes(1 << 20))
    fits, too_long, cut, area, empty = a_data_file(
        file,
        (zlib.compress(bytes(1 << 16)), 0, 0),
        (bomb, 0, 0),
        (bomb[:20], 0, 0),
        (claim, flag, 0),
        (zlib.compress(b""), flag, 0),
    )
    with PayloadReader(file, PayloadForm.AUTO, 10) as reader:
        assert reader.read(fits, 1).size == 1 << 16
        for place, reason in (
            (too_long, "inflates to more"),
            (cut, "truncated"),
            (area, "inflates to more"),
            (empty, "needs 6 bytes"),
        ):
            with pytest.raises(FormatError, match=reason):
                reader.read(place, 1)
        with pytest.raises(FormatError, match="not a known algorithm"):
            reader.read(fits, 5)
        with pytest.raises(FormatError, match="DataHeader"):
            reader.read(1 << 30, 0)
