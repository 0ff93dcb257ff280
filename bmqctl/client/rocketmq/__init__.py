"""The client library for RocketMQ, for asyncio and trio.

    from bmqctl.client.rocketmq import connect

    async with connect("rocketmq://127.0.0.1:9876") as session:
        producer = await session.producer("orders")
        await producer.post(b"hello", tag="greeting")

The names in `__all__` are the public, stable interface, and docs/use/client-library-rocketmq.md is its contract.
"""

from __future__ import annotations

from bmqctl.client.errors import ClientError, ConnectFailed, SessionEnded
from bmqctl.client.rocketmq.browsing import StoredQueue
from bmqctl.client.rocketmq.consuming import Consumer, Message
from bmqctl.client.rocketmq.errors import (
    BatchFailed,
    ConsumerClosed,
    PostFailed,
    PostRefused,
    PostUncertain,
    RequestRefused,
)
from bmqctl.client.rocketmq.message import Content
from bmqctl.client.rocketmq.producing import Batch, Posted, Producer, Sent
from bmqctl.client.rocketmq.session import Session, connect
from bmqctl.client.rocketmq.simple import HiddenMessage, SimpleConsumer

__all__ = [
    "Batch",
    "BatchFailed",
    "ClientError",
    "ConnectFailed",
    "Consumer",
    "ConsumerClosed",
    "Content",
    "HiddenMessage",
    "Message",
    "PostFailed",
    "PostRefused",
    "PostUncertain",
    "Posted",
    "Producer",
    "RequestRefused",
    "Sent",
    "Session",
    "SessionEnded",
    "SimpleConsumer",
    "StoredQueue",
    "connect",
]
