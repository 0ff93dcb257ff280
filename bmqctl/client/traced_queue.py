"""The spans of a BlazingMQ queue: the context in its messages, and the outcome in an ack."""

from __future__ import annotations

from collections.abc import Mapping

from bmqctl.client.errors import Ack
from bmqctl.client.protocol.message import Properties
from bmqctl.client.spans import Place, Receiver, Span, Spans, TracedPost
from formats.bmq.codes import AckStatus
from formats.bmq.wire.properties import Property, PropertyType

__all__ = ["begin_processing", "trace_post"]

_SYSTEM = "blazingmq"


def trace_post(
    spans: Spans, uri: str, size: int, properties: Properties | None, receiver: Receiver[Ack]
) -> tuple[Properties | None, TracedPost[Ack]]:
    """Begin the span of a post; return the properties with its context, and the receiver of the answer."""
    span, carrier = spans.begin_post(Place(_SYSTEM, _without_query(uri)), size)
    return _with(properties, carrier), TracedPost(span, receiver, _read)


def begin_processing(
    spans: Spans, uri: str, app_id: str, guid: bytes, size: int, properties: Mapping[str, object]
) -> Span:
    return spans.begin_processing(Place(_SYSTEM, _without_query(uri), app_id), guid.hex().upper(), size, properties)


def _with(properties: Properties | None, carrier: Mapping[str, str]) -> Properties | None:
    """Add the context, unless the program has given properties of these names, or an encoded area."""
    if not carrier or isinstance(properties, bytes):
        return properties
    if properties is None or isinstance(properties, Mapping):
        return {**carrier, **(properties or {})}
    given = {each.name for each in properties}
    more = [Property(name, PropertyType.STRING, value) for name, value in carrier.items() if name not in given]
    return [*properties, *more]


def _read(ack: Ack) -> tuple[str, str]:
    return ack.guid.hex().upper(), "" if ack.status is AckStatus.SUCCESS else ack.status.name


def _without_query(uri: str) -> str:
    return uri.partition("?")[0]
