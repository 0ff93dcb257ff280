"""Sessions with a cluster that does not answer everything, under asyncio and trio."""

from __future__ import annotations

import anyio
import pytest

from bmqctl.client.rocketmq import (
    Consumer,
    PostUncertain,
    RequestRefused,
    Session,
    SessionEnded,
    connect,
    consuming,
)
from formats.rocketmq.remoting.bodies.clients import HEARTBEAT
from formats.rocketmq.remoting.codes import RequestCode
from tests.bmqctl.client.rocketmq.fake_cluster import serving
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio


async def test_a_post_without_an_answer_ends_with_its_session() -> None:
    async with serving() as cluster, anyio.create_task_group() as group:
        cluster.silent = {RequestCode.SEND_MESSAGE_V2}
        outcomes: list[object] = []

        async def post(session: Session) -> None:
            producer = await session.producer("orders")
            try:
                outcomes.append(await producer.post(b"x"))
            except PostUncertain as fault:
                outcomes.append(fault)

        async def fail() -> None:
            async with connect(cluster.uri) as session:
                group.start_soon(post, session)
                await cluster.await_request(RequestCode.SEND_MESSAGE_V2)
                raise ZeroDivisionError

        with anyio.fail_after(WAIT_S):
            with pytest.raises(ZeroDivisionError):
                await fail()
            while not outcomes:
                await anyio.sleep(0)
        assert [str(each).endswith(": the session has ended") for each in outcomes] == [True]


async def test_all_consumers_leave_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "CLOSE_S", 2 * WAIT_S)
    async with serving() as cluster, anyio.create_task_group() as group:
        cluster.silent = {RequestCode.UNREGISTER_CLIENT}
        ended: list[str] = []

        async def consume(consumer: Consumer) -> None:
            async for _ in consumer:
                raise AssertionError("there are no messages")
            ended.append(consumer.group)

        async def use() -> None:
            async with connect(cluster.uri) as session:
                for name in ("first", "second"):
                    group.start_soon(consume, await session.consume("orders", name))
                await cluster.await_request(RequestCode.PULL_MESSAGE, 2)
            with pytest.raises(SessionEnded):
                await session.consume("orders", "third")
            ended.append("session")

        group.start_soon(use)
        with anyio.fail_after(WAIT_S):
            await cluster.await_request(RequestCode.UNREGISTER_CLIENT, 2)
            await cluster.cut()
            while len(ended) < 3:
                await anyio.sleep(0)
        assert (sorted(ended[:2]), ended[2:]) == (["first", "second"], ["session"])


async def test_a_group_is_joined_once_and_left_if_that_is_cancelled() -> None:
    async with serving() as cluster, connect(cluster.uri) as session:
        cluster.silent = {RequestCode.HEART_BEAT}
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(session.consume, "orders", "billing")
                await cluster.await_request(RequestCode.HEART_BEAT)
                with pytest.raises(ValueError, match="in group billing already"):
                    await session.consume("orders", "billing")
                group.cancel_scope.cancel()
            await cluster.await_request(RequestCode.UNREGISTER_CLIENT)
            cluster.silent.clear()
            await session.producer("orders")
            heartbeat = [each for each in cluster.asked if each.code == RequestCode.HEART_BEAT][-1]
            assert HEARTBEAT.read(bytes(heartbeat.body)).consumer_data_set == []
            consumer = await session.consume("orders", "billing")
            await cluster.await_request(RequestCode.PULL_MESSAGE)
            assert consumer.queues == [("broker", 0)]


async def test_a_group_whose_heartbeat_is_refused_is_left() -> None:
    """Brokers refuse a heartbeat with all its groups: the others of the session would be refused, too."""
    async with serving() as cluster, connect(cluster.uri) as session:
        cluster.refuses_groups = True
        with anyio.fail_after(WAIT_S):
            with pytest.raises(RequestRefused, match=r"no heartbeat at .*: SYSTEM_ERROR"):
                await session.consume("orders", "billing")
            with pytest.raises(RequestRefused, match=r"no heartbeat at .*: SYSTEM_ERROR"):
                await session.simple_consumer("orders", "billing")
            await session.producer("orders")
        heartbeat = [each for each in cluster.asked if each.code == RequestCode.HEART_BEAT][-1]
        assert HEARTBEAT.read(bytes(heartbeat.body)).consumer_data_set == []


async def test_a_member_that_the_broker_has_forgotten_keeps_its_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "PAUSE_S", 0.01)
    async with serving() as cluster, connect(cluster.uri) as session:
        with anyio.fail_after(WAIT_S):
            consumer = await session.consume("orders", "billing")
            await cluster.await_request(RequestCode.PULL_MESSAGE)
            cluster.members = []
            cluster.is_forgetful = True
            before = cluster.count(RequestCode.HEART_BEAT)
            consumer.look_again()
            # It tells the broker of itself, and again.
            await cluster.await_request(RequestCode.HEART_BEAT, before + 2)
            assert consumer.queues == [("broker", 0)]
        assert cluster.count(RequestCode.PULL_MESSAGE) == 1
