"""Well-behaved clients of RocketMQ, beside sessions that are not: each records the faults that it sees.

In a turn a client sends a message and waits for the result. `Plain` reads it, `Timed` waits until it is due, `Popped`
until it comes again unacknowledged, `Prepared` until the broker asks for its outcome, and `Called` does all by gRPC.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import duration_of_ms, make
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.popped import read_popped
from formats.rocketmq.remoting.receipts import real_topic
from tests.rigs.grpc_calls import Caller
from tests.rigs.remoting import Remote

__all__ = ["HOST", "Called", "Client", "Plain", "Popped", "Prepared", "Suffered", "Timed"]

HOST = "127.0.0.1"
PAUSE_S = 0.05
_PREPARED = 4
_COMMIT = 8
_HIDDEN_MS = 2_000
T = TypeVar("T")
Fields = dict[str, Any]


class Suffered(Exception):
    """A refusal, a loss or a wait that no client should see."""


class _Over(Exception):
    """The client is to end, whatever it waits for."""


class Client:
    """A client in its own thread, between `begin` and `join`, which may be repeated.

    It connects to one port after another until one takes its messages, and records `faults`. A patient one connects
    again instead, and only counts: `done` is the number of turns, and `done_s` the time of the last.
    """

    period_s = 0.1

    def __init__(self, ports: Sequence[int], bound_s: float, *, patient: bool = False) -> None:
        self.ports = ports
        self.bound_s = bound_s
        self.patient = patient
        self.faults: list[str] = []
        self.done = 0
        self.done_s = time.monotonic()
        self.topic = f"honest-{secrets.token_hex(4)}"
        self._number = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._over.clear()
        self.done_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Have it end after its turn, or as soon as it waits."""
        self._over.set()

    def join(self) -> None:
        """Wait until it has ended; not to end is a fault."""
        if self._thread is not None:
            self._thread.join(self.bound_s * 2)
            if self._thread.is_alive():
                self.faults.append("does not end")
            self._thread = None

    def _run(self) -> None:
        at = 0
        while not self._over.is_set():
            try:
                self._course(self.ports[at % len(self.ports)])
            except Suffered as error:
                if not self.patient:
                    self.faults.append(str(error))
                    return
            except _Over:
                return
            except (OSError, EOFError, AssertionError, FormatError) as error:
                if not self.patient and not self._over.is_set():
                    self.faults.append(f"{type(error).__name__}: {error}")
                    return
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}")
                return
            at += 1
            self._over.wait(0.2)

    def _course(self, port: int) -> None:
        with Remote(port, timeout_s=self.bound_s) as remote:
            self.greet(remote)
            while not self._over.is_set():
                self.turn(remote)
                self._count()

    def _count(self) -> None:
        self.done += 1
        self.done_s = time.monotonic()
        self._over.wait(self.period_s)

    def greet(self, remote: Remote) -> None:
        """Do what comes before the first turn."""

    def turn(self, remote: Remote) -> None:
        """Take a turn. Raises `Suffered`."""
        raise NotImplementedError

    def next_body(self) -> bytes:
        self._number += 1
        return f"{self.topic} {self._number} ".encode() + b"h" * (self._number % 200)

    def send(self, remote: Remote, body: bytes, properties: str = "", queue_id: int = 0, flags: int = 0) -> Frame:
        """Send a message, which must be taken."""
        fields: Fields = {
            "a": "honest",
            "b": self.topic,
            "c": "TBW102",
            "d": 4,
            "e": queue_id,
            "f": flags,
            "h": 0,
        }
        answer = remote.call(RequestCode.SEND_MESSAGE_V2, body, i=properties, g=int(time.time() * 1000), **fields)
        if answer.code != ResponseCode.SUCCESS:
            raise Suffered(f"a message is refused: {answer.code}, {answer.remark}")
        return answer

    def wait(self, what: str, find: Callable[[], T | None]) -> T:
        """Wait until something is found. Raises `Suffered` after the bound."""
        until = time.monotonic() + self.bound_s
        while (found := find()) is None:
            self._check_time(what, until)
            time.sleep(PAUSE_S)
        return found

    def _check_time(self, what: str, until: float) -> None:
        if self._over.is_set():
            raise _Over
        if time.monotonic() > until:
            raise Suffered(f"{what}: not within {self.bound_s:.0f} s")

    def pull(self, remote: Remote, queue_id: int, offset: int) -> tuple[list[Record], int]:
        """Return messages of a queue, and the offset after them."""
        answer = remote.answer(remote.pull(self.topic, offset, queue_id))
        if answer.code == ResponseCode.SYSTEM_ERROR:
            raise Suffered(f"a pull is refused: {answer.remark}")
        following = int((answer.ext_fields or {}).get("nextBeginOffset", offset))
        return (records_of(answer), following) if answer.code == ResponseCode.SUCCESS else ([], following)


def records_of(answer: Frame) -> list[Record]:
    found, at, view = [], 0, memoryview(answer.body)
    while at < len(view):
        record = decode_record(view, at)
        assert isinstance(record, Record)
        found.append(record)
        at += int.from_bytes(view[at : at + 4], "big")
    return found


class Plain(Client):
    """Sends to four queues and reads the messages; `stored` has the acknowledged ones, by queue and offset."""

    period_s = 0.03

    def __init__(self, ports: Sequence[int], bound_s: float, *, patient: bool = False) -> None:
        super().__init__(ports, bound_s, patient=patient)
        self.stored: dict[tuple[int, int], bytes] = {}

    def turn(self, remote: Remote) -> None:
        body = self.next_body()
        fields = self.send(remote, body, queue_id=self._number % 4).ext_fields or {}
        place = int(fields["queueId"]), int(fields["queueOffset"])
        self.stored[place] = body

        def find() -> bytes | None:
            records, _ = self.pull(remote, *place)
            return bytes(records[0].body) if records else None

        if (read := self.wait(f"message {place} is read", find)) != body:
            raise Suffered(f"message {place} is not what was sent: {read[:40]!r}")

    def check(self, port: int) -> None:
        """Read all acknowledged messages. Raises `Suffered` if one is missing or different."""
        found: dict[tuple[int, int], bytes] = {}
        with Remote(port, timeout_s=self.bound_s) as remote:
            for queue_id in range(4):
                records, offset = self.pull(remote, queue_id, 0)
                while records:
                    found.update({(queue_id, each.queue_offset): bytes(each.body) for each in records})
                    records, offset = self.pull(remote, queue_id, offset)
        lost = [place for place, body in self.stored.items() if found.get(place) != body]
        if lost:
            raise Suffered(f"{len(lost)} of {len(self.stored)} acknowledged messages are lost: {lost[:5]}")


class Timed(Client):
    """Sends messages that are due a second later, in both ways."""

    period_s = 0.5

    def __init__(self, ports: Sequence[int], bound_s: float, *, patient: bool = False) -> None:
        super().__init__(ports, bound_s, patient=patient)
        self._read = 0

    def turn(self, remote: Remote) -> None:
        body = self.next_body()
        name = "DELAY\x011\x02" if self._number % 2 else f"TIMER_DELIVER_MS\x01{int(time.time() * 1000) + 1_000}\x02"
        self.send(remote, body, name)

        def find() -> bool | None:
            records, self._read = self.pull(remote, 0, self._read)
            return True if body in [bytes(each.body) for each in records] else None

        self.wait(f"a message with {name[:16]!r} is delivered", find)


class Popped(Client):
    """Pops messages, does not acknowledge them, and waits until they come again."""

    period_s = 0.5

    def turn(self, remote: Remote) -> None:
        body = self.next_body()
        self.send(remote, body)
        seen = 0
        until = time.monotonic() + self.bound_s
        while seen < 2:
            self._check_time(f"a popped message comes again, which was seen {seen} times", until)
            seen += self._pop(remote, body, is_last=seen > 0)

    def _pop(self, remote: Remote, body: bytes, is_last: bool) -> bool:
        fields: Fields = {
            "consumerGroup": self.topic,
            "topic": self.topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "initMode": 0,
        }
        terms: Fields = {"invisibleTime": _HIDDEN_MS, "pollTime": 500, "bornTime": int(time.time() * 1000)}
        answer = remote.call(RequestCode.POP_MESSAGE, **fields, **terms)
        if answer.code != ResponseCode.SUCCESS:
            return False
        found = False
        for each in read_popped("broker-a", answer.ext_fields, answer.body):
            mine = bytes(each.record.body) == body
            found = found or mine
            if is_last or not mine:
                receipt = each.receipt
                topic = real_topic(self.topic, self.topic, receipt.kind)
                place: Fields = {"topic": topic, "queueId": receipt.queue_id, "offset": receipt.queue_offset}
                named: Fields = {"consumerGroup": self.topic, "extraInfo": str(receipt)}
                answer = remote.call(RequestCode.ACK_MESSAGE, **named, **place)
                if answer.code != ResponseCode.SUCCESS:
                    raise Suffered(f"an acknowledgement is refused: {answer.code}, {answer.remark}")
        return found


class Prepared(Client):
    """Sends prepared messages, waits for the question about their outcome, and commits them."""

    period_s = 0.5

    def greet(self, remote: Remote) -> None:
        me = {"clientID": self.topic, "producerDataSet": [{"groupName": self.topic}], "consumerDataSet": []}
        remote.call(RequestCode.HEART_BEAT, json.dumps(me).encode())

    def turn(self, remote: Remote) -> None:
        body = self.next_body()
        unique = secrets.token_hex(16).upper()
        properties = {"TRAN_MSG": "true", "PGROUP": self.topic, "UNIQ_KEY": unique}
        self.send(remote, body, "".join(f"{name}\x01{value}\x02" for name, value in properties.items()), 0, _PREPARED)
        until = time.monotonic() + self.bound_s
        while True:
            self._check_time("what became of a prepared message is asked", until)
            # Reading the answer also reads a question that has come.
            remote.call(RequestCode.GET_MAX_OFFSET, topic=self.topic, queueId=0)
            for asked in [each for each in remote.asked if each.code == RequestCode.CHECK_TRANSACTION_STATE]:
                remote.asked.remove(asked)
                fields = asked.ext_fields or {}
                if fields.get("transactionId") == unique:
                    self._commit(remote, fields)
                    return
            remote.asked.clear()
            time.sleep(PAUSE_S)

    def _commit(self, remote: Remote, fields: dict[str, str]) -> None:
        given: Fields = {
            name: fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId", "transactionId")
        }
        answer = remote.call(RequestCode.END_TRANSACTION, producerGroup=self.topic, commitOrRollback=_COMMIT, **given)
        if answer.code != ResponseCode.SUCCESS:
            raise Suffered(f"a transaction cannot be committed: {answer.code}, {answer.remark}")


class Called(Client):
    """Sends and receives by gRPC, at `grpc_port`; makes the topic at a broker's port, the first of `ports`."""

    def __init__(self, ports: Sequence[int], grpc_port: int, bound_s: float) -> None:
        super().__init__(ports, bound_s)
        self.grpc_port = grpc_port

    def _course(self, port: int) -> None:
        with Remote(port, timeout_s=self.bound_s) as remote:
            fields: Fields = {
                "topic": self.topic,
                "defaultTopic": "TBW102",
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
            }
            more: Fields = {
                "topicFilterType": "SINGLE_TAG",
                "order": "false",
                "attributes": "+message.type=NORMAL",
            }
            remote.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, **more)
        with closing(socket.create_connection((HOST, self.grpc_port), self.bound_s)) as sock:
            caller = Caller(sock, self.topic)
            self.wait("a message is taken by gRPC", lambda: self._send(caller, self.next_body()) or None)
            while not self._over.is_set():
                body = self.next_body()
                if not self._send(caller, body):
                    raise Suffered("a message is refused by gRPC")
                self.wait("a message is received by gRPC", lambda body=body: body in self._receive(caller) or None)  # type: ignore[misc]
                self._count()

    def _send(self, caller: Caller, body: bytes) -> bool:
        message = make("Message", body=body)
        message.topic.name = self.topic
        message.system_properties.message_id = secrets.token_hex(16)
        message.system_properties.message_type = message.system_properties.body_encoding = 1
        (answer,) = caller.call("SendMessage", make("SendMessageRequest", messages=[message]))
        return bool(answer.status.code == Code.OK)

    def _receive(self, caller: Caller) -> list[bytes]:
        request = make("ReceiveMessageRequest", batch_size=32)
        request.group.name, request.message_queue.topic.name = self.topic, self.topic
        request.filter_expression.type, request.filter_expression.expression = 1, "*"
        request.long_polling_timeout.CopyFrom(duration_of_ms(1_000))
        request.invisible_duration.CopyFrom(duration_of_ms(60_000))
        found = [each.message for each in caller.call("ReceiveMessage", request) if each.HasField("message")]
        for each in found:
            done = make("AckMessageRequest")
            done.group.name, done.topic.name = self.topic, self.topic
            done.entries.add(message_id="", receipt_handle=each.system_properties.receipt_handle)
            caller.call("AckMessage", done)
        return [bytes(each.body) for each in found]
