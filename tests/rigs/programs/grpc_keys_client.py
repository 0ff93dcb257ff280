"""Send and consume one message with RocketMQ's official client for gRPC as a user, and print the results.

Run by the Python of an environment that has it: PROGRAM ENDPOINT TOPIC GROUP [NAME SECRET].
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

WAIT_S = 120


def configuration() -> Any:
    return ClientConfiguration(sys.argv[1], Credentials(*sys.argv[4:6]))


def outcome(work: Callable[[], Any]) -> str:
    """Do work; return the text of its result or exception."""
    try:
        return str(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def send() -> str:
    producer = Producer(configuration(), (sys.argv[2],))
    producer.startup()
    message = Message()
    message.topic, message.body = sys.argv[2], b"by key"
    try:
        return "sent" if producer.send(message).message_id else "lost"
    finally:
        producer.shutdown()


def receive() -> str:
    consumer = SimpleConsumer(configuration(), sys.argv[3], {sys.argv[2]: FilterExpression()}, await_duration=5)
    consumer.startup()
    until = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < until:
            for each in consumer.receive(32, 15) or []:
                consumer.ack(each)
                return str(each.body.decode())
        return "nothing"
    finally:
        consumer.shutdown()


print(json.dumps({"sent": outcome(send), "received": outcome(receive)}))
