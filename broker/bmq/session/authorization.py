"""Authorization: the permissions of authenticated peers.

An authorizer is consulted when a peer has connected and negotiates, at each open request of a client, and at each
command of an administrator. Between brokers there is no further check: the first broker of a client decides. Source:
mqbact::Action, mqbplug::Authorizer, mqba::SessionNegotiator::authorizeIncomingConnection.
"""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from broker.bmq.queue.handles import Refusal
from broker.bmq.session.authentication import AuthState
from broker.bmq.session.negotiation import NO_NODE_ID
from formats.bmq.codes import QueueFlag
from formats.bmq.control.messages import ClientIdentity, ClientType, QueueHandleParameters, StatusCategory
from formats.bmq.uri import parse_uri
from formats.errors import FormatError

__all__ = [
    "Action",
    "Authorizations",
    "Authorizer",
    "ConnectAdmin",
    "ConnectClient",
    "ConnectClusterNode",
    "ConnectProxy",
    "DefaultAuthorizer",
    "ExecuteAdminCommand",
    "Permission",
    "QueueRead",
    "QueueWrite",
    "Rights",
    "Rule",
    "RuleAuthorizer",
    "Who",
    "connection_action",
]

log: Final = logging.getLogger("broker.authorization")

CODE_REFUSED: Final = -1

# The mechanism of peers identified by their certificates.
TLS: Final = "TLS"


@dataclass(frozen=True, slots=True)
class Who:
    """An authenticated peer, or one treated as such: its principal, and the mechanism that established it.

    A name in a peer's certificate is a principal, too, of mechanism TLS.
    """

    principal: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class ConnectClient:
    """Connect as a client."""


@dataclass(frozen=True, slots=True)
class ConnectProxy:
    """Connect as a broker that is not a node of a cluster."""


@dataclass(frozen=True, slots=True)
class ConnectAdmin:
    """Connect as an administrator."""


@dataclass(frozen=True, slots=True)
class ConnectClusterNode:
    cluster_name: str


@dataclass(frozen=True, slots=True)
class QueueRead:
    """Open a queue for reading; the URI is the client's."""

    uri: str


@dataclass(frozen=True, slots=True)
class QueueWrite:
    """Open a queue for writing; the URI is the client's."""

    uri: str


@dataclass(frozen=True, slots=True)
class ExecuteAdminCommand:
    """Execute a command, which may be words or JSON."""

    command: str


Action = ConnectClient | ConnectProxy | ConnectAdmin | ConnectClusterNode | QueueRead | QueueWrite | ExecuteAdminCommand


class Authorizer(Protocol):
    """Decides whether a peer may do something. It must not block: it is called within a step."""

    @property
    def name(self) -> str: ...

    def authorize(self, action: Action, who: Who) -> bool: ...


class DefaultAuthorizer:
    """Permits everything to everybody (source: mqbauthz::DefaultAuthorizer)."""

    name = "DefaultAuthorizer"

    def authorize(self, action: Action, who: Who) -> bool:
        return True


class Permission(Enum):
    """The permission that a rule grants."""

    ADMINISTER = "administer"
    BROKER = "broker"
    READ = "read"
    WRITE = "write"


class Rule:
    """Permissions of peers whose principal and mechanism match a pattern each; in patterns `*` is any text.

    READ and WRITE hold for domains whose names match, as the client names them.
    """

    def __init__(
        self,
        permissions: Iterable[Permission],
        principals: Sequence[str] = ("*",),
        mechanisms: Sequence[str] = ("*",),
        domains: Sequence[str] = ("*",),
    ) -> None:
        self._permissions = frozenset(permissions)
        self._principals = _any_of(principals)
        self._mechanisms = _any_of([pattern.upper() for pattern in mechanisms])
        self._domains = _any_of(domains)

    def permits(self, action: Action, who: Who) -> bool:
        if self._principals.fullmatch(who.principal) is None or self._mechanisms.fullmatch(who.mechanism) is None:
            return False
        match action:
            case ConnectClient():
                return not self._permissions.isdisjoint((Permission.READ, Permission.WRITE))
            case ConnectAdmin() | ExecuteAdminCommand():
                return Permission.ADMINISTER in self._permissions
            case ConnectProxy() | ConnectClusterNode():
                return Permission.BROKER in self._permissions
            case QueueRead(uri):
                return Permission.READ in self._permissions and self._is_about(uri)
            case QueueWrite(uri):
                return Permission.WRITE in self._permissions and self._is_about(uri)

    def _is_about(self, uri: str) -> bool:
        try:
            return self._domains.fullmatch(parse_uri(uri).qualified_domain) is not None
        except FormatError:
            return False


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")


class RuleAuthorizer:
    """Permits exactly what some rule permits."""

    name = "RuleAuthorizer"

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)

    def authorize(self, action: Action, who: Who) -> bool:
        return any(rule.permits(action, who) for rule in self._rules)


class Authorizations:
    """A broker's authorizer; a failure counts as a denial."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    @classmethod
    def open(cls) -> Authorizations:
        """Make the default: everybody may do everything."""
        return cls(DefaultAuthorizer())

    def allows(self, action: Action, who: Who) -> bool:
        try:
            # Another package may return anything.
            return self._authorizer.authorize(action, who) is True
        except Exception:
            log.exception("authorizer '%s' failed about %s by '%s'", self._authorizer.name, action, who.principal)
            return False


def connection_action(identity: ClientIdentity) -> Action:
    match identity.client_type:
        case ClientType.TCPADMIN:
            return ConnectAdmin()
        case ClientType.TCPBROKER if identity.cluster_node_id != NO_NODE_ID:
            return ConnectClusterNode(identity.cluster_name)
        case ClientType.TCPBROKER:
            return ConnectProxy()
        case _:
            return ConnectClient()


class RightsHost(Protocol):
    """The node's interface for rights."""

    @property
    def authorizations(self) -> Authorizations: ...


class Known(Protocol):
    """The known facts about a peer; see `broker.bmq.session.entrance.Entrance`."""

    @property
    def auth(self) -> AuthState: ...
    @property
    def certified(self) -> Callable[[], frozenset[str]]: ...


class Rights:
    """The rights of one session's peer."""

    __slots__ = ("_host", "_peer")

    def __init__(self, host: RightsHost, peer: Known) -> None:
        self._host = host
        self._peer = peer

    def may_connect(self, identity: ClientIdentity) -> bool:
        return self._may(connection_action(identity))

    def may_execute(self, command: str) -> bool:
        return self._may(ExecuteAdminCommand(command))

    def may_read(self, uri: str) -> bool:
        return self._may(QueueRead(uri))

    def check_open(self, parameters: QueueHandleParameters) -> None:
        """Raise `Refusal` if the peer may not open the queue as it asks to, whether there is such a queue or not."""
        uri = parameters.uri
        if (parameters.flags & QueueFlag.READ or parameters.read_count > 0) and not self._may(QueueRead(uri)):
            raise Refusal(StatusCategory.REFUSED, f"Not authorized to read from queue '{uri}'", CODE_REFUSED)
        if (parameters.flags & QueueFlag.WRITE or parameters.write_count > 0) and not self._may(QueueWrite(uri)):
            raise Refusal(StatusCategory.REFUSED, f"Not authorized to write to queue '{uri}'", CODE_REFUSED)

    def _may(self, action: Action) -> bool:
        allows = self._host.authorizations.allows
        auth = self._peer.auth
        if auth.principal is not None and allows(action, Who(auth.principal, auth.mechanism)):
            return True
        return any(allows(action, Who(name, TLS)) for name in sorted(self._peer.certified()))
