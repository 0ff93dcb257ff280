"""The work that requests about lite topics cause, with many clients and many lite topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.rocketmq.consuming.lite.events import Events
from broker.rocketmq.remoting.scheduler import Scheduler
from formats.rocketmq.lite import queue_name
from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.consuming.lite.lite_rig import PARENT, LiteRig
from tests.broker.rocketmq.folders import MemoryFolder

QUEUES = 100


@pytest.fixture
def rig() -> LiteRig:
    return LiteRig()


def count_calls(monkeypatch: pytest.MonkeyPatch, cls: type, name: str) -> Callable[[], int]:
    """Count the calls of a method from here on."""
    inner, count = getattr(cls, name), 0

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return inner(*arguments, **named)

    monkeypatch.setattr(cls, name, counted)
    return lambda: count


def subscribe(rig: LiteRig, group: str, clients: int, *names: str) -> Frame:
    """Have many clients subscribe by one request."""
    changes = [
        bodies.LiteSubscription(bodies.COMPLETE_ADD, f"{group} {number}", group, PARENT, list(names))
        for number in range(clients)
    ]
    return rig.peer().call(
        RequestCode.LITE_SUBSCRIPTION_CTL, bodies.SUBSCRIPTIONS.write(bodies.LiteSubscriptions(changes))
    )


def fill(rig: LiteRig, queues: int = QUEUES) -> None:
    client = rig.client("sender")
    for number in range(queues):
        assert client.send("x", f"q{number}").code == ResponseCode.SUCCESS


def test_a_group_is_told_of_all_lite_topics_once_however_many_clients_join(
    rig: LiteRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig)
    told = count_calls(monkeypatch, Events, "tell")
    assert subscribe(rig, "all", 200).code == ResponseCode.SUCCESS
    assert QUEUES <= told() <= 3 * QUEUES
    clients = [rig.client(f"all {number}", "all") for number in range(200)]
    found = [body for _ in range(QUEUES // 32 + 1) for client in clients for body in client.popped()]
    assert found == ["x"] * QUEUES


def test_few_of_many_subscribers_are_looked_at(rig: LiteRig, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        assert subscribe(rig, "shared", 400, "a").code == ResponseCode.SUCCESS
    looked = count_calls(monkeypatch, Events, "has_asked")
    assert rig.client("sender").send("x", "a").code == ResponseCode.SUCCESS
    assert 1 <= looked() <= 64


def test_changes_of_a_request_and_lite_topics_of_a_client_are_bounded(rig: LiteRig) -> None:
    assert subscribe(rig, "shared", 501, "a").code == ResponseCode.INVALID_PARAMETER
    client = rig.client("one")
    names = [f"q{number}" for number in range(2301)]
    quota = ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    for action in (bodies.PARTIAL_ADD, bodies.COMPLETE_ADD):
        assert client.change(action, *names).code == quota
        assert client.change(action, *names[:2300]).code == ResponseCode.SUCCESS
    assert client.change(bodies.PARTIAL_ADD, names[0]).code == ResponseCode.SUCCESS
    assert client.change(bodies.PARTIAL_ADD, names[-1]).code == quota


def test_a_topic_is_deleted_without_a_look_at_all_others(rig: LiteRig, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(rig)
    listed = count_calls(monkeypatch, MemoryFolder, "folders")
    peer = rig.peer()
    assert peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="t").code == ResponseCode.SUCCESS
    assert peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=PARENT).code == ResponseCode.SUCCESS
    assert listed() == 0
    assert {topic for topic, _ in rig.store.queues} & {
        queue_name(PARENT, f"q{number}") for number in range(QUEUES)
    } == set()


def test_a_parent_that_is_made_anew_waits_until_its_old_lite_topics_are_gone(
    rig: LiteRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig, 3)
    client = rig.client("one")
    client.subscribe("q1")
    config = rig.topics.get(PARENT)
    assert isinstance(config, TopicConfig)
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "run", lambda self, now_ms: None)
        patch.setattr(Scheduler, "has_more", False)
        assert rig.peer().call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=PARENT).code == ResponseCode.SUCCESS
        rig.topics.put(config, rig.wall_ms)
        for answer in (client.send("new", "q1"), client.pop(), client.change(bodies.PARTIAL_ADD, "q2")):
            assert answer.code == ResponseCode.SYSTEM_BUSY
    rig.pass_time(100)
    assert client.send("new", "q1").code == ResponseCode.SUCCESS
    client.subscribe("q1")
    assert client.popped() == ["new"]
