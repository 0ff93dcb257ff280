"""Spans of OpenTelemetry for the client library; they need the extra `tracing`.

    from bmqctl.client import connect
    from bmqctl.client.tracing import Tracing

    async with connect("tcp://127.0.0.1:30114", tracing=Tracing()) as session:
        ...

The names of attributes are those of OpenTelemetry's conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from typing import Final

from bmqctl.common.installed import installing

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(f"spans need OpenTelemetry: {installing('tracing')}") from error

from bmqctl.client.spans import Place

__all__ = ["Tracing"]

_NAME: Final = "bmqctl.client"


class Tracing:
    """Makes the spans of a session.

    By default they come from the global provider, and the global propagator carries them: W3C's trace context and
    baggage unless the program has chosen others.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._propagator = propagate.get_global_textmap() if propagator is None else propagator

    def begin_post(self, place: Place, size: int) -> tuple[_Begun, Mapping[str, str]]:
        attributes = _attributes(place, "post", "send", size)
        span = self._tracer.start_span(f"post {place.destination}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        return _Begun(span), carrier

    def begin_processing(self, place: Place, message_id: str, size: int, properties: Mapping[str, object]) -> _Begun:
        carrier = {name: value for name, value in properties.items() if isinstance(value, str)}
        context = self._propagator.extract(carrier)
        attributes = {**_attributes(place, "process", "process", size), "messaging.message.id": message_id}
        span = self._tracer.start_span(
            f"process {place.destination}", context, kind=SpanKind.CONSUMER, attributes=attributes
        )
        return _Begun(span, attach(trace.set_span_in_context(span, context)))


class _Begun:
    """A span that has begun; with a token it is the current one."""

    __slots__ = ("_is_over", "_span", "_token")

    def __init__(self, span: Span, token: Token[Context] | None = None) -> None:
        self._span = span
        self._token = token
        self._is_over = False

    def end(self, message_id: str = "", refusal: str = "", fault: BaseException | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._token is not None:
            detach(self._token)
        span = self._span
        if message_id:
            span.set_attribute("messaging.message.id", message_id)
        if fault is not None:
            span.record_exception(fault)
            refusal, text = type(fault).__qualname__, str(fault)
        else:
            text = refusal
        if refusal:
            span.set_attribute("error.type", refusal)
            span.set_status(Status(StatusCode.ERROR, text))
        span.end()


def _attributes(place: Place, name: str, kind: str, size: int) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": place.system,
        "messaging.destination.name": place.destination,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.message.body.size": size,
    }
    if place.group:
        found["messaging.consumer.group.name"] = place.group
    return found
