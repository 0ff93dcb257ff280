"""A context and the file of contexts, as values: read from JSON text and written to it, without I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from bmqctl.client.address import BadAddress, parse_address
from formats.addresses import shown_place

__all__ = ["BadContext", "Context", "Contexts", "SecretSource", "System", "parse_contexts"]

ROCKETMQ_SCHEME: Final = "rocketmq://"
OUTPUTS: Final = ("table", "json", "jsonl", "csv")
CONTEXTS_MAX: Final = 1_000
TEXT_MAX: Final = 4_096

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class BadContext(ValueError):
    """A context, or a file of contexts, that cannot be used; the text is the reason."""


class System(StrEnum):
    """The system of a context."""

    BLAZINGMQ = "BlazingMQ"
    ROCKETMQ = "RocketMQ"


class SecretSource(StrEnum):
    """The places of credentials; the values are fields of the file."""

    FILE = "authnDataFile"
    ENVIRONMENT = "authnDataEnvironment"
    HERE = "authnData"


@dataclass(frozen=True, slots=True)
class Context:
    """A broker or a cluster by its address, and what a connection to it needs.

    `address` is `tcp://HOST:PORT` of a BlazingMQ broker, or `rocketmq://HOST:PORT[;HOST:PORT]` of nameservers.
    `secret` is the path of a file, the name of a variable, or the credentials themselves, as `secret_source` says.
    """

    address: str
    controllers: tuple[str, ...] = ()
    tls_authority: str | None = None
    authn_mechanism: str | None = None
    secret_source: SecretSource | None = None
    secret: str | None = field(default=None, repr=False)
    output: str | None = None

    @property
    def system(self) -> System:
        return System.ROCKETMQ if self.address.startswith(ROCKETMQ_SCHEME) else System.BLAZINGMQ

    @property
    def nameservers(self) -> tuple[str, ...]:
        """The nameservers of a RocketMQ cluster, HOST:PORT each."""
        return tuple(self.address.removeprefix(ROCKETMQ_SCHEME).split(";"))

    def checked(self) -> Context:
        """Return the context with its addresses in one spelling. Raises `BadContext` if parts do not fit together."""
        return _CHECKS[self.system](self)

    def _checked_blazingmq(self) -> Context:
        if self.controllers:
            raise BadContext("a BlazingMQ broker has no controllers")
        if self.secret is not None and not self.authn_mechanism:
            raise BadContext("BlazingMQ needs an authentication mechanism with credentials, such as BASIC")
        self._check_output()
        return replace(self, address=f"tcp://{_place(self.address, 'tcp://HOST:PORT')}")

    def _checked_rocketmq(self) -> Context:
        if self.authn_mechanism:
            raise BadContext("RocketMQ has no authentication mechanism: requests are signed")
        if self.secret_source is SecretSource.HERE and not re.fullmatch(r"[^:]+:.*", self.secret or "", re.DOTALL):
            raise BadContext("credentials of RocketMQ are USER:PASSWORD")
        self._check_output()
        expected = "rocketmq://HOST:PORT[;HOST:PORT]"
        nameservers = ";".join(_place(each, expected) for each in self.nameservers)
        controllers = tuple(_place(each, "HOST:PORT of a controller") for each in self.controllers)
        return replace(self, address=f"{ROCKETMQ_SCHEME}{nameservers}", controllers=controllers)

    def _check_output(self) -> None:
        if self.output is not None and self.output not in OUTPUTS:
            raise BadContext(f"output {self.output!r}: expected {', '.join(OUTPUTS)}")

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "address": self.address,
            "controllers": list(self.controllers),
            "tlsAuthority": self.tls_authority,
            "authnMechanism": self.authn_mechanism,
            "output": self.output,
        }
        if self.secret_source is not None:
            fields[self.secret_source.value] = self.secret
        return {name: value for name, value in fields.items() if value not in (None, [])}


_CHECKS: Final = {System.BLAZINGMQ: Context._checked_blazingmq, System.ROCKETMQ: Context._checked_rocketmq}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by their names, and the name of the current one."""

    contexts: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    @property
    def has_secrets(self) -> bool:
        """Return True if the file itself has credentials."""
        return any(each.secret_source is SecretSource.HERE for each in self.contexts.values())

    def named(self, name: str) -> Context:
        """Return a context. Raises `BadContext` for an unknown name."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise BadContext(f"no context {name!r}; there are: {known}")
        return self.contexts[name]

    def with_context(self, name: str, context: Context) -> Contexts:
        """Return all with one added or replaced. Raises `BadContext` for an invalid name."""
        _check_name(name)
        if name not in self.contexts and len(self.contexts) >= CONTEXTS_MAX:
            raise BadContext(f"there are {CONTEXTS_MAX:,} contexts already: remove some")
        return replace(self, contexts={**self.contexts, name: context.checked()})

    def without(self, name: str) -> Contexts:
        """Return all but one; no context is current if that one was. Raises `BadContext` if it does not exist."""
        self.named(name)
        rest = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts(rest, None if self.current == name else self.current)

    def using(self, name: str | None) -> Contexts:
        """Return all with another current context, or none. Raises `BadContext` if it does not exist."""
        if name is not None:
            self.named(name)
        return replace(self, current=name)

    def to_text(self) -> str:
        contexts = {name: context.as_json() for name, context in sorted(self.contexts.items())}
        return json.dumps({"current": self.current, "contexts": contexts}, indent=4) + "\n"


def parse_contexts(text: str) -> Contexts:
    """Parse the file. Raises `BadContext`, which names the field."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BadContext(f"is not JSON: {fault}") from None
    top = _fields("the file", found, {"current", "contexts"})
    entries = top.get("contexts", {})
    if not isinstance(entries, dict):
        raise BadContext("contexts: expected an object")
    if len(entries) > CONTEXTS_MAX:
        raise BadContext(f"contexts: more than {CONTEXTS_MAX:,}")
    contexts = Contexts()
    for name, fields in entries.items():
        try:
            contexts = contexts.with_context(name, _context(fields))
        except BadContext as fault:
            raise BadContext(f"contexts.{name}: {fault}") from None
    current = _text(top, "current")
    if current is not None and current not in contexts.contexts:
        raise BadContext(f"current: there is no context {current!r}")
    return replace(contexts, current=current)


def _context(found: Any) -> Context:
    sources = [source.value for source in SecretSource]
    names = {"address", "controllers", "tlsAuthority", "authnMechanism", "output", *sources}
    fields = _fields("the context", found, names)
    address = _text(fields, "address")
    if address is None:
        raise BadContext("address is missing")
    controllers = fields.get("controllers", [])
    if not isinstance(controllers, list) or not all(isinstance(each, str) for each in controllers):
        raise BadContext("controllers: expected a list of texts")
    given = [SecretSource(name) for name in sources if name in fields]
    if len(given) > 1:
        raise BadContext(f"expected only one of {', '.join(given)}")
    return Context(
        address,
        tuple(controllers),
        _text(fields, "tlsAuthority"),
        _text(fields, "authnMechanism"),
        given[0] if given else None,
        _text(fields, given[0].value) if given else None,
        _text(fields, "output"),
    )


def _fields(place: str, found: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise BadContext(f"{place}: expected an object")
    if unknown := sorted(found.keys() - known):
        raise BadContext(f"{place}: unknown field {unknown[0]!r}")
    return found


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > TEXT_MAX or not value.isprintable():
        raise BadContext(f"{name}: expected a printable text of 1 to {TEXT_MAX:,} characters")
    return value


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadContext("a name is 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', and does not begin with a sign")


def _place(text: str, expected: str) -> str:
    try:
        host, port = parse_address(text)
    except BadAddress:
        raise BadContext(f"{text!r}: expected {expected}") from None
    return shown_place(host, port)
