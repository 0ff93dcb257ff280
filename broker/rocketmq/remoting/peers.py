"""Recognition of the nodes that connect to a port, by their hosts' addresses or by a proof of a secret."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from broker.common.addresses import Addresses, address_of
from broker.common.clock import Now
from broker.rocketmq.remoting.proof import UNPROVEN, Challenge, Draw
from broker.rocketmq.remoting.session import Session
from formats.errors import FormatError
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.proof import CODE, PROOF_HEADER

__all__ = ["KnownPeers", "escaped"]


# Properties for nodes that connect from another address than their own, as from behind a translation of addresses.
REMEDIES: Final = "see peerSecretKey and peerAddressCheckEnable"


def _find_nothing(host: str, done: Callable[[frozenset[str] | str], None]) -> None:
    done("names are not looked up")


def escaped(text: str) -> str:
    """Return the first 200 characters of a foreign text, with all but printable ASCII escaped."""
    return ascii(text[:200])[1:-1]


def _is_node_source(address: str) -> bool:
    """Return False for a loopback address that only sockets bound to it connect from.

    Others connect from 127.0.0.1, whatever loopback address they connect to.
    """
    return not address.startswith("127.") or address == "127.0.0.1"


class KnownPeers:
    """Recognizes the nodes that connect to one port. With a `secret`, they must prove that they know it.

    Otherwise the address decides; without `checks_address`, every address is accepted. Without `all_prove`, only
    controllers, which have a name in the proof, must give it, and the address decides about other nodes.
    """

    def __init__(
        self,
        addresses: Addresses | None = None,
        secret: bytes | None = None,
        port: int = 0,
        *,
        checks_address: bool = True,
        all_prove: bool = True,
        draw: Draw = secrets.token_bytes,
    ) -> None:
        self.addresses = addresses or Addresses("127.0.0.1", Now(0), _find_nothing)
        self.secret = secret
        self.port = port
        self._checks_address = checks_address
        self._all_prove = all_prove
        self._draw = draw
        self._challenges: dict[Session, Challenge] = {}
        self._proven: dict[Session, str] = {}

    def take(self, frame: Frame, session: Session) -> bool:
        """Answer a request of a proof; return False for any other frame, and without a secret."""
        if self.secret is None or frame.code != CODE or frame.is_response:
            return False
        if not frame.body:
            self._challenges[session] = made = Challenge(self.secret, self.port, self._draw)
            session.answer(frame, Frame(ResponseCode.SUCCESS, 0, body=made.challenge))
            return True
        code = self._check(frame, session)
        if code is None:
            session.answer(frame, Frame(ResponseCode.NO_PERMISSION, 0, remark="the proof does not fit the challenge"))
        else:
            session.answer(frame, Frame(ResponseCode.SUCCESS, 0, body=code))
        return True

    def _check(self, frame: Frame, session: Session) -> bytes | None:
        try:
            name = PROOF_HEADER.read(frame.ext_fields).name
        except FormatError:
            return None
        challenge = self._challenges.pop(session, None)
        code = None if challenge is None else challenge.check(name, bytes(frame.body))
        if code is not None:
            self._proven[session] = name
        return code

    def is_proven(self, session: Session) -> bool:
        return session in self._proven

    def refusal(self, host: str, session: Session, name: str | None = None) -> str | None:
        """Return why a connection is not recognized as a node's on a host; None if it is.

        With `name`, the proof must have been given under this name.
        """
        if self.secret is not None and (self._all_prove or name is not None):
            proven = self._proven.get(session)
            if proven is None:
                return UNPROVEN
            return None if name in (None, proven) else f"it has proved that it is '{escaped(proven)}'"
        return self.refusal_of_address(host, session.host.address)

    def refusal_of_address(self, host: str, address: str) -> str | None:
        """Return why an address is not recognized as a node's on a host; None if it is."""
        peer = address_of(f"{address}:0")
        if not self._checks_address:
            return None
        if self.addresses.has(host, peer) and (_is_node_source(peer) or peer in self.addresses.of(host)):
            return None
        return f"it connects from {peer}, not from {escaped(self.addresses.shown(host))} ({REMEDIES})"

    def may_have_moved(self, host: str, then: Callable[[], None]) -> bool:
        """Look up a host again, then call `then`; return False if no lookup starts (see `Addresses.renew`)."""
        return self._checks_address and self.addresses.renew(host, then)

    def disconnected(self, session: Session) -> None:
        self._challenges.pop(session, None)
        self._proven.pop(session, None)
