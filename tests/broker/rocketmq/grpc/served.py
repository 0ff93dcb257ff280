"""A whole broker, and a client that calls it over gRPC, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.rocketmq.grpc.access.check import Access, LocalAccess
from broker.rocketmq.grpc.brokers.backend import Backend
from broker.rocketmq.grpc.brokers.local import Local
from broker.rocketmq.grpc.brokers.loopback import FrameGate
from broker.rocketmq.grpc.service import GrpcService
from formats.rocketmq.grpc.declarations import METHODS
from formats.rocketmq.grpc.messages import Message, decode, duration_of_ms, make
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from tests.broker.rocketmq.grpc.http2.peer import Client
from tests.broker.rocketmq.rig import OPTIONS, Rig

__all__ = ["Served", "message"]


def message(topic: str = "t", body: bytes = b"body", **system: Any) -> Message:
    """A message to send."""
    made = make("Message", body=body)
    made.topic.name = topic
    for name, value in {"message_id": "ID-1", "message_type": 1, "body_encoding": 1, **system}.items():
        if name == "keys":
            made.system_properties.keys.extend(value)
        elif hasattr(value, "DESCRIPTOR"):
            getattr(made.system_properties, name).CopyFrom(value)
        else:
            setattr(made.system_properties, name, value)
    return made


class Served:
    """A broker with topics `t` (1 queue) and `many` (4 queues, of any kind), and a client."""

    def __init__(self, rig: Rig | None = None, gate: FrameGate | None = None) -> None:
        self.rig = rig or Rig(replace(OPTIONS))
        self.rig.put_topics(TopicConfig("many", 4, 4, attributes={"message.type": "MIXED"}))
        self.ms = 1_000
        backend = self._backend(gate)
        self.service = GrpcService(self._access(), backend, self.rig.faults, *self._clocks())
        self.client = Client(self.service)
        self.client_id = "client"
        self.headers: dict[str, str] = {}

    def _clocks(self) -> tuple[Callable[[], int], Callable[[], int]]:
        return lambda: self.rig.wall_ms, lambda: self.ms

    def _access(self) -> Access:
        """The checks of callers, when the backend is there."""
        return LocalAccess(self.rig.access, self.rig.guard)

    def _backend(self, gate: FrameGate | None) -> Backend:
        """The broker itself, for the service to ask."""
        rig = self.rig
        return Local(rig.options, rig.topics, rig.groups, rig.broker, gate, rig.faults, *self._clocks())

    def step(self) -> None:
        """Let the broker and the service do what there is to do."""
        while self.rig.broker.end_step() or self.service.end_step():
            pass
        self.client.exchange()

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(0, ms, 500):
            self.rig.pass_time(500)
            self.ms += 500
            self.client.ms += 500
            self.service.tick()
            self.step()

    def begin(self, method: str, request: Message, **headers: str) -> int:
        """Make a call; its stream."""
        known = {"x_mq_client_id": self.client_id, **self.headers, **headers}
        stream = self.client.call(method, request.SerializeToString(), **known)
        self.step()
        return stream

    def answers(self, method: str, stream: int) -> list[Message]:
        """Read the answers of a call."""
        return [decode(METHODS[method].response, each) for each in self.client.messages(stream)]

    def call(self, method: str, request: Message, **headers: str) -> Message:
        """Make a call that has one answer."""
        stream = self.begin(method, request, **headers)
        (answer,) = self.answers(method, stream)
        assert self.client.status(stream) == "0"
        return answer

    def send(self, *messages: Message) -> Message:
        return self.call("SendMessage", make("SendMessageRequest", messages=messages))

    def tell(self, settings: Message) -> tuple[int, list[Message]]:
        """Open a stream of Telemetry and tell settings; the stream, and the answers."""
        stream = self.client.open("Telemetry", x_mq_client_id=self.client_id, **self.headers)
        self.client.send(stream, make("TelemetryCommand", settings=settings).SerializeToString())
        self.client.exchange()
        self.step()
        return stream, self.answers("Telemetry", stream)

    def receive_request(self, topic: str = "t", group: str = "g", expression: str = "*", **more: Any) -> Message:
        request = make("ReceiveMessageRequest", **{"batch_size": 32, **more})
        request.group.name = group
        request.message_queue.topic.name = topic
        request.message_queue.broker.name = self.rig.options.name
        request.filter_expression.type = 1
        request.filter_expression.expression = expression
        request.long_polling_timeout.CopyFrom(duration_of_ms(5_000))
        if not request.HasField("invisible_duration"):
            request.invisible_duration.CopyFrom(duration_of_ms(15_000))
        return request

    def receive(self, topic: str = "t", group: str = "g", expression: str = "*", **more: Any) -> list[Message]:
        """Receive what there is; the messages."""
        stream = self.begin("ReceiveMessage", self.receive_request(topic, group, expression, **more))
        if self.client.status(stream) is None:
            self.pass_time(6_000)
        answers = self.answers("ReceiveMessage", stream)
        assert answers[-1].WhichOneof("content") == "delivery_timestamp"
        return [each.message for each in answers if each.WhichOneof("content") == "message"]

    def acknowledge(self, *handles: str, topic: str = "t", group: str = "g") -> Message:
        request = make("AckMessageRequest")
        request.group.name, request.topic.name = group, topic
        for number, handle in enumerate(handles):
            request.entries.add(message_id=str(number), receipt_handle=handle)
        return self.call("AckMessage", request)
