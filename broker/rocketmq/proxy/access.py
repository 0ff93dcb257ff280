"""Access control of a proxy's clients, by its brokers' users and policies.

Source: AuthenticationPipeline, AuthorizationPipeline of the original's proxy, DefaultAuthenticationHandler,
UserAuthorizationHandler, AclAuthorizationHandler; the texts of refusals are the original's.

Brokers see the proxy as the sender of gRPC clients' requests, so these are checked only here. Remoting clients'
requests are passed on with their own signatures, and checked here and by brokers that check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.rocketmq.access.model import DISABLED, SUPER, User
from broker.rocketmq.access.needs import PLACES, Need, needs, needs_of_record
from broker.rocketmq.access.tables import subject_of
from broker.rocketmq.grpc.access.check import Checked
from broker.rocketmq.grpc.access.credentials import is_signed_with, read_credential
from broker.rocketmq.grpc.access.needs import needs_of_call
from broker.rocketmq.grpc.statuses import CallRejected
from broker.rocketmq.proxy.users import Policies, UserAnswer, Users
from formats.errors import FormatError
from formats.rocketmq.files.record import Record
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import ACCESS_KEY
from formats.rocketmq.remoting.signature import is_signed_with as frame_is_signed_with

__all__ = ["Checks", "ProxyAccess"]

_NO_NAME: Final = "username cannot be null."


@dataclass(frozen=True)
class Checks:
    """The checks that a proxy makes, and the cluster whose brokers know the users."""

    authentication: bool = False
    authorization: bool = False
    cluster: str = "DefaultCluster"


class ProxyAccess:
    """The checks of all clients; see `grpc.access.Access`."""

    def __init__(self, checks: Checks, users: Users) -> None:
        self._checks = checks
        self._users = users

    @property
    def is_on(self) -> bool:
        """True if anything is checked; rights are not checked without authentication."""
        return self._checks.authentication

    is_by_brokers: bool = False

    def seal(self, headers: Mapping[str, str], frame: Frame) -> Frame:
        """Return a request as it is: the proxy's own key, if any, signs requests to brokers."""
        return frame

    # -- clients that speak gRPC

    def authenticate(self, headers: Mapping[str, str], checked: Checked) -> None:
        credential = read_credential(headers)
        if credential is None:
            checked(_unauthorized(_NO_NAME))
        else:
            self._authenticate(credential.name, lambda user: is_signed_with(credential, user.password), checked)

    def authorize(
        self, headers: Mapping[str, str], address: str, name: str, request: Message, checked: Checked
    ) -> None:
        if not self._checks.authorization:
            checked(None)
            return
        credential = read_credential(headers)
        caller = "" if credential is None else credential.name
        self._authorize(caller, address, lambda: needs_of_call(name, request), checked)

    # -- clients of the remoting protocol

    def check(self, frame: Frame, address: str, checked: Checked) -> None:
        """Check a request from an address. The frame must stay valid until the check is done."""
        name = (frame.ext_fields or {}).get(ACCESS_KEY, "")

        def authenticated(reason: CallRejected | None) -> None:
            if reason is not None or not self._checks.authorization:
                checked(reason)
            else:
                self._authorize(name, address, lambda: _readable(lambda: needs(frame, self._checks.cluster)), checked)

        if name:
            self._authenticate(name, lambda user: frame_is_signed_with(frame, user.password), authenticated)
        else:
            checked(_unauthorized(_NO_NAME))

    def must_see(self, frame: Frame) -> bool:
        """Return whether `check_record` must check a request, too."""
        return self._checks.authorization and frame.code in PLACES

    def check_record(self, frame: Frame, address: str, record: Record, checked: Checked) -> None:
        """Check that a request's sender may access the record whose log offset the request names."""
        name = (frame.ext_fields or {}).get(ACCESS_KEY, "")
        self._authorize(name, address, lambda: _readable(lambda: needs_of_record(frame.code, record)), checked)

    # -- both

    def _authenticate(self, name: str, is_signed: Callable[[User], bool], checked: Checked) -> None:
        def found(told: UserAnswer | CallRejected) -> None:
            if isinstance(told, CallRejected):
                checked(told)
            elif told.user is None:
                checked(_unauthorized(f"User:{name[:80]} is not found."))
            elif told.user.status == DISABLED:
                checked(_unauthorized(f"User:{name[:80]} is disabled."))
            else:
                checked(None if is_signed(told.user) else _unauthorized("check signature failed."))

        self._users.find(name, found)

    def _authorize(self, name: str, address: str, needed: Callable[[], Sequence[Need]], checked: Checked) -> None:
        def found(told: UserAnswer | CallRejected) -> None:
            if isinstance(told, CallRejected):
                checked(told)
            elif told.user is None:
                checked(_unauthorized(f"User:{name[:80]} not found."))
            elif told.user.kind == SUPER:
                checked(None)
            else:
                self._decide(name, address, needed, checked)

        self._users.find(name, found)

    def _decide(self, name: str, address: str, needed: Callable[[], Sequence[Need]], checked: Checked) -> None:
        try:
            wanted = needed()
        except CallRejected as rejected:
            checked(rejected)
            return
        if not wanted:
            checked(None)
            return

        def found(policies: Policies | CallRejected) -> None:
            checked(policies if isinstance(policies, CallRejected) else _denial(name, address, wanted, policies))

        self._users.find_policies(name, found)


def _denial(name: str, address: str, wanted: Sequence[Need], policies: Policies) -> CallRejected | None:
    """Return the reason why one of the needs is denied; None if none is."""
    for need in wanted:
        reason = policies.deny(need, address)
        if reason is not None:
            text = f"{subject_of(name)} has no permission to access {need.resource} from {address}, {reason}"
            return _unauthorized(text)
    return None


def _readable(find: Callable[[], list[Need]]) -> list[Need]:
    """Return the needs that `find` returns. Raises `CallRejected` for an unreadable request."""
    try:
        return find()
    except FormatError:
        raise _unauthorized("parse authorization context error.") from None


def _unauthorized(text: str) -> CallRejected:
    return CallRejected(Code.UNAUTHORIZED, text)
