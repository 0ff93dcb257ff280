"""Admission to a replication stream, before the first byte of the original's protocol.

With a secret, both ends prove that they know it; see `formats.rocketmq.remoting.proof`. Without one, nothing is sent,
and the master admits only the hosts of its slaves.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from broker.rocketmq.remoting.proof import UNPROVEN, Challenge, Draw, ProofAnswer
from broker.rocketmq.replication.streams.roster import Roster
from formats.errors import FormatError
from formats.rocketmq.remoting.proof import ANSWER_BYTES, CHALLENGE_BYTES, CODE_BYTES, MAGIC

__all__ = ["AnsweredEntrance", "EntranceOfMembers", "ProvenEntrance", "StreamEntrance"]

log = logging.getLogger("broker.rocketmq.replication")

# Slaves prove no name: their id is in the stream.
_NO_NAME: Final = ""


class StreamEntrance(Protocol):
    """One end of a stream that is not admitted yet."""

    def take(self, data: bytearray) -> bool:
        """Remove the part of the entrance from the front of `data`; return True once the other end is admitted.

        Raises `FormatError` to refuse the other end.
        """
        ...

    def output(self) -> bytes: ...

    def refuse_id(self, broker_id: int) -> str | None:
        """Return why the other end cannot be the broker with this id; None if it can."""
        return None


class ProvenEntrance(StreamEntrance):
    """A master's end with a secret: sends a challenge, and checks the answer."""

    def __init__(self, secret: bytes, port: int, draw: Draw = secrets.token_bytes) -> None:
        self._challenge = Challenge(secret, port, draw)
        self._output = MAGIC + self._challenge.challenge

    def take(self, data: bytearray) -> bool:
        begin = min(len(data), len(MAGIC))
        if data[:begin] != MAGIC[:begin]:
            raise FormatError("ProofAnswer", 0, UNPROVEN)
        if len(data) < len(MAGIC) + ANSWER_BYTES:
            return False
        answer = bytes(data[len(MAGIC) : len(MAGIC) + ANSWER_BYTES])
        del data[: len(MAGIC) + ANSWER_BYTES]
        code = self._challenge.check(_NO_NAME, answer)
        if code is None:
            raise FormatError("ProofAnswer", len(MAGIC), UNPROVEN)
        self._output += code
        return True

    def output(self) -> bytes:
        output, self._output = self._output, b""
        return output


class AnsweredEntrance(StreamEntrance):
    """A slave's end with a secret: answers the challenge, and checks the master's proof."""

    def __init__(self, secret: bytes, port: int, draw: Draw = secrets.token_bytes) -> None:
        self._secret = secret
        self._port = port
        self._draw = draw
        self._answer: ProofAnswer | None = None
        self._output = b""

    def take(self, data: bytearray) -> bool:
        if self._answer is None:
            begin = min(len(data), len(MAGIC))
            if data[:begin] != MAGIC[:begin]:
                raise FormatError("ProofChallenge", 0, "the master asks for no proof of peerSecretKey, and gives none")
            if len(data) < len(MAGIC) + CHALLENGE_BYTES:
                return False
            challenge = bytes(data[len(MAGIC) : len(MAGIC) + CHALLENGE_BYTES])
            del data[: len(MAGIC) + CHALLENGE_BYTES]
            self._answer = ProofAnswer(self._secret, self._port, _NO_NAME, challenge, self._draw)
            self._output = MAGIC + self._answer.answer
        if len(data) < CODE_BYTES:
            return False
        code = bytes(data[:CODE_BYTES])
        del data[:CODE_BYTES]
        if not self._answer.accepts(code):
            raise FormatError("ProofCode", 0, "the master has another peerSecretKey")
        return True

    def output(self) -> bytes:
        output, self._output = self._output, b""
        return output


class EntranceOfMembers(StreamEntrance):
    """A master's end without a secret: input waits until the address is recognized as a slave's.

    `go_on` makes the connection call `take` again.
    """

    def __init__(self, roster: Roster, address: str, go_on: Callable[[], None]) -> None:
        self._roster = roster
        self._address = address
        self._go_on = go_on
        self._has_asked = self._is_waiting = self._is_asking = False

    def take(self, data: bytearray) -> bool:
        refusal = self._roster.refusal(self._address)
        if refusal is not None and not self._has_asked:
            self._has_asked = True
            # `_told` may be called at once.
            self._is_asking = True
            self._is_waiting = True
            if not self._roster.renew(self._told):
                self._is_waiting = False
            self._is_asking = False
            refusal = self._roster.refusal(self._address)
        if refusal is not None and not self._is_waiting:
            raise FormatError("Slave", 0, refusal)
        return refusal is None

    def _told(self) -> None:
        self._is_waiting = False
        if not self._is_asking:
            self._go_on()

    def output(self) -> bytes:
        return b""

    def refuse_id(self, broker_id: int) -> str | None:
        refusal = self._roster.refusal(self._address, broker_id)
        if refusal is not None:
            # The slave may have registered since; it will connect again.
            self._roster.renew(lambda: None)
        return refusal
