"""Topics and groups for clients of RocketMQ 5, made by administrators' requests."""

from __future__ import annotations

from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GroupConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.administration import CreateTopicRequest
from formats.rocketmq.remoting.headers.codec import write_header
from tests.rigs.remoting import Remote

__all__ = ["make_topics"]

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "LITE")
# Groups for lite topics, and their attributes beside the topic that they are bound to.
LITE_GROUPS = {
    "lite": {},
    "exclusive": {"+lite.sub.model": "Exclusive", "+lite.sub.reset.offset.exclusive": "true"},
    "few": {"+lite.sub.client.quota": "2"},
    "everything": {"+lite.sub.wildcard": "true"},
}


def make_topics(port: int, queues: int = 4) -> None:
    """Make a topic of each kind, with its name in small letters, a group that consumes in order, and groups for lite
    topics.
    """
    remote = Remote(port)
    for kind in TYPES:
        header = CreateTopicRequest(
            kind.capitalize(), "TBW102", queues, queues, 6, "SINGLE_TAG", False, 0, f"+message.type={kind}"
        )
        answer = remote.call(RequestCode.UPDATE_AND_CREATE_TOPIC, b"", **write_header(header))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    body = GROUP_CONFIG.write(GroupConfig("ordered", consume_message_orderly=True))
    assert remote.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body).code == ResponseCode.SUCCESS
    for name, attributes in LITE_GROUPS.items():
        bound = {"+lite.bind.topic": "Lite", **attributes}
        body = GROUP_CONFIG.write(GroupConfig(name, consume_message_orderly=True, attributes=bound))
        answer = remote.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    remote.sock.close()
