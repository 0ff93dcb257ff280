"""Spans of the client library, as the SDK of OpenTelemetry takes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from bmqctl.client import PostRefused, PostUncertain, Property, PropertyType, connect
from bmqctl.client.errors import Ack
from bmqctl.client.protocol.message import Properties
from bmqctl.client.spans import Place
from bmqctl.client.traced_queue import trace_post
from bmqctl.client.tracing import Tracing
from formats.bmq.codes import AckStatus
from formats.rocketmq.remoting.codes import RequestCode
from tests.bmqctl.client.fakes import FakeBroker
from tests.bmqctl.client.library_serving import serving
from tests.bmqctl.client.rocketmq.fake_cluster import serving as serving_rocketmq
from tests.waiting import WAIT_S

URI = "bmq://bmq.test.mem.priority/orders"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GUID = bytes(15) + b"\7"


class Spans:
    """A tracer's spans that are over, in the order of their ends."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider)

    @property
    def over(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def only(self) -> ReadableSpan:
        (span,) = self.over
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def test_a_context_is_carried_from_a_post_to_the_processing(spans: Spans) -> None:
    place = Place("blazingmq", URI)
    with spans.provider.get_tracer("program").start_as_current_span("order") as order:
        post, carrier = spans.tracing.begin_post(place, 5)
        # The post is not the current span: others may begin before its answer comes.
        assert trace.get_current_span() is order
    post.end("ID")
    processing = spans.tracing.begin_processing(place._replace(group="app"), "ID", 5, {**carrier, "amount": 12})
    with spans.provider.get_tracer("program").start_as_current_span("inside"):
        pass
    processing.end()
    assert trace.get_current_span() is trace.INVALID_SPAN
    by_name = {span.name: span for span in spans.over}
    outer, posted, inside, processed = (by_name[name] for name in ("order", f"post {URI}", "inside", f"process {URI}"))
    assert (posted.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert len({span.context.trace_id for span in spans.over if span.context}) == 1
    for child, parent in ((posted, outer), (processed, posted), (inside, processed)):
        assert child.parent
        assert parent.context
        assert child.parent.span_id == parent.context.span_id
    assert dict(processed.attributes or {}) == {
        "messaging.system": "blazingmq",
        "messaging.destination.name": URI,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.body.size": 5,
        "messaging.message.id": "ID",
        "messaging.consumer.group.name": "app",
    }
    assert posted.attributes
    assert posted.attributes["messaging.operation.type"] == "send"
    assert posted.attributes["messaging.message.id"] == "ID"


@pytest.mark.parametrize(
    "properties", [{}, {"traceparent": b"no text"}, {"traceparent": "garbage"}, {"traceparent": "00-0-0-0"}]
)
def test_a_message_without_a_sound_context_begins_a_trace(spans: Spans, properties: dict[str, object]) -> None:
    spans.tracing.begin_processing(Place("blazingmq", URI), "ID", 0, properties).end()
    assert spans.only().parent is None


def test_a_fault_is_told_once(spans: Spans) -> None:
    span = spans.tracing.begin_processing(Place("blazingmq", URI), "ID", 0, {})
    span.end(fault=ZeroDivisionError("no amount"))
    span.end()
    over = spans.only()
    assert (over.status.status_code, over.status.description) == (StatusCode.ERROR, "no amount")
    assert (over.attributes or {})["error.type"] == "ZeroDivisionError"
    assert [event.name for event in over.events] == ["exception"]


class Answers:
    def __init__(self) -> None:
        self.taken: list[Ack] = []

    def answered(self, answer: Ack) -> None:
        self.taken.append(answer)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ["traceparent"]),
        ({"amount": 12}, ["amount", "traceparent"]),
        ([Property("raw", PropertyType.BINARY, b"\0")], ["raw", "traceparent"]),
    ],
)
def test_properties_of_any_form_carry_the_context(spans: Spans, given: Properties | None, names: list[str]) -> None:
    properties, traced = trace_post(spans.tracing, f"{URI}?id=app", 5, given, Answers())
    assert properties is not None
    found = {each.name if isinstance(each, Property) else each for each in properties}
    assert sorted(str(name) for name in found) == names
    traced.failed(ZeroDivisionError())
    assert spans.only().name == f"post {URI}"


@pytest.mark.parametrize(
    "given", [{"traceparent": PARENT}, [Property("traceparent", PropertyType.STRING, PARENT)], b"an encoded area"]
)
def test_properties_of_the_program_stay(spans: Spans, given: Properties) -> None:
    properties, _ = trace_post(spans.tracing, URI, 5, given, Answers())
    assert properties == given


def test_an_answer_ends_the_span_and_goes_on(spans: Spans) -> None:
    answers = Answers()
    for status in (AckStatus.SUCCESS, AckStatus.LIMIT_MESSAGES):
        _, traced = trace_post(spans.tracing, URI, 5, None, answers)
        traced.answered(Ack(GUID, status))
    well, refused = spans.over
    assert [ack.status for ack in answers.taken] == [AckStatus.SUCCESS, AckStatus.LIMIT_MESSAGES]
    assert well.status.status_code is StatusCode.UNSET
    assert (well.attributes or {})["messaging.message.id"] == GUID.hex().upper()
    assert (refused.status.status_code, refused.status.description) == (StatusCode.ERROR, "LIMIT_MESSAGES")


@pytest.mark.anyio
async def test_every_way_to_post_has_a_span_for_each_message(spans: Spans) -> None:
    async with serving() as server, connect(server.uri, tracing=spans.tracing) as session:
        queue = await session.open(URI, write=True)
        ack = await queue.post(b"one")
        await (await queue.send(b"two"))
        async with queue.batch() as batch:
            await batch.post(b"three")
        await queue.post_all([b"four", b"five"])
        assert [(span.attributes or {})["messaging.message.body.size"] for span in spans.over] == [3, 3, 5, 4, 4]
        assert (spans.over[0].attributes or {})["messaging.message.id"] == ack.guid.hex().upper()
        for (_, data), span in zip(server.broker.posted, spans.over, strict=True):
            assert span.context
            assert f"{span.context.trace_id:032x}-{span.context.span_id:016x}".encode() in data


@pytest.mark.anyio
async def test_posts_that_fail_have_spans_that_say_so(spans: Spans) -> None:
    broker = FakeBroker(ack_status=int(AckStatus.LIMIT_BYTES))
    async with serving(broker) as server, connect(server.uri, tracing=spans.tracing) as session:
        queue = await session.open(URI, write=True)
        with pytest.raises(PostRefused):
            await queue.post(b"x")
        with pytest.raises(ValueError, match="float"):
            await queue.post(b"x", {"amount": 1.5})  # type: ignore[dict-item]
        # Nothing is posted, and so there is no span: the context alone is no message.
        with pytest.raises(ValueError, match="the payload is empty"):
            await queue.post(b"")
    types = [(span.attributes or {})["error.type"] for span in spans.over]
    assert types == ["LIMIT_BYTES", "ValueError"]


@pytest.mark.anyio
async def test_a_post_to_rocketmq_without_an_answer_has_a_span(spans: Spans) -> None:
    async with serving_rocketmq() as cluster:
        cluster.silent = {RequestCode.SEND_MESSAGE_V2}

        async def fail() -> None:
            async with connect(cluster.uri, tracing=spans.tracing) as session:
                producer = await session.producer("orders")  # type: ignore[attr-defined]
                await producer.send(b"x")
                await cluster.await_request(RequestCode.SEND_MESSAGE_V2)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
    span = spans.only()
    assert (span.attributes or {})["error.type"] == PostUncertain.__name__


@pytest.mark.anyio
async def test_a_post_to_rocketmq_that_is_none_has_a_span(spans: Spans) -> None:
    async with serving_rocketmq() as cluster, connect(cluster.uri, tracing=spans.tracing) as session:
        producer = await session.producer("orders")  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="payload"):
            await producer.post(b"")
    span = spans.only()
    assert (span.name, (span.attributes or {})["messaging.system"]) == ("post orders", "rocketmq")
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.process
def test_without_opentelemetry_only_tracing_is_missing() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
import bmqctl.client.connection, bmqctl.client.rocketmq
try:
    import bmqctl.client.tracing
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout == "spans need OpenTelemetry: pip install '.[tracing]' in a checkout of bmqctl\n"
