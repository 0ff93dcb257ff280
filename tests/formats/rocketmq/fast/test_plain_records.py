"""Plain records: the ones that `decode_record` finds sound, and the ones left to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.rocketmq.fast.plain_records import plain_records, read_property
from formats.rocketmq.files.record import Blank, Magic, decode_record
from formats.rocketmq.flags import TRANSACTION_MASK, SystemFlag
from formats.rocketmq.properties import decode_properties
from tests.families import examples
from tests.formats.rocketmq.fast.plain_records_rig import FILE_BYTES, SIZE_MAX, logs

OTHER = TRANSACTION_MASK | SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6


def sound(data: bytes, offset: int) -> list[tuple[int, int, bytes, int, int, int, bytes]]:
    """The plain records at the front, by way of `decode_record`."""
    found: list[tuple[int, int, bytes, int, int, int, bytes]] = []
    at = 0
    while at < len(data):
        try:
            record = decode_record(data, at)
        except FormatError:
            break
        if record is None or isinstance(record, Blank) or record.version is not Magic.V1 or record.system_flags & OTHER:
            break
        size = int.from_bytes(data[at : at + 4], "big")
        fits = offset % FILE_BYTES + at + size + 8 <= FILE_BYTES and size <= SIZE_MAX
        if not fits or not record.is_body_sound or record.physical_offset != offset + at:
            break
        topic = record.topic.encode()
        field = bytes([len(topic)]) + topic
        found.append(
            (
                offset + at,
                size,
                field,
                record.queue_id,
                record.queue_offset,
                record.stored_ms,
                b"\2" + record.properties,
            )
        )
        at += size
    return found


@given(logs(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_plain_records_are_the_sound_ones_at_the_front(log: tuple[int, bytes], more: st.DataObject) -> None:
    offset, data = log
    if more.draw(st.booleans()):
        at = more.draw(st.integers(0, len(data) - 1))
        data = data[:at] + bytes([data[at] ^ more.draw(st.integers(1, 127))]) + data[at + 1 :]
    data = data[: more.draw(st.sampled_from((len(data), len(data), len(data) // 2)))]
    found = list(plain_records(memoryview(data), offset, FILE_BYTES, SIZE_MAX))
    wanted = sound(data, offset)
    assert found[: len(wanted)] == wanted
    # Readers of the topic check that it is UTF-8.
    assert all(not _is_text(field) for _, _, field, *_ in found[len(wanted) : len(wanted) + 1])


def _is_text(field: bytes) -> bool:
    try:
        field[1:].decode()
    except UnicodeDecodeError:
        return False
    return True


@given(
    st.binary(max_size=60) | st.lists(st.sampled_from((b"KEYS", b"TAGS", b"\1", b"\2", b"x", b"\xff"))).map(b"".join)
)
def test_property_is_the_one_that_is_decoded(properties: bytes) -> None:
    wanted = decode_properties(properties).get("KEYS", "")
    assert read_property(b"\2" + properties, b"\2KEYS\1").decode(errors="replace") == wanted
