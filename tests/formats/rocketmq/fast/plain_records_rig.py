"""Commit logs of plain messages, for the packers."""

from __future__ import annotations

from hypothesis import strategies as st

from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.flags import SystemFlag
from formats.rocketmq.hosts import Host

HOST = Host("127.0.0.1", 20911).pack()
FILE_BYTES = 4096
SIZE_MAX = 600


@st.composite
def logs(draw: st.DrawFn) -> tuple[int, bytes]:
    """A few consecutive records, and the offset at which they begin."""
    offset = draw(st.sampled_from((0, FILE_BYTES - 700, 3 * FILE_BYTES)))
    data = b""
    for _ in range(draw(st.integers(1, 5))):
        body = draw(st.binary(max_size=80)) * draw(st.sampled_from((1, 1, 1, 9)))
        flags = draw(st.sampled_from((0, 0, 0, 1, 3, 4, 8, 16)))
        born = Host("::1", 1).pack() if flags & SystemFlag.BORN_HOST_V6 else HOST
        version = draw(st.sampled_from((Magic.V1, Magic.V1, Magic.V2)))
        wrong = draw(st.sampled_from((0,) * 9 + (1,)))
        topic = draw(st.text(max_size=9))
        properties = draw(st.binary(max_size=40))
        numbers = draw(st.tuples(st.integers(-2, 9), st.integers(-2, 9), st.integers(0, 1 << 50)))
        place = offset + len(data) + wrong
        record = Record(
            version,
            body_crc(body),
            numbers[0],
            0,
            numbers[1],
            place,
            flags,
            7,
            born,
            numbers[2],
            HOST,
            0,
            0,
            body,
            topic,
            properties,
        )
        data += encode_record(record)
    return offset, data
