"""Bodies that show administrators what there is.

Source: KVTable, GroupList, ConsumerConnection, ProducerConnection, ResetOffsetBody.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq import fastjson
from formats.rocketmq.body_codec import BodyCodec
from formats.rocketmq.client_bodies import MessageQueue, Subscription

__all__ = [
    "CONSUMER_CONNECTION",
    "GROUP_LIST",
    "KEY_VALUE_TABLE",
    "PRODUCER_CONNECTION",
    "Connection",
    "ConsumerConnection",
    "GroupList",
    "KeyValueTable",
    "ProducerConnection",
    "write_reset_offsets",
]


class KeyValueTable(NamedTuple):
    """Names and values."""

    table: dict[str, str]


class GroupList(NamedTuple):
    """Names of groups."""

    group_list: list[str]


class Connection(NamedTuple):
    """A client that is connected. `version` is a number of MQVersion."""

    client_id: str
    client_address: Annotated[str, "clientAddr"]
    language: str
    version: int


class ConsumerConnection(NamedTuple):
    """The consumers of a group, and what they agree on."""

    connection_set: list[Connection]
    subscription_table: dict[str, Subscription]
    consume_type: str
    message_model: str
    consume_from_where: str


class ProducerConnection(NamedTuple):
    """The producers of a group."""

    connection_set: list[Connection]


KEY_VALUE_TABLE = BodyCodec(KeyValueTable)
GROUP_LIST = BodyCodec(GroupList)
CONSUMER_CONNECTION = BodyCodec(ConsumerConnection)
PRODUCER_CONNECTION = BodyCodec(ProducerConnection)
_QUEUE = BodyCodec(MessageQueue)


def write_reset_offsets(offsets: dict[MessageQueue, int]) -> bytes:
    """The body with the offsets that a group is set to."""
    table = {fastjson.ObjectKey(_QUEUE.write_value(queue).items()): offset for queue, offset in offsets.items()}
    return fastjson.dumps({"offsetTable": table}).encode()
