"""The program that `test_rocketmq_cpp_client` runs where RocketMQ's C++ client is: `cpp_client.py NAMESERVER`.

It prints its observations as JSON. It is no test module: the client's package is in a separate environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from rocketmq.client import (  # type: ignore[import-not-found]
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)

PATIENCE_S = 120

# The client's threads outlive its objects, and crash if those are gone.
kept: list[Any] = []


def message(topic: str, number: int) -> Any:
    made = Message(topic)
    made.set_keys(f"k{number}")
    made.set_tags("odd" if number % 2 else "even")
    made.set_property("number", str(number))
    made.set_body(f"body {number}")
    return made


def consume(nameserver: str, group: str, topic: str, expression: str, most: int, orderly: bool) -> list[str]:
    keys: list[str] = []
    enough = threading.Event()

    def got(each: Any) -> None:
        keys.append(each.keys.decode())
        if len(keys) >= most:
            enough.set()

    consumer = PushConsumer(group, orderly=orderly)
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(topic, got, expression)
    consumer.start()
    kept.append(consumer)
    enough.wait(PATIENCE_S)
    return list(keys)


def main(nameserver: str) -> None:
    seen: dict[str, Any] = {}
    producer = Producer("producers")
    producer.set_namesrv_addr(nameserver)
    producer.start()
    sent = [producer.send_sync(message("plain", number)) for number in range(20)]
    seen["sent"] = [int(each.status) for each in sent]
    for number in range(20, 30):
        producer.send_oneway(message("plain", number))
    for number in range(20):
        producer.send_orderly(message("ordered", number), 1)
    late = message("plain", 30)
    late.set_tags("late")
    late.set_delay_time_level(1)
    producer.send_sync(late)
    seen["tag"] = sorted(consume(nameserver, "tag", "plain", "odd", 15, False))
    seen["ordered"] = consume(nameserver, "ordered", "ordered", "*", 20, True)
    seen["late"] = consume(nameserver, "late", "plain", "late", 1, False)
    puller = PullConsumer("pull")
    puller.set_namesrv_addr(nameserver)
    puller.start()
    seen["pulled"] = sorted(each.body.decode() for each in puller.pull("ordered"))
    print(json.dumps(seen), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
