"""An administrator's connection to a broker: a command out, its answer back (source: mqba::AdminSession)."""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from bmqctl.client.protocol.authentication import Authentication, Credentials, NotAuthenticated
from bmqctl.client.protocol.identity import HANDSHAKE_ADVICE, client_identity
from formats.bmq.control import ber, codec
from formats.bmq.control.messages import (
    AdminCommand,
    AdminCommandResponse,
    BrokerResponse,
    ClientType,
    ControlMessage,
    GuidInfo,
    NegotiationMessage,
)
from formats.bmq.wire.event import (
    HEARTBEAT_RESPONSE,
    EventType,
    Frame,
    build_schema_event,
    next_frame,
    schema_encoding,
)
from formats.errors import FormatError

__all__ = ["AdminClient", "AdminLost", "NotAdmitted"]

T = TypeVar("T")

USER_AGENT = "bmqctl"
EVENT_BYTES_MAX = 512 << 20
READ_BYTES = 64 << 10


class AdminLost(Exception):
    """Failure to reach the broker, or its violation of the protocol; the text says which."""


class _Cut(AdminLost):
    """The end of the connection by the network or the broker."""


class NotAdmitted(AdminLost):
    """Refusal by the broker: the credentials are invalid, or their owner may not administer."""


class AdminClient:
    """One connection, identified as an administrator's; a context manager.

    `timeout_s` limits connecting, and the silence before an answer. `tls_authority` is a file of the trusted
    certificates, in PEM; without it the connection is plain. With `credentials` it authenticates, and again before a
    command when they are about to expire.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = 30.0,
        tls_authority: Path | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._received = bytearray()
        self._requests = 0
        self._authentication = Authentication(credentials) if credentials is not None else None
        try:
            self._sock = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise AdminLost(f"no broker at {host}:{port}: {error.strerror or error}") from None
        except UnicodeError:
            raise AdminLost(f"no broker at {host!r}, port {port}: that cannot be the name of a host") from None
        if tls_authority is not None:
            self._sock = _secured(self._sock, host, tls_authority)
        try:
            self._authenticate()
            self._identify()
        except _Cut as lost:
            self._sock.close()
            raise AdminLost(f"{lost}: {HANDSHAKE_ADVICE}") from None
        except BaseException:
            self._sock.close()
            raise

    def send(self, command: str) -> str:
        due_ns = self._authentication.due_ns if self._authentication is not None else None
        if due_ns is not None and time.monotonic_ns() >= due_ns:
            self._authenticate()
        self._requests += 1
        self._write(ControlMessage(r_id=self._requests, choice=AdminCommand(command=command)))
        while True:
            frame, body = self._control()
            answer = _decoded(ControlMessage, frame, body)
            if answer.r_id == self._requests and isinstance(answer.choice, AdminCommandResponse):
                return answer.choice.text

    def is_quiet(self) -> bool:
        """Return True if the broker has sent nothing since its last answer: neither a heartbeat nor an end."""
        return not self._received and not select.select([self._sock], [], [], 0)[0]

    def close(self) -> None:
        """Close the connection. The reference treats a Disconnect on an administrator's session as a fault."""
        self._sock.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _authenticate(self) -> None:
        if self._authentication is None:
            return
        self._write_bytes(self._authentication.request())
        _, body = self._event(EventType.AUTHENTICATION)
        try:
            self._authentication.answered(body, time.monotonic_ns())
        except NotAuthenticated as fault:
            raise NotAdmitted(f"the broker refused the credentials: {fault}") from None
        except FormatError as error:
            raise AdminLost(f"the broker sent a malformed message: {error}") from None

    def _identify(self) -> None:
        identity = client_identity(Path(sys.argv[0]).name, os.getpid(), 1, GuidInfo(), USER_AGENT)
        identity = replace(identity, client_type=ClientType.TCPADMIN)
        self._write(NegotiationMessage(choice=identity))
        frame, body = self._control()
        answer = _decoded(NegotiationMessage, frame, body).choice
        if not isinstance(answer, BrokerResponse):
            raise AdminLost("the broker did not answer with its identity")
        if answer.result.code != 0:
            raise NotAdmitted(f"the broker refused: {answer.result.message}")

    def _write(self, message: ControlMessage | NegotiationMessage) -> None:
        self._write_bytes(build_schema_event(ber.encode(message)))

    def _write_bytes(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise _Cut(f"the connection failed: {error.strerror or error}") from None

    def _control(self) -> tuple[Frame, bytes]:
        return self._event(EventType.CONTROL)

    def _event(self, kind: EventType) -> tuple[Frame, bytes]:
        """The next event of a kind; answers heartbeats."""
        while True:
            try:
                frame = next_frame(self._received, 0, len(self._received), EVENT_BYTES_MAX)
            except FormatError as error:
                raise AdminLost(f"the broker sent bytes that are not a valid event: {error}") from None
            if frame is None:
                self._read()
                continue
            body = bytes(self._received[frame.body : frame.end])
            del self._received[: frame.end]
            if frame.type == EventType.HEARTBEAT_REQ:
                self._write_bytes(HEARTBEAT_RESPONSE)
            elif frame.type == kind:
                return frame, body

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except TimeoutError:
            raise AdminLost("the broker did not answer in time") from None
        except OSError as error:
            raise _Cut(f"the connection failed: {error.strerror or error}") from None
        if not data:
            raise _Cut("the broker closed the connection")
        self._received += data


def _secured(sock: socket.socket, host: str, authority: Path) -> socket.socket:
    try:
        return ssl.create_default_context(cafile=authority).wrap_socket(sock, server_hostname=host)
    except OSError as error:
        sock.close()
        raise AdminLost(f"no TLS with {host}: {error.strerror or error}") from None


def _decoded(cls: type[T], frame: Frame, body: bytes) -> T:
    try:
        return codec.decode(cls, body, schema_encoding(frame.type_specific))
    except FormatError as error:
        raise AdminLost(f"the broker sent a malformed message: {error}") from None
