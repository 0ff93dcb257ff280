"""The proof by which our nodes show each other that they know a secret, when one connects to another.

This is no format of the original's. The listener sends a challenge, random bytes. The dialer answers with random bytes
of its own and a code over both, and the listener with another code. The codes are HMAC-SHA256 with the secret as the
key; each is also over the role of its maker, the listener's port, and the dialer's name. The dialer is first: a
stranger that connects receives no code, by which a short secret could be guessed.

By the remoting protocol, requests with `CODE` carry this: the first one without a body is answered with the challenge,
the second one with the listener's code. On a connection for replication the bytes precede those of the original's
protocol, the challenge with `MAGIC` before it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from formats.rocketmq.headers.codec import HeaderCodec

__all__ = [
    "ANSWER_BYTES",
    "CHALLENGE_BYTES",
    "CODE",
    "CODE_BYTES",
    "MAGIC",
    "PROOF_HEADER",
    "ProofHeader",
    "dialer_code",
    "listener_code",
]

# No request code of the original is near.
CODE: Final = 59_002
MAGIC: Final = b"bmqproof"
CHALLENGE_BYTES: Final = 32
CODE_BYTES: Final = 32
ANSWER_BYTES: Final = CHALLENGE_BYTES + CODE_BYTES


class ProofHeader(NamedTuple):
    """The name of the node that proves that it knows the secret: a controller's id; empty for a broker."""

    name: str = ""


PROOF_HEADER: Final = HeaderCodec(ProofHeader)


def dialer_code(secret: bytes, port: int, name: str, challenge: bytes, nonce: bytes) -> bytes:
    """Return the code of the dialer of a port."""
    return _code(secret, b"dialer", port, name, challenge + nonce)


def listener_code(secret: bytes, port: int, name: str, challenge: bytes, nonce: bytes) -> bytes:
    """Return the code of the listener on a port."""
    return _code(secret, b"listener", port, name, challenge + nonce)


def _code(secret: bytes, who: bytes, port: int, name: str, drawn: bytes) -> bytes:
    text = name.encode("utf-8", "surrogatepass")
    return hmac.new(secret, b"%s\0%d\0%s\0%s" % (who, port, text, drawn), hashlib.sha256).digest()
