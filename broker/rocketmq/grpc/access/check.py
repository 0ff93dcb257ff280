"""Access control of calls: the caller and its rights, checked at the broker of this process or at a proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.rocketmq.access.guard import AccessDenied, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.grpc.access.credentials import is_signed_with, read_credential
from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message
from formats.rocketmq.remoting.bodies.popping import ASSIGNMENT_REQUEST, AssignmentRequest
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import GetRouteInfoRequest
from formats.rocketmq.remoting.signature import signed

__all__ = ["Access", "Checked", "LocalAccess"]


# Called with the reason for a refusal, or None.
Checked = Callable[[CallRejected | None], None]


class Access(Protocol):
    """The checks. `headers` are a call's metadata. Each calls `checked`, at once or later."""

    @property
    def is_on(self) -> bool: ...

    def authenticate(self, headers: Mapping[str, str], checked: Checked) -> None: ...

    def authorize(
        self, headers: Mapping[str, str], address: str, name: str, request: Message, checked: Checked
    ) -> None:
        """Check that an authenticated caller at an address may make the call of a name."""
        ...

    @property
    def is_by_brokers(self) -> bool:
        """True if brokers check a call's requests, which `seal` signs as its caller."""
        ...

    def seal(self, headers: Mapping[str, str], frame: Frame) -> Frame: ...


def _route(request: Message) -> Frame:
    fields = write_header(GetRouteInfoRequest(request.topic.name))
    return Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, ext_fields=fields)


def _assignment(request: Message) -> Frame:
    body = ASSIGNMENT_REQUEST.write(AssignmentRequest(request.topic.name, request.group.name, ""))
    return Frame(RequestCode.QUERY_ASSIGNMENT, 0, body=body)


# The remoting equivalents of the calls that are answered without the broker.
_ANSWERED_HERE: Final = {"QueryRoute": _route, "QueryAssignment": _assignment}


class LocalAccess:
    """The checks by the users of this process's broker, which itself checks the requests of calls."""

    def __init__(self, tables: AccessTables, guard: Guard) -> None:
        self._tables = tables
        self._guard = guard

    @property
    def is_on(self) -> bool:
        return self._guard.is_on

    is_by_brokers = is_on

    def authenticate(self, headers: Mapping[str, str], checked: Checked) -> None:
        """Check the caller by the broker's table; the broker checks that the user is enabled."""
        checked(self._fault(headers))

    def _fault(self, headers: Mapping[str, str]) -> CallRejected | None:
        credential = read_credential(headers)
        if credential is None:
            return CallRejected(Code.UNAUTHORIZED, "username cannot be null.")
        user = self._tables.users.get(credential.name)
        if user is None:
            return CallRejected(Code.UNAUTHORIZED, f"User:{credential.name[:80]} is not found.")
        if not is_signed_with(credential, user.password):
            return CallRejected(Code.UNAUTHORIZED, "check signature failed.")
        return None

    def authorize(
        self, headers: Mapping[str, str], address: str, name: str, request: Message, checked: Checked
    ) -> None:
        """Check a call that is answered without the broker, as the broker would; it checks all others."""
        reason = None
        make_frame = _ANSWERED_HERE.get(name)
        if make_frame is not None:
            try:
                self._guard.check(self.seal(headers, make_frame(request)), address)
            except AccessDenied as denied:
                reason = CallRejected(Code.UNAUTHORIZED, str(denied))
        checked(reason)

    def seal(self, headers: Mapping[str, str], frame: Frame) -> Frame:
        if not self._guard.is_on:
            return frame
        credential = read_credential(headers)
        user = None if credential is None else self._tables.users.get(credential.name)
        return frame if user is None else signed(frame, user.name, user.password)
