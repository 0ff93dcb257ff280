"""Send messages for clients of another protocol, or take theirs, by RocketMQ's C++ client, PyPI's `rocketmq`.

Run by the Python of an environment that has it: PROGRAM send NAMESERVER TOPIC COUNT, or take NAMESERVER GROUP
TOPIC=COUNT...
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

PATIENCE_S = 40


def message(topic: str, number: int) -> Any:
    made = Message(topic)
    made.set_keys(f"k{number}")
    made.set_tags("tag")
    made.set_property("number", str(number))
    made.set_body(f"body {number}")
    return made


def send(nameserver: str, topic: str, count: int) -> None:
    producer = Producer("exchange-producers")
    producer.set_namesrv_addr(nameserver)
    producer.start()
    for number in range(count):
        producer.send_sync(message(topic, number))
    late = message(f"{topic}-late", 0)
    # Five seconds.
    late.set_delay_time_level(2)
    producer.send_sync(late)
    print("sent", flush=True)


def take(nameserver: str, group: str, wanted: dict[str, int]) -> None:
    left = sum(wanted.values())
    # The client calls from several threads.
    lock, enough = threading.Lock(), threading.Event()

    def got(each: Any) -> None:
        nonlocal left
        number = each.get_property("number")
        texts = (each.topic, each.body, each.keys, each.tags, number)
        with lock:
            print("got", *(text.decode() if isinstance(text, bytes) else text for text in texts), sep="\t", flush=True)
            left -= 1
        if left <= 0:
            enough.set()

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(nameserver)
    for topic in wanted:
        consumer.subscribe(topic, got, "*")
    consumer.start()
    enough.wait(PATIENCE_S)


def main(action: str, nameserver: str, name: str, *words: str) -> None:
    if action == "send":
        send(nameserver, name, int(words[0]))
    else:
        take(nameserver, name, {topic: int(count) for topic, _, count in (each.partition("=") for each in words)})
    # The client's threads outlive its objects, and crash once those are gone.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
