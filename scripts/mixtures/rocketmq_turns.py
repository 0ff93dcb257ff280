"""One RocketMQ store that our node and Apache's broker serve in turns, each after a clean stop or kill of the other.

A node finds every acknowledged message by its queue and its key, at the offset in its acknowledgment, and the offsets
that groups had committed before a clean stop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.schema import Buffer
from tests.rigs.remoting import Remote

__all__ = ["Broker", "Differs", "Sent", "Turns", "records_of", "send", "served"]

TOPIC: Final = "turns"
# The group of `Remote.pull`, which makes it.
GROUP: Final = "group"
QUEUES: Final = 4
SAMPLE: Final = 40


class Differs(Exception):
    """A broker's answer contradicts an acknowledgment."""


class Broker(Protocol):
    """A broker process of either make."""

    port: int

    def start(self) -> object: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Sent(NamedTuple):
    """An acknowledged message."""

    key: str
    body: bytes
    physical_offset: int


class Turns:
    """The rounds on one store; `brokers` has the makes, which take turns, by name."""

    def __init__(self, brokers: dict[str, Broker], seed: int) -> None:
        self._brokers = brokers
        self._random = random.Random(seed)
        self._queues: list[list[Sent]] = [[] for _ in range(QUEUES)]
        self._committed: dict[int, int] = {}
        self._was_killed = False
        self._keys_from = 0
        self.count = 0

    def run(self, rounds: int, messages: int, say: Callable[[str], None]) -> None:
        """Let the brokers take `rounds` turns. Raises `Differs`."""
        names = list(self._brokers)
        for number in range(rounds):
            name = names[number % len(names)]
            broker = self._brokers[name]
            broker.start()
            try:
                with Remote(broker.port) as remote:
                    self._check(remote)
                    self._send(remote, messages)
                    self._check(remote)
                    self._commit(remote)
            except BaseException:
                broker.kill()
                raise
            # Each make ends in both ways.
            self._was_killed = number // len(names) % 2 == 0
            if self._was_killed:
                broker.kill()
                # Apache's broker then deletes the index, and rebuilds it only from its last checkpoint on.
                self._keys_from = self.count
            else:
                broker.close()
            end = "killed" if self._was_killed else "stopped"
            say(f"{name}: {self.count} messages with their offsets; {end}")

    # -- sending

    def _send(self, remote: Remote, messages: int) -> None:
        for _ in range(messages):
            size = self._random.choice((0, 10, 100, 1000, 5000))
            key, body = f"k{self.count}", b"%d " % self.count + self._random.randbytes(size)
            queue_id = self._random.randrange(QUEUES)
            queue = self._queues[queue_id]
            queue.append(send(remote, TOPIC, key, body, queue_id, len(queue)))
            self.count += 1

    def _commit(self, remote: Remote) -> None:
        for queue_id, queue in enumerate(self._queues):
            offset = self._random.randrange(len(queue) + 1)
            answer = remote.commit(TOPIC, queue_id, offset)
            _expect(answer, ResponseCode.SUCCESS, f"committing {offset} of queue {queue_id}")
            self._committed[queue_id] = offset

    # -- what is there

    def _check(self, remote: Remote) -> None:
        for queue_id, queue in enumerate(self._queues):
            found = list(served(remote, TOPIC, queue_id, len(queue)))
            for offset, (sent, record) in enumerate(zip(queue, found, strict=False)):
                told = (record.queue_offset, record.physical_offset, bytes(record.body))
                if told != (offset, sent.physical_offset, sent.body):
                    raise Differs(f"queue {queue_id} has another message at {offset} than {sent.key}")
            if len(found) != len(queue):
                raise Differs(f"queue {queue_id} has {len(found)} of {len(queue)} messages")
        every = [sent for queue in self._queues for sent in queue if int(sent.key[1:]) >= self._keys_from]
        for sent in self._random.sample(every, min(SAMPLE, len(every))):
            self._check_key(remote, sent)
        if self._committed and not self._was_killed:
            self._check_committed(remote)
        self._committed = {}

    def _check_key(self, remote: Remote, sent: Sent) -> None:
        answer = remote.call(
            RequestCode.QUERY_MESSAGE, topic=TOPIC, key=sent.key, maxNum=4, beginTimestamp=0, endTimestamp=1 << 61
        )
        _expect(answer, ResponseCode.SUCCESS, f"asking for {sent.key}")
        if [bytes(record.body) for record in records_of(answer.body)] != [sent.body]:
            raise Differs(f"the key {sent.key} leads to another message")

    def _check_committed(self, remote: Remote) -> None:
        for queue_id, offset in self._committed.items():
            answer = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=queue_id)
            _expect(answer, ResponseCode.SUCCESS, f"asking for the offset of queue {queue_id}")
            if int(_fields(answer)["offset"]) != offset:
                raise Differs(f"queue {queue_id} is at {_fields(answer)['offset']}, and {offset} was committed")


def send(remote: Remote, topic: str, key: str, body: bytes, queue_id: int, offset: int) -> Sent:
    """Send a message; the answer must have that offset in its queue. Raises `Differs`."""
    answer = remote.send_message(topic, body, queue_id, f"KEYS\x01{key}\x02TAGS\x01t{len(body) % 3}\x02")
    _expect(answer, ResponseCode.SUCCESS, f"sending {key}")
    fields = _fields(answer)
    if int(fields["queueOffset"]) != offset:
        raise Differs(f"{key} of queue {queue_id} is told offset {fields['queueOffset']}, not {offset}")
    # The id is the host's address and port and the place in the log, in hexadecimal.
    return Sent(key, body, int(fields["msgId"][-16:], 16))


def _expect(answer: Frame, code: ResponseCode, what: str) -> None:
    if answer.code != code:
        raise Differs(f"{what}: code {answer.code}, {answer.remark}")


def _fields(answer: Frame) -> dict[str, str]:
    if answer.ext_fields is None:
        raise Differs(f"an answer without fields, code {answer.code}")
    return answer.ext_fields


def served(remote: Remote, topic: str, queue_id: int, count: int) -> Iterator[Record]:
    """Yield the records of a queue as a consumer gets them; wait for the last of `count`."""
    offset = 0
    while True:
        answer = remote.answer(remote.pull(topic, offset, queue_id, wait_ms=5000 if offset < count else 0))
        if answer.code != ResponseCode.SUCCESS:
            return
        yield from records_of(answer.body)
        offset = int(_fields(answer)["nextBeginOffset"])


def records_of(body: Buffer) -> Iterator[Record]:
    at = 0
    while at < len(body):
        record = decode_record(body, at)
        assert isinstance(record, Record)
        yield record
        at += int.from_bytes(body[at : at + 4], "big")
