"""Send and consume with RocketMQ's official client for gRPC, and print the results.

Run by the Python of an environment that has it: PROGRAM ENDPOINT. The topics and groups exist.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

WAIT_S = 120


def configuration() -> Any:
    return ClientConfiguration(sys.argv[1], Credentials())


def message(topic: str, body: str, tag: str = "A", group: str | None = None, in_s: float = 0) -> Any:
    made = Message()
    made.topic, made.body, made.tag, made.keys = topic, body.encode(), tag, f"key-{body}"
    made.add_property("number", body)
    if group is not None:
        made.message_group = group
    if in_s:
        made.delivery_timestamp = int(time.time() + in_s)
    return made


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits every transaction."""

    def check(self, message: Any) -> Any:
        return TransactionResolution.COMMIT


class Listener(MessageListener):  # type: ignore[misc]
    """Keeps its messages; those with `again` in them fail the first time."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.changed = threading.Condition()

    def consume(self, message: Any) -> Any:
        body = message.body.decode()
        with self.changed:
            self.seen.append((body, message.delivery_attempt))
            self.changed.notify_all()
        fails = "again" in body and message.delivery_attempt == 1
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS

    def wait(self, count: int) -> list[tuple[str, int]]:
        with self.changed:
            self.changed.wait_for(lambda: len(self.seen) >= count, WAIT_S)
            return list(self.seen)


def receive(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < until:
        for each in consumer.receive(32, 15) or []:
            consumer.ack(each)
            found.append(each)
    return found


def send_and_receive() -> dict[str, Any]:
    producer = Producer(configuration(), ("Normal",))
    producer.startup()
    consumer = SimpleConsumer(configuration(), "simple", {"Normal": FilterExpression("A || C")}, await_duration=5)
    consumer.startup()
    ids = [producer.send(message("Normal", str(number), "ABC"[number % 3])).message_id for number in range(30)]
    found = receive(consumer, 20)
    rest = consumer.receive(32, 15) or []
    seen = {
        "received": sorted(int(each.body) for each in found),
        "ids": {each.message_id for each in found} <= set(ids) and len(set(ids)) == 30,
        "corrupted": any(each.corrupted for each in found),
        "properties": all(each.properties["number"] == each.body.decode() for each in found),
        "keys": all(list(each.keys) == [f"key-{each.body.decode()}"] for each in found),
        "attempts": sorted({each.delivery_attempt for each in found}),
        "rest": len(rest),
    }
    consumer.shutdown()
    producer.shutdown()
    return seen


def push() -> dict[str, Any]:
    producer = Producer(configuration(), ("Normal",))
    producer.startup()
    listener = Listener()
    consumer = PushConsumer(configuration(), "push", listener, {"Normal": FilterExpression("P")})
    consumer.startup()
    for text in ("x", "y", "again"):
        producer.send(message("Normal", text, "P"))
    seen = listener.wait(4)
    consumer.shutdown()
    producer.shutdown()
    return {"pushed": sorted(map(list, seen))}


def ordered() -> dict[str, Any]:
    producer = Producer(configuration(), ("Fifo",))
    producer.startup()
    places = [producer.send(message("Fifo", str(number), group="g")).offset for number in range(6)]
    listener = Listener()
    consumer = PushConsumer(configuration(), "ordered", listener, {"Fifo": FilterExpression()})
    consumer.startup()
    seen = listener.wait(6)
    consumer.shutdown()
    producer.shutdown()
    return {"ordered": [body for body, _ in seen], "offsets": places}


def late_and_recalled() -> dict[str, Any]:
    producer = Producer(configuration(), ("Delay",))
    producer.startup()
    consumer = SimpleConsumer(configuration(), "late", {"Delay": FilterExpression()}, await_duration=5)
    consumer.startup()
    sent = time.time()
    producer.send(message("Delay", "late", in_s=4))
    recalled = producer.send(message("Delay", "recalled", in_s=5))
    producer.recall_message("Delay", recalled.recall_handle)
    found = receive(consumer, 1)
    took = time.time() - sent
    rest = consumer.receive(32, 15) or []
    consumer.shutdown()
    producer.shutdown()
    return {"late": [each.body.decode() for each in found], "took": took, "not recalled": len(rest)}


def transactions() -> dict[str, Any]:
    producer = Producer(configuration(), ("Transaction",), checker=Checker())
    producer.startup()
    consumer = SimpleConsumer(configuration(), "settled", {"Transaction": FilterExpression()}, await_duration=5)
    consumer.startup()
    for text in ("commit", "rollback", "orphan"):
        transaction = producer.begin_transaction()
        producer.send(message("Transaction", text), transaction)
        if text == "commit":
            transaction.commit()
        elif text == "rollback":
            transaction.rollback()
    found = receive(consumer, 2)
    rest = consumer.receive(32, 15) or []
    consumer.shutdown()
    producer.shutdown()
    return {"settled": sorted(each.body.decode() for each in found), "unsettled": len(rest)}


def main() -> None:
    seen: dict[str, Any] = {}
    for part in (send_and_receive, push, ordered, late_and_recalled, transactions):
        seen.update(part())
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
