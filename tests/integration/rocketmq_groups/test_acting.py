"""A slave that acts as master, as processes: routes, reading with offsets, the way back, and silent brokers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bmqctl.testing import RocketProcess
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS, LOCK_ANSWER
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, DataVersion, TopicRoute
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.integration.rocketmq_groups.replication_rig import start
from tests.rigs.remoting import Remote
from tests.waiting import eventually


class Group:
    """A nameserver in a process of its own, a master and a slave of one name."""

    def __init__(self, folder: Path, **properties: Any) -> None:
        self.folder = folder
        self.properties = {
            "brokerName": "acting",
            "enableSlaveActingMaster": "true",
            "totalReplicas": 2,
            "slaveReadEnable": "true",
            "slaveTimeout": 1000,
            "brokerNotActiveTimeoutMillis": 3000,
            **properties,
        }
        served = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true", "brokerName": "elsewhere"}
        self.nameserver = start(folder / "nameserver", "async-master", **served)
        self.master = self._start("master", "sync-master")
        self.slave = self._start("slave", "slave", "--broker-id", "1")
        eventually(lambda: set(self.addresses("SELF_TEST_TOPIC")) == {0, 1})

    def _start(self, name: str, role: str, *options: str) -> RocketProcess:
        return start(self.folder / name, role, "--nameserver", self.nameserver.nameserver, *options, **self.properties)

    def route(self, topic: str) -> TopicRoute | None:
        with Remote(int(self.nameserver.nameserver.rpartition(":")[2])) as remote:
            answer = remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return TOPIC_ROUTE.read(answer.body) if answer.code == ResponseCode.SUCCESS else None

    def addresses(self, topic: str) -> dict[int, int]:
        """The ports of the brokers of this group that a topic's route names, by their ids."""
        route = self.route(topic)
        found = {} if route is None else {each.broker_name: each.broker_addrs for each in route.broker_datas}
        return {each: int(address.rpartition(":")[2]) for each, address in found.get("acting", {}).items()}

    def permission(self, topic: str) -> int | None:
        route = self.route(topic)
        return next((each.perm for each in route.queue_datas if each.broker_name == "acting"), None) if route else None

    def restart_master(self) -> None:
        self.master.start()

    def close(self) -> None:
        for node in (self.slave, self.master, self.nameserver):
            node.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path)
    yield found
    found.close()


def offset_of(remote: Remote, queue_id: int = 0) -> int:
    answer = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="group", topic="topic", queueId=queue_id)
    return int((answer.ext_fields or {}).get("offset", "-1"))


def version_of(remote: Remote) -> DataVersion:
    answer = remote.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert answer.code == ResponseCode.SUCCESS
    return CONSUMER_OFFSETS.read(answer.body).data_version


def pulled(remote: Remote, offset: int = 0) -> list[bytes]:
    return [bytes(each.body) for each in records_of(remote.answer(remote.pull("topic", offset)))]


def locked(remote: Remote) -> list[int]:
    queue = {"brokerName": "acting", "queueId": 0, "topic": "topic"}
    body = json.dumps({"consumerGroup": "group", "clientId": "me", "mqSet": [queue]}).encode()
    return [
        each.queue_id for each in LOCK_ANSWER.read(remote.call(RequestCode.LOCK_BATCH_MQ, body).body).lock_ok_mq_set
    ]


def test_consumers_go_on_at_the_acting_master_and_back_where_they_were(group: Group) -> None:
    with Remote(group.master.port) as remote:
        for number in range(6):
            assert remote.send_message("topic", b"%d" % number).code == ResponseCode.SUCCESS
        remote.commit("topic", 0, 2)
    with Remote(group.slave.port) as remote:
        eventually(lambda: offset_of(remote) == 2 and len(pulled(remote)) == 6)
        eventually(lambda: group.permission("topic") == 6)
        group.master.kill()
        eventually(lambda: group.addresses("topic") == {0: group.slave.port})
        assert group.permission("topic") == 4
        assert "broker 1 at" in group.slave.wait_for("has the least id")
        # Reading, offsets and locks go on; writing does not.
        assert pulled(remote, 2) == [b"2", b"3", b"4", b"5"]
        assert locked(remote) == [0]
        before = version_of(remote)
        assert remote.commit("topic", 0, 5).code == ResponseCode.SUCCESS
        assert remote.send_message("topic", b"no").code == ResponseCode.SERVICE_NOT_AVAILABLE
        with Remote(group.slave.port - 2) as other:
            # Where a master of the original asks for this before it comes back.
            assert other.call(RequestCode.GET_TIMER_CHECK_POINT).code == ResponseCode.SUCCESS
        # The version of the offsets, by which the master takes them, is raised every five seconds.
        eventually(lambda: version_of(remote) != before)
    group.restart_master()
    eventually(lambda: group.addresses("topic") == {0: group.master.port, 1: group.slave.port})
    assert group.permission("topic") == 6
    with Remote(group.master.port) as remote:
        assert offset_of(remote) == 5
        assert remote.send_message("topic", b"6").code == ResponseCode.SUCCESS
    with Remote(group.slave.port) as remote:
        eventually(lambda: pulled(remote, 5) == [b"5", b"6"])


def test_silent_broker_is_dropped_and_clients_are_sent_to_the_acting_master(group: Group) -> None:
    with Remote(group.master.port) as remote:
        assert remote.send_message("topic", b"one").code == ResponseCode.SUCCESS
    with Remote(group.slave.port) as remote:
        eventually(lambda: pulled(remote) == [b"one"])
    began = time.monotonic()
    os.kill(group.master.pid, signal.SIGSTOP)
    try:
        # Three seconds without a heartbeat, as the broker has said, and five between two looks of the nameserver.
        eventually(lambda: group.addresses("topic") == {0: group.slave.port})
        assert time.monotonic() - began > 2
        assert group.permission("topic") == 4
        with Remote(group.slave.port) as remote:
            assert pulled(remote) == [b"one"]
    finally:
        os.kill(group.master.pid, signal.SIGCONT)
    eventually(lambda: group.addresses("topic") == {0: group.master.port, 1: group.slave.port})
    eventually(lambda: group.permission("topic") == 6)


def test_senders_are_refused_or_wait_as_slaves_come_and_go(tmp_path: Path) -> None:
    group = Group(tmp_path, inSyncReplicas=2)
    try:
        with Remote(group.master.port) as remote:
            eventually(lambda: remote.send_message("topic", b"x").code == ResponseCode.SUCCESS)
            group.slave.kill()
            eventually(lambda: remote.send_message("topic", b"x").code == ResponseCode.SYSTEM_ERROR)
            refused = remote.send_message("topic", b"x")
            assert refused.remark == "in-sync replicas not enough"
            changed = remote.call(RequestCode.UPDATE_BROKER_CONFIG, b"enableAutoInSyncReplicas=true\n")
            assert changed.code == ResponseCode.SUCCESS
            assert remote.send_message("topic", b"x").code == ResponseCode.SUCCESS
            remote.call(RequestCode.UPDATE_BROKER_CONFIG, b"minInSyncReplicas=2\n")
            assert remote.send_message("topic", b"x").code == ResponseCode.SYSTEM_ERROR
            group.slave.start()
            eventually(lambda: remote.send_message("topic", b"x").code == ResponseCode.SUCCESS)
    finally:
        group.close()
