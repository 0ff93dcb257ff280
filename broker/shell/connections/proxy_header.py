"""The header in which a balancer sends the address of its client: the PROXY protocol, versions 1 and 2.

It precedes TLS (source: HAProxy, doc/proxy-protocol.txt). A balancer's own connections, such as its probes, have a
header without an address.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from formats.errors import FormatError

__all__ = ["HEADER_MAX", "Header", "read_header"]

# Maximum size of a header, with the fields of version 2 after the addresses.
HEADER_MAX: Final = 4096

_V1: Final = b"PROXY "
_V1_MAX: Final = 107
_V1_LINE: Final = re.compile(rb"(TCP[46]) ([0-9a-fA-F:.]+) [0-9a-fA-F:.]+ ([0-9]{1,5}) [0-9]{1,5}")
_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V2_SIZE: Final = 16
_LOCAL, _PROXY = 0x20, 0x21
# Size of both addresses and ports, by the families that have them: TCP over IPv4 and IPv6.
_INET, _INET6 = 0x11, 0x21
_SIZES: Final = {_INET: 12, _INET6: 36}
_PORT_MAX: Final = 65_535


class Header(NamedTuple):
    """A header's size, and the client's address and port; None if it names none."""

    size: int
    source: tuple[str, int] | None


def read_header(data: bytes) -> Header | None:
    """Read the header at the front of `data`; None if it is not complete. Raises `FormatError` if it is none."""
    if data.startswith(_V2[: len(data)]):
        return _read_v2(data) if len(data) >= _V2_SIZE else None
    if data.startswith(_V1[: len(data)]):
        return _read_v1(data)
    raise FormatError("ProxyHeader", 0, f"no header of the PROXY protocol, but {data[:12]!r}")


def _read_v1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, _V1_MAX)
    if end < 0:
        if len(data) >= _V1_MAX:
            raise FormatError("ProxyHeader", 0, f"a line of more than {_V1_MAX} bytes")
        return None
    line = data[len(_V1) : end]
    if line.partition(b" ")[0] == b"UNKNOWN":
        return Header(end + 2, None)
    found = _V1_LINE.fullmatch(line)
    if found is None:
        raise FormatError("ProxyHeader", len(_V1), f"no addresses of TCP4 or TCP6: {line!r}")
    kind = ipaddress.IPv4Address if found[1] == b"TCP4" else ipaddress.IPv6Address
    try:
        address = kind(found[2].decode())
    except ValueError:
        raise FormatError("ProxyHeader", len(_V1), f"no address: {found[2]!r}") from None
    port = int(found[3])
    if port > _PORT_MAX:
        raise FormatError("ProxyHeader", len(_V1), f"no port: {port}")
    return Header(end + 2, (str(address), port))


def _read_v2(data: bytes) -> Header | None:
    command, family = data[12], data[13]
    size = _V2_SIZE + int.from_bytes(data[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise FormatError("ProxyHeader.command", 12, f"is {command:#04x}, not {_LOCAL:#04x} or {_PROXY:#04x}")
    if size > HEADER_MAX:
        raise FormatError("ProxyHeader.length", 14, f"makes a header of {size} bytes, {HEADER_MAX} are allowed")
    needed = _SIZES.get(family, 0) if command == _PROXY else 0
    if size < _V2_SIZE + needed:
        raise FormatError("ProxyHeader.length", 14, f"leaves no room for addresses of the family {family:#04x}")
    if len(data) < size:
        return None
    if not needed:
        return Header(size, None)
    width = (needed - 4) // 2
    address = ipaddress.ip_address(data[_V2_SIZE : _V2_SIZE + width])
    place = _V2_SIZE + 2 * width
    return Header(size, (str(address), int.from_bytes(data[place : place + 2], "big")))
