"""Retry topics of POP by names of both versions: `%RETRY%GROUP_TOPIC`, and `%RETRY%GROUP+TOPIC`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig

V1, V2 = "%RETRY%g_t", "%RETRY%g+t"


def rig_with(*topics: str, **options: object) -> Rig:
    """A broker that has taken over retry topics, each with a message of its name."""
    rig = Rig(replace(OPTIONS, **options))  # type: ignore[arg-type]
    for topic in topics:
        rig.put_topics(TopicConfig(topic, 1, 1))
        rig.plant(topic, topic.encode(), {"ORIGIN_GROUP": "g"})
    return rig


def acknowledge(peer: Peer, handle: str, topic: str) -> None:
    words = handle.split(" ")
    answer = peer.call(
        RequestCode.ACK_MESSAGE, consumerGroup="g", topic=topic, queueId=words[6], offset=words[7], extraInfo=handle
    )
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("topic", "kind"), [(V1, "1"), (V2, "2")])
def test_messages_of_either_are_popped_acknowledged_and_revived(topic: str, kind: str) -> None:
    rig = rig_with(topic)
    peer = rig.peer()
    answer = peer.answer(peer.pop())
    assert answer is not None
    (record,) = records_of(answer)
    assert (record.topic, record.body) == ("t", topic.encode())
    rig.pass_time(13_000)
    # It went back to the same topic.
    assert [bytes(each.body) for each in rig.messages(topic)] == [topic.encode()] * 2
    (handle,) = peer.popped().values()
    assert handle.split(" ")[4] == kind
    acknowledge(peer, handle, topic)
    rig.pass_time(13_000)
    assert peer.popped() == {}


def test_messages_of_both_are_popped() -> None:
    rig = rig_with(V1, V2)
    found = [name for _ in range(2) for name in rig.peer().popped()]
    assert sorted(found) == [V2, V1]
    assert rig.peer().popped() == {}


@pytest.mark.parametrize("retry_v2", [False, True])
def test_a_request_that_waits_gets_messages_that_come_again(retry_v2: bool) -> None:
    rig = rig_with(retry_v2=retry_v2)
    assert rig.peer().send(b"late").code == ResponseCode.SUCCESS
    assert list(rig.peer().popped()) == ["late"]
    peer = rig.peer()
    opaque = peer.pop(pollTime=60_000)
    assert peer.answer(opaque) is None
    rig.pass_time(13_000)
    answer = peer.answer(opaque)
    assert answer is not None
    assert [bytes(each.body) for each in records_of(answer)] == [b"late"]


@pytest.mark.parametrize("topic", [V1, V2])
def test_notifications_and_peeks_look_into_either(topic: str) -> None:
    rig = rig_with(topic)
    peer = rig.peer()
    answer = peer.call(
        RequestCode.NOTIFICATION, consumerGroup="g", topic="t", queueId=-1, pollTime=0, bornTime=rig.wall_ms
    )
    assert (answer.ext_fields or {})["hasMsg"] == "true"
    answer = peer.call(RequestCode.PEEK_MESSAGE, consumerGroup="g", topic="t", queueId=-1, maxMsgNums=5)
    assert [bytes(each.body) for each in records_of(answer)] == [topic.encode()]


@pytest.mark.parametrize(("retry_v2", "topic"), [(False, V1), (True, V2)])
def test_the_configuration_names_the_topic_of_new_retries(retry_v2: bool, topic: str) -> None:
    rig = rig_with(retry_v2=retry_v2)
    peer = rig.peer()
    assert peer.send(b"once more").code == ResponseCode.SUCCESS
    assert list(peer.popped()) == ["once more"]
    rig.pass_time(13_000)
    assert [bytes(each.body) for each in rig.messages(topic)] == [b"once more"]
    assert list(peer.popped()) == ["once more"]
