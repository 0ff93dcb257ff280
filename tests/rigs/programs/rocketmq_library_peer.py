"""The program that `test_rocketmq_client_library` runs where RocketMQ's C++ client is: `NAMESERVER TOPIC COUNT`.

It sends messages, takes those of the library, and prints them as JSON. It is no test module: the client's package is in
a separate environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer  # type: ignore[import-not-found]

PATIENCE_S = 120


def main(nameserver: str, topic: str, count: int) -> None:
    producer = Producer("cpp-producers")
    producer.set_namesrv_addr(nameserver)
    producer.start()
    for number in range(count):
        made = Message(f"{topic}-to-library")
        made.set_keys(f"k{number}")
        made.set_tags("odd" if number % 2 else "even")
        made.set_property("number", str(number))
        # This client compresses larger ones.
        made.set_body(f"body {number} " * 1000)
        producer.send_sync(made)
    found: list[Any] = []
    enough = threading.Event()

    def got(each: Any) -> None:
        found.append([each.body.decode(), each.tags.decode(), each.keys.decode(), each.get_property("number").decode()])
        if len(found) >= count:
            enough.set()

    consumer = PushConsumer("cpp-consumers")
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(f"{topic}-to-peer", got, "wanted")
    consumer.start()
    enough.wait(PATIENCE_S)
    print(json.dumps(sorted(found)), flush=True)
    # The client's threads outlive its objects, and crash if those are gone.
    os._exit(0)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
