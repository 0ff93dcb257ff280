"""The client library for BlazingMQ, for asyncio and trio.

    from bmqctl.client import connect

    async with connect("tcp://127.0.0.1:30114") as session:
        queue = await session.open("bmq://bmq.test.persistent.priority/orders", read=True, write=True)
        await queue.post(b"hello")
        async for message in queue:
            async with message:
                print(message.payload)

The names in `__all__` are the public, stable interface; docs/use/client-library.md is its contract. The modules are
internal: a machine that decides, without I/O, and the carrier of its bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bmqctl.client.connection import Change, Session, connect
    from bmqctl.client.errors import (
        Ack,
        BatchFailed,
        ClientError,
        ConnectFailed,
        PostFailed,
        PostRefused,
        PostUncertain,
        QueueClosed,
        QueueSuspended,
        RequestRefused,
        SessionEnded,
    )
    from bmqctl.client.protocol.authentication import Credentials
    from bmqctl.client.protocol.events import StreamSubscription as Subscription
    from bmqctl.client.queue import Queue
    from bmqctl.client.receiving import Message
    from bmqctl.client.sending import Batch, Posted
    from formats.bmq.codes import AckStatus
    from formats.bmq.wire.properties import Property, PropertyType

__all__ = [
    "Ack",
    "AckStatus",
    "Batch",
    "BatchFailed",
    "Change",
    "ClientError",
    "ConnectFailed",
    "Credentials",
    "Message",
    "PostFailed",
    "PostRefused",
    "PostUncertain",
    "Posted",
    "Property",
    "PropertyType",
    "Queue",
    "QueueClosed",
    "QueueSuspended",
    "RequestRefused",
    "Session",
    "SessionEnded",
    "Subscription",
    "connect",
]

# Imported on first use: commands that use one module need neither the library nor anyio.
_PLACES: Final[dict[str, tuple[str, str]]] = {
    "Ack": ("bmqctl.client.errors", "Ack"),
    "AckStatus": ("formats.bmq.codes", "AckStatus"),
    "Batch": ("bmqctl.client.sending", "Batch"),
    "BatchFailed": ("bmqctl.client.errors", "BatchFailed"),
    "Change": ("bmqctl.client.connection", "Change"),
    "ClientError": ("bmqctl.client.errors", "ClientError"),
    "ConnectFailed": ("bmqctl.client.errors", "ConnectFailed"),
    "Credentials": ("bmqctl.client.protocol.authentication", "Credentials"),
    "Message": ("bmqctl.client.receiving", "Message"),
    "PostFailed": ("bmqctl.client.errors", "PostFailed"),
    "PostRefused": ("bmqctl.client.errors", "PostRefused"),
    "PostUncertain": ("bmqctl.client.errors", "PostUncertain"),
    "Posted": ("bmqctl.client.sending", "Posted"),
    "Property": ("formats.bmq.wire.properties", "Property"),
    "PropertyType": ("formats.bmq.wire.properties", "PropertyType"),
    "Queue": ("bmqctl.client.queue", "Queue"),
    "QueueClosed": ("bmqctl.client.errors", "QueueClosed"),
    "QueueSuspended": ("bmqctl.client.errors", "QueueSuspended"),
    "RequestRefused": ("bmqctl.client.errors", "RequestRefused"),
    "Session": ("bmqctl.client.connection", "Session"),
    "SessionEnded": ("bmqctl.client.errors", "SessionEnded"),
    "Subscription": ("bmqctl.client.protocol.events", "StreamSubscription"),
    "connect": ("bmqctl.client.connection", "connect"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value
