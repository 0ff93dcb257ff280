"""Users, resources and policies, and the decision by policies."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from formats.rocketmq.remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

__all__ = [
    "CUSTOM",
    "DEFAULT",
    "DISABLED",
    "ENABLED",
    "NORMAL",
    "SUPER",
    "Acl",
    "Entry",
    "Invalid",
    "Resource",
    "User",
    "choose",
    "decide",
    "parse_acl",
    "parse_resource",
]

SUPER: Final = "Super"
NORMAL: Final = "Normal"
ENABLED: Final = "enable"
DISABLED: Final = "disable"
CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
ALL: Final = "All"
_ANY: Final = "Any"
_ALLOW: Final = "Allow"
_DENY: Final = "Deny"
_KINDS: Final = (_ANY, "Cluster", "Namespace", "Topic", "Group")
_ACTIONS: Final[tuple[str, ...]] = (ALL, _ANY, "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


class Invalid(Exception):
    """An invalid user or policy; the text says why, in the original's words."""


@dataclass(frozen=True, slots=True)
class User:
    """A user. Its password is the secret that signs its requests."""

    name: str
    password: str = field(repr=False)
    kind: str = NORMAL
    status: str = ENABLED


def choose(names: Iterable[str], text: str | None) -> str | None:
    """Return the name that a text is, in any letter case; None if it is none of them."""
    return next((name for name in names if text is not None and name.lower() == text.strip().lower()), None)


class Resource(NamedTuple):
    """One resource or many of a kind: with a name, with the beginning of a name, or with any name (None)."""

    kind: str
    name: str | None
    is_prefix: bool = False

    def __str__(self) -> str:
        if self.kind == _ANY:
            return "*"
        return f"{self.kind}:{self.name or ''}{'*' if self.is_prefix or self.name is None else ''}"

    def matches(self, other: Resource) -> bool:
        if self.kind == _ANY:
            return True
        if self.kind != other.kind:
            return False
        if self.name is None or other.name is None:
            return self.name is None
        return other.name.startswith(self.name) if self.is_prefix else other.name == self.name

    @property
    def narrowness(self) -> tuple[bool, bool, bool, int]:
        """A measure: of several matching resources, the greatest one decides."""
        is_named = self.name is not None
        return (self.kind != _ANY, is_named and not self.is_prefix, is_named, len(self.name or ""))


def parse_resource(text: str | None) -> Resource:
    """Return the resource of a text like `Topic:orders`, `Group:pay*`, `Topic:*` or `*`. Raises `Invalid`."""
    if not text or not text.strip():
        raise Invalid("The resource is null.")
    if text == "*":
        return Resource(_ANY, None)
    kind, _, name = text.partition(":")
    known = choose(_KINDS, kind)
    if known is None:
        raise Invalid("The resource is null.")
    if name == "*":
        return Resource(known, None)
    if name.endswith("*"):
        return Resource(known, name.partition("*")[0], is_prefix=True)
    return Resource(known, name)


class Entry(NamedTuple):
    """A decision about actions on a resource, for requests from some addresses, or from all."""

    resource: Resource
    actions: frozenset[str]
    sources: tuple[str, ...]
    allows: bool

    def concerns(self, resource: Resource, actions: frozenset[str], source: str) -> bool:
        """Return whether it is about one of some actions on a resource."""
        if ALL not in self.actions and not self.actions & actions:
            return False
        return self.resource.matches(resource) and (
            not self.sources or any(_is_in(source, each) for each in self.sources)
        )


def _is_in(source: str, place: str) -> bool:
    address = ipaddress.ip_address(source)
    network = ipaddress.ip_network(place, strict=False)
    return address.version == network.version and address in network


class Acl(NamedTuple):
    """The policies of a user: entries by the policy's type."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def updated(self, other: Acl) -> Acl:
        """Return these policies with others, which replace those about the same resources."""
        return Acl(_updated(self.custom, other.custom), _updated(self.default, other.default))

    def without(self, policy_type: str, resource: Resource) -> Acl:
        kept = [
            tuple(entry for entry in entries if kind != policy_type or entry.resource != resource)
            for kind, entries in ((CUSTOM, self.custom), (DEFAULT, self.default))
        ]
        return Acl(*kept)

    def about(self, text: str) -> Acl:
        return Acl(*(tuple(entry for entry in entries if text in str(entry.resource)) for entries in self))

    def info(self, subject: str) -> AclInfo:
        told = [
            PolicyInfo(kind, [_entry_info(entry) for entry in entries])
            for kind, entries in ((CUSTOM, self.custom), (DEFAULT, self.default))
            if entries
        ]
        return AclInfo(subject, told)


def _updated(old: Sequence[Entry], new: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple({entry.resource: entry for entry in (*old, *new)}.values())


def _entry_info(entry: Entry) -> PolicyEntryInfo:
    actions = [name for name in _ACTIONS if name in entry.actions]
    return PolicyEntryInfo(str(entry.resource), actions, list(entry.sources), _ALLOW if entry.allows else _DENY)


def decide(acl: Acl | None, resource: Resource, actions: frozenset[str], source: str) -> str | None:
    """Return why actions on a resource are denied to a user with these policies; None if they are allowed."""
    for entries in acl or ():
        found = [entry for entry in entries if entry.concerns(resource, actions, source)]
        if found:
            # Of equally narrow ones, one that denies.
            narrowest = max(found, key=lambda entry: (entry.resource.narrowness, not entry.allows))
            return None if narrowest.allows else "the decision is deny."
    return "no matched policies."


def parse_acl(info: AclInfo) -> Acl:
    """Return the policies of a body. Raises `Invalid`."""
    if not info.policies:
        raise Invalid("The policies is empty.")
    acl = Acl()
    for policy in info.policies:
        if not policy.entries:
            raise Invalid("The policy entries is empty.")
        entries = tuple(map(_parse_entry, policy.entries))
        is_default = choose((CUSTOM, DEFAULT), policy.policy_type) == DEFAULT
        acl = acl.updated(Acl(default=entries) if is_default else Acl(entries))
    return acl


def _parse_entry(info: PolicyEntryInfo) -> Entry:
    resource = parse_resource(info.resource)
    actions = frozenset(name for name in (choose(_ACTIONS, text) for text in info.actions) if name is not None)
    if not actions:
        raise Invalid("The actions is empty.")
    if _ANY in actions:
        raise Invalid("The actions can not be Any.")
    for source in info.source_ips:
        if not source.strip():
            raise Invalid("The source ip is empty.")
        try:
            ipaddress.ip_network(source, strict=False)
        except ValueError:
            raise Invalid("The source ip is invalid.") from None
    decision = choose((_ALLOW, _DENY), info.decision)
    if decision is None:
        raise Invalid("The decision is null or illegal.")
    return Entry(resource, actions, tuple(info.source_ips), decision == _ALLOW)
