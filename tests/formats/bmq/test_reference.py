"""Structures, enumerations and limits are the reference's: field by field, bit by bit, number by number.

`reference_structures.txt` beside this file holds the facts of its headers.
"""

from __future__ import annotations

import re
from enum import EnumType, IntEnum, IntFlag
from pathlib import Path
from typing import Any

import pytest

from formats.bmq import codes
from formats.bmq.disk import data, files, journal, keys, ledger, qlist
from formats.schema import Layout
from tests.formats.schema_rig import LAYOUTS

FACTS = [
    re.fullmatch(r"(struct|enum|number) (\S+) of (\w+): (.*)", line)
    for line in (Path(__file__).parent / "reference_structures.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
STRUCTURES = [fact.groups()[1:] for fact in FACTS if fact and fact[1] == "struct"]
NUMBERS = [fact.groups()[1:] for fact in FACTS if fact and fact[1] == "number"]
ENUMERATIONS = [fact.groups()[1:] for fact in FACTS if fact and fact[1] == "enum"]

# Ours alone: what all records share, a message's GUID (which the reference does not draw), and a hot path's pair.
OWN = {"AnyRecord", "GuidFields", "PushToOne"}

# A word or its initials that the reference uses, where ours is another word for the same thing.
OTHER_WORDS = {
    "B": "bitness",
    "CAT": "compression",
    "ChunkMD5": "md5",
    "CRC-32C": "crc32c",
    "CRC32-C": "crc32c",
    "F": "flags fragment final",
    "FCT": "file_chunk_type",
    "FirstSyncPointRecordOffset": "first_sync_point_after_rollover_offset_words",
    "Flags": "flags ref_count_low reason deletion_flag",
    "HS2X": "header_size_2x",
    "HW": "header_words",
    "MPAW": "area_words",
    "MessageGUID": "guid",
    "NumProps": "num_properties",
    "P": "packed",
    "PHS2X": "property_header_size_2x",
    "PMW": "per_message_words",
    "PV": "protocol_version",
    "PrimaryLeaseId": "primary_lease_id sync_point_primary_lease_id",
    "PropNameLen": "name_length",
    "PropType": "type",
    "PropValueLen": "value_length",
    "R": "reserved reserved_bits reserved_bit",
    "R2": "reserved_bits",
    "RT": "record_type",
    "RefCountHighBits": "ref_count_high",
    "Reserved": "reserved reserved1 reserved2 reserved_bits",
    "SPV": "storage_protocol_version",
    "SeqNum": "sequence_number",
    "SequenceNumber": "sequence_number sync_point_sequence_number",
    "TS": "type_specific",
}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize(("upstream", "name", "fields"), STRUCTURES, ids=[name for _, name, _ in STRUCTURES])
def test_structure_has_the_fields_of_the_reference(upstream: str, name: str, fields: str) -> None:
    (layout,) = (layout for layout in LAYOUTS if layout.name == name)
    assert layout.upstream == upstream
    theirs = [field.split() for field in fields.split(", ")]
    assert [int(width) for _, width in theirs] == list(layout.field_bits.values())
    for (their_name, _), our_name in zip(theirs, layout.field_bits, strict=True):
        assert our_name in OTHER_WORDS.get(their_name, snake(their_name)).split(), f"{their_name} is not {our_name}"


def test_every_structure_has_its_facts() -> None:
    layouts: list[Layout[Any]] = [layout for layout in LAYOUTS if not layout.upstream.startswith("rocketmq::")]
    assert {layout.name for layout in layouts} == {name for _, name, _ in STRUCTURES} | OWN


def members_of(enumeration: Any) -> str:
    """Format the members like the facts; iterating a flag's class would leave out its zero."""
    return ", ".join(f"{name} {member.value}" for name, member in enumeration.__members__.items())


def test_enumerations_have_the_numbers_of_the_reference() -> None:
    ours = {
        name: members_of(value)
        for module in (codes, data, files, journal, ledger)
        for name, value in vars(module).items()
        if isinstance(value, EnumType) and value not in (IntEnum, IntFlag)
    }
    assert ours == {name: members for _, name, members in ENUMERATIONS}


@pytest.mark.parametrize(("upstream", "name", "value"), NUMBERS, ids=[name for _, name, _ in NUMBERS])
def test_number_is_that_of_the_reference(upstream: str, name: str, value: str) -> None:
    found = {vars(module)[name] for module in (codes, files, journal, keys, qlist) if name in vars(module)}
    assert found == {int(value, 0)}


def test_every_line_of_the_facts_is_read() -> None:
    assert all(FACTS)
    assert len(FACTS) == len(STRUCTURES) + len(ENUMERATIONS) + len(NUMBERS)
