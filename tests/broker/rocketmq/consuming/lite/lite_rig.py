"""A broker with the parent topic `Lite`, groups for lite topics, and clients of them."""

from __future__ import annotations

from typing import Any

from formats.rocketmq.remoting.bodies import lite as bodies
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import Peer, Rig

__all__ = ["GROUPS", "PARENT", "LiteClient", "LiteRig"]

PARENT = "Lite"
GROUPS: dict[str, dict[str, str]] = {
    "shared": {},
    "exclusive": {"+lite.sub.model": "Exclusive", "+lite.sub.reset.offset.exclusive": "true"},
    "anew": {"+lite.sub.reset.offset.unsubscribe": "true"},
    "all": {"+lite.sub.wildcard": "true"},
}


class LiteRig(Rig):
    """The broker. The parent topic has two queues; its lite topics expire after 20 minutes."""

    def __init__(self) -> None:
        super().__init__()
        attributes = {"message.type": "LITE", "lite.topic.expiration": "20"}
        self.topics.put(TopicConfig(PARENT, 2, 2, attributes=attributes), self.wall_ms)
        admin = self.peer()
        for name, own in GROUPS.items():
            body = GROUP_CONFIG.write(GroupConfig(name, attributes={"+lite.bind.topic": PARENT, **own}))
            assert admin.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == ResponseCode.SUCCESS

    def client(self, client_id: str, group: str = "shared") -> LiteClient:
        """Connect a client."""
        return LiteClient(self, client_id, group)


class LiteClient:
    """A client of a group."""

    def __init__(self, rig: LiteRig, client_id: str, group: str) -> None:
        self.rig = rig
        self.peer: Peer = rig.peer()
        self.client_id = client_id
        self.group = group

    def send(self, body: str, lite_topic: str, **changes: Any) -> Frame:
        """Send a message to a lite topic."""
        return self.peer.send(body.encode(), {"__LITE_TOPIC": lite_topic}, PARENT, **changes)

    def change(self, action: str, *names: str, option: bodies.OffsetOption | None = None, **changes: Any) -> Frame:
        """Change what the client is subscribed to."""
        change = bodies.LiteSubscription(action, self.client_id, self.group, PARENT, list(names), option)
        body = bodies.SUBSCRIPTIONS.write(bodies.LiteSubscriptions([change._replace(**changes)]))
        return self.peer.call(RequestCode.LITE_SUBSCRIPTION_CTL, body)

    def subscribe(self, *names: str, option: bodies.OffsetOption | None = None) -> None:
        """Subscribe to lite topics."""
        answer = self.change(bodies.PARTIAL_ADD, *names, option=option)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def ask(self, **changes: Any) -> int:
        """Ask for messages, hidden for ten seconds; the number that the answer will have."""
        fields = {
            "clientId": self.client_id,
            "consumerGroup": self.group,
            "topic": PARENT,
            "maxMsgNum": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": self.rig.wall_ms,
        }
        return self.peer.ask(RequestCode.POP_LITE_MESSAGE, **{**fields, **changes})

    def pop(self, **changes: Any) -> Frame:
        """Ask for messages; the answer, which comes at once."""
        answer = self.peer.answer(self.ask(**changes))
        assert answer is not None
        return answer

    def popped(self, **changes: Any) -> list[str]:
        """The bodies of the messages that there are for the client."""
        return read(self.pop(**changes))

    def acknowledge(self, lite_topic: str, offset: int, popped_ms: int) -> Frame:
        """Acknowledge a message."""
        fields = self._handle(offset, popped_ms)
        return self.peer.call(RequestCode.ACK_MESSAGE, **fields, liteTopic=lite_topic)

    def hide(self, lite_topic: str, offset: int, popped_ms: int, ms: int, **changes: Any) -> Frame:
        """Change the time for which a message is hidden."""
        fields = {**self._handle(offset, popped_ms), "liteTopic": lite_topic, "invisibleTime": ms, **changes}
        return self.peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **fields)

    def _handle(self, offset: int, popped_ms: int) -> dict[str, Any]:
        handle = f"0 {popped_ms} 10000 999 0 {self.rig.options.name} 0 {offset}"
        return {"consumerGroup": self.group, "topic": PARENT, "queueId": 0, "offset": offset, "extraInfo": handle}


def read(answer: Frame) -> list[str]:
    """The bodies of an answer's messages."""
    return [bytes(record.body).decode() for record in records_of(answer)]
