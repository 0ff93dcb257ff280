"""Mutual proof of a shared secret between two bmqctl nodes, when one connects to the other.

The original has no such format. The listener sends a challenge, random bytes. The dialer answers with its own random
bytes and a code, and the listener replies with another code. A code is the HMAC-SHA256, with the secret as the key, of
its sender's role, the listener's port, the dialer's name and the random bytes of both. The dialer's code comes first: a
stranger that connects receives no code with which it could guess a short secret.

In the remoting protocol, requests with `CODE` carry the proof: the answer to the first one, which has no body, is the
challenge, and the answer to the second one is the listener's code. On a connection for replication, the proof precedes
the original's protocol; `MAGIC` begins the challenge and the dialer's answer.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from formats.rocketmq.remoting.headers.codec import codec_of

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

# Far from the original's request codes.
CODE: Final = 59_002
MAGIC: Final = b"bmqproof"
CHALLENGE_BYTES: Final = 32
CODE_BYTES: Final = 32
ANSWER_BYTES: Final = CHALLENGE_BYTES + CODE_BYTES


class ProofHeader(NamedTuple):
    """The header of a request of the proof. `name` is the id of a controller; it is empty for a broker."""

    name: str = ""


PROOF_HEADER: Final = codec_of(ProofHeader)


def dialer_code(secret: bytes, port: int, name: str, challenge: bytes, nonce: bytes) -> bytes:
    return _code(secret, b"dialer", port, name, challenge + nonce)


def listener_code(secret: bytes, port: int, name: str, challenge: bytes, nonce: bytes) -> bytes:
    return _code(secret, b"listener", port, name, challenge + nonce)


def _code(secret: bytes, who: bytes, port: int, name: str, drawn: bytes) -> bytes:
    text = name.encode("utf-8", "surrogatepass")
    return hmac.new(secret, b"%s\0%d\0%s\0%s" % (who, port, text, drawn), hashlib.sha256).digest()
