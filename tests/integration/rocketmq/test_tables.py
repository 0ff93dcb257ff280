"""The tables of a RocketMQ node while somebody fills them: others are served, and nothing acknowledged is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bmqctl.testing import RocketProcess
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.machine_speed import slowness
from tests.rigs.remoting import Remote

TOPICS, VALUES = 200, 150


def heartbeat(count: int) -> bytes:
    consumers = [{"groupName": f"group-{number}", "subscriptionDataSet": []} for number in range(count)]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers, "producerDataSet": []}).encode()


def test_acknowledged_messages_survive_a_kill(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeConsumeQueue=4000\n")
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        with Remote(node.port) as remote, Remote(node.nameserver_port) as nameserver:
            refused = remote.call(RequestCode.HEART_BEAT, heartbeat(1_500))
            assert "heartbeatGroupMaxNum" in (refused.remark or "")
            before_s = node.cpu_s()
            fields: dict[str, Any] = {"a": "p", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
            sent = [
                remote.ask(RequestCode.SEND_MESSAGE_V2, b"x", b=f"topic-{number}", **fields) for number in range(TOPICS)
            ]
            values = [
                nameserver.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key=f"k{number}", value="v" * 20_000)
                for number in range(VALUES)
            ]
            heard = remote.ask(RequestCode.HEART_BEAT, heartbeat(200))
            assert {remote.answer(opaque).code for opaque in (*sent, heard)} == {ResponseCode.SUCCESS}
            assert {nameserver.answer(opaque).code for opaque in values} == {ResponseCode.SUCCESS}
            # It is 0.5 s; where each change writes everything it is 5 s.
            assert node.cpu_s() - before_s < 2.5 * slowness()
            # Nameservers hear of topics that are on the disk.
            assert nameserver.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="topic-0").code == ResponseCode.SUCCESS
        node.kill()
        node.start()
        with Remote(node.port) as remote, Remote(node.nameserver_port) as nameserver:
            topics = TOPIC_CONFIGS.read(remote.call(RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table
            assert {f"topic-{number}" for number in range(TOPICS)} < set(topics)
            assert {f"%RETRY%group-{number}" for number in range(200)} < set(topics)
            groups = bytes(remote.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
            assert groups.count(b'"groupName":"group-') == 200
            for number in range(VALUES):
                found = nameserver.call(RequestCode.GET_KV_CONFIG, namespace="n", key=f"k{number}")
                assert found.ext_fields == {"value": "v" * 20_000}
        assert node.stop() == 0
