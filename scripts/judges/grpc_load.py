"""The load of scripts/benchmark-grpc, by RocketMQ 5's official Python client.

Run by the Python of an environment that has it: PROGRAM CASE ENDPOINT TOPIC NUMBER... Each measurement is a line on
standard output: `load NAME VALUE`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
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
)

BODY = bytes(1024)
PATIENCE_S = 60.0
STARTS_MAX = 5


def tell(name: str, value: float) -> None:
    print("load", name, value, flush=True)


def message(topic: str) -> Any:
    made = Message()
    made.topic, made.body, made.tag = topic, BODY, "load"
    return made


def started(make: Callable[[], Any]) -> Any:
    """Make and start a client. On a busy machine it may give up: its first requests have limits of 3 s and 10 s."""
    for _ in range(STARTS_MAX - 1):
        try:
            made = make()
            made.startup()
            return made
        except Exception:
            traceback.print_exc()
    made = make()
    made.startup()
    return made


def producer(endpoint: str, topic: str) -> Any:
    return started(lambda: Producer(ClientConfiguration(endpoint, Credentials()), (topic,)))


def consumer(endpoint: str, topic: str, group: str, listener: Any) -> Any:
    configuration = ClientConfiguration(endpoint, Credentials())
    return started(lambda: PushConsumer(configuration, group, listener, {topic: FilterExpression()}))


class Sender:
    """Sends messages, with a limit on those not yet acknowledged, or not yet taken by a consumer."""

    def __init__(self, made: Any, topic: str, in_flight: int, *, until_taken: bool = False) -> None:
        self._producer = made
        self._topic = topic
        self._room = threading.Semaphore(in_flight)
        self._in_flight = in_flight
        self._until_taken = until_taken
        self.sent = 0
        self.faults: list[BaseException] = []

    def send_until(self, end: float) -> None:
        """Send for a while, and wait for the last answer."""
        while time.monotonic() < end:
            self._room.acquire()
            self._producer.send_async(message(self._topic)).add_done_callback(self._done)
            self.sent += 1
        for _ in range(self._in_flight):
            if not self._room.acquire(timeout=PATIENCE_S):
                raise TimeoutError(f"not all came within {PATIENCE_S} s")
        for _ in range(self._in_flight):
            self._room.release()

    def _done(self, future: Future[Any]) -> None:
        fault = future.exception()
        if fault is not None:
            self.faults.append(fault)
        if fault is not None or not self._until_taken:
            self._room.release()

    def taken(self) -> None:
        if self._until_taken:
            self._room.release()

    def check(self) -> None:
        tell("faults", len(self.faults))
        for fault in self.faults[:3]:
            print(fault, file=sys.stderr)


class Counting(MessageListener):  # type: ignore[misc]
    """Counts and prints the messages that it is given."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._told = told
        self._lock = threading.Lock()

    def consume(self, message: Any) -> Any:
        with self._lock:
            self.count += 1
        self._told()
        return ConsumeResult.SUCCESS


def sends(endpoint: str, topic: str, warm_s: float, measured_s: float, in_flight: int) -> None:
    sender = Sender(producer(endpoint, topic), topic, in_flight)
    sender.send_until(time.monotonic() + warm_s)
    tell("begin", 0)
    began, before = time.monotonic(), sender.sent
    sender.send_until(began + measured_s)
    tell("per_s", (sender.sent - before) / (time.monotonic() - began))
    tell("messages", sender.sent - before)
    tell("end", 0)
    sender.check()


def through(endpoint: str, topic: str, warm_s: float, measured_s: float, in_flight: int) -> None:
    """Send as fast as a push consumer takes the messages; messages taken are counted."""
    sender = Sender(producer(endpoint, topic), topic, in_flight, until_taken=True)
    listener = Counting(sender.taken)
    taking = consumer(endpoint, topic, f"{topic}-group", listener)
    sender.send_until(time.monotonic() + warm_s)
    tell("begin", 0)
    began, before = time.monotonic(), listener.count
    sender.send_until(began + measured_s)
    taken, took_s = listener.count - before, time.monotonic() - began
    tell("per_s", taken / took_s)
    tell("messages", taken)
    tell("end", 0)
    sender.check()
    tell("missing", sender.sent - listener.count)
    taking.shutdown()


def paced(endpoint: str, topic: str, warm_s: float, measured_s: float, rate: int) -> None:
    """Send at a rate, and measure the duration of each send from the time it was due."""
    made = producer(endpoint, topic)
    took: list[float] = []
    began = time.monotonic()
    count = int((warm_s + measured_s) * rate)
    for number in range(count):
        due = began + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        if number == int(warm_s * rate):
            tell("begin", 0)
        future = made.send_async(message(topic))
        if number >= warm_s * rate:
            future.add_done_callback(lambda done, due=due: took.append(time.monotonic() - due))
    future.result()
    time.sleep(1.0)
    took.sort()
    tell("per_s", len(took) / measured_s)
    tell("messages", len(took))
    tell("end", 0)
    tell("p50_ms", 1000 * took[len(took) // 2])
    tell("p99_ms", 1000 * took[len(took) * 99 // 100])


def idle(endpoint: str, topic: str, count: float, number: int) -> None:
    """Start idle push consumers, each in its own group; end with the standard input."""
    groups = (f"{topic}-idle-{number}-{each}" for each in range(int(count)))
    kept = [consumer(endpoint, topic, group, Counting()) for group in groups]
    tell("started", len(kept))
    sys.stdin.read()


def main(case: str, endpoint: str, topic: str, *numbers: str) -> None:
    if case == "idle":
        idle(endpoint, topic, float(numbers[0]), int(numbers[1]))
    else:
        cases = {"sends": sends, "through": through, "paced": paced}
        cases[case](endpoint, topic, float(numbers[0]), float(numbers[1]), int(numbers[2]))


if __name__ == "__main__":
    status = 0
    try:
        main(*sys.argv[1:])
    except Exception:
        traceback.print_exc()
        status = 1
    # The client has threads that do not end.
    os._exit(status)
