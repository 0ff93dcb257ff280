"""A client for the tour, run where RocketMQ's C++ client is: `tour_client.py send|consume NAMESERVER COUNT`."""

from __future__ import annotations

import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

TOPIC = "tour"
PATIENCE_S = 30
DELAY_LEVEL = 2  # five seconds


def send(nameserver: str, count: int) -> None:
    """Send messages, the last of them to come five seconds later."""
    producer = Producer("shop")
    producer.set_namesrv_addr(nameserver)
    producer.start()
    for number in range(1, count + 1):
        message = Message(TOPIC)
        message.set_keys(f"order-{number}")
        message.set_tags("paid" if number % 2 else "open")
        if number == count:
            message.set_delay_time_level(DELAY_LEVEL)
        message.set_body(f"order {number}")
        sent = producer.send_sync(message)
        print(f"  {sent.status.name} {sent.msg_id}", flush=True)
    producer.shutdown()


def consume(nameserver: str, count: int) -> None:
    """Wait for messages that are tagged `paid`."""
    came = threading.Semaphore(0)

    def got(message: Any) -> None:
        print(f"  {message.body.decode()} {message.tags.decode()} {message.keys.decode()}", flush=True)
        came.release()

    consumer = PushConsumer("billing")
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(TOPIC, got, "paid")
    consumer.start()
    missing = sum(not came.acquire(timeout=PATIENCE_S) for _ in range(count))
    consumer.shutdown()
    if missing:
        raise SystemExit(f"tour: {missing} messages did not come")


if __name__ == "__main__":
    {"send": send, "consume": consume}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
