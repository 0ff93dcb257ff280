"""Causes by what a primary, or the brokers of a topic, tell."""

from __future__ import annotations

from typing import Any

import pytest

from bmqctl.systems.blazingmq.status.queues import UnknownApp
from bmqctl.systems.explaining.blazingmq import causes_of_queue, causes_of_unopened
from bmqctl.systems.explaining.cause import Cause
from bmqctl.systems.explaining.rocketmq import causes_of_group
from bmqctl.systems.rocketmq.status.group import GroupState, QueueLag
from broker.bmq.core.config import DomainConfig, Mode
from tests.broker.bmq.admin.conftest import start_with
from tests.broker.bmq.rig import guid

Told = dict[str, Any]


def meter(messages: int, of: int = 1000, bytes_: int = 0, parent: Told | None = None) -> Told:
    found = {"numMessages": messages, "messageCapacity": of, "numBytes": bytes_, "byteCapacity": 100}
    return found if parent is None else found | {"parent": parent}


def handle(app: str, held: int, limit: int) -> Told:
    state = "STATE_FULL" if held >= limit else "STATE_NORMAL"
    monitor = {"state": state, "numMessages": held, "messagesCapacity": limit}
    return {
        "clientDescription": f"client:{held}",
        "subStreams": [{"appId": app, "unconfirmedMonitors": [monitor]}],
    }


def internals(
    app: str, messages: int, *handles: Told, status: str = "alive", expressions: tuple[str, ...] = ()
) -> Told:
    router = {"consumers": [{"expression": each} for each in expressions]} if expressions else {}
    consumers = {"appId": app, "status": status, "appState": {"roundRobinRouter": router}}
    return {
        "state": {
            "uri": "bmq://d/q",
            "partitionId": 0,
            "storage": {"numMessages": messages, "virtualStorages": [{"appId": app, "numMessages": messages}]},
            "capacityMeter": meter(messages, parent=meter(messages)),
            "handles": list(handles),
        },
        "queue": {"localQueue": {"queueEngine": {"fanout": {"consumerStates": [consumers]}}}},
    }


def view(waiting: int = 0) -> Told:
    return {"partitions": [{"partitionId": 0, "waiting": waiting}]}


def names(told: Told, waiting: int = 0, app: str = "") -> list[str]:
    return [each.cause for each in causes_of_queue(told, view(waiting), app)]


def test_an_empty_queue_has_no_causes() -> None:
    assert names(internals("foo", 0)) == []


def test_queue_without_consumers_is_explained() -> None:
    (found,) = causes_of_queue(internals("foo", 7, status="registered"), view())
    assert (found.cause, found.app, found.messages) == ("no consumer", "foo", 7)
    (found,) = causes_of_queue(internals("__default", 7, status="registered"), view())
    assert (found.app, found.text) == ("", "nobody consumes the queue, which has 7 messages")


def test_each_consumer_has_as_many_as_it_allows() -> None:
    told = internals("foo", 20, handle("foo", 5, 5), handle("foo", 3, 3), expressions=("",))
    (found,) = causes_of_queue(told, view())
    assert (found.cause, found.messages) == ("flow control", 12)
    assert "client:5 (5 of 5), client:3 (3 of 3)" in found.text


def test_consumers_of_other_apps_do_not_count() -> None:
    assert names(internals("foo", 20, handle("bar", 0, 5))) == ["no consumer"]


def test_consumers_hold_all_and_confirm_nothing() -> None:
    told = internals("foo", 8, handle("foo", 5, 10), handle("foo", 3, 10), expressions=("",))
    (found,) = causes_of_queue(told, view())
    assert (found.cause, found.messages) == ("unconfirmed", 8)
    assert "most of them client:5" in found.text


def test_messages_that_no_expression_matches() -> None:
    told = internals("foo", 8, handle("foo", 0, 10), expressions=("x > 3", "y == 1"))
    (found,) = causes_of_queue(told, view())
    assert (found.cause, found.messages) == ("put aside", 8)
    assert "(x > 3; y == 1)" in found.text
    # One who takes all is only slow.
    assert names(internals("foo", 8, handle("foo", 0, 10), expressions=("x > 3", ""))) == ["waiting"]


@pytest.mark.parametrize(("times", "attempts_max", "found"), [(1, 3, []), (2, 4, ["poison"]), (1, 2, ["poison"])])
def test_messages_on_which_consumers_fail(times: int, attempts_max: int, found: list[str]) -> None:
    uri = "bmq://fragile/q"
    node = start_with(DomainConfig("fragile", Mode.PRIORITY, delivery_attempts_max=attempts_max))
    node.producer(uri, [10, 10])
    for _ in range(times):
        consumer = node.rig.connect()
        consumer.read(1, uri, messages_max=1)
        consumer.drop()
    told = node.json("DOMAINS DOMAIN fragile QUEUE q INTERNALS")["queueInternals"]
    causes = causes_of_queue(told, view())
    assert [each.cause for each in causes] == [*found, "no consumer"]
    if found:
        assert (causes[0].app, causes[0].messages) == ("", 1)
        assert causes[0].text == (
            "1 message of the queue came back from consumers that were lost or rejected them; "
            f"{guid(0).hex().upper()} has had {times} of {attempts_max} attempts"
        )
    survivor = node.rig.connect()
    survivor.read(1, uri)
    survivor.confirm(1, guid(0), guid(1))
    told = node.json("DOMAINS DOMAIN fragile QUEUE q INTERNALS")["queueInternals"]
    assert causes_of_queue(told, view()) == []


def test_an_app_that_the_domain_does_not_have() -> None:
    assert names(internals("foo", 8, handle("foo", 0, 10), status="unauthorized")) == ["no app"]


@pytest.mark.parametrize("what", ["queue", "domain"])
def test_quotas(what: str) -> None:
    told = internals("foo", 5, status="registered")
    for full in (meter(10, of=10), meter(10, of=1000, bytes_=100)):
        told["state"]["capacityMeter"] = full if what == "queue" else meter(5, parent=full)
        quota, consumer = causes_of_queue(told, view())
        assert (quota.cause, consumer.cause) == ("quota", "no consumer")
        assert quota.text.startswith(f"the {what} has ")
        assert f"{what}Limits" in quota.remedy
    # No limit is none.
    told["state"]["capacityMeter"] = meter(10, of=0)
    assert names(told) == ["no consumer"]


def test_messages_without_enough_replicas() -> None:
    assert names(internals("foo", 0), waiting=3) == ["no quorum"]


def test_one_app_is_asked_about() -> None:
    told = internals("foo", 7, status="registered")
    assert names(told, app="foo") == ["no consumer"]
    with pytest.raises(UnknownApp, match="bmq://d/q has no app bar, but foo"):
        names(told, app="bar")


def test_a_queue_that_nobody_has_opened() -> None:
    assert causes_of_unopened(0) == []
    assert [each.cause for each in causes_of_unopened(3)] == ["no consumer"]


def of_group(*messages: int, consumers: int = 1) -> list[Cause]:
    queues = [QueueLag("a", number, count, 1500 * count) for number, count in enumerate(messages)]
    return causes_of_group("g", "t", GroupState(queues, frozenset(map(str, range(consumers)))))


def test_groups() -> None:
    assert of_group(0, 0) == []
    assert [each.cause for each in of_group(0, 3, consumers=0)] == ["no consumer"]
    (one,) = of_group(0, 3, 0, consumers=2)
    assert (one.cause, one.messages) == ("lag", 3)
    assert "group g, with 2 connected, is behind: 3 messages of t not consumed, the oldest 4 s old" in one.text
    assert "a/1 (3)" in one.text
    (every,) = of_group(1, 1)
    assert one.remedy.startswith("check the consumer of these queues")
    assert every.remedy.startswith("start more consumers, up to 2")
    (enough,) = of_group(1, 1, consumers=2)
    assert enough.remedy == "check that consumers neither hang nor fail; more consumers need more queues than 2"
    (many,) = of_group(*([1] * 7))
    assert many.text.endswith(" and 2 more")
