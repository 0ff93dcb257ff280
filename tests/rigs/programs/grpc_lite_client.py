"""Send to lite topics and consume them with RocketMQ's official client for gRPC, and print the results.

Run by the Python of an environment that has it: PROGRAM ENDPOINT. The topics and groups exist. The client asks for the
letters of a name when it subscribes to it; `subscribe_lite_all` announces the names.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

WAIT_S = 120
TOPIC = "Lite"


def configuration() -> Any:
    return ClientConfiguration(sys.argv[1], Credentials())


def message(body: str, lite_topic: str) -> Any:
    made = Message()
    made.topic, made.body, made.lite_topic = TOPIC, body.encode(), lite_topic
    return made


class Listener(MessageListener):  # type: ignore[misc]
    """Keeps its messages; `again` fails the first time. In groups that consume in order, the client retries it
    itself.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []
        self.changed = threading.Condition()

    def consume(self, message: Any) -> Any:
        body, attempt = message.body.decode(), message.delivery_attempt
        with self.changed:
            is_first = body not in [each for _, each, _ in self.seen]
            self.seen.append((message.lite_topic, body, attempt))
            self.changed.notify_all()
        return ConsumeResult.FAILURE if body == "again" and is_first else ConsumeResult.SUCCESS

    def wait(self, count: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: len(self.seen) >= count, WAIT_S)


def pushes(group: str, listener: Listener) -> Any:
    consumer = LitePushConsumer(configuration(), group, TOPIC, listener)
    consumer.startup()
    return consumer


def refusal(work: Callable[[], Any]) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def consume(producer: Any) -> dict[str, Any]:
    """Consume two lite topics, subscribed before and after there are messages; one message fails once."""
    listener = Listener()
    consumer = pushes("lite", listener)
    for name in ("a", "orders-7"):
        consumer.subscribe_lite(name)
    consumer.subscribe_lite_all()
    receipts = [producer.send(message(f"a{number}", "a")) for number in range(10)]
    for body in ("o0", "again", "o2"):
        producer.send(message(body, "orders-7"))
    producer.send(message("unseen", "other"))
    listener.wait(14)
    time.sleep(1)
    consumer.unsubscribe_lite("a")
    consumer.subscribe_lite_all()
    producer.send(message("unsubscribed", "a"))
    time.sleep(2)
    consumer.shutdown()
    of_a = [body for name, body, _ in listener.seen if name == "a"]
    orders = [(body, attempt) for name, body, attempt in listener.seen if name == "orders-7"]
    return {"a": of_a, "orders": orders, "offsets": [each.offset for each in receipts]}


def consume_everything(producer: Any) -> list[str]:
    listener = Listener()
    consumer = pushes("everything", listener)
    consumer.subscribe_lite_all()
    for name in ("p", "q"):
        producer.send(message(f"all-{name}", name))
    wanted = {"all-p", "all-q"}
    with listener.changed:
        listener.changed.wait_for(lambda: wanted <= {body for _, body, _ in listener.seen}, WAIT_S)
    consumer.shutdown()
    return sorted(wanted & {body for _, body, _ in listener.seen})


def take_turns(producer: Any) -> list[list[str]]:
    """Subscribe only one of two clients of a group to a lite topic; return the messages of each."""
    first, second = Listener(), Listener()
    one = pushes("exclusive", first)
    one.subscribe_lite("t")
    producer.send(message("1", "t"))
    first.wait(1)
    time.sleep(1)
    two = pushes("exclusive", second)
    two.subscribe_lite("t")
    producer.send(message("2", "t"))
    second.wait(2)
    time.sleep(1)
    two.shutdown()
    one.shutdown()
    return [[body for _, body, _ in each.seen] for each in (first, second)]


def pull(producer: Any) -> list[str]:
    consumer = LiteSimpleConsumer(TOPIC, configuration(), "few", await_duration=5)
    consumer.startup()
    # It does not wait for its settings, which allow this.
    until = time.monotonic() + WAIT_S
    while refusal(lambda: consumer.subscribe_lite("s")) and time.monotonic() < until:
        time.sleep(0.1)
    producer.send(message("s0", "s"))
    found: list[str] = []
    while not found and time.monotonic() < until:
        for each in consumer.receive(8, 15):
            found.append(each.body.decode())
            consumer.ack(each)
    consumer.shutdown()
    return found


def refusals(producer: Any) -> dict[str, str]:
    """Try forbidden calls; return the reasons."""
    few = pushes("few", Listener())
    few.subscribe_lite("1")
    few.subscribe_lite("2")
    seen = {
        "quota": refusal(lambda: few.subscribe_lite("3")),
        "name": refusal(lambda: producer.send(message("x", "no/name"))),
    }
    few.shutdown()
    plain = Message()
    plain.topic, plain.body = TOPIC, b"plain"
    seen["plain message"] = refusal(lambda: producer.send(plain))
    regular = LitePushConsumer(configuration(), "regular", TOPIC, Listener())
    seen["regular group"] = refusal(regular.startup)
    usual = PushConsumer(configuration(), "lite", Listener(), {"Normal": None})
    seen["lite group"] = refusal(usual.startup)
    return seen


def main() -> None:
    producer = Producer(configuration(), [TOPIC])
    producer.startup()
    seen: dict[str, Any] = consume(producer)
    seen["everything"] = consume_everything(producer)
    seen["turns"] = take_turns(producer)
    seen["pulled"] = pull(producer)
    seen["refused"] = refusals(producer)
    producer.shutdown()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
