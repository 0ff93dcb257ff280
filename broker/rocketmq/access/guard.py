"""Access control of each request: a user must have signed it, and must have the right.

Source: DefaultAuthenticationHandler, UserAuthorizationHandler, AclAuthorizationHandler. The two checks can be switched
on one by one; the texts of refusals are the original's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from broker.rocketmq.access.model import DISABLED, SUPER, Acl, User
from broker.rocketmq.access.needs import IsGroup, Need, denial, needs, needs_of_record, on_topic
from broker.rocketmq.access.tables import AccessTables, lockout, subject_of
from formats.errors import FormatError
from formats.rocketmq.files.record import Record
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import ACCESS_KEY, is_signed_with

__all__ = ["AccessDenied", "AccessOptions", "Guard"]

DECISIONS_MAX = 10_000
# The switches for administrators, and the options that they set.
_SWITCHES: Final = {"authenticationEnabled": "authentication", "authorizationEnabled": "authorization"}


class AccessDenied(Exception):
    """A request to which its sender has no right; the text says why."""


@dataclass(frozen=True)
class AccessOptions:
    """The checks in force. Requests whose codes are in a white list are not checked."""

    authentication: bool = False
    authorization: bool = False
    authentication_white_list: Collection[int] = frozenset()
    authorization_white_list: Collection[int] = frozenset()


class Guard:
    """Checks requests. `is_on`: something is checked at all.

    `inner` is the user with whose key this node and its peers sign, if any. `is_group` returns whether a consumer group
    exists; a node without groups has none.
    """

    def __init__(self, options: AccessOptions, tables: AccessTables, cluster: str, inner: str | None = None) -> None:
        self._tables = tables
        self._cluster = cluster
        self._inner = inner
        self.is_group: IsGroup = lambda name: False
        self._decisions: dict[tuple[str, Need, str], str | None] = {}
        self._changes = tables.changes
        self._set(options)
        tables.find_fault = self._find_fault

    def _set(self, options: AccessOptions) -> None:
        self._options = options
        self.is_on = options.authentication or options.authorization

    @property
    def authenticates(self) -> bool:
        """True if each request must be signed by a user."""
        return self._options.authentication

    def setters(self) -> dict[str, Callable[[bool], None]]:
        return {name: partial(self._turn, option) for name, option in _SWITCHES.items()}

    def _turn(self, option: str, value: bool) -> None:
        changes: dict[str, Any] = {option: value}
        self._set(replace(self._options, **changes))

    def fault_of(self, values: Mapping[str, Any]) -> str | None:
        """Return why new values of properties are refused, as they would lock out everyone; None if they are not."""
        turned: dict[str, Any] = {option: values[name] for name, option in _SWITCHES.items() if name in values}
        options = replace(self._options, **turned)
        if not turned or not (options.authentication or options.authorization):
            return None
        fault = lockout(self._tables.users, self._tables.acls, self._cluster)
        return None if fault is None else f"this would lock everybody out: {fault}"

    def _find_fault(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> str | None:
        """Return why new users and policies are refused while access is checked; None if they are not."""
        if not self.is_on:
            return None
        old = self._tables.users.get(self._inner or "")
        if old is not None and users.get(old.name) != old:
            return f"User:{old.name} signs the requests of this node: it is in innerClientAuthenticationCredentials."
        # Without an administrator, no change makes it worse.
        if lockout(self._tables.users, self._tables.acls, self._cluster) is not None:
            return None
        fault = lockout(users, acls, self._cluster)
        return None if fault is None else f"This would lock everybody out: {fault}."

    def check(self, frame: Frame, address: str) -> None:
        """Check a request from an address. Raises `AccessDenied`, and `FormatError` if it is unreadable."""
        options = self._options
        name = (frame.ext_fields or {}).get(ACCESS_KEY)
        if options.authentication and frame.code not in options.authentication_white_list:
            self._authenticate(frame, name)
        if options.authorization and frame.code not in options.authorization_white_list:
            self._authorize(name, address, lambda: needs(frame, self._cluster, self.is_group))

    def check_record(self, frame: Frame, address: str, record: Record) -> None:
        """Check that a request's sender may access the record whose log offset the request names.

        Offsets can be guessed; the original does not check them. Raises `AccessDenied`.
        """
        options = self._options
        if options.authorization and frame.code not in options.authorization_white_list:
            name = (frame.ext_fields or {}).get(ACCESS_KEY)
            self._authorize(name, address, lambda: needs_of_record(frame.code, record))

    def may_send(self, name: str, address: str, topic: str) -> bool:
        """Return whether a user at an address may send to a topic; True if that is not checked."""
        if not self._options.authorization:
            return True
        try:
            self._authorize(name, address, lambda: [on_topic(topic, frozenset(("Pub",)))])
        except AccessDenied:
            return False
        return True

    def _authenticate(self, frame: Frame, name: str | None) -> None:
        if not name:
            raise AccessDenied("username cannot be null.")
        user = self._tables.users.get(name)
        if user is None:
            raise AccessDenied(f"User:{name[:80]} is not found.")
        _check_enabled(user)
        if not is_signed_with(frame, user.password):
            raise AccessDenied("check signature failed.")

    def _authorize(self, name: str | None, address: str, needed: Callable[[], Sequence[Need]]) -> None:
        if not name:
            raise AccessDenied("username cannot be null.")
        user = self._tables.users.get(name)
        if user is None:
            raise AccessDenied(f"User:{name[:80]} not found.")
        _check_enabled(user)
        if user.kind == SUPER:
            return
        if self._changes != self._tables.changes or len(self._decisions) > DECISIONS_MAX:
            self._changes = self._tables.changes
            self._decisions.clear()
        try:
            wanted = needed()
        except FormatError:
            raise AccessDenied("parse authorization context error.") from None
        for need in wanted:
            reason = self._decide(name, need, address)
            if reason is not None:
                subject = subject_of(name)
                raise AccessDenied(f"{subject} has no permission to access {need.resource} from {address}, {reason}")

    def _decide(self, name: str, need: Need, address: str) -> str | None:
        key = (name, need, address)
        if key not in self._decisions:
            self._decisions[key] = denial(self._tables.acls.get(name), need, address)
        return self._decisions[key]


def _check_enabled(user: User) -> None:
    if user.status == DISABLED:
        raise AccessDenied(f"User:{user.name} is disabled.")
