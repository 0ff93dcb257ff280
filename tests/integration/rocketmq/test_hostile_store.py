"""A broker process on a store with messages that nobody should have been able to send."""

from __future__ import annotations

import time
from pathlib import Path

from bmqctl.testing import RocketProcess, rocketmq_node
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.options import DELAY_LEVELS, parse_delay_levels
from broker.shell.files.folders import FileFolder
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.codes import ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.store.message_store_rig import record_of
from tests.rigs.remoting import Remote
from tests.waiting import eventually

__all__ = ["rocketmq_node"]

TIMERS = "rmq_sys_wheel_timer"
DELAYS = "SCHEDULE_TOPIC_XXXX"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
NOTES = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
PLACES = {
    "REAL_TOPIC": ("a\0b", "../../outside", "x" * 300, "..", TIMERS, DELAYS, NOTES, REVIVE),
    "REAL_QID": ("9999999999", "9" * 5_000, "-1", "x"),
}


def plant(root: Path) -> None:
    """Put messages into a store that a broker can only have got from others, and end as a killed process does."""
    levels = make_due_time(parse_delay_levels(DELAY_LEVELS))
    store = open_store(FileFolder(root), StoreOptions(), str, levels)
    now_ms = time.time_ns() // 1_000_000
    host = Host("127.0.0.1", 1).pack()

    def message(topic: str, properties: dict[str, str], body: bytes = b"x") -> Message:
        return Message(topic, 0, 0, 0, now_ms, host, host, 0, 0, body, encode_properties(properties))

    for name, values in PLACES.items():
        for value in values:
            told = {"REAL_TOPIC": "kept", "REAL_QID": "0", "TIMER_OUT_MS": str(now_ms), "DELAY": "1", name: value}
            Writer(store).put(message(TIMERS, told), now_ms)
            Writer(store).put(message(DELAYS, told), now_ms)
            Writer(store).put(message(HALF, {**told, "TRAN_PREPARED_QUEUE_OFFSET": "9" * 5_000}), now_ms)
    Writer(store).put(message(NOTES, {"TAGS": "d"}, b"9" * 5_000), now_ms)
    point = b'{"so":0,"pt":%d,"it":1,"n":1,"q":0,"t":"kept","c":"g"}' % (1 << 61)
    Writer(store).put(message(REVIVE, {"TAGS": "ck"}, point), now_ms)
    for topic in ("../../../evil", "a\0b", "x" * 300):
        store.log.append(store.log.end, memoryview(record_of(message(topic, {}), store.log.end, 0, now_ms)))
    store.flush()
    store.log.files.close()


def check_serves(node: RocketProcess, first: int) -> None:
    """Send a message at once, one with a delay level and one with a time, and see that they come."""
    with Remote(node.port) as remote:
        for properties in ({}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}):
            text = encode_properties(properties).decode()
            assert remote.send_message("kept", b"sound", properties=text).code == ResponseCode.SUCCESS
        eventually(lambda: _count(remote, first) == 3)


def _count(remote: Remote, first: int) -> int:
    answer = remote.answer(remote.pull("kept", first))
    return len(records_of(answer)) if answer.code == ResponseCode.SUCCESS else 0


def test_broker_serves_on_a_store_with_hostile_messages(rocketmq_node: RocketProcess) -> None:
    node = rocketmq_node
    with Remote(node.port) as remote:
        answer = remote.send_message(TIMERS, b"x", properties=encode_properties({"REAL_TOPIC": "../../x"}).decode())
        assert answer.code == ResponseCode.NO_PERMISSION
    assert node.stop() == 0
    around = sorted(node.data_dir.parent.rglob("*"))
    plant(node.data_dir)
    for first in (0, 3):
        node.start()
        check_serves(node, first)
        assert node.stop() == 0
        assert "PANIC" not in node.output
        assert "Traceback" not in node.output
        if first == 0:
            assert "records of queues that cannot be: 1 skipped so far" in node.output
    new = {path.relative_to(node.data_dir.parent).parts[0] for path in node.data_dir.parent.rglob("*")}
    assert new == {path.relative_to(node.data_dir.parent).parts[0] for path in around}
    topics = {path.name for path in (node.data_dir / "consumequeue").iterdir()}
    assert topics <= {TIMERS, DELAYS, HALF, NOTES, REVIVE, "kept", "TRANS_CHECK_MAX_TIME_TOPIC"}
