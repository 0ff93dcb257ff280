"""The number, size and age of a BlazingMQ queue's messages, from its primary."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.systems.blazingmq.status.asking import Connects, Refused, ask_for, endpoint_parts
from bmqctl.systems.blazingmq.status.queues import primary_of
from formats.bmq.uri import QueueUri

__all__ = ["Purged", "QueueContents", "contents_of", "list_prefix", "purge", "waiting_of"]

_PIECE: Final = 10_000
_COUNT_MAX: Final = 1 << 48
_NOT_OPENED: Final = "was not found on domain"


class QueueContents(NamedTuple):
    """Messages of a queue, or of an app that has yet to confirm them. `oldest_at` is None if unknown."""

    messages: int
    size_bytes: int
    oldest_at: str | None


class Purged(NamedTuple):
    """The removed messages."""

    messages: int
    size_bytes: int


def list_prefix(queue: QueueUri) -> str:
    return f"DOMAINS DOMAIN {queue.qualified_domain} QUEUE {queue.queue}"


def contents_of(host: str, port: int, asking: Connects, queue: QueueUri) -> QueueContents:
    """Ask a queue's primary for its messages, or the ones that an app has yet to confirm.

    A queue that no client has opened since its broker began is not listed: its age is unknown, and a query of an app is
    refused. Raises `AdminLost` if a broker is unreachable, and `Refused`.
    """
    host, port = _primary(host, port, asking, queue)
    with asking.client(host, port) as client:
        try:
            return _listed(client, queue)
        except Refused as refusal:
            return _unopened(client, queue, refusal)


def waiting_of(host: str, port: int, asking: Connects, queue: QueueUri) -> int:
    """The number of messages alone. Raises `AdminLost` and `Refused` as `contents_of` does."""
    host, port = _primary(host, port, asking, queue)
    with asking.client(host, port) as client:
        try:
            return _page(client, queue, 0, 1)[1]
        except Refused as refusal:
            return _unopened(client, queue, refusal).messages


def purge(host: str, port: int, asking: Connects, queue: QueueUri) -> Purged:
    """Remove all messages of a queue, or those of one app, at its primary.

    Raises `AdminLost` if a broker is unreachable, `Refused` if it refuses.
    """
    host, port = _primary(host, port, asking, queue)
    with asking.client(host, port) as client:
        found = ask_for(client, f"{list_prefix(queue)} PURGE {queue.app_id or '*'}", "purgedQueues")
    try:
        done = found["queues"][0]
        purged = done.get("queue")
        if purged is None:
            raise Refused(str(done["error"]["message"])[:200])
        return Purged(_number(purged["numMessagesPurged"]), _number(purged["numBytesPurged"]))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise AdminLost(f"{host}:{port}: the answer to PURGE is not understood: {json.dumps(found)[:80]}") from None


def _primary(host: str, port: int, asking: Connects, queue: QueueUri) -> tuple[str, int]:
    with asking.client(host, port) as client:
        primary = primary_of(client, f"{host}:{port}", queue)
    return (host, port) if primary is None else endpoint_parts(primary)


def _unopened(client: AdminClient, queue: QueueUri, refusal: Refused) -> QueueContents:
    """Ask for an unlisted queue, with the rest of its domain. Raises a refusal that has another reason."""
    if _NOT_OPENED not in str(refusal):
        raise refusal
    if queue.app_id:
        raise Refused(f"no client has opened {queue} since its broker began, so its apps are unknown")
    info = ask_for(client, f"DOMAINS DOMAIN {queue.qualified_domain} INFOS", "domainInfo")
    try:
        storages = info["storageContent"]["storages"]
        found = next((each for each in storages if each["queueUri"] == queue.canonical), None)
        if found is None:
            raise Refused(f"there is no queue {queue.canonical}")
        return QueueContents(_number(found["numMessages"]), _number(found["numBytes"]), None)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise AdminLost("the broker's answer to INFOS is not understood") from None


def _listed(client: AdminClient, queue: QueueUri) -> QueueContents:
    """Add up the list of the messages, which may change meanwhile."""
    count = size = 0
    oldest: str | None = None
    while True:
        messages, total = _page(client, queue, count, _PIECE)
        try:
            if messages and oldest is None:
                oldest = str(messages[0]["arrivalTimestamp"])[:40]
            size += sum(_number(each["sizeBytes"]) for each in messages)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise AdminLost("the broker's answer to LIST is not understood") from None
        count += len(messages)
        if not messages or count >= total:
            return QueueContents(count, size, oldest)


def _page(client: AdminClient, queue: QueueUri, offset: int, count: int) -> tuple[list[dict[str, Any]], int]:
    app = f" {queue.app_id}" if queue.app_id else ""
    contents = ask_for(client, f"{list_prefix(queue)} LIST{app} {offset} {count}", "queueContents")
    try:
        messages = contents.get("messages", [])
        if not isinstance(messages, list):
            raise TypeError
        return messages, _number(contents["totalQueueMessages"])
    except (LookupError, TypeError, ValueError):
        raise AdminLost("the broker's answer to LIST is not understood") from None


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _COUNT_MAX:
        raise ValueError
    return value
