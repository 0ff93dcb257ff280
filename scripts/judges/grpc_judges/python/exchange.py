"""Send messages for clients of another protocol, or take theirs, by RocketMQ 5's official Python client.

Run by the Python of an environment that has it: PROGRAM send ENDPOINT TOPIC COUNT, or take ENDPOINT GROUP
TOPIC=COUNT...
"""

from __future__ import annotations

import sys
import time
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

PATIENCE_S = 40


def message(topic: str, number: int) -> Any:
    made = Message()
    made.topic, made.body, made.tag, made.keys = topic, f"body {number}".encode(), "tag", f"k{number}"
    made.add_property("number", str(number))
    return made


def send(endpoint: str, topic: str, count: int) -> None:
    late = f"{topic}-late"
    producer = Producer(ClientConfiguration(endpoint, Credentials()), (topic, late))
    producer.startup()
    for number in range(count):
        producer.send(message(topic, number))
    last = message(late, 0)
    last.delivery_timestamp = int(time.time() + 5)
    producer.send(last)
    print("sent", flush=True)
    producer.shutdown()


def take(endpoint: str, group: str, topic: str, count: int) -> None:
    configuration = ClientConfiguration(endpoint, Credentials())
    consumer = SimpleConsumer(configuration, f"{group}-{topic}", {topic: FilterExpression()}, await_duration=5)
    consumer.startup()
    until = time.monotonic() + PATIENCE_S
    while count > 0 and time.monotonic() < until:
        for each in consumer.receive(32, 30) or []:
            consumer.ack(each)
            told = ("got", topic, each.body.decode(), " ".join(each.keys), each.tag, each.properties.get("number"))
            print(*told, sep="\t", flush=True)
            count -= 1
    consumer.shutdown()


def main(action: str, endpoint: str, name: str, *words: str) -> None:
    if action == "send":
        send(endpoint, name, int(words[0]))
        return
    for each in words:
        topic, _, count = each.partition("=")
        take(endpoint, name, topic, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
