"""A broker whose role changes while it runs, and a store that shows only what is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.rocketmq.administration.registration import Nameservers
from broker.rocketmq.assembly.identity import OpenFile, open_epochs, open_identity
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.replication.metadata import stored_topics
from broker.rocketmq.replication.options import Role
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from broker.shell.files.config_files import ConfigFile
from formats.rocketmq.files.epochs import EpochEntry
from formats.rocketmq.files.identity import BrokerIdentity
from formats.rocketmq.lite import queue_name
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import Rig


def become(rig: Rig, role: Role) -> None:
    rig.replication.role = role
    rig.broker.change_role(rig.given())


def test_slave_gives_out_nothing_and_a_master_goes_on_by_the_files() -> None:
    rig = Rig()
    peer = rig.peer()
    for number in range(3):
        peer.send(b"%d" % number, {"DELAY": "1"})
        rig.pass_time(1_000)
    assert len(rig.messages("t")) == 3
    rig.pass_time(20_000)
    peer.send(b"3", {"DELAY": "1"})
    become(rig, Role.SLAVE)
    rig.pass_time(20_000)
    assert len(rig.messages("t")) == 3
    # As its new master tells it: two were given out there.
    rig.files["delays"] = rig.files["delays"].replace(b":3", b":2")
    become(rig, Role.SYNC_MASTER)
    rig.pass_time(2_000)
    assert [bytes(record.body) for record in rig.messages("t")] == [b"0", b"1", b"2", b"2", b"3"]


def test_timers_go_on_when_a_slave_becomes_master() -> None:
    rig = Rig()
    peer = rig.peer()
    peer.send(b"late", {"TIMER_DELAY_MS": "3000"})
    become(rig, Role.SLAVE)
    rig.pass_time(10_000)
    assert rig.messages("t") == []
    become(rig, Role.SYNC_MASTER)
    rig.pass_time(2_000)
    assert [bytes(record.body) for record in rig.messages("t")] == [b"late"]


def test_waiting_pop_is_answered() -> None:
    rig = Rig()
    peer = rig.peer()
    number = peer.pop(pollTime=5_000)
    assert peer.answer(number) is None
    become(rig, Role.SLAVE)
    rig.broker.end_step()
    answer = peer.answer(number)
    assert answer is not None
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    answer = peer.call(RequestCode.POP_MESSAGE)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_waiting_pull_goes_on_waiting() -> None:
    rig = Rig()
    peer = rig.peer()
    number = peer.pull(sysFlag=6)
    become(rig, Role.SLAVE)
    become(rig, Role.SYNC_MASTER)
    assert peer.answer(number) is None
    rig.peer().send(b"one")
    answer = peer.answer(number)
    assert answer is not None
    assert [bytes(record.body) for record in records_of(answer)] == [b"one"]


def test_consumer_gets_a_message_once_it_is_confirmed() -> None:
    rig = Rig()
    rig.store.hold_back()
    consumer = rig.peer()
    waiting = consumer.pull(sysFlag=6)
    sent = rig.peer().send(b"one", {"KEYS": "k"})
    assert sent.code == ResponseCode.SUCCESS
    assert consumer.answer(waiting) is None
    view: dict[str, Any] = {"offset": 0}
    assert consumer.call(RequestCode.VIEW_MESSAGE_BY_ID, **view).code == ResponseCode.SYSTEM_ERROR
    asked: dict[str, Any] = {
        "topic": "t",
        "key": "k",
        "maxNum": 32,
        "beginTimestamp": 0,
        "endTimestamp": rig.wall_ms + 1,
    }
    assert consumer.call(RequestCode.QUERY_MESSAGE, **asked).code == ResponseCode.QUERY_NOT_FOUND
    rig.store.confirm(rig.store.log.end)
    rig.broker.end_step()
    answer = consumer.answer(waiting)
    assert answer is not None
    assert [bytes(record.body) for record in records_of(answer)] == [b"one"]
    assert consumer.call(RequestCode.VIEW_MESSAGE_BY_ID, **view).code == ResponseCode.SUCCESS
    assert consumer.call(RequestCode.QUERY_MESSAGE, **asked).code == ResponseCode.SUCCESS


def test_properties_change_whatever_the_role() -> None:
    rig = Rig()
    rig.replication.is_controlled = True
    rig.stop()
    peer = rig.peer()
    text = b"minInSyncReplicas=2\nallAckInSyncStateSet=true\ntransactionCheckMax=9\n"
    assert peer.call(RequestCode.UPDATE_BROKER_CONFIG, text).code == ResponseCode.SUCCESS
    # The role is the controller's to change.
    refused = peer.call(RequestCode.UPDATE_BROKER_CONFIG, b"brokerRole=ASYNC_MASTER\n")
    assert refused.code == ResponseCode.INVALID_PARAMETER
    become(rig, Role.SLAVE)
    options = rig.replication
    assert (options.in_sync_replicas_min, options.all_in_sync) == (2, True)
    assert rig.broker._transactions.times.checks_max == 9
    assert peer.call(RequestCode.UPDATE_BROKER_CONFIG, b"minInSyncReplicas=3\n").code == ResponseCode.SUCCESS
    assert options.in_sync_replicas_min == 3


# -- nameservers


class Registry:
    is_here = True

    def __init__(self) -> None:
        self.told: list[Frame] = []

    def beat(self, request: Frame, now_ms: int) -> None:
        self.told.append(request)

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> bool:
        return False

    def tell(self, request: Frame, now_ms: int) -> None:
        self.told.append(request)

    def tick(self, now_ms: int) -> None: ...


def test_nameservers_are_told_nothing_of_a_broker_without_a_role() -> None:
    rig, registry = Rig(), Registry()
    nameservers = Nameservers(rig.options, rig.topics, [registry])
    nameservers.is_silent = True
    nameservers.register(0)
    nameservers.tick(60_000)
    nameservers.beat(Frame(RequestCode.BROKER_HEARTBEAT, 0), 60_000)
    nameservers.leave(60_000)
    assert registry.told == []
    nameservers.is_silent = False
    rig.options.broker_id = 4
    nameservers.register(60_000)
    assert registry.told[0].ext_fields is not None
    assert registry.told[0].ext_fields["brokerId"] == "4"


def test_topics_of_a_master_are_newer_than_those_of_earlier_epochs() -> None:
    rig = Rig()
    before = rig.topics.version
    assert rig.topics.begin_epoch(3, 77, {}) == []
    assert rig.topics.version == (before.counter + 1, 3, 77)
    assert b'"stateVersion":3' in rig.files["topics"].replace(b" ", b"").replace(b"\t", b"")


def test_new_master_makes_the_topics_whose_messages_it_has_and_of_which_nobody_has_told_it() -> None:
    rig = Rig()
    lite = queue_name("parent", "child")
    stored = {"t": 1, "early": 3, "%RETRY%g": 1, names.TIMER_TOPIC: 1, names.HALF_TOPIC: 1, lite: 1}
    assert rig.topics.begin_epoch(3, 77, stored) == ["early", "%RETRY%g"]
    early, retry = rig.topics.get("early"), rig.topics.get("%RETRY%g")
    assert early == TopicConfig("early", 8, 8, 6)
    assert retry == TopicConfig("%RETRY%g", 1, 1, 6)
    rig.stop()
    assert rig.topics.get("early") == early


def test_topics_with_messages_are_counted_also_while_these_may_not_be_read() -> None:
    rig = Rig()
    rig.topics.put_all([TopicConfig("two", 4, 4), TopicConfig("none", 4, 4)], 0)
    peer = rig.peer()
    peer.send(b"1")
    rig.store.hold_back(rig.store.log.end)
    peer.send(b"2", topic="two", e=2)
    assert rig.store.span("two", 2) == (0, 0)
    assert stored_topics(rig.store) == {"t": 1, "two": 3}


# -- files and configuration


def files_in(folder: Path) -> OpenFile:
    return lambda name: ConfigFile(folder / name)


def test_identity_is_kept_and_that_of_an_applicant_removed(tmp_path: Path) -> None:
    options = BrokerOptions()
    files = open_identity(files_in(tmp_path), options)
    assert files.known is None
    applicant = BrokerIdentity(options.cluster, options.name, 7, "127.0.0.1:10911;5")
    files.keep(applicant)
    assert open_identity(files_in(tmp_path), options).known == applicant
    files.keep(applicant._replace(check_code=""))
    assert [path.name for path in tmp_path.iterdir()] == ["brokerIdentity"]
    assert (tmp_path / "brokerIdentity").read_bytes() == b"DefaultCluster#broker-a#7"
    assert open_identity(files_in(tmp_path), options).known == applicant._replace(check_code="")


def test_applicant_is_forgotten(tmp_path: Path) -> None:
    files = open_identity(files_in(tmp_path), BrokerOptions())
    files.keep(BrokerIdentity("DefaultCluster", "broker-a", 7, "code"))
    files.forget()
    assert list(tmp_path.iterdir()) == []
    assert open_identity(files_in(tmp_path), BrokerOptions()).known is None


def test_identity_of_another_broker_and_one_that_is_none_are_refused(tmp_path: Path) -> None:
    open_identity(files_in(tmp_path), BrokerOptions(name="other")).keep(BrokerIdentity("DefaultCluster", "other", 7))
    with pytest.raises(PropertyError, match="broker other of cluster DefaultCluster"):
        open_identity(files_in(tmp_path), BrokerOptions())
    (tmp_path / "brokerIdentity").write_bytes(b"other")
    with pytest.raises(PropertyError, match="is not CLUSTER#NAME#ID"):
        open_identity(files_in(tmp_path), BrokerOptions())


def test_epochs_are_kept(tmp_path: Path) -> None:
    book = open_epochs(files_in(tmp_path))
    book.replace([EpochEntry(1, 0), EpochEntry(4, 100)])
    assert open_epochs(files_in(tmp_path)).entries == book.entries
    (tmp_path / "epochFileCheckpoint").write_bytes(b"1\n0\nx\n")
    with pytest.raises(PropertyError, match="EPOCH-OFFSET"):
        open_epochs(files_in(tmp_path))


def load(folder: Path, *lines: str) -> RocketConfig:
    path = folder / "broker.conf"
    path.write_text("\n".join(lines))
    return load_rocketmq_config(path)


def test_controller_says_what_is_otherwise_configured(tmp_path: Path) -> None:
    lines = ("brokerId=-1", "brokerRole=SLAVE", "enableControllerMode=true")
    with pytest.raises(PropertyError, match="controllerAddr"):
        load(tmp_path, *lines)
    config = load(tmp_path, *lines, "controllerAddr=a:1;b:2", "allAckInSyncStateSet=true", "minInSyncReplicas=2")
    options = config.replication
    assert (options.controllers, options.all_in_sync, options.in_sync_replicas_min) == (("a:1", "b:2"), True, 2)
    # Each of them may be master.
    assert config.ha_listen_port == config.port + 1
    assert config.broker_options.ha_address == f"127.0.0.1:{config.port + 1}"
    assert config.with_role(None, None, 12).ha_listen_port == 12
    assert config.properties["controllerAddr"] == "a:1;b:2"


def test_id_of_a_configured_slave_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match="brokerId"):
        load(tmp_path, "brokerId=-1", "brokerRole=SLAVE")
