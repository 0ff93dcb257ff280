"""A nameserver's requests, without a network."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from broker.rocketmq.config.node import NAMESERVER_DEFAULTS, NAMESERVER_LOCKED, NAMESERVER_READERS
from broker.rocketmq.nameserver.key_values import KeyValues
from broker.rocketmq.nameserver.requests import Nameserver
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.settings import Settings
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag

INITIAL = NAMESERVER_DEFAULTS


class Requests:
    """A nameserver, and the requests of somebody who asks it."""

    def __init__(self, *, supports_acting_master: bool = False) -> None:
        self.kept: list[bytes] = []
        self.kept_settings: list[Mapping[str, str]] = []
        settings = Settings(
            {"kvConfigPath": "/kv"}, NAMESERVER_READERS, self.kept_settings.append, NAMESERVER_LOCKED, {**INITIAL}
        )
        self.server = Nameserver(Routes(), KeyValues(b"", self.kept.append), settings)
        if supports_acting_master:
            assert self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"supportActingMaster=true").code == 0

    now_ms = 1_000_000

    def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", connection: object = None
    ) -> Frame:
        """The answer to a request."""
        answer = self.server.answer(Frame(code, 7, 0, None, fields, body, version=493), connection, self.now_ms)
        assert answer is not None
        assert (answer.opaque, answer.flag) == (7, FrameFlag.RESPONSE)
        return answer

    def register(
        self,
        name: str = "a",
        broker_id: int = 0,
        *,
        topics: tuple[str, ...] = ("t", "u"),
        counter: int = 1,
        state: int = 0,
        address: str = "",
        connection: object = None,
        **fields: str,
    ) -> Frame:
        """Register a broker with topics of four queues."""
        table = {topic: {"topicName": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for topic in topics}
        version = {"counter": counter, "stateVersion": state, "timestamp": 5}
        body = fastjson.dumps(
            {"topicConfigSerializeWrapper": {"topicConfigTable": table, "dataVersion": version}}
        ).encode()
        header = {
            "brokerName": name,
            "brokerAddr": address or f"10.0.0.{broker_id}:10911",
            "clusterName": "c",
            "haServerAddr": f"10.0.0.{broker_id}:10912",
            "brokerId": str(broker_id),
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
            **fields,
        }
        return self.ask(RequestCode.REGISTER_BROKER, header, body, connection)

    def route(self, topic: str = "t") -> Any:
        """The route of a topic as JSON; None if it has none."""
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return fastjson.loads(str(answer.body, "utf-8")) if answer.code == ResponseCode.SUCCESS else None

    def addresses(self, topic: str = "t") -> list[dict[str, str]]:
        """The brokers of a topic, by id, name by name."""
        return [broker["brokerAddrs"] for broker in (self.route(topic) or {"brokerDatas": []})["brokerDatas"]]


def no_settings() -> Settings:
    return Settings({}, {}, lambda _: None)
