"""`brokerIdentity`: the id that a controller has given a broker (source: BrokerMetadata, TempBrokerMetadata).

One line: cluster, broker name and id, separated by `#`. While the broker applies for the id, the line is in
`brokerIdentity-temp`, with a fourth word by which the controller recognises the applicant.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.numbers import read_digits

__all__ = ["BrokerIdentity", "decode_identity", "encode_identity"]

_ID_MAX: Final = (1 << 63) - 1
_WORDS: Final = 3


class BrokerIdentity(NamedTuple):
    """A broker's id among the brokers of its name; `check_code` is empty once the id is granted."""

    cluster: str
    name: str
    broker_id: int
    check_code: str = ""


def encode_identity(identity: BrokerIdentity) -> bytes:
    words = [identity.cluster, identity.name, str(identity.broker_id)]
    return "#".join(words + [identity.check_code] * bool(identity.check_code)).encode()


def decode_identity(data: bytes) -> BrokerIdentity:
    """Decode the file. Raises `FormatError`."""
    try:
        words = data.decode().strip().split("#")
    except UnicodeDecodeError as error:
        raise FormatError("BrokerIdentity", error.start, "is not UTF-8") from None
    broker_id = read_digits(words[2], _ID_MAX) if len(words) >= _WORDS else None
    if not broker_id:
        raise FormatError("BrokerIdentity", 0, f"{data[:80]!r} is not CLUSTER#NAME#ID")
    return BrokerIdentity(words[0], words[1], broker_id, "#".join(words[3:]))
