"""Brokers that answer each pull at once, with no message and no other offset, whatever they say their queues hold."""

from __future__ import annotations

import pytest
import trio

import tests.bmqctl.client.rocketmq.fake_cluster as fakes
from bmqctl.carrying.bridge.carrying import Bridge, TryAgain
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.bridge.flow import FlowOptions, Send
from bmqctl.carrying.bridge.rocketmq_source import RocketSource
from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.carrying.moving.run import At, rehearse
from bmqctl.carrying.options import CarryOptions
from bmqctl.systems.rocketmq.end import TopicEnd
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag
from tests.waiting import WAIT_S

HOST = "127.0.0.1"
# An answer a moment; brokers that are asked without a pause have thousands.
PULLS_MAX = 60


class IdleCluster(fakes.FakeCluster):
    def _answer(self, frame: Frame) -> Frame | None:
        fields = frame.ext_fields or {}
        match frame.code:
            case RequestCode.PULL_MESSAGE:
                at = fields["queueOffset"]
                told = {"suggestWhichBrokerId": "0", "nextBeginOffset": at, "minOffset": "0", "maxOffset": "10"}
                return Frame(ResponseCode.PULL_NOT_FOUND, 0, FrameFlag.RESPONSE, ext_fields=told)
            case RequestCode.GET_MAX_OFFSET:
                return Frame(ResponseCode.SUCCESS, 0, FrameFlag.RESPONSE, ext_fields={"offset": "10"})
        return super()._answer(frame)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "FakeCluster", IdleCluster)


def test_a_copy_of_what_a_broker_does_not_give_ends() -> None:
    async def run() -> None:
        async with fakes.serving() as cluster:
            reach = Reach("test", timeout_s=WAIT_S)
            source, target = (At(TopicEnd(HOST, cluster.port, topic, ""), reach) for topic in ("a", "b"))
            with trio.fail_after(WAIT_S), pytest.raises(CannotBegin, match="does not answer, for 1 s"):
                await rehearse(source, target, CarryOptions(moves=False, patience_s=1.0))
            assert cluster.count(RequestCode.PULL_MESSAGE) <= PULLS_MAX

    trio.run(run)


class Nowhere:
    async def run(self, bridge: Bridge, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        bridge.destination_up()
        await trio.sleep_forever()

    def send(self, send: Send) -> None:
        raise AssertionError("there is no message")


def test_a_bridge_pauses_between_pulls_that_bring_nothing() -> None:
    async def run() -> None:
        async with fakes.serving() as cluster, trio.open_nursery() as nursery:
            source = RocketSource(
                RocketEnd(HOST, cluster.port, "a"), 5.0, TryAgain("a", lambda text: None), lambda text: None
            )
            bridge = Bridge(source, Nowhere(), FlowOptions(), lambda text: None)
            nursery.start_soon(bridge.run, None, 5.0)
            with trio.fail_after(WAIT_S):
                await cluster.await_request(RequestCode.PULL_MESSAGE, 3)
            await trio.sleep(0.5)
            assert cluster.count(RequestCode.PULL_MESSAGE) <= PULLS_MAX
            bridge.stop()

    trio.run(run)
