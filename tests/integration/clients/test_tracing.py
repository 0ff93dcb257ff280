"""Traces through real brokers of both systems, under asyncio and trio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import bmqctl.client
import bmqctl.client.rocketmq as rocketmq
from bmqctl.client.tracing import Tracing
from bmqctl.testing import NodeProcess, RocketProcess

pytestmark = pytest.mark.anyio

FANOUT = "bmq://bmq.test.mem.fanout"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as started:
        yield started


@pytest.fixture
async def traced() -> AsyncIterator[tuple[Tracing, InMemorySpanExporter]]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Tracing(provider), exporter
    provider.shutdown()


def check(spans: tuple[ReadableSpan, ...], **wanted: Any) -> None:
    """Check a span of a post, and one of its processing below it."""
    post, process = spans
    assert post.context
    assert process.parent
    assert process.parent.span_id == post.context.span_id
    assert process.parent.is_remote
    assert process.attributes
    assert {name: process.attributes[f"messaging.{name.replace('_', '.')}"] for name in wanted} == wanted


async def test_blazingmq(
    node: NodeProcess, traced: tuple[Tracing, InMemorySpanExporter], anyio_backend_name: str
) -> None:
    tracing, exporter = traced
    uri = f"{FANOUT}/traced-{anyio_backend_name}"
    async with bmqctl.client.connect(node.uri, tracing=tracing) as session:
        queue = await session.open(uri, write=True)
        reader = await session.open(f"{uri}?id=foo", read=True)
        for compress in (False, True):
            ack = await queue.post(b"x" * 1000, {"amount": 12}, compress=compress)
            async with await anext(reader) as message:
                assert trace.get_current_span().is_recording()
                assert message.properties["amount"] == 12
            assert not trace.get_current_span().is_recording()
            named = {"message_id": ack.guid.hex().upper(), "destination_name": uri, "consumer_group_name": "foo"}
            check(exporter.get_finished_spans(), **named, system="blazingmq", message_body_size=1000)
            exporter.clear()


async def test_a_block_that_raises(
    node: NodeProcess, traced: tuple[Tracing, InMemorySpanExporter], anyio_backend_name: str
) -> None:
    tracing, exporter = traced
    async with bmqctl.client.connect(node.uri, tracing=tracing) as session:
        queue = await session.open(f"bmq://bmq.test.mem.priority/traced-{anyio_backend_name}", read=True, write=True)
        await queue.post(b"poison")
        message = await anext(queue)
        with pytest.raises(ZeroDivisionError):
            async with message:
                _ = 1 // 0
    process = exporter.get_finished_spans()[1]
    assert process.status.status_code is StatusCode.ERROR
    assert (process.attributes or {})["error.type"] == "ZeroDivisionError"


@pytest.mark.parametrize("is_simple", [False, True], ids=["consumer", "simple"])
async def test_rocketmq(
    broker: RocketProcess,
    traced: tuple[Tracing, InMemorySpanExporter],
    anyio_backend_name: str,
    is_simple: bool,
) -> None:
    tracing, exporter = traced
    topic = f"traced-{anyio_backend_name}-{is_simple}"
    async with rocketmq.connect(f"rocketmq://{broker.nameserver}", tracing=tracing) as session:
        producer = await session.producer(topic)
        sent = await producer.post(b"x" * 10, {"amount": "12"})
        if is_simple:
            simple = await session.simple_consumer(topic, "traced", from_start=True)
            (taken,) = await simple.receive(1)
            async with taken:
                assert trace.get_current_span().is_recording()
        else:
            consumer = await session.consume(topic, "traced", from_start=True)
            async with await anext(consumer) as message:
                assert trace.get_current_span().is_recording()
                assert message.properties["amount"] == "12"
    named = {"message_id": sent.message_id, "destination_name": topic, "consumer_group_name": "traced"}
    check(exporter.get_finished_spans(), **named, system="rocketmq", message_body_size=10)
