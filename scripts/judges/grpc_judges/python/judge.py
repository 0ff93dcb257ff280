"""Judge a proxy by RocketMQ 5's official Python client: PROGRAM ENDPOINT RUN CASE...

Run by the Python of an environment that has it. Each case has its own topic and group, grpc-NAME-RUN and
grpc-group-NAME-RUN, which must exist. It prints one line: "case NAME passed", or "case NAME failed REASON".
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import Code, FilterType  # type: ignore[import-not-found]

PATIENCE_S: Final = 30.0
AWAIT_S: Final = 5
HIDDEN_S: Final = 15

Got = tuple[str, str, int]


def equal(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r} is not {wanted!r}")


def check(is_true: object, wrong: str) -> None:
    if not is_true:
        raise AssertionError(wrong)


def refusal(work: Callable[[], object]) -> Any:
    """Do work that must be refused; return the client's exception."""
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("it was not refused")


def body(message: Any) -> str:
    return str(message.body.decode())


def bodies(messages: Sequence[Any]) -> list[str]:
    return [body(each) for each in messages]


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


class Complaints(logging.Handler):
    """Prints the errors that the client logs, and keeps them."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        sys.stdout.write(f"client: {self.said[-1]}\n")


class Checker(TransactionChecker):  # type: ignore[misc]
    """Commits every transaction that it is asked about."""

    def check(self, message: Any) -> Any:
        return TransactionResolution.COMMIT


class Listener(MessageListener):  # type: ignore[misc]
    """Keeps the lite topic, body and attempt of each message given.

    `is_done` returns True, for a body and the number of its deliveries, if the message was consumed.
    """

    def __init__(self, is_done: Callable[[str, int], bool] = lambda body, times: True) -> None:
        self.seen: list[Got] = []
        self._is_done = is_done
        self._changed = threading.Condition()

    def consume(self, message: Any) -> Any:
        text = body(message)
        with self._changed:
            self.seen.append((message.lite_topic or "", text, message.delivery_attempt))
            self._changed.notify_all()
            times = sum(each == text for _, each, _ in self.seen)
        return ConsumeResult.SUCCESS if self._is_done(text, times) else ConsumeResult.FAILURE

    def wait(self, count: int) -> None:
        with self._changed:
            has_come = self._changed.wait_for(lambda: len(self.seen) >= count, PATIENCE_S)
        check(has_come, f"{len(self.seen)} messages of {count} within {PATIENCE_S} s: {self.seen}")

    @property
    def attempts(self) -> list[tuple[str, int]]:
        return [(text, attempt) for _, text, attempt in self.seen]


class Case:
    """The names and clients of one case."""

    def __init__(self, name: str, endpoint: str, run: str) -> None:
        self.topic = f"grpc-{name}-{run}"
        self.group = f"grpc-group-{name}-{run}"
        self._endpoint = endpoint
        self._tls = {"tls_enable": name == "tls"}
        self._clients: list[Any] = []

    def _start(self, make: Callable[..., Any], *arguments: object, **options: object) -> Any:
        client = make(ClientConfiguration(self._endpoint, Credentials()), *arguments, **self._tls, **options)
        client.startup()
        self._clients.append(client)
        return client

    def producer(self, checker: Checker | None = None) -> Any:
        return self._start(Producer, (self.topic,), checker)

    def consumer(self, expression: str = "*", kind: int = FilterType.TAG) -> Any:
        subscription = {self.topic: FilterExpression(expression, kind)}
        return self._start(SimpleConsumer, self.group, subscription, await_duration=AWAIT_S)

    def letters(self) -> Any:
        """A consumer of the group's dead letters, which must exist."""
        subscription = {f"%DLQ%{self.group}": FilterExpression()}
        return self._start(SimpleConsumer, f"{self.group}-letters", subscription, await_duration=AWAIT_S)

    def push(self, listener: Listener) -> None:
        self._start(PushConsumer, self.group, listener, {self.topic: FilterExpression()})

    def lite(self, listener: Listener) -> Any:
        return self._start(LitePushConsumer, self.group, self.topic, listener)

    def message(self, number: int, **more: object) -> Any:
        made = Message()
        made.topic, made.body, made.keys = self.topic, str(number).encode(), f"k{number}"
        made.add_property("number", str(number))
        for name, value in more.items():
            setattr(made, name, value)
        return made

    def send(
        self, producer: Any, count: int, more: Callable[[int], Mapping[str, object]] = lambda number: {}
    ) -> list[Any]:
        return [producer.send(self.message(number, **more(number))) for number in range(count)]

    def close(self) -> None:
        for client in self._clients:
            client.shutdown()


def receive(consumer: Any, most: int = 32, hidden_s: int = HIDDEN_S) -> list[Any]:
    """Receive available messages; the list may be empty."""
    return consumer.receive(most, hidden_s) or []


def take(consumer: Any, count: int, most: int = 32) -> list[Any]:
    got: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < end:
        for message in receive(consumer, most):
            consumer.ack(message)
            got.append(message)
    return got


def take_next(consumer: Any, hidden_s: int = HIDDEN_S) -> Any:
    """Receive one message, and leave it hidden."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for message in receive(consumer, 1, hidden_s):
            return message
    raise AssertionError(f"no message within {PATIENCE_S} s")


# -- sending and receiving


def send(case: Case) -> None:
    sent = case.send(case.producer(), 20)
    equal(len({each.message_id for each in sent}), 20)


def burst(case: Case) -> None:
    producer = case.producer()
    ids: set[str] = set()
    for first in range(0, 3000, 50):
        sending = [producer.send_async(case.message(number)) for number in range(first, first + 50)]
        ids.update(each.result(PATIENCE_S).message_id for each in sending)
    equal(len(ids), 3000)


def simple(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    sent = case.send(producer, 20, lambda number: {"tag": "tag"})
    got = take(consumer, 20)
    equal(sorted(bodies(got), key=int), numbers(0, 20))
    equal(sorted(each.message_id for each in got), sorted(each.message_id for each in sent))
    for message in got:
        number = body(message)
        check(not message.corrupted, "a body is not what its digest says")
        equal(message.keys, {f"k{number}"})
        equal(message.properties.get("number"), number)
        equal(message.tag, "tag")
        equal(message.delivery_attempt, 1)
    equal(bodies(receive(consumer)), [])


def unknown(case: Case) -> None:
    producer = case.producer()
    message = case.message(0, topic=f"{case.topic}-unknown")
    complaints = Complaints()
    logger = logging.getLogger("rocketmq-python-client")
    logger.addHandler(complaints)
    wrong = refusal(lambda: producer.send(message))
    logger.removeHandler(complaints)
    check(message.topic in str(wrong), f"it was refused otherwise: {wrong}")
    # The exception does not say why there is no route; the client's log does.
    check(any(each.startswith("query topic") and "40402" in each for each in complaints.said), f"{complaints.said}")


def large(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    sent = os.urandom(3 << 20)
    producer.send(case.message(0, body=sent))
    got = take(consumer, 1)
    equal(len(got), 1)
    check(got[0].body == sent and not got[0].corrupted, "not the body that was sent")


def tags(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer("A || C")
    case.send(producer, 30, lambda number: {"tag": "ABC"[number % 3]})
    got = take(consumer, 20)
    equal(sorted(bodies(got), key=int), [str(number) for number in range(30) if number % 3 != 1])
    equal(bodies(receive(consumer)), [])


def sql(case: Case) -> None:
    producer = case.producer()
    consumer = case.consumer("number BETWEEN 3 AND 6 OR TAGS IN ('x')", FilterType.SQL)
    case.send(producer, 10, lambda number: {"tag": "x" if number == 9 else "y"})
    got = take(consumer, 5)
    equal(sorted(bodies(got)), ["3", "4", "5", "6", "9"])
    equal(bodies(receive(consumer)), [])


def fifo(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    case.send(producer, 8, lambda number: {"message_group": "one"})
    got = take(consumer, 8, 1)
    equal(bodies(got), numbers(0, 8))
    equal({each.message_group for each in got}, {"one"})


def priority(case: Case) -> None:
    """Messages come from the highest priority to the lowest, though each is in its own queue."""
    producer, consumer = case.producer(), case.consumer()
    for number in (1, 3, 0, 9, 2, 3):
        producer.send(case.message(number, priority=number))
    got = take(consumer, 6, 1)
    # The topic has four queues; the last one has all priorities from 3 on.
    equal(bodies(got), ["3", "9", "3", "2", "1", "0"])
    equal([each.priority for each in got], [3, 9, 3, 2, 1, 0])
    # The client itself refuses it, as the route says that the topic takes only messages with priorities.
    wrong = refusal(lambda: producer.send(case.message(0)))
    check("not match" in str(wrong), f"it was refused otherwise: {wrong}")


# -- late messages


def delay(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    # The client counts whole seconds.
    due = int(time.time()) + 5
    producer.send(case.message(0, delivery_timestamp=due))
    got = take(consumer, 1)
    late_s = time.time() - due
    equal(bodies(got), ["0"])
    check(-0.1 < late_s < 8, f"it came {late_s} s after it was due")


def recall(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    due = int(time.time()) + 7
    first, _ = case.send(producer, 2, lambda number: {"delivery_timestamp": due})
    equal(producer.recall_message(case.topic, first.recall_handle), first.message_id)
    equal(bodies(take(consumer, 1)), ["1"])
    equal(bodies(receive(consumer)), [])


# -- transactions


def transaction(case: Case, end: Callable[[Any], object]) -> Any:
    """Send a message in a transaction and end it with `end`, or leave it open; return a consumer."""
    producer, consumer = case.producer(Checker()), case.consumer()
    begun = producer.begin_transaction()
    sent = producer.send(case.message(0), begun)
    check(sent.transaction_id, "a transaction without an id")
    end(begun)
    return consumer


def commit(case: Case) -> None:
    consumer = transaction(case, lambda begun: begun.commit())
    equal(bodies(take(consumer, 1)), ["0"])
    equal(bodies(receive(consumer)), [])


def rollback(case: Case) -> None:
    consumer = transaction(case, lambda begun: begun.rollback())
    equal(bodies(receive(consumer)), [])


def orphan(case: Case) -> None:
    consumer = transaction(case, lambda begun: None)
    equal(bodies(take(consumer, 1)), ["0"])
    equal(bodies(receive(consumer)), [])


# -- messages that come again


def nack(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    case.send(producer, 1)
    first = take_next(consumer, 60)
    began = time.monotonic()
    consumer.change_invisible_duration(first, 3)
    second = take_next(consumer)
    took = time.monotonic() - began
    check(2 < took < 15, f"it came again after {took} s")
    equal([first.delivery_attempt, second.delivery_attempt], [1, 2])
    equal(second.message_id, first.message_id)
    consumer.ack(second)


def redelivery(case: Case) -> None:
    producer, consumer = case.producer(), case.consumer()
    case.send(producer, 1)
    equal([take_next(consumer, 10).delivery_attempt for _ in range(3)], [1, 2, 3])


# -- push consumers


def push(case: Case) -> None:
    producer, listener = case.producer(), Listener()
    case.push(listener)
    case.send(producer, 20)
    listener.wait(20)
    equal(sorted(listener.attempts, key=lambda each: int(each[0])), [(each, 1) for each in numbers(0, 20)])
    began = time.monotonic()
    producer.send(case.message(20))
    listener.wait(21)
    check(time.monotonic() - began < 2, "a long poll was not answered on arrival")
    equal(listener.attempts[20:], [("20", 1)])


def push_retry(case: Case) -> None:
    producer, listener = case.producer(), Listener(lambda text, times: times > 1)
    case.push(listener)
    case.send(producer, 1)
    listener.wait(2)
    time.sleep(3)
    equal(listener.attempts, [("0", 1), ("0", 2)])


def push_fifo(case: Case) -> None:
    producer, listener = case.producer(), Listener(lambda text, times: text != "1" or times > 1)
    case.push(listener)
    case.send(producer, 4, lambda number: {"message_group": "one"})
    listener.wait(5)
    time.sleep(3)
    # This client redelivers an ordered message to its listener itself, with the attempt number that it arrived with.
    equal(listener.attempts, [("0", 1), ("1", 1), ("1", 1), ("2", 1), ("3", 1)])


def dead(case: Case) -> None:
    """Messages of the group are dead after their second attempt."""
    producer, listener = case.producer(), Listener(lambda text, times: False)
    case.push(listener)
    (sent,) = case.send(producer, 1)
    listener.wait(2)
    time.sleep(12)
    equal(listener.attempts, [("0", 1), ("0", 2)])
    got = take(case.letters(), 1)
    equal([(body(each), each.message_id) for each in got], [("0", sent.message_id)])


# -- lite topics: this client asks for each letter of a name separately, and announces all names
# -- only every 30 seconds, so the names have one letter


def lite(case: Case) -> None:
    producer, listener = case.producer(), Listener()
    consumer = case.lite(listener)
    consumer.subscribe_lite("a")
    consumer.subscribe_lite("b")
    case.send(producer, 30, lambda number: {"lite_topic": "abc"[number % 3]})
    listener.wait(20)
    time.sleep(1)
    for at, name in enumerate("ab"):
        wanted = [(name, str(number), 1) for number in range(at, 30, 3)]
        equal([each for each in listener.seen if each[0] == name], wanted)
    equal(len(listener.seen), 20)
    consumer.unsubscribe_lite("a")
    producer.send(case.message(30, lite_topic="a"))
    producer.send(case.message(31, lite_topic="b"))
    listener.wait(21)
    time.sleep(1)
    equal(listener.seen[20:], [("b", "31", 1)])


def lite_exclusive(case: Case) -> None:
    """Take a lite topic from the group's other client: it allows one subscriber, which may have two topics.

    The previous subscriber is notified, but this client ignores the notice.
    """
    producer, one, other = case.producer(), Listener(), Listener()
    case.lite(one).subscribe_lite("a")
    producer.send(case.message(0, lite_topic="a"))
    one.wait(1)
    second = case.lite(other)
    second.subscribe_lite("a")
    producer.send(case.message(1, lite_topic="a"))
    other.wait(1)
    equal([one.seen, other.seen], [[("a", "0", 1)], [("a", "1", 1)]])
    second.subscribe_lite("b")
    equal(refusal(lambda: second.subscribe_lite("c")).code, Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED)


CASES: Final[Mapping[str, Callable[[Case], None]]] = {
    "send": send,
    "burst": burst,
    "simple": simple,
    "unknown": unknown,
    "large": large,
    "tags": tags,
    "sql": sql,
    "fifo": fifo,
    "priority": priority,
    "delay": delay,
    "recall": recall,
    "commit": commit,
    "rollback": rollback,
    "orphan": orphan,
    "nack": nack,
    "redelivery": redelivery,
    "push": push,
    "push_retry": push_retry,
    "push_fifo": push_fifo,
    "dead": dead,
    "tls": simple,
    "lite": lite,
    "lite_exclusive": lite_exclusive,
}


def judge(name: str, case: Case) -> None:
    try:
        CASES[name](case)
        outcome = "passed"
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        outcome = f"failed {type(error).__name__}: {error}".replace("\n", " ")
    print(f"case {name} {outcome}", flush=True)
    try:
        case.close()
    except Exception as error:
        print("close:", error, flush=True)


def main(endpoint: str, run: str, *names: str) -> None:
    for name in names:
        judge(name, Case(name, endpoint, run))
    # The client's threads would hold the program up.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
