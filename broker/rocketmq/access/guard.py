"""The check of each request: is it signed by a user, and may that user have it carried out?

Source: DefaultAuthenticationHandler, UserAuthorizationHandler, AclAuthorizationHandler. The two can be switched on one
by one; the texts of refusals are the original's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from broker.rocketmq.access.model import DISABLED, SUPER, User, decide
from broker.rocketmq.access.needs import Need, needs, reading
from broker.rocketmq.access.tables import AccessTables, subject_of
from formats.errors import FormatError
from formats.rocketmq.frame import Frame
from formats.rocketmq.signature import ACCESS_KEY, is_signed_with

__all__ = ["AccessOptions", "Denied", "Guard"]

# So many decisions are kept, to be used again.
DECISIONS_MAX = 10_000


class Denied(Exception):
    """A request that is not carried out, for its sender may not have it; the text says why."""


@dataclass(frozen=True)
class AccessOptions:
    """The checks that are made. The requests whose codes are in a white list are not checked."""

    authentication: bool = False
    authorization: bool = False
    authentication_white_list: Collection[int] = frozenset()
    authorization_white_list: Collection[int] = frozenset()


class Guard:
    """Checks requests. `is_on`: something is checked at all."""

    def __init__(self, options: AccessOptions, tables: AccessTables, cluster: str) -> None:
        self._tables = tables
        self._cluster = cluster
        self._decisions: dict[tuple[str, Need, str], str | None] = {}
        self._changes = tables.changes
        self._set(options)

    def _set(self, options: AccessOptions) -> None:
        self._options = options
        self.is_on = options.authentication or options.authorization

    def setters(self) -> dict[str, Callable[[bool], None]]:
        """Return the switches that administrators may turn, by their properties."""
        return {
            "authenticationEnabled": lambda value: self._set(replace(self._options, authentication=value)),
            "authorizationEnabled": lambda value: self._set(replace(self._options, authorization=value)),
        }

    def check(self, frame: Frame, address: str) -> None:
        """Check a request that comes from an address. Raises `Denied`, and `FormatError` if it cannot be read."""
        options = self._options
        name = (frame.ext_fields or {}).get(ACCESS_KEY)
        if options.authentication and frame.code not in options.authentication_white_list:
            self._authenticate(frame, name)
        if options.authorization and frame.code not in options.authorization_white_list:
            self._authorize(name, address, lambda: needs(frame, self._cluster))

    def check_reading(self, frame: Frame, address: str, topic: str) -> None:
        """Check that who sent a request may consume a topic that the request does not name. Raises `Denied`."""
        options = self._options
        if options.authorization and frame.code not in options.authorization_white_list:
            name = (frame.ext_fields or {}).get(ACCESS_KEY)
            self._authorize(name, address, lambda: [reading(topic)])

    def _authenticate(self, frame: Frame, name: str | None) -> None:
        if not name:
            raise Denied("username cannot be null.")
        user = self._tables.users.get(name)
        if user is None:
            raise Denied(f"User:{name[:80]} is not found.")
        _check_enabled(user)
        if not is_signed_with(frame, user.password):
            raise Denied("check signature failed.")

    def _authorize(self, name: str | None, address: str, needed: Callable[[], Sequence[Need]]) -> None:
        if not name:
            raise Denied("username cannot be null.")
        user = self._tables.users.get(name)
        if user is None:
            raise Denied(f"User:{name[:80]} not found.")
        _check_enabled(user)
        if user.kind == SUPER:
            return
        if self._changes != self._tables.changes or len(self._decisions) > DECISIONS_MAX:
            self._changes = self._tables.changes
            self._decisions.clear()
        try:
            wanted = needed()
        except FormatError:
            raise Denied("parse authorization context error.") from None
        for need in wanted:
            reason = self._decide(name, need, address)
            if reason is not None:
                subject = subject_of(name)
                raise Denied(f"{subject} has no permission to access {need.resource} from {address}, {reason}")

    def _decide(self, name: str, need: Need, address: str) -> str | None:
        key = (name, need, address)
        if key not in self._decisions:
            self._decisions[key] = decide(self._tables.acls.get(name), need.resource, need.actions, address)
        return self._decisions[key]


def _check_enabled(user: User) -> None:
    if user.status == DISABLED:
        raise Denied(f"User:{user.name} is disabled.")
