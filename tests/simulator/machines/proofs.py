"""Proofs: nodes that want one from each client, and know what its user may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from broker.bmq.node.services import ProcessServices
from broker.bmq.session.authentication import (
    ANONYMOUS,
    AnonymousAuthenticator,
    AssumedCredential,
    Authentications,
    BasicAuthenticator,
    Granted,
    Outcome,
    basic_principal,
)
from broker.bmq.session.authorization import TLS, Authorizations, Permission, Rule, RuleAuthorizer
from formats.bmq.control import ber
from formats.bmq.control.messages import AuthenticationMessage, AuthenticationRequest
from formats.bmq.wire.event import EventType, build_schema_event

if TYPE_CHECKING:
    from broker.bmq.node.node import Node
    from tests.simulator.machines.hosts import Host

__all__ = ["CERTIFIED", "LIFE_US", "MEMBER", "USERS", "ask_for_proofs", "proof", "with_users"]

# A user has to prove itself again after it. A node that stands still for longer would end all sessions in one step.
LIFE_US = 5_000_000
SLOW_US_MAX = 150_000  # of whatever knows the passwords
MEMBER = "member"  # the user of all clients that mean well
# Rights of users and names in certificates, and the domains that they are for; a pattern is one for all.
USERS: Mapping[str, tuple[frozenset[Permission], str]] = {
    MEMBER: (frozenset((Permission.READ, Permission.WRITE)), "*"),
    "reader": (frozenset((Permission.READ,)), "priority"),
    "writer": (frozenset((Permission.WRITE,)), "fanout"),
    "operator": (frozenset((Permission.ADMINISTER,)), "*"),
    "nobody": (frozenset(), "*"),
}
CERTIFIED: Mapping[str, tuple[frozenset[Permission], str]] = {"certified": (frozenset((Permission.READ,)), "fanout")}


def with_users(services: ProcessServices) -> ProcessServices:
    """Return the services of a node that lets in other brokers, and users."""
    basic = BasicAuthenticator({name: _password(name) for name in USERS})
    rules = [Rule((Permission.BROKER,), ("anonymous",), (ANONYMOUS,))]
    rules += [Rule(some, (basic_principal(name),), ("BASIC",), (of,)) for name, (some, of) in USERS.items()]
    rules += [Rule(some, (name,), (TLS,), (of,)) for name, (some, of) in CERTIFIED.items()]
    known = Authentications((_Passwords(basic), AnonymousAuthenticator()), AssumedCredential(ANONYMOUS, b""))
    return replace(services, authentications=known, authorizations=Authorizations(RuleAuthorizer(rules)))


def ask_for_proofs(host: Host, node: Node, random: Random) -> None:
    """Let the passwords of a new process be looked up beside its steps."""

    def begin(work: Callable[[], Outcome], done: Callable[[Outcome], None]) -> bool:
        def end() -> None:
            if host.node is node:
                host.step(lambda: done(work()))

        host.world.clock.after(random.randrange(SLOW_US_MAX), end)
        return True

    node.authentications.attach(begin)


class _Passwords:
    """An authenticator that is slow, and whose users prove themselves again soon."""

    mechanism = "BASIC"
    blocking = True

    def __init__(self, basic: BasicAuthenticator) -> None:
        self._basic = basic

    def authenticate(self, data: bytes, peer: str) -> Granted:
        return Granted(self._basic.authenticate(data, peer).principal, LIFE_US // 1000)


def proof(user: str, *, is_right: bool = True) -> bytes:
    """Make a request to authenticate."""
    request = AuthenticationRequest(
        mechanism="BASIC", data=f"{user}:{_password(user) if is_right else 'guess'}".encode()
    )
    return build_schema_event(ber.encode(AuthenticationMessage(choice=request)), EventType.AUTHENTICATION)


def _password(user: str) -> str:
    return f"{user}'s"
