"""A certificate that vouches for itself, made anew for each process that is given none.

Some of RocketMQ's clients use TLS unless they are told otherwise, and do not ask who they speak to. The original makes
such a certificate for them (source: ProxyAndTlsProtocolNegotiator). It keeps nobody from pretending to be the broker;
who wants that gives it a certificate.

The key is on P-256, the signature ECDSA with SHA-256 (FIPS 186-4, RFC 5280). The key signs once, so the time that this
takes tells nothing.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import ssl
import time
from typing import NamedTuple

from broker.shell.host import HOST

__all__ = ["SelfSigned", "load_self_signed", "make_self_signed"]

# The curve: its field, its order, the coefficient b (a is -3), and the base point.
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_BYTES = 32

_EC_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_CURVE = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")
_SEQUENCE, _SET, _INTEGER, _BITS, _OCTETS, _TEXT, _UTC, _GENERAL_TIME = 0x30, 0x31, 2, 3, 4, 12, 23, 24
_DNS_NAME = 0x82
_DAY_S = 86_400
_YEARS = 20

Point = tuple[int, int]


class SelfSigned(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: str
    key: str


def make_self_signed(name: str, now_s: int) -> SelfSigned:
    """Make a key, and a certificate for a host that is good for some time from now on."""
    secret = secrets.randbelow(_N - 1) + 1
    public = _point_bytes(_times(secret, _BASE))
    key_info = _der(_SEQUENCE, _der(_SEQUENCE, _EC_PUBLIC_KEY + _CURVE) + _bits(public))
    algorithm = _der(_SEQUENCE, _ECDSA_SHA256)
    subject = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME + _der(_TEXT, name.encode()))))
    names = _der(_SEQUENCE, _der(_DNS_NAME, name.encode()))
    extensions = _der(0xA3, _der(_SEQUENCE, _der(_SEQUENCE, _ALTERNATIVE_NAMES + _der(_OCTETS, names))))
    validity = _der(_SEQUENCE, _time(now_s - _DAY_S) + _time(now_s + _YEARS * 365 * _DAY_S))
    version = _der(0xA0, _integer(2))
    serial = _integer(secrets.randbits(63))
    told = _der(_SEQUENCE, version + serial + algorithm + subject + validity + subject + key_info + extensions)
    certificate = _der(_SEQUENCE, told + algorithm + _bits(_sign(secret, told)))
    scalar = secret.to_bytes(_BYTES, "big")
    key = _der(_SEQUENCE, _integer(1) + _der(_OCTETS, scalar) + _der(0xA0, _CURVE) + _der(0xA1, _bits(public)))
    return SelfSigned(_pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", key))


def load_self_signed(context: ssl.SSLContext, name: str) -> None:
    """Give a context a certificate of its own. Raises `OSError` where OpenSSL cannot be given a file."""
    made = make_self_signed(name, int(time.time()))
    HOST.load_certificate(context, (made.certificate + made.key).encode())


# -- the curve; points in Jacobian coordinates, of which the one at infinity has z = 0


def _times(scalar: int, point: Point) -> Point:
    x, y, z = 1, 1, 0
    for bit in f"{scalar:b}":
        x, y, z = _double(x, y, z)
        if bit == "1":
            x, y, z = _add(x, y, z, point)
    inverse = pow(z, -1, _P)
    return x * inverse**2 % _P, y * inverse**3 % _P


def _double(x: int, y: int, z: int) -> tuple[int, int, int]:
    squared = y * y % _P
    product = 4 * x * squared % _P
    slope = 3 * (x - z * z) * (x + z * z) % _P
    doubled = (slope * slope - 2 * product) % _P
    return doubled, (slope * (product - doubled) - 8 * squared * squared) % _P, 2 * y * z % _P


def _add(x: int, y: int, z: int, point: Point) -> tuple[int, int, int]:
    """Add a point in plain coordinates that is neither the first nor its opposite."""
    if z == 0:
        return point[0], point[1], 1
    z_squared = z * z % _P
    width = (point[0] * z_squared - x) % _P
    height = (point[1] * z_squared * z - y) % _P
    width_squared = width * width % _P
    width_cubed = width * width_squared % _P
    middle = x * width_squared % _P
    added = (height * height - width_cubed - 2 * middle) % _P
    return added, (height * (middle - added) - y * width_cubed) % _P, z * width % _P


def _sign(secret: int, data: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
    while True:
        once = secrets.randbelow(_N - 1) + 1
        first = _times(once, _BASE)[0] % _N
        second = pow(once, -1, _N) * (digest + first * secret) % _N
        if first and second:
            return _der(_SEQUENCE, _integer(first) + _integer(second))


def _point_bytes(point: Point) -> bytes:
    return b"\x04" + point[0].to_bytes(_BYTES, "big") + point[1].to_bytes(_BYTES, "big")


# -- DER and PEM


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _integer(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _der(_BITS, b"\0" + content)


def _time(at_s: int) -> bytes:
    """A time; years from 2050 on are written with all their digits."""
    found = time.gmtime(at_s)
    is_late = found.tm_year >= 2050
    text = time.strftime("%Y%m%d%H%M%SZ" if is_late else "%y%m%d%H%M%SZ", found)
    return _der(_GENERAL_TIME if is_late else _UTC, text.encode())


def _pem(what: str, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"
