"""The queues and topics of the commands for messages, and sessions with their brokers."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bmqctl.carrying.bridge.ends import BadBridge, BlazingEnd, RocketEnd, parse_end
from bmqctl.client import Change, Credentials, Session
from bmqctl.client import connect as connect_blazingmq
from bmqctl.client.rocketmq import Session as RocketSession
from bmqctl.client.rocketmq import connect as connect_rocketmq

__all__ = [
    "BlazingEnd",
    "CannotBegin",
    "End",
    "Reach",
    "RocketEnd",
    "blazingmq_credentials",
    "blazingmq_session",
    "check_authority",
    "parse",
    "rocketmq_session",
]

log = logging.getLogger("bmqctl.carrying.messages")

End = BlazingEnd | RocketEnd


class CannotBegin(Exception):
    """A command that cannot begin: an invalid end, or one that cannot be reached; one line."""


class Reach(NamedTuple):
    """The options by which brokers are reached. For RocketMQ `data` is an access key and its secret."""

    name: str
    authority: Path | None = None
    mechanism: str | None = None
    data: str = ""
    timeout_s: float = 10.0


def parse(text: str, broker: str, group: str) -> End:
    """Parse `bmq://DOMAIN/QUEUE[?id=APP]` or `rocketmq://HOST:PORT/TOPIC[?group=GROUP...]`. Raises `CannotBegin`."""
    try:
        return parse_end(text, broker, group=group)
    except BadBridge as fault:
        raise CannotBegin(str(fault)) from None


@asynccontextmanager
async def blazingmq_session(end: BlazingEnd, reach: Reach, **options: Any) -> AsyncIterator[Session]:
    """Begin a session with the broker of a queue; `options` are those of the library's `connect`."""
    async with connect_blazingmq(
        f"tcp://{_address(end)}",
        credentials=blazingmq_credentials(reach),
        tls=check_authority(reach.authority),
        timeout_s=reach.timeout_s,
        process_name=reach.name,
        on_change=_note,
        **options,
    ) as session:
        yield session


@asynccontextmanager
async def rocketmq_session(end: RocketEnd, reach: Reach, **options: Any) -> AsyncIterator[RocketSession]:
    """Begin a session with the cluster of a topic; `options` are those of the library's `connect`."""
    if reach.mechanism is not None:
        raise CannotBegin("--authn-mechanism is for BlazingMQ: a topic's brokers need --authn-data KEY:SECRET only")
    key, colon, secret = reach.data.partition(":")
    if reach.data and not (key and colon and secret):
        raise CannotBegin("--authn-data: expected KEY:SECRET, the access key and the secret of a user of RocketMQ")
    async with connect_rocketmq(
        f"rocketmq://{_address(end)}",
        credentials=(key, secret) if reach.data else None,
        tls=check_authority(reach.authority),
        timeout_s=reach.timeout_s,
        **options,
    ) as session:
        yield session


def _note(change: Change) -> None:
    """Tell that a connection is restored; the library tells of its loss."""
    if change is Change.RESTORED:
        log.warning("the connection is restored")


def _address(end: End) -> str:
    return f"[{end.host}]:{end.port}" if ":" in end.host else f"{end.host}:{end.port}"


def blazingmq_credentials(reach: Reach) -> Credentials | None:
    """Make the credentials for a broker of BlazingMQ. Raises `CannotBegin`."""
    if reach.mechanism is not None:
        return Credentials(reach.mechanism, reach.data.encode(errors="surrogateescape"))
    if reach.data:
        raise CannotBegin("--authn-data: name its mechanism, too, such as --authn-mechanism BASIC")
    return None


def check_authority(authority: Path | None) -> Path | None:
    """Return a file of certificates that can be trusted. Raises `CannotBegin`."""
    if authority is None:
        return None
    try:
        ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise CannotBegin(f"--tls-authority {authority}: has no certificates in PEM") from None
    except OSError as fault:
        raise CannotBegin(f"--tls-authority {authority}: {fault.strerror}") from None
    return authority
