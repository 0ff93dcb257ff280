"""A proxy in memory, and remoting clients of it."""

from __future__ import annotations

from typing import Any

from broker.rocketmq.proxy.remoting import RemotingClients
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from formats.rocketmq.remoting.bodies.clients import (
    HEARTBEAT,
    ConsumerData,
    Heartbeat,
    ProducerData,
    Subscription,
)
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.proxy.clustered import Clustered

ADDRESS = "10.0.0.7:8080"


class Proxied:
    """A proxy before brokers, and clients of the remoting protocol."""

    def __init__(self, others: int = 1) -> None:
        self.served = Clustered(others=others)
        self.service: RemotingClients = self.served.cluster.remoting_clients(ADDRESS)
        self.clients: list[Remoting] = []

    def client(self) -> Remoting:
        made = Remoting(self, len(self.clients) + 1)
        self.clients.append(made)
        return made

    def step(self) -> None:
        for _ in range(3):
            for client in self.clients:
                client.read()
            self.served.step()
        for client in self.clients:
            client.read()

    def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, 500):
            self.served.pass_time(500)
            self.service.tick()
            self.step()


class Remoting:
    """A client. `asked` is what brokers asked of it."""

    def __init__(self, proxied: Proxied, number: int) -> None:
        self.proxied = proxied
        host, clock = Host("127.0.0.1", 41_000 + number), proxied.served
        self.session = Session(number, host, proxied.service, lambda _: None, lambda: clock.ms)
        self.asked: list[Frame] = []
        self.answers: dict[int, Frame] = {}
        self._opaque = 0

    def ask(self, code: int, body: bytes = b"", flag: int = 0, version: int = 493, **fields: Any) -> int:
        """Send a request; the number that its answer will have."""
        self._opaque += 1
        named = {name: str(value) for name, value in fields.items()}
        self.put(Frame(code, self._opaque, flag, ext_fields=named, body=body, version=version))
        return self._opaque

    def put(self, frame: Frame) -> None:
        data = bytearray(encode_frame(frame))
        assert self.session.receive(memoryview(data)) == len(data)
        # The room for what arrives is used again.
        data[:] = bytes(len(data))
        self.proxied.step()

    def call(self, code: int, body: bytes = b"", **fields: Any) -> Frame:
        return self.answers.pop(self.ask(code, body, **fields))

    def read(self) -> None:
        view, at = memoryview(bytes(self.session.take_output())), 0
        while (found := next_frame(view, at, len(view))) is not None:
            frame, at = found
            frame = frame._replace(body=bytes(frame.body))
            if frame.is_response:
                self.answers[frame.opaque] = frame
            else:
                self.asked.append(frame)

    def route(self, topic: str = "many", **more: Any) -> Frame:
        return self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **more)

    def send(self, body: bytes, broker: str = "broker-1", topic: str = "many", **more: Any) -> Frame:
        properties = encode_properties({}).decode()
        fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": properties}
        return self.call(RequestCode.SEND_MESSAGE_V2, body, **{**fields, **({"n": broker} if broker else {}), **more})

    def pull(self, broker: str = "broker-1", wait_ms: int = 15_000, offset: int = 0) -> int:
        fields: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "many",
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 6,
            "commitOffset": 0,
            "suspendTimeoutMillis": wait_ms,
            "subscription": "*",
            "subVersion": 1,
        }
        return self.ask(RequestCode.PULL_MESSAGE, **fields, bname=broker)

    def heartbeat(self, client_id: str) -> Frame:
        consumer = ConsumerData("g", "CONSUME_PASSIVELY", subscription_data_set=[Subscription("many", "*")])
        body = HEARTBEAT.write(Heartbeat(client_id, [consumer], [ProducerData("p")]))
        return self.call(RequestCode.HEART_BEAT, body)
