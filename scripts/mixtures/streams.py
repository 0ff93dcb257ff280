"""Streams with several readers, each of which selects some of the messages: apps of a fan-out, and expressions.

The official client reads the apps of a fan-out, by the domain's expressions. Consumers with their own expressions use
bmqctl's client, since the official one has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

import blazingmq
import trio
from blazingmq import PropertyValueDict

from bmqctl.bench.plan import monotonic_ns
from bmqctl.bench.stamp import STAMP, STAMP_SIZE, filler
from bmqctl.bench.tally import ConsumerTally, ProducerTally
from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from bmqctl.client.session import Session, SessionOptions
from bmqctl.systems.node_process import HOST
from scripts.judges.client_watch import ClientWatch
from scripts.judges.cluster_load import TIMEOUTS, UNLIMITED, Refused, Stream, wait_until
from scripts.judges.reference_process import Running
from scripts.mixtures.config import APPS, EXPRESSIONS, FANOUT

__all__ = ["FAN_RATE", "Group", "expressions", "fan_out", "number_of"]

FAN_RATE = 50.0
SIZE = 512
# Number of a reader's late messages in the report, for a search in brokers' logs.
LATE_SHOWN = 3
HALVES: dict[str, Callable[[int], bool]] = {"n < 50": lambda n: n < 50, "n >= 50": lambda n: n >= 50}
# Each app's expression in `config.APPS`, in Python.
WANTED: dict[str, Callable[[int], bool]] = {
    "foo": lambda n: True,
    "bar": lambda n: n < 40,
    "baz": lambda n: n >= 40 and n % 2 == 0,
}
assert WANTED.keys() == APPS.keys()


def number_of(sequence: int) -> int:
    """Return the property `n` of a message, by which expressions choose."""
    return sequence * 7 % 100


def _properties(sequence: int) -> PropertyValueDict:
    number = number_of(sequence)
    return {"n": number, "kind": "odd" if number % 2 else "even"}


class Tally:
    """The messages that one reader got, compared with those it selects."""

    def __init__(self, name: str, run: int, wants: Callable[[int], bool]) -> None:
        self.name = name
        self.came = ConsumerTally(run)
        self.wants = wants
        self.garbled = 0
        self._rest = filler(SIZE)
        self._last = -1
        self._late: list[str] = []

    def take(self, payload: bytes, number: object) -> None:
        before = self.came.reordered
        self.came.deliver(payload, monotonic_ns())
        sequence = STAMP.words.unpack_from(payload)[3]
        if self.came.reordered > before and len(self._late) < LATE_SHOWN:
            self._late.append(f"{sequence} after {self._last} at {datetime.now(UTC):%H:%M:%S.%f}")
        self._last = sequence
        if payload[STAMP_SIZE:] != self._rest or number != number_of(sequence):
            self.garbled += 1

    def missing(self, sent: ProducerTally) -> int:
        """Count the wanted acknowledged messages that have not come."""
        seen = self.came.deliveries.get(sent.producer, bytearray())
        return sum(
            1
            for sequence, acked in enumerate(sent.accepted)
            if acked and self.wants(number_of(sequence)) and not (sequence < len(seen) and seen[sequence])
        )

    def unwanted(self, sent: ProducerTally) -> int:
        """Count the messages that came unwanted."""
        seen = self.came.deliveries.get(sent.producer, bytearray())
        return sum(1 for sequence, times in enumerate(seen) if times and not self.wants(number_of(sequence)))

    def faults(self, sent: ProducerTally) -> list[str]:
        """The faults of this reader at the end."""
        found = {
            "lost": self.missing(sent),
            "not for it": self.unwanted(sent),
            "reordered": self.came.reordered,
            "garbled": self.garbled,
        }
        late = f" ({'; '.join(self._late)})" if self._late else ""
        return [f"{count} {what} at {self.name}{late}" for what, count in found.items() if count]


class Reader(Protocol):
    """A consumer with its tally, which reads inside the `with` block."""

    tally: Tally

    @property
    def is_cut_off(self) -> bool: ...

    def open(self) -> None: ...

    def close(self) -> None: ...


class OfficialReader:
    """The official client."""

    def __init__(self, tally: Tally, uri: str, broker: str) -> None:
        self.tally = tally
        self._uri = uri
        self._watch = ClientWatch(self.open)
        self._session = blazingmq.Session(
            self._watch.on_event,
            on_message=self._on_message,
            broker=broker,
            timeout=TIMEOUTS,
            host_health_monitor=None,
        )

    def open(self) -> None:
        self._session.open_queue(self._uri, read=True, options=UNLIMITED)

    def close(self) -> None:
        self._watch.end()
        self._session.stop()
        if self._watch.refused:
            raise Refused(f"queue '{self._uri}' was not reopened: {'; '.join(self._watch.refused)}")

    @property
    def is_cut_off(self) -> bool:
        return self._watch.is_cut_off

    def _on_message(self, message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        self.tally.take(message.data, message.properties.get("n"))
        try:
            handle.confirm()
        except blazingmq.Error:
            return  # its node is gone: the message will come again
        self.tally.came.confirmed += 1


class OwnReader:
    """Our client in a thread, with a subscription expression."""

    is_cut_off = False

    def __init__(self, tally: Tally, uri: str, port: int, expression: str) -> None:
        self.tally = tally
        self._uri = uri
        self._port = port
        self._options = StreamOptions(
            max_unconfirmed_messages=1 << 20,
            max_unconfirmed_bytes=1 << 30,
            subscriptions=(StreamSubscription(expression),),
        )
        self._thread = threading.Thread(target=trio.run, args=(self._read,), name=f"reader {expression}")
        self._is_open = threading.Event()
        self._fault: BaseException | None = None
        self._stopping: Callable[[], None] | None = None

    def open(self) -> None:
        self._thread.start()
        self._is_open.wait()
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        if self._stopping is not None:
            self._stopping()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    async def _read(self) -> None:
        try:
            with trio.CancelScope() as scope:
                token = trio.lowlevel.current_trio_token()
                self._stopping = lambda: token.run_sync_soon(scope.cancel)
                options = SessionOptions(timeout_s=60.0, resume=True)
                async with Session.connect(HOST, self._port, options) as session:
                    queue = await session.open_queue(self._uri, read=True, options=self._options)
                    self._is_open.set()
                    async for message in queue:
                        number = message.properties["n"] if message.properties else None
                        self.tally.take(bytes(message.payload), number)
                        queue.confirm(message)
        except BaseException as fault:
            self._fault = fault
        finally:
            self._is_open.set()


class Group:
    """A producer of the official client and several readers, all running inside the `with` block."""

    def __init__(self, stream: Stream, readers: Sequence[Reader]) -> None:
        self.stream = stream
        self._readers = readers

    def __enter__(self) -> Group:
        for reader in self._readers:
            reader.open()
        self.stream.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stream.__exit__(kind, fault, where)
        for reader in self._readers:
            reader.close()

    @property
    def cut_off(self) -> list[str]:
        found = [reader.tally.name for reader in self._readers if reader.is_cut_off]
        return found + [f"{who} of {self.stream.uri}" for who in sorted(self.stream.cut_off)]

    def finish(self) -> None:
        self.stream.finish()

    def drain(self, timeout_s: float) -> None:
        """Wait until each reader has all that it wants."""
        self.stream.drain(timeout_s)

        def missing() -> dict[str, int]:
            found = {reader.tally.name: reader.tally.missing(self.stream.sent) for reader in self._readers}
            return {name: count for name, count in found.items() if count}

        wait_until(lambda: not missing(), timeout_s, lambda: f"messages have not come: {missing()}")

    def faults(self) -> list[str]:
        return [fault for reader in self._readers for fault in reader.tally.faults(self.stream.sent)]


def _stream(index: int, run: int, uri: str, broker: Running) -> Stream:
    return Stream(index, run, uri, broker.uri, None, rate=FAN_RATE, size=SIZE, properties=_properties)


def fan_out(index: int, run: int, producer: Running, *readers: Running) -> Group:
    """Make a fan-out: an app at each of `readers`, which get what the domain's expressions choose."""
    uri = f"bmq://{FANOUT}/fan"
    made = [
        OfficialReader(Tally(f"app {app}", run, wants), f"{uri}?id={app}", broker.uri)
        for (app, wants), broker in zip(WANTED.items(), readers, strict=True)
    ]
    return Group(_stream(index, run, uri, producer), made)


def expressions(index: int, run: int, producer: Running, *readers: Running) -> Group:
    """Make a queue with two consumers, each of which selects one half by its own expression."""
    uri = f"bmq://{EXPRESSIONS}/halves"
    made = [
        OwnReader(Tally(f"consumer of {text}", run, wants), uri, broker.port, text)
        for (text, wants), broker in zip(HALVES.items(), readers, strict=True)
    ]
    return Group(_stream(index, run, uri, producer), made)
