"""Messages with priorities: a queue for each, popped from the highest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig

PRIORITY = "_SYS_MSG_PRIORITY_"
LEVELS = 8


def rig_of(**options: object) -> Rig:
    rig = Rig(replace(OPTIONS, **options))  # type: ignore[arg-type]
    rig.put_topics(
        TopicConfig("t", LEVELS, LEVELS, attributes={"message.type": "PRIORITY"}), TopicConfig("u", LEVELS, LEVELS)
    )
    return rig


def send(peer: Peer, priority: str, body: str | None = None, topic: str = "t", **properties: str) -> int:
    """Send a message and return the number of its queue, as answered."""
    body = priority if body is None else body
    answer = peer.send(body.encode(), {PRIORITY: priority, **properties}, topic=topic)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields is not None
    return int(answer.ext_fields["queueId"])


def drain(rig: Rig, topic: str = "t") -> list[str]:
    """Pop messages one by one until there is none."""
    found: list[str] = []
    while popped := rig.peer().popped(topic, maxMsgNums=1):
        found += popped
    return found


@pytest.mark.parametrize(
    ("priority", "queue_id"),
    [("0", 0), ("3", 3), ("7", 7), ("8", 7), ("2147483647", 7), ("-1", 0), ("2147483648", 0), ("x", 0), ("1 ", 0)],
)
def test_a_message_goes_to_the_queue_of_its_priority(priority: str, queue_id: int) -> None:
    rig = rig_of()
    assert send(rig.peer(), priority, "body") == queue_id
    (record,) = rig.messages("t", queue_id)
    assert decode_properties(record.properties)[PRIORITY] == priority


def test_the_type_of_the_topic_does_not_matter_for_the_queue() -> None:
    rig = rig_of()
    assert send(rig.peer(), "5", topic="u") == 5


@pytest.mark.parametrize("other", [{"DELAY": "1"}, {"__SHARDINGKEY": "k"}, {"TRAN_MSG": "true"}, {"DELAY": "0"}])
def test_a_message_of_another_type_has_no_priority(other: dict[str, str]) -> None:
    rig = rig_of()
    assert send(rig.peer(), "5", "body", **other) == 0
    rig.pass_time(5_000)
    texts = [bytes(each.properties) for topic in rig.topics.table for each in rig.messages(topic)]
    assert texts
    assert not any(PRIORITY.encode() in text for text in texts)


def test_a_topic_with_fewer_queues_than_priorities_has_one_queue_for_the_highest() -> None:
    rig = rig_of()
    rig.put_topics(TopicConfig("narrow", 2, 2, attributes={"message.type": "PRIORITY"}))
    peer = rig.peer()
    assert [send(peer, str(number), topic="narrow") for number in range(4)] == [0, 1, 1, 1]


def test_the_highest_is_popped_first() -> None:
    rig = rig_of()
    peer = rig.peer()
    for priority in "3150746246":
        send(peer, priority)
    assert "".join(drain(rig)) == "7665443210"


def test_the_lowest_is_popped_first_where_that_is_configured() -> None:
    rig = rig_of(highest_first=False)
    peer = rig.peer()
    for priority in "315":
        send(peer, priority)
    assert drain(rig) == ["1", "3", "5"]


@pytest.mark.parametrize(
    ("topic", "factor", "expected"), [("t", 100, ["7", "0"]), ("t", 99, ["0", "7"]), ("u", 100, ["0", "7"])]
)
def test_others_begin_with_a_queue_by_chance(topic: str, factor: int, expected: list[str]) -> None:
    """The rig's chance is 99 of 100 and begins with queue 2."""
    rig = rig_of()
    rig.groups.put(GroupConfig("g", attributes={"priority.factor": str(factor)}), rig.wall_ms)
    peer = rig.peer()
    for priority in "07":
        send(peer, priority, topic=topic)
    assert drain(rig, topic) == expected


def test_new_messages_go_before_those_that_come_again() -> None:
    """Look into the retry topic last, unless the broker is configured otherwise."""
    for percent, expected in ((0, ["new", "again"]), (100, ["again", "new"])):
        rig = rig_of(priority_retry_percent=percent)
        peer = rig.peer()
        send(peer, "7", "again")
        assert list(peer.popped()) == ["again"]
        rig.pass_time(13_000)
        send(peer, "0", "new")
        assert drain(rig) == expected


def test_the_order_holds_after_a_restart() -> None:
    rig = rig_of()
    peer = rig.peer()
    for priority in "0123":
        send(peer, priority)
    rig.stop()
    assert drain(rig) == ["3", "2", "1", "0"]


def test_the_properties_change_while_the_broker_runs() -> None:
    rig = rig_of()
    peer = rig.peer()
    for priority in "012":
        send(peer, priority)
    answer = peer.call(RequestCode.UPDATE_BROKER_CONFIG, b"priorityOrderAsc=false\n")
    assert answer.code == ResponseCode.SUCCESS
    assert drain(rig) == ["0", "1", "2"]
