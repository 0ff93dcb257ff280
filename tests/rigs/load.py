"""A process that posts and confirms through the official client until it is ended, and records its events.

    python -m tests.rigs.load BROKER QUEUE RECORD FIRST CONSUMER...

It posts messages FIRST, FIRST + 1 and so on to QUEUE until its stdin is closed, waits for the answers, and then for its
end. A CONSUMER is `APP:KEEP`: it reads as that app ("-" for none) and confirms all but every KEEP-th message (0: all).
RECORD gets one line per event, written before the next thing happens:

| line | what is known by then |
| --- | --- |
| `P n` | message n is about to be posted |
| `A n status` | it was acknowledged |
| `D app n` | it was delivered |
| `C app n` | its confirm is about to be sent |
| `X app n` | the client did not send it: it has lost its broker |
| `S app count` | the first `count` confirms of the app were handled by the node: a later post was acknowledged |
| `E event` | a session event, or `Done`: all that was posted is answered |
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import blazingmq
from blazingmq.session_events import SessionEvent

from tests.waiting import eventually

__all__ = ["Record", "number_of", "payload"]

WINDOW = 400
SETTLE_EVERY = 20
MARKS = "bmq://bmq.test.mem.broadcast/marks"
OnMessage = Callable[[blazingmq.Message, blazingmq.MessageHandle], None]
UNLIMITED = blazingmq.QueueOptions(max_unconfirmed_messages=1 << 30, max_unconfirmed_bytes=1 << 30)


def payload(number: int) -> bytes:
    """The payload of message `number`: of many sizes, and checkable."""
    seed = number.to_bytes(8, "big")
    return seed + hashlib.shake_128(seed).digest(number * 37 % 1500)


def number_of(data: bytes) -> int:
    """Return the number of a message. Raises AssertionError if it is not whole."""
    number = int.from_bytes(data[:8], "big")
    assert data == payload(number)
    return number


class Record:
    """The record of a process. Consumers' lists are by app, in the order of the events."""

    def __init__(self, path: Path) -> None:
        self.posted: list[int] = []
        self.acked: dict[int, str] = {}
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.confirmed: dict[str, list[int]] = defaultdict(list)
        self.settled: dict[str, int] = defaultdict(int)
        self.events: list[str] = []
        path.touch()
        self._file = path.open()

    def read(self) -> None:
        while True:
            start = self._file.tell()
            line = self._file.readline()
            if not line.endswith("\n"):
                self._file.seek(start)
                return
            self._take(*line.split())

    def _take(self, kind: str, first: str, second: str = "") -> None:
        match kind:
            case "P":
                self.posted.append(int(first))
            case "A":
                self.acked[int(first)] = second
            case "D":
                self.delivered[first].append(int(second))
            case "C":
                self.confirmed[first].append(int(second))
            case "X":
                assert self.confirmed[first].pop() == int(second)
            case "S":
                self.settled[first] = int(second)
            case _:
                self.events.append(first)

    def wait(self, condition: Callable[[Record], bool], timeout_s: float = 40.0) -> None:
        def look() -> bool:
            self.read()
            return condition(self)

        eventually(look, timeout_s, state=lambda: f"{len(self.acked)} acked, events {self.events}")

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *fault: object) -> None:
        self._file.close()


class _Load:
    def __init__(self, broker: str, queue: str, record: Path) -> None:
        self.broker, self.queue = broker, queue
        self._fd = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._room = threading.Semaphore(WINDOW)
        self._enough = threading.Event()
        self._sessions: list[blazingmq.Session] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self._enough.set()

    def note(self, *words: object) -> None:
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())

    def session(self, on_message: OnMessage | None = None) -> blazingmq.Session:
        session = blazingmq.Session(self.on_event, on_message=on_message, broker=self.broker, host_health_monitor=None)
        self._sessions.append(session)
        return session

    def on_event(self, event: SessionEvent) -> None:
        self.note("E", type(event).__name__)

    def produce(self, first: int) -> None:
        session = self.session()
        session.open_queue(self.queue, write=True)
        for number in count(first):
            if self._enough.is_set():
                break
            self._room.acquire()
            self.note("P", number)
            self.post(session, number)
        for _ in range(WINDOW):
            self._room.acquire()

    def post(self, session: blazingmq.Session, number: int) -> None:
        """Post, sooner or later: the client refuses while its buffers are full or it has lost its broker."""
        while True:
            try:
                return session.post(self.queue, payload(number), on_ack=self.on_ack(number))
            except blazingmq.Error:
                time.sleep(0.005)

    def on_ack(self, number: int) -> Callable[[blazingmq.Ack], None]:
        def acked(ack: blazingmq.Ack) -> None:
            self.note("A", number, ack.status.name)
            self._room.release()

        return acked

    def consume(self, app: str, keep: int) -> None:
        confirmed = 0

        def mark(settled: int) -> None:
            with suppress(blazingmq.Error):
                session.post(MARKS, b"mark", on_ack=lambda ack: self.note("S", app, settled))

        def on_message(message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
            nonlocal confirmed
            number = number_of(message.data)
            self.note("D", app, number)
            if keep and number % keep == 0:
                return
            self.note("C", app, number)
            try:
                handle.confirm()
            except blazingmq.Error:
                self.note("X", app, number)
                return
            confirmed += 1
            if confirmed % SETTLE_EVERY == 0:
                mark(confirmed)

        session = self.session(on_message)
        session.open_queue(MARKS, write=True)
        session.open_queue(self.queue if app == "-" else f"{self.queue}?id={app}", read=True, options=UNLIMITED)


def main() -> None:
    broker, queue, record, first, *consumers = sys.argv[1:]
    load = _Load(broker, queue, Path(record))
    for consumer in consumers:
        app, keep = consumer.split(":")
        load.consume(app, int(keep))
    load.produce(int(first))
    load.note("E", "Done")
    signal.pause()


if __name__ == "__main__":
    main()
