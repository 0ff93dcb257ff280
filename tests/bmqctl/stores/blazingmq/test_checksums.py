"""Check of the statements in `formats/bmq/disk/CHECKSUMS.md` with random bits; `scripts/sweep` takes all of them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.assembly.opening import StoreDamaged, open_ledger, open_partitions
from broker.bmq.store.partition_files import PartitionLimits
from broker.common.clock import Now
from tests.bmqctl.stores.blazingmq.small_store import EXTENSIONS, START_S, build_small_store
from tests.bmqctl.stores.blazingmq.sweep import DOCUMENT, SWEPT_MESSAGES, Field, Sweep, file_of, main, read_table
from tests.broker.fakes import Content, MemoryDirectory
from tests.families import examples

DATA, LEDGER = EXTENSIONS[1], EXTENSIONS[3]
FILE_SIZE = 1 << 13


def written() -> dict[tuple[str, str], tuple[str, list[str]]]:
    """(share of the bits, codes) by (file, field), as the document has it."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in read_table(DOCUMENT.read_text()).splitlines()]
    return {(file, name): (share, codes.split(", ")) for file, name, share, codes in rows[2:]}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return Sweep(build_small_store(tmp_path_factory.mktemp("swept") / "store", SWEPT_MESSAGES))


def test_every_byte_is_in_one_field_of_the_document(swept: Sweep) -> None:
    assert set(written()) == {(file_of(field), field.name) for field in swept.fields}
    for extension in EXTENSIONS:
        end = 0
        for field in (field for field in swept.fields if field.extension == extension):
            assert field.start == end
            end += field.width
        assert end == 8 * len(swept.files[extension])


def test_checksums_notice_every_change_of_the_fields_they_cover() -> None:
    rows = written()
    assert rows["DATA", "application data"] == ("all", ["payload-checksum"])
    assert rows["JOURNAL", "MessageRecord.crc32c"] == ("all", ["payload-checksum"])
    for name in ("body", "padding", "checksum", "LedgerRecordHeader.elector_term", "LedgerRecordHeader.timestamp"):
        assert rows["LEDGER", name] == ("all", ["ledger-checksum"])


def check(swept: Sweep, field: Field, bit: int) -> None:
    share, codes = written()[file_of(field), field.name]
    found = swept.codes(field.extension, bit)
    if share == "all":
        assert found & set(codes), f"{field.name}: {found or 'nothing'}"
    elif share == "none":
        assert not found
    elif found:
        assert found & set(codes)


@pytest.mark.slow
@settings(max_examples=examples(250), deadline=None)
@given(st.data())
def test_any_bit_of_any_field(swept: Sweep, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(swept.fields), "field")
    check(swept, field, field.start + data.draw(st.integers(0, field.width - 1), "bit"))


@pytest.mark.slow
@settings(max_examples=examples(250), deadline=None)
@given(st.data())
def test_any_bit_with_a_checksum(swept: Sweep, data: st.DataObject) -> None:
    covered = [
        field
        for field in swept.fields
        if field.name == "application data" or (field.extension == LEDGER and "File" not in field.name)
    ]
    field = data.draw(st.sampled_from(covered), "field")
    assert swept.codes(field.extension, field.start + data.draw(st.integers(0, field.width - 1), "bit"))


def make_timestamp(prefix: str) -> str:
    return f"{prefix}20300101_000000"


@pytest.mark.slow
@settings(max_examples=examples(250), deadline=None)
@given(st.data())
def test_a_node_opens_it_or_says_why_not(swept: Sweep, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(swept.fields), "field")
    bit = field.start + data.draw(st.integers(0, field.width - 1), "bit")
    directory = MemoryDirectory()
    for extension, content in swept.files.items():
        directory.files[swept.names[extension]] = Content(bytearray(content), len(content))
    directory.files[swept.names[field.extension]].data[bit // 8] ^= 0x80 >> bit % 8
    now = Now(START_S, 1_000_000)
    # It may be refused, with words; any other error fails the test.
    with suppress(StoreDamaged):
        opened = open_partitions(directory, 1, 0, PartitionLimits(*[FILE_SIZE] * 3), now, make_timestamp)
        open_ledger(directory, FILE_SIZE, now, make_timestamp, opened)


def test_the_script_takes_no_other_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--all"]) == 2
    assert "usage" in capsys.readouterr().err
