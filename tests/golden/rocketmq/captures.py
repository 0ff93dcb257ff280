"""The captures beside this file: what went over each TCP connection, one way, put together again from its packets."""

from __future__ import annotations

import lzma
import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["CAPTURES", "HERE", "Stream", "streams"]

HERE = Path(__file__).parent
CAPTURES = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("*/*.pcap.xz"))

_ETHERNET = 14
_SYN = 2


class Stream(NamedTuple):
    """All that one end of a connection sent: its port, the other's, and the bytes, in order.

    `packets` has the end of each packet in the bytes, and the time at which it was captured, in microseconds.
    """

    source: int
    target: int
    data: bytes
    packets: list[tuple[int, int]]

    def time_of(self, end: int) -> int:
        """The time at which all bytes before `end` had been sent."""
        return self.packets[bisect_left(self.packets, (end, 0))][1]


def _segments(capture: bytes) -> Iterator[tuple[int, bytes, int, int, int, int, bytes]]:
    """Time, addresses, ports, sequence number, flags and bytes of every TCP segment of a capture."""
    at = 24
    while at < len(capture):
        seconds, micros, size = struct.unpack_from("<III", capture, at)
        packet = capture[at + 16 : at + 16 + size]
        at += 16 + size
        ip = packet[_ETHERNET:]
        if ip[0] >> 4 == 4:
            tcp, addresses = ip[(ip[0] & 15) * 4 : struct.unpack_from(">H", ip, 2)[0]], ip[12:20]
        else:
            tcp, addresses = ip[40 : 40 + struct.unpack_from(">H", ip, 4)[0]], ip[8:40]
        source, target, number = struct.unpack_from(">HHI", tcp)
        yield seconds * 1_000_000 + micros, addresses, source, target, number, tcp[13], tcp[(tcp[12] >> 4) * 4 :]


def streams(capture: str) -> list[Stream]:
    """Every direction of every connection of a capture, named as in `CAPTURES`. Retransmitted bytes count once.

    A connection of which the capture has not all bytes ends where the first is missing.
    """
    parts: dict[tuple[bytes, int, int], dict[int, tuple[bytes, int]]] = {}
    begins: dict[tuple[bytes, int, int], int] = {}
    for time, addresses, source, target, number, flags, data in _segments(
        lzma.decompress((HERE / capture).read_bytes())
    ):
        key = (addresses, source, target)
        if flags & _SYN:
            begins[key] = number + 1
        if data:
            begins.setdefault(key, number)
            segments = parts.setdefault(key, {})
            if len(data) > len(segments.get(number, (b"", 0))[0]):
                segments[number] = (data, time)
    found = []
    for key, segments in parts.items():
        joined, wanted = bytearray(), begins[key]
        packets: list[tuple[int, int]] = []
        for number, (data, time) in sorted(segments.items(), key=lambda item: (item[0] - begins[key]) % (1 << 32)):
            behind = (wanted - number) % (1 << 32)
            if behind >= 1 << 31:
                break
            joined += data[behind:]
            packets.append((len(joined), time))
            wanted = (number + max(len(data), behind)) % (1 << 32)
        found.append(Stream(key[1], key[2], bytes(joined), packets))
    return found
