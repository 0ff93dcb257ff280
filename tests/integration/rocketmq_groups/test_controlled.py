"""Groups of three brokers under a controller: masters that are killed, come back, and drop what only they had.

Apache's controller and brokers are in `scripts/mixed-rocketmq controlled-mixed`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, ControllerProcess, NodeFailed, RocketProcess
from formats.rocketmq.files.property_text import read_properties
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.bodies.replication import EPOCH_CACHE, HA_RUNTIME, EpochCache
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS, TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.remoting import Remote
from tests.waiting import eventually

NAME = "broker-a"
# One file has all, so that none is removed on a machine whose disk is nearly full.
FILE_BYTES = 1 << 20
TOPIC = "topic"
# For tests in which slaves do not answer.
IMPATIENT = {"slaveTimeout": 1000}


class Group:
    """A controller beside a nameserver, and three brokers."""

    def __init__(self, folder: Path, **properties: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.controller = ControllerProcess(folder / "controller")
        self.controller.start()
        (folder / "nameserver.conf").write_text("brokerName=none\n")
        self.nameserver = RocketProcess(folder / "nameserver", config_file=folder / "nameserver.conf")
        self.nameserver.start()
        given = {
            "mappedFileSizeCommitLog": FILE_BYTES,
            "maxHashSlotNum": 50,
            "maxIndexNum": 200,
            "enableControllerMode": "true",
            "controllerAddr": f"{HOST}:{self.controller.port}",
            "allAckInSyncStateSet": "true",
            "slaveReadEnable": "true",
            # On a busy machine a slave takes seconds.
            "slaveTimeout": 20_000,
            "syncBrokerMetadataPeriod": 500,
            "checkSyncStateSetPeriod": 500,
            **properties,
        }
        text = "".join(f"{name}={value}\n" for name, value in given.items())
        self.brokers: list[RocketProcess] = []
        for number in range(3):
            config = folder / f"broker-{number}.conf"
            config.write_text(f"{text}haListenPort={free_port()}\n")
            options = ["--nameserver", self.nameserver.nameserver]
            self.brokers.append(RocketProcess(folder / f"broker-{number}", config_file=config, options=options))
        self.acknowledged: list[int] = []
        self._count = 0

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        self.wait_in_sync(3)

    def close(self) -> None:
        for process in (*self.brokers, self.nameserver, self.controller):
            process.close()

    def replicas(self) -> Replicas:
        with Remote(self.controller.port) as remote:
            answer = remote.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, f'["{NAME}"]'.encode())
        return BROKER_REPLICAS.read(answer.body).replicas_info_table.get(NAME, Replicas())

    def wait_in_sync(self, count: int) -> Replicas:
        def found() -> Replicas | None:
            told = self.replicas()
            return told if len(told.in_sync_replicas) == count and told.master_address is not None else None

        return eventually(found, state=self.replicas)

    def master(self) -> RocketProcess:
        def found() -> RocketProcess | None:
            address = self.replicas().master_address
            return next((each for each in self.brokers if address == f"{HOST}:{each.port}"), None)

        return eventually(found)

    def others(self, broker: RocketProcess) -> list[RocketProcess]:
        return [each for each in self.brokers if each is not broker]

    def send(self, broker: RocketProcess, count: int = 1, properties: str = "") -> list[int]:
        codes = []
        with Remote(broker.port) as remote:
            for _ in range(count):
                answer = remote.send_message(TOPIC, b"%d." % self._count + bytes(700), properties=properties)
                codes.append(answer.code)
                if answer.code == ResponseCode.SUCCESS:
                    self.acknowledged.append(self._count)
                self._count += 1
        return codes

    def send_soon(self) -> None:
        """Send to the current master until a message is acknowledged."""

        def is_sent() -> bool:
            try:
                return self.send(self.master()) == [ResponseCode.SUCCESS]
            except (OSError, EOFError):
                return False

        eventually(is_sent)


@pytest.fixture
def group(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    """A group, with properties that the test gives as a parameter."""
    found = Group(tmp_path, **getattr(request, "param", {}))
    try:
        found.start()
        yield found
    finally:
        found.close()


def numbers(broker: RocketProcess) -> list[int]:
    """The numbers of the messages that a broker serves, in their order."""
    found: list[int] = []
    offset = 0
    with Remote(broker.port) as remote:
        while (answer := remote.answer(remote.pull(TOPIC, offset))).code == ResponseCode.SUCCESS:
            assert answer.ext_fields is not None
            offset = int(answer.ext_fields["nextBeginOffset"])
            at, data = 0, bytes(answer.body)
            while at < len(data):
                record = decode_record(data, at)
                assert isinstance(record, Record)
                found.append(int(bytes(record.body).partition(b".")[0]))
                at += int.from_bytes(data[at : at + 4], "big")
    return found


def epochs(broker: RocketProcess) -> EpochCache:
    with Remote(broker.port) as remote:
        return EPOCH_CACHE.read(remote.call(RequestCode.GET_BROKER_EPOCH_CACHE).body)


def topics_of(broker: RocketProcess) -> set[str]:
    with Remote(broker.port) as remote:
        return set(TOPIC_CONFIGS.read(remote.call(RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table)


def logs_of(broker: RocketProcess) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((broker.data_dir / "commitlog").iterdir())}


def wait_same(group: Group) -> None:
    """Wait until all brokers have the same log, and serve all of it."""
    eventually(lambda: len({(str(each.epoch_list), each.max_offset) for each in map(epochs, group.brokers)}) == 1)
    served = numbers(group.master())
    assert set(group.acknowledged) <= set(served)
    for broker in group.brokers:
        eventually(lambda broker=broker: numbers(broker) == served)  # type: ignore[misc]
    assert logs_of(group.brokers[0]) == logs_of(group.brokers[1]) == logs_of(group.brokers[2])


def test_master_that_is_killed_comes_back_as_a_slave(group: Group) -> None:
    old = group.master()
    assert set(group.send(old, 100)) == {ResponseCode.SUCCESS}
    epoch = group.replicas().master_epoch
    old.kill()
    group.send_soon()
    assert group.master() is not old
    assert group.replicas().master_epoch == epoch + 1
    assert set(group.send(group.master(), 20)) == {ResponseCode.SUCCESS}
    old.start()
    group.wait_in_sync(3)
    assert group.send(old) == [ResponseCode.SERVICE_NOT_AVAILABLE]
    wait_same(group)
    assert [span.epoch for span in epochs(old).epoch_list] == [epoch, epoch + 1]


def test_nameservers_and_administrators_are_told_who_is_master(group: Group) -> None:
    old = group.master()
    group.send(old)

    def addresses() -> dict[int, str]:
        with Remote(group.nameserver.nameserver_port) as remote:
            answer = remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC, acceptStandardJsonOnly="true")
        return TOPIC_ROUTE.read(answer.body).broker_datas[0].broker_addrs if answer.code == 0 else {}

    # The master is 0, and slaves have their own ids.
    eventually(lambda: sorted(addresses()) == [0, 2, 3])
    old.kill()
    group.send_soon()
    new = group.master()
    eventually(lambda: addresses().get(0) == f"{HOST}:{new.port}")

    def slaves() -> list[bool]:
        with Remote(new.port) as remote:
            status = HA_RUNTIME.read(remote.call(RequestCode.GET_BROKER_HA_STATUS).body)
        return [each.in_sync for each in status.ha_connection_info] if status.master else []

    eventually(lambda: slaves() == [True])
    assert epochs(new).broker_id == 0
    with Remote(new.port) as remote:
        shown = read_properties(bytes(remote.call(RequestCode.GET_BROKER_CONFIG).body).decode())
    assert (shown["brokerRole"], shown["brokerId"]) == ("SYNC_MASTER", "0")


@pytest.mark.parametrize("group", [IMPATIENT], ids=["impatient"], indirect=True)
def test_old_master_drops_what_nobody_else_has(group: Group) -> None:
    old = group.master()
    group.send(old, 50)
    os.kill(group.controller.pid, signal.SIGSTOP)
    try:
        for slave in group.others(old):
            slave.kill()
        assert set(group.send(old, 3)) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        # Nobody reads what is not confirmed.
        assert numbers(old) == list(range(50))
        end = epochs(old).max_offset
        old.kill()
    finally:
        os.kill(group.controller.pid, signal.SIGCONT)
    for slave in group.others(old):
        slave.start()
    group.send_soon()
    old.start()
    group.wait_in_sync(3)
    wait_same(group)
    assert "bytes are cut here" in old.log
    assert epochs(old).epoch_list[-1].start_offset < end


def test_slave_that_stands_still_is_waited_for_until_it_is_out_of_sync(tmp_path: Path) -> None:
    group = Group(tmp_path, haMaxTimeSlaveNotCatchup=3000, minInSyncReplicas=2, **IMPATIENT)
    try:
        group.start()
        master = group.master()
        assert group.send(master) == [ResponseCode.SUCCESS]
        slaves = group.others(master)
        for slave in slaves:
            os.kill(slave.pid, signal.SIGSTOP)
        assert group.send(master) == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
        assert numbers(master) == [0]
        os.kill(slaves[0].pid, signal.SIGCONT)
        group.wait_in_sync(2)
        eventually(lambda: numbers(master) == [0, 1])
        assert group.send(master) == [ResponseCode.SUCCESS]
        os.kill(slaves[0].pid, signal.SIGSTOP)
        group.wait_in_sync(1)
        assert group.send(master) == [ResponseCode.SYSTEM_ERROR]
        for slave in slaves:
            os.kill(slave.pid, signal.SIGCONT)
        group.wait_in_sync(3)
        assert group.send(master) == [ResponseCode.SUCCESS]
    finally:
        for broker in group.brokers:
            if broker.is_running:
                os.kill(broker.pid, signal.SIGCONT)
        group.close()


def test_broker_that_was_alone_in_sync_is_the_only_one_that_may_be_master(group: Group) -> None:
    master = group.master()
    slaves = group.others(master)
    for slave in slaves:
        slave.kill()
    group.wait_in_sync(1)
    assert set(group.send(master, 5)) == {ResponseCode.SUCCESS}
    master.kill()
    for slave in slaves:
        slave.start()
    eventually(lambda: group.replicas().master_address is None)
    for slave in slaves:
        assert group.send(slave) == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert group.replicas().master_address is None
    master.start()
    group.send_soon()
    assert group.master() is master
    group.wait_in_sync(3)
    wait_same(group)


def test_delayed_messages_are_given_out_by_the_new_master(group: Group) -> None:
    old = group.master()
    group.send(old)
    assert group.send(old, 1, "DELAY\x013\x02") == [ResponseCode.SUCCESS]
    assert group.send(old, 1, "TIMER_DELAY_SEC\x018\x02") == [ResponseCode.SUCCESS]
    # Topics are not in the log: slaves ask for them every few seconds.
    eventually(lambda: all(TOPIC in topics_of(slave) for slave in group.others(old)))
    old.kill()
    eventually(lambda: group.master() is not old)
    eventually(lambda: numbers(group.master()) in ([0, 1, 2], [0, 2, 1]))


def test_whole_group_that_is_killed_goes_on(group: Group) -> None:
    group.send(group.master(), 20)
    for process in (group.controller, *group.brokers):
        process.kill()
    for process in (group.controller, *group.brokers):
        process.start()
    group.send_soon()
    group.wait_in_sync(3)
    wait_same(group)


def test_group_goes_on_where_senders_wait_for_the_disk(tmp_path: Path) -> None:
    group = Group(tmp_path, flushDiskType="SYNC_FLUSH")
    try:
        group.start()
        old = group.master()
        assert set(group.send(old, 20)) == {ResponseCode.SUCCESS}
        old.kill()
        group.send_soon()
        old.start()
        group.wait_in_sync(3)
        assert set(group.send(group.master(), 20)) == {ResponseCode.SUCCESS}
        wait_same(group)
    finally:
        group.close()


def test_store_of_another_broker_is_refused(group: Group) -> None:
    broker = group.brokers[0]
    broker.stop()
    assert broker.config_file is not None
    broker.config_file.write_text(broker.config_file.read_text() + "brokerName=other\n")
    with pytest.raises(NodeFailed, match="the store is that of broker broker-a"):
        broker.start()


def test_a_master_steps_down_for_a_slave_in_sync(group: Group) -> None:
    old = group.master()
    assert set(group.send(old, 10)) == {ResponseCode.SUCCESS}
    at = ("--controller", f"{HOST}:{group.controller.port}", "--nameserver", group.nameserver.nameserver)
    stepped = CliRunner().invoke(app, ["cluster", "step-down", NAME, *at])
    assert stepped.exit_code == 0, stepped.output
    eventually(lambda: group.replicas().master_address != f"{HOST}:{old.port}")
    assert stepped.output == f"{NAME}: {group.replicas().master_address} is the master\n"
    group.wait_in_sync(3)
    group.send_soon()
    wait_same(group)
    for words, text in (
        ((NAME, "--to", "99"), "broker 99 is no slave in sync; there are "),
        (("broker-z",), f"no such brokers; there are {NAME}"),
    ):
        refused = CliRunner().invoke(app, ["cluster", "step-down", *words, *at])
        assert (refused.exit_code, text in refused.output) == (2, True), refused.output
