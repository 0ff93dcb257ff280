"""The configuration of a broker, as administrators see and change it."""

from __future__ import annotations

import pytest

from broker.rocketmq.replication.options import Role
from formats.rocketmq.files.property_text import read_properties
from formats.rocketmq.remoting.bodies.routes import DATA_VERSION
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.rig import Peer, Rig


def change(peer: Peer, text: str) -> Frame:
    return peer.call(RequestCode.UPDATE_BROKER_CONFIG, text.encode())


def shown(peer: Peer) -> dict[str, str]:
    return read_properties(bytes(peer.call(RequestCode.GET_BROKER_CONFIG).body).decode())


def test_change_is_shown_kept_and_takes_effect_at_once() -> None:
    rig = Rig()
    peer = rig.peer()
    assert peer.send(b"x" * 100).code == ResponseCode.SUCCESS
    before = peer.call(RequestCode.GET_BROKER_CONFIG).ext_fields or {}
    assert change(peer, "maxMessageSize=50\ntraceOn=false").code == ResponseCode.SUCCESS
    assert rig.kept_settings == [{"maxMessageSize": "50", "traceOn": "false"}]
    assert shown(peer)["maxMessageSize"] == "50"
    after = peer.call(RequestCode.GET_BROKER_CONFIG).ext_fields or {}
    assert DATA_VERSION.read(after["version"].encode()).counter > DATA_VERSION.read(before["version"].encode()).counter
    # The same message as before, of which everything is known.
    assert peer.send(b"x" * 100).code == ResponseCode.MESSAGE_ILLEGAL
    sent = peer.send(b"x" * 50, {"UNIQ_KEY": "1"})
    assert (sent.ext_fields or {})["TRACE_ON"] == "false"


def test_role_and_id_that_a_controller_gives_are_shown() -> None:
    rig = Rig()
    rig.replication.is_controlled = True
    rig.stop()
    peer = rig.peer()
    for role, broker_id in ((Role.SLAVE, 2), (Role.SYNC_MASTER, 0)):
        rig.role.options.role, rig.options.broker_id = role, broker_id
        shown = read_properties(bytes(peer.call(RequestCode.GET_BROKER_CONFIG).body).decode())
        assert (shown["brokerRole"], shown["brokerId"]) == (role.value, str(broker_id))


def test_permission_of_the_broker_reaches_its_nameservers() -> None:
    rig = Rig()
    peer = rig.peer()
    version = rig.topics.version
    assert change(peer, "brokerPermission=4").code == ResponseCode.SUCCESS
    assert peer.send(b"x").code == ResponseCode.NO_PERMISSION
    assert rig.topics.version.counter > version.counter


def test_topics_and_groups_are_made_or_not() -> None:
    rig = Rig()
    peer = rig.peer()
    assert change(peer, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false").code == ResponseCode.SUCCESS
    assert peer.send(b"x", topic="new").code == ResponseCode.TOPIC_NOT_EXIST
    answer = peer.answer(peer.pull(group="new"))
    assert answer is not None
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    change(peer, "autoCreateTopicEnable=true")
    assert peer.send(b"x", topic="new").code == ResponseCode.SUCCESS


def test_old_messages_go_by_the_new_time() -> None:
    rig = Rig()
    rig.store_options = rig.store_options._replace(commit_log_file_bytes=4096)
    rig.stop()
    peer = rig.peer()
    for _ in range(30):
        peer.send(b"x" * 1000)
    rig.wall_ms += 2 * 3_600_000
    peer.send(b"x" * 1000)
    assert peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == ResponseCode.SUCCESS
    assert rig.store.log.begin == 0
    assert change(peer, "fileReservedTime=1").code == ResponseCode.SUCCESS
    assert peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == ResponseCode.SUCCESS
    assert rig.store.log.begin >= rig.store.log.end - 2 * 4096
    begin, end = rig.store.span("t", 0)
    assert 0 < begin < end == 31


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("listenPort=1", ResponseCode.INVALID_PARAMETER),
        ("color=red", ResponseCode.INVALID_PARAMETER),
        ("traceOn=perhaps", ResponseCode.INVALID_PARAMETER),
        ("brokerPermission=99", ResponseCode.INVALID_PARAMETER),
        ("traceOn=false\nbrokerConfigPath=/x", ResponseCode.NO_PERMISSION),
    ],
)
def test_change_with_a_fixed_property_is_refused_as_a_whole(text: str, code: ResponseCode) -> None:
    rig = Rig()
    peer = rig.peer()
    before = shown(peer)
    assert change(peer, text).code == code
    assert (shown(peer), rig.kept_settings, rig.options.trace_on) == (before, [], True)
