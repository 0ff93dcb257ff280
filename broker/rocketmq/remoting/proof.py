"""Both sides of the proof that a node knows its group's secret; see `formats.rocketmq.remoting.proof`."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final

from broker.rocketmq.remoting.session import Session
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.proof import (
    ANSWER_BYTES,
    CHALLENGE_BYTES,
    CODE,
    PROOF_HEADER,
    ProofHeader,
    dialer_code,
    listener_code,
)

__all__ = ["UNPROVEN", "Challenge", "Draw", "ProofAnswer", "Proving"]

# Returns a number of random bytes.
Draw = Callable[[int], bytes]

UNPROVEN: Final = "it has not proved that it knows this node's peerSecretKey"


class Challenge:
    """A listener's challenge on one connection, which can be answered once."""

    def __init__(self, secret: bytes, port: int, draw: Draw = secrets.token_bytes) -> None:
        self._secret = secret
        self._port = port
        self.challenge = draw(CHALLENGE_BYTES)

    def check(self, name: str, answer: bytes) -> bytes | None:
        """Return the listener's code if an answer proves that the dialer knows the secret; otherwise None."""
        nonce, code = answer[:CHALLENGE_BYTES], answer[CHALLENGE_BYTES:]
        asked = (self._secret, self._port, name, self.challenge, nonce)
        if len(answer) != ANSWER_BYTES or not hmac.compare_digest(dialer_code(*asked), code):
            return None
        return listener_code(*asked)


class ProofAnswer:
    """A dialer's answer to the challenge of the listener on a port."""

    def __init__(self, secret: bytes, port: int, name: str, challenge: bytes, draw: Draw = secrets.token_bytes) -> None:
        nonce = draw(CHALLENGE_BYTES)
        asked = (secret, port, name, challenge, nonce)
        self.answer = nonce + dialer_code(*asked)
        self._expected = listener_code(*asked)

    def accepts(self, code: bytes) -> bool:
        return hmac.compare_digest(self._expected, code)


class Proving:
    """The proof on one dialed connection.

    `done` is called at once without a secret, otherwise when the other end has proved that it knows the secret. If that
    fails, the session ends, and `failed` gets the reason. With `is_lenient`, nodes that do not know the request, such
    as the original's, need no proof.
    """

    def __init__(
        self,
        secret: bytes | None,
        name: str,
        session: Session,
        done: Callable[[], None],
        failed: Callable[[str], None],
        *,
        is_lenient: bool = False,
    ) -> None:
        self.is_done = secret is None
        self._secret = secret or b""
        self._name = name
        self._session = session
        self._done = done
        self._failed = failed
        self._is_lenient = is_lenient
        self._answer: ProofAnswer | None = None
        self._opaque = -1
        if secret is None:
            done()
        else:
            self._ask(b"")

    def _ask(self, body: bytes) -> None:
        self._opaque = self._session.ask(
            Frame(CODE, 0, ext_fields=PROOF_HEADER.write(ProofHeader(self._name)), body=body)
        )

    def take(self, frame: Frame) -> bool:
        """Take an answer that belongs to the proof; return False for any other frame."""
        if self.is_done or not frame.is_response or frame.opaque != self._opaque:
            return False
        if frame.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and self._is_lenient:
            self._finish()
        elif frame.code != ResponseCode.SUCCESS:
            self._fail(f"it refuses the proof of peerSecretKey: {(frame.remark or '')[:200]}")
        elif self._answer is None:
            if len(frame.body) != CHALLENGE_BYTES:
                self._fail("its challenge cannot be one")
            else:
                port, challenge = self._session.host.port, bytes(frame.body)
                self._answer = ProofAnswer(self._secret, port, self._name, challenge)
                self._ask(self._answer.answer)
        elif self._answer.accepts(bytes(frame.body)):
            self._finish()
        else:
            self._fail("it has another peerSecretKey")
        return True

    def _finish(self) -> None:
        self.is_done = True
        self._done()

    def _fail(self, reason: str) -> None:
        self._failed(reason)
        self._session.give_up(reason)
