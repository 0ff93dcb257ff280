"""The role of a broker in its requests: a slave refuses and gives out nothing, and a master's senders wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.rocketmq.assembly.group import replication_ports
from broker.rocketmq.config.node import PropertyError, RocketConfig, load_rocketmq_config
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag
from tests.broker.rocketmq.replication.role_rig import STORED, Sender, sent
from tests.broker.rocketmq.replication.streams.ends import Clock, Master


def master_role(replicas: int = 2) -> tuple[BrokerRole, Master]:
    master = Master(Clock(), ReplicationOptions(Role.SYNC_MASTER, replicas))
    role = BrokerRole(master.options, BrokerOptions(), lambda: master.store.log.end, master.waiting)
    return role, master


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION])
def test_answer_comes_when_there_are_copies_or_the_time_is_over(code: RequestCode) -> None:
    role, master = master_role()
    sender = Sender()
    assert not role.takes_plain
    master.put()
    assert role.hold(sent(code=code), sender, STORED)
    assert sender.answers == []
    master.clock.ms = 3_000
    master.waiting.tick()
    (answer,) = sender.answers
    assert (answer.code, answer.ext_fields) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, {"msgId": "id"})
    assert sender.reasons == []


@pytest.mark.parametrize(
    ("request_frame", "answer"),
    [
        (sent("WAIT\x01false\x02"), STORED),
        (sent("KEYS\x01k\x02WAIT\x01False\x02", RequestCode.SEND_MESSAGE), STORED),
        (sent(flag=FrameFlag.ONE_WAY), STORED),
        (sent(code=RequestCode.PULL_MESSAGE), STORED),
        (sent(), Frame(ResponseCode.TOPIC_NOT_EXIST, 0)),
    ],
)
def test_others_are_answered_at_once(request_frame: Frame, answer: Frame) -> None:
    role, master = master_role()
    master.put()
    assert not role.hold(request_frame, Sender(), answer)


def test_answers_wait_only_with_the_role_and_the_number() -> None:
    role, master = master_role(replicas=1)
    assert not role.hold(sent(), Sender(), STORED)
    found = [role.takes_plain]
    master.options.in_sync_replicas = 2
    found.append(role.takes_plain)
    master.options.role = Role.ASYNC_MASTER
    found.append(role.takes_plain)
    assert found == [True, False, True]


def test_connection_that_is_closed_waits_no_longer() -> None:
    role, master = master_role()
    sender = Sender()
    master.put()
    role.hold(sent("WAIT\x01true\x02"), sender, STORED)
    role.disconnected(sender)
    master.clock.ms = 3_000
    master.waiting.tick()
    assert (sender.answers, sender.reasons) == ([], [])


def slave_role(*, slave_read: bool) -> BrokerRole:
    return BrokerRole(ReplicationOptions(Role.SLAVE), BrokerOptions(slave_read=slave_read), lambda: 0)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (RequestCode.SEND_MESSAGE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.POP_MESSAGE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.ACK_MESSAGE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.RECALL_MESSAGE, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.LITE_PULL_MESSAGE, ResponseCode.SYSTEM_BUSY),
    ],
)
def test_slave_refuses(code: RequestCode, expected: ResponseCode) -> None:
    answer = slave_role(slave_read=False).refuse(Frame(code, 1))
    assert answer is not None
    assert answer.code == expected
    role, _ = master_role()
    assert role.refuse(Frame(code, 1)) is None


def test_slave_that_may_be_read_takes_pull_requests() -> None:
    role = slave_role(slave_read=True)
    assert role.refuse(Frame(RequestCode.PULL_MESSAGE, 1)) is None
    assert not role.takes_plain


# -- configuration


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., RocketConfig]:
    def load(*lines: str) -> RocketConfig:
        path = tmp_path / "broker.conf"
        path.write_text("\n".join(lines))
        return load_rocketmq_config(path)

    return load


def test_master_that_comes_back_tells_no_offsets_before_it_has_asked_for_those_of_others() -> None:
    role, _ = master_role()
    asked = Frame(RequestCode.GET_ALL_CONSUMER_OFFSET, 1)
    assert role.refuse(asked) is None
    role.is_returning = True
    refused = role.refuse(asked)
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize(
    ("lines", "role", "broker_id", "ha_port"),
    [
        ((), Role.ASYNC_MASTER, 0, None),
        (("brokerRole=ASYNC_MASTER",), Role.ASYNC_MASTER, 0, 10912),
        (("brokerRole=SYNC_MASTER", "listenPort=20911"), Role.SYNC_MASTER, 0, 20912),
        (("brokerRole=SYNC_MASTER", "brokerId=7", "haListenPort=5555"), Role.SYNC_MASTER, 0, 5555),
        (("haListenPort=0",), Role.ASYNC_MASTER, 0, 10912),
        (("brokerRole=SLAVE", "brokerId=2", "haListenPort=5555"), Role.SLAVE, 2, None),
    ],
)
def test_roles_are_configured(
    load: Callable[..., RocketConfig], lines: tuple[str, ...], role: Role, broker_id: int, ha_port: int | None
) -> None:
    config = load(*lines)
    assert (config.replication.role, config.options.broker_id, config.ha_listen_port) == (role, broker_id, ha_port)
    assert config.properties["brokerRole"] == role.value
    assert config.broker_options.ha_address == ("" if ha_port is None else f"127.0.0.1:{ha_port}")


@pytest.mark.parametrize(
    ("lines", "ports"),
    [
        ((), []),
        (("brokerRole=SYNC_MASTER", "listenPort=20911"), [20912, 20909]),
        (("brokerRole=SLAVE", "brokerId=1", "listenPort=20911"), []),
        # The original's master, when it comes back, asks the slave that has acted as one.
        (("brokerRole=SLAVE", "brokerId=1", "listenPort=20911", "enableSlaveActingMaster=true"), [20909]),
    ],
)
def test_ports_on_which_brokers_of_the_original_ask(
    load: Callable[..., RocketConfig], lines: tuple[str, ...], ports: list[int]
) -> None:
    assert replication_ports(load(*lines)) == ports


def test_acting_masters_are_configured(load: Callable[..., RocketConfig]) -> None:
    config = load("enableSlaveActingMaster=true", "brokerNotActiveTimeoutMillis=3000")
    assert config.broker_options.silent_ms == 3000
    assert load("brokerNotActiveTimeoutMillis=3000").broker_options.silent_ms is None
    controlled = load("enableSlaveActingMaster=true", "enableControllerMode=true", "controllerAddr=10.0.0.1:9878")
    assert not controlled.replication.has_acting_master
    assert controlled.broker_options.silent_ms is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("brokerRole=SLAVE",), "a slave needs an id"),
        (("brokerRole=MASTER",), "is none of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        (("inSyncReplicas=0",), "is not a number between 1 and 1024"),
    ],
)
def test_roles_that_cannot_be_are_refused(
    load: Callable[..., RocketConfig], lines: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(PropertyError, match=reason):
        load(*lines)
