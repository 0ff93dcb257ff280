"""A RocketMQ master and its slaves as processes: the same logs, waiting senders, and what slaves refuse."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bmqctl.common.ports import free_port
from bmqctl.testing import RocketProcess
from formats.rocketmq.remoting.bodies.clients import GROUPS
from formats.rocketmq.remoting.bodies.replication import HA_RUNTIME, HaRuntime
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO, TOPIC_CONFIGS
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.integration.rocketmq_groups.replication_rig import start
from tests.rigs.remoting import Remote
from tests.waiting import eventually


class Group:
    """A master, and as many slaves as are started."""

    def __init__(self, folder: Path, role: str = "async-master", **properties: Any) -> None:
        self.folder = folder
        self.properties = properties
        self.master = start(folder / "master", role, **properties)
        self.slaves: list[RocketProcess] = []

    def add_slave(self, **properties: Any) -> RocketProcess:
        number = len(self.slaves) + 1
        options = ("--broker-id", str(number), "--nameserver", self.master.nameserver)
        slave = start(self.folder / f"slave{number}", "slave", *options, **{**self.properties, **properties})
        self.slaves.append(slave)
        return slave

    def status(self, node: RocketProcess | None = None) -> HaRuntime:
        with Remote((node or self.master).port) as remote:
            return HA_RUNTIME.read(remote.call(RequestCode.GET_BROKER_HA_STATUS).body)

    def wait_in_sync(self, slaves: int = 1) -> None:
        def is_so() -> bool:
            told = self.status()
            return len(told.ha_connection_info) == slaves and not any(each.diff for each in told.ha_connection_info)

        eventually(is_so)

    def close(self) -> None:
        for node in (*self.slaves, self.master):
            node.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path, slaveReadEnable="true")
    yield found
    found.close()


@pytest.fixture
def sync_group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path, "sync-master", inSyncReplicas=2, slaveTimeout=1000)
    yield found
    found.close()


def logs_of(node: RocketProcess) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((node.data_dir / "commitlog").iterdir())}


def queues_of(node: RocketProcess) -> dict[str, bytes]:
    root = node.data_dir / "consumequeue"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def send(remote: Remote, count: int, begin: int = 0, size: int = 900) -> list[int]:
    return [remote.send_message("topic", b"%d" % (begin + number) + b"." * size).code for number in range(count)]


def bodies(node: RocketProcess, queue_id: int = 0) -> list[int]:
    found: list[int] = []
    with Remote(node.port) as remote:
        while True:
            answer = remote.answer(remote.pull("topic", len(found), queue_id))
            if answer.code != ResponseCode.SUCCESS:
                return found
            found += [int(bytes(each.body).partition(b".")[0]) for each in records_of(answer)]


def test_slave_has_the_same_log_and_serves_it(group: Group) -> None:
    with Remote(group.master.port) as remote:
        send(remote, 100)
        slave = group.add_slave()
        group.wait_in_sync()
        send(remote, 100, 100)
    group.wait_in_sync()
    eventually(lambda: "topic" in topics_of(slave))
    assert bodies(slave) == bodies(group.master) == list(range(200))
    assert group.status().in_sync_slave_nums == 1
    told = group.status(slave)
    assert (told.master, told.ha_client_runtime_info.activated) == (False, True)
    assert told.ha_client_runtime_info.max_offset == group.status().master_commit_log_max_offset
    assert slave.stop() == 0
    assert group.master.stop() == 0
    assert len(logs_of(slave)) > 3
    assert logs_of(slave) == logs_of(group.master)
    assert queues_of(slave) == queues_of(group.master)
    for node in (slave, group.master):
        assert "Traceback" not in node.output


def topics_of(node: RocketProcess) -> dict[str, Any]:
    with Remote(node.port) as remote:
        return dict(TOPIC_CONFIGS.read(remote.call(RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table)


def test_slave_goes_on_where_it_was_killed(group: Group) -> None:
    slave = group.add_slave()
    with Remote(group.master.port) as remote:
        for number in range(3):
            send(remote, 40, number * 80)
            slave.kill()
            send(remote, 40, number * 80 + 40)
            slave.start()
        group.wait_in_sync()
    eventually(lambda: "topic" in topics_of(slave))
    assert bodies(slave) == list(range(240))
    slave.stop()
    group.master.stop()
    assert logs_of(slave) == logs_of(group.master)


def test_slave_comes_back_to_a_master_that_was_killed(group: Group) -> None:
    slave = group.add_slave()
    with Remote(group.master.port) as remote:
        send(remote, 10)
    group.wait_in_sync()
    group.master.kill()
    group.master.start()
    with Remote(group.master.port) as remote:
        send(remote, 10, 10)
    group.wait_in_sync()
    eventually(lambda: "topic" in topics_of(slave))
    assert bodies(slave) == list(range(20))


def test_slave_is_registered_and_refuses_what_stores(group: Group) -> None:
    slave = group.add_slave()
    with Remote(group.master.nameserver_port) as nameserver:
        eventually(lambda: len(addresses(nameserver)) == 2)
        assert addresses(nameserver) == {0: f"127.0.0.1:{group.master.port}", 1: f"127.0.0.1:{slave.port}"}
    with Remote(slave.port) as remote:
        for code, expected in (
            (RequestCode.SEND_MESSAGE_V2, ResponseCode.SERVICE_NOT_AVAILABLE),
            (RequestCode.POP_MESSAGE, ResponseCode.SERVICE_NOT_AVAILABLE),
            (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE),
            (RequestCode.RECALL_MESSAGE, ResponseCode.SLAVE_NOT_AVAILABLE),
        ):
            assert remote.call(code).code == expected
        assert remote.send_message("topic", b"").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not logs_of(slave)


def addresses(nameserver: Remote) -> dict[int, str]:
    table = CLUSTER_INFO.read(nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO).body).broker_addr_table
    return dict(table["broker-a"].broker_addrs)


def test_slave_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    group = Group(tmp_path)
    try:
        slave = group.add_slave()
        with Remote(slave.port) as remote:
            assert remote.answer(remote.pull("topic", 0)).code == ResponseCode.SYSTEM_BUSY
    finally:
        group.close()


def test_metadata_follow_the_master(group: Group) -> None:
    slave = group.add_slave()
    queue: dict[str, Any] = {"consumerGroup": "group", "topic": "topic", "queueId": 0}
    with Remote(group.master.port) as remote, Remote(slave.port) as copy:
        send(remote, 5)
        remote.commit("topic", 0, 3)
        delayed = remote.send_message("topic", b"", properties="DELAY\x011\x02")
        assert delayed.code == ResponseCode.SUCCESS
        eventually(lambda: copy.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).ext_fields == {"offset": "3"})
        group_config = json.dumps({"groupName": "another", "retryMaxTimes": 7}).encode()
        remote.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group_config)

        def retries() -> int | None:
            found = GROUPS.read(copy.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body).subscription_group_table
            return found["another"].retry_max_times if "another" in found else None

        eventually(lambda: retries() == 7)
        delay_file = slave.data_dir / "config" / "delayOffset.json"
        eventually(lambda: delay_file.exists() and "1:1" in delay_file.read_text().replace('"', ""))
        remote.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="topic")
        eventually(lambda: "topic" not in topics_of(slave))
        assert not (slave.data_dir / "consumequeue" / "topic").exists()


# -- each row of the table of a SYNC_MASTER; see also the unit tests of `replication.waiting`


def timed_send(remote: Remote, properties: str = "") -> tuple[int, float, dict[str, str]]:
    begin = time.monotonic()
    answer = remote.send_message("topic", b"body", properties=properties)
    return answer.code, time.monotonic() - begin, answer.ext_fields or {}


def test_sender_is_told_when_no_slave_has_its_message(sync_group: Group) -> None:
    with Remote(sync_group.master.port) as remote:
        code, took, fields = timed_send(remote)
        assert (code, fields["queueOffset"]) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "0")
        assert took >= 1.0
        # An answer that had waited would be the same timeout.
        code, _, fields = timed_send(remote, "WAIT\x01false\x02")
        assert (code, fields["queueOffset"]) == (ResponseCode.SUCCESS, "1")


def test_sender_waits_for_a_slave_that_stands_still(sync_group: Group) -> None:
    slave = sync_group.add_slave()
    sync_group.wait_in_sync()
    with Remote(sync_group.master.port) as remote:
        assert timed_send(remote)[0] == ResponseCode.SUCCESS
        os.kill(slave.pid, signal.SIGSTOP)
        try:
            assert timed_send(remote)[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT
            change(remote, inSyncReplicas=1)
            assert timed_send(remote)[0] == ResponseCode.SUCCESS
            change(remote, inSyncReplicas=2, brokerRole="ASYNC_MASTER")
            assert timed_send(remote)[0] == ResponseCode.SUCCESS
            change(remote, brokerRole="SYNC_MASTER")
        finally:
            os.kill(slave.pid, signal.SIGCONT)
        sync_group.wait_in_sync()
        assert timed_send(remote)[0] == ResponseCode.SUCCESS
        change(remote, inSyncReplicas=3)
        assert timed_send(remote)[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT
        change(remote, inSyncReplicas=2)
        slave.stop()
        assert timed_send(remote)[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT
        slave.start()
        sync_group.wait_in_sync()
        assert timed_send(remote)[0] == ResponseCode.SUCCESS


def change(remote: Remote, **properties: Any) -> None:
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    assert remote.call(RequestCode.UPDATE_BROKER_CONFIG, text.encode()).code == ResponseCode.SUCCESS


def test_master_cannot_be_made_a_slave_while_it_runs(sync_group: Group) -> None:
    with Remote(sync_group.master.port) as remote:
        answer = remote.call(RequestCode.UPDATE_BROKER_CONFIG, b"brokerRole=SLAVE\n")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "is only used at the start of a broker" in (answer.remark or "")


def test_slave_is_started_as_the_master(sync_group: Group, tmp_path: Path) -> None:
    """The promotion that the manual describes: no acknowledged message is lost, and delayed ones are given out."""
    slave = sync_group.add_slave()
    sync_group.wait_in_sync()
    queue: dict[str, Any] = {"consumerGroup": "group", "topic": "topic", "queueId": 0}
    with Remote(sync_group.master.port) as remote, Remote(slave.port) as copy:
        assert send(remote, 60, size=3000) == [ResponseCode.SUCCESS] * 60
        remote.commit("topic", 0, 17)
        eventually(lambda: copy.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).ext_fields == {"offset": "17"})
        delayed = remote.send_message("topic", b"60.delayed", properties="DELAY\x012\x02")
        timer = remote.send_message("topic", b"61.timer", properties="TIMER_DELAY_SEC\x015\x02")
        assert (delayed.code, timer.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
    sync_group.master.kill()
    slave.stop()
    new_master = RocketProcess(
        slave.data_dir,
        config_file=slave.config_file,
        port=slave.port,
        options=["--role", "async-master", "--ha-port", str(free_port())],
    )
    with new_master:
        eventually(lambda: len(bodies(new_master)) == 62)
        assert bodies(new_master)[:60] == list(range(60))
        assert sorted(bodies(new_master)[60:]) == [60, 61]
        with Remote(new_master.port) as remote:
            found = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue)
            assert found.ext_fields == {"offset": "17"}
            assert send(remote, 5, 62) == [ResponseCode.SUCCESS] * 5
        # The old master's log may differ from the new one's: it comes back with an empty store.
        options = ("--broker-id", "1", "--nameserver", new_master.nameserver)
        again = start(tmp_path / "again", "slave", *options, **sync_group.properties)
        try:
            with Remote(new_master.port) as remote:
                eventually(lambda: [each.diff for each in status_of(remote)] == [0])
            again.stop()
            new_master.stop()
            assert logs_of(again) == logs_of(new_master)
        finally:
            again.close()


def status_of(remote: Remote) -> list[Any]:
    return list(HA_RUNTIME.read(remote.call(RequestCode.GET_BROKER_HA_STATUS).body).ha_connection_info)


def test_slave_that_is_ahead_of_its_master_is_refused(group: Group) -> None:
    slave = group.add_slave()
    with Remote(group.master.port) as remote:
        send(remote, 20)
    group.wait_in_sync()
    group.master.kill()
    # A master that has lost its whole disk; one that has lost only its log does not start.
    shutil.rmtree(group.master.data_dir)
    group.master.start()
    with Remote(group.master.port) as remote:
        send(remote, 3)
    group.master.wait_for("empty the store of the slave")
    slave.stop()
    assert len(b"".join(logs_of(slave).values()).rstrip(b"\0")) > 18_000
