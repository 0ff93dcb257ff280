"""Common parts of scripts/benchmark-cluster and scripts/soak: real nodes, and streams of messages through them.

A stream is a queue with one producer and one consumer, both of the official client, each at its own node. Numbers in
messages identify lost, duplicated and reordered ones; see `bmqctl.bench.tally`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import TracebackType

import blazingmq
from blazingmq import PropertyValueDict

from bmqctl.bench.plan import monotonic_ns
from bmqctl.bench.stamp import MAGIC, STAMP, STAMP_SIZE, filler
from bmqctl.bench.tally import Account, ConsumerTally, ProducerTally, settle
from scripts.judges.client_watch import ClientWatch
from tests.rigs.cluster_processes import ClusterProcesses

__all__ = ["STRONG", "Refused", "Stream", "wait_healed", "wait_until"]

STRONG = "bmq.test.persistent.priority.sc"
HEALED = ("PRIMARY_HEALED", "REPLICA_HEALED")
SECOND_NS = 1_000_000_000
RETRY_S = 0.002
LAST_POST_S = 60.0
POLL_S = 0.02
TIMEOUTS = blazingmq.Timeouts(connect_timeout=30.0, disconnect_timeout=30.0)
UNLIMITED = blazingmq.QueueOptions(max_unconfirmed_messages=1 << 20, max_unconfirmed_bytes=1 << 30)

_PARTITION = re.compile(r"Partition \[(\d+)\]: \w+, \w+ -> (\w+)")


def wait_until(condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> None:
    """Poll until a condition holds. Raises TimeoutError with the text of `what` otherwise."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {timeout_s} s: {what()}")
        time.sleep(POLL_S)


def wait_healed(cluster: ClusterProcesses, timeout_s: float = 60.0) -> None:
    """Wait until the running nodes have a leader, and each has healed its partitions."""

    def unhealed() -> dict[int, dict[str, str]]:
        states = {number: dict(_PARTITION.findall(cluster.nodes[number].output)) for number in cluster.running}
        return {
            number: found
            for number, found in states.items()
            if not found or any(state not in HEALED for state in found.values())
        }

    cluster.leader(timeout_s)
    wait_until(lambda: not unhealed(), timeout_s, lambda: f"not healed: {unhealed()}")


class Refused(Exception):
    """A broker refused to reopen a queue."""


class Stream:
    """One producer and one consumer, running until the end of the block.

    `rate` (messages/s) is a schedule independent of the cluster; 0 posts as fast as `window` unanswered messages allow,
    a limit that holds for a schedule, too. `wanted` ends the posting after that number of messages. `properties` gives
    those of a message by its number. Without a `consumer_broker` there is only a producer.
    """

    def __init__(
        self,
        index: int,
        run: int,
        uri: str,
        producer_broker: str,
        consumer_broker: str | None,
        *,
        rate: float = 0.0,
        window: int = 1000,
        size: int = 1024,
        wanted: int | None = None,
        properties: Callable[[int], PropertyValueDict] | None = None,
    ) -> None:
        self.uri = uri
        self.sent = ProducerTally(index)
        self.came = ConsumerTally(run)
        self.garbled = 0  # messages with another payload after the stamp
        self.ack_times: list[tuple[int, int]] = []  # due time and answer time of each, in ns
        self._run = run
        self._rate = rate
        self._rest = filler(size)
        self._properties = properties
        self._wanted = wanted
        self._room = threading.Semaphore(window)
        self._enough = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._produce, name=f"producer {index}")
        self._watches = {"producer": ClientWatch(self._open_for_writing)}
        self._producer = self._session(producer_broker, "producer", None)
        self._consumer: blazingmq.Session | None = None
        if consumer_broker is not None:
            self._watches["consumer"] = ClientWatch(self._open_for_reading)
            self._consumer = self._session(consumer_broker, "consumer", self._on_message)

    def _session(self, broker: str, who: str, on_message: Callable[..., None] | None) -> blazingmq.Session:
        return blazingmq.Session(
            self._watches[who].on_event,
            on_message=on_message,
            broker=broker,
            timeout=TIMEOUTS,
            host_health_monitor=None,
        )

    def _open_for_writing(self) -> None:
        self._producer.open_queue(self.uri, write=True)

    def _open_for_reading(self) -> None:
        assert self._consumer is not None
        self._consumer.open_queue(self.uri, read=True, options=UNLIMITED)

    def __enter__(self) -> Stream:
        if self._consumer is not None:
            self._open_for_reading()
        self._open_for_writing()
        self._thread.start()
        return self

    @property
    def events(self) -> list[str]:
        return [name for watch in self._watches.values() for name in watch.events]

    @property
    def cut_off(self) -> set[str]:
        """The clients that have no broker, or whose queue is not open again yet."""
        return {who for who, watch in self._watches.items() if watch.is_cut_off}

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.finish()
        finally:
            for watch in self._watches.values():
                watch.end()
            self._over.set()
            self._producer.stop()
            if self._consumer is not None:
                self._consumer.stop()

    # -- posting

    def finish(self) -> None:
        """Stop posting. Raises `TimeoutError` if its last post is not taken, `Refused` if a queue was not reopened."""
        self._enough.set()
        self._room.release()
        self._thread.join(LAST_POST_S)
        refused = [each for watch in self._watches.values() for each in watch.refused]
        if refused:
            raise Refused(f"queue '{self.uri}' was not reopened: {'; '.join(refused)}")
        if self._thread.is_alive():
            raise TimeoutError(f"queue '{self.uri}' took no post for {LAST_POST_S} s: {self.events}")

    @property
    def is_posting(self) -> bool:
        return self._thread.is_alive()

    @property
    def answered(self) -> int:
        return self.sent.acked + self.sent.nacked

    def _produce(self) -> None:
        tally = self.sent
        start_ns = monotonic_ns()
        while not self._enough.is_set() and tally.posted != self._wanted:
            due_ns = monotonic_ns()
            if self._rate:
                due_ns = start_ns + int(tally.posted * SECOND_NS / self._rate)
                time.sleep(max(due_ns - monotonic_ns(), 0) / SECOND_NS)
            self._room.acquire()
            if not self._enough.is_set():
                self._post(due_ns)

    def _post(self, due_ns: int) -> None:
        tally = self.sent
        sequence = tally.posted
        # The answer may come before `post` returns.
        with self._lock:
            tally.post(1, monotonic_ns())
        payload = STAMP.words.pack(MAGIC, self._run, tally.producer, sequence, due_ns) + self._rest
        while not self._over.is_set():
            try:
                self._producer.post(
                    self.uri,
                    payload,
                    properties=None if self._properties is None else self._properties(sequence),
                    on_ack=partial(self._on_ack, sequence, due_ns),
                )
            except blazingmq.Error:
                # Its buffer is full, or its node is down: the client reconnects by itself.
                time.sleep(RETRY_S)
            else:
                return

    def _on_ack(self, sequence: int, due_ns: int, ack: blazingmq.Ack) -> None:
        now_ns = monotonic_ns()
        with self._lock:
            if ack.status is blazingmq.AckStatus.SUCCESS:
                self.sent.ack(sequence, due_ns, now_ns)
                self.ack_times.append((due_ns, now_ns))
            else:
                self.sent.nack(ack.status.name, now_ns)
        self._room.release()

    # -- receiving

    def _on_message(self, message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        self.came.deliver(message.data, monotonic_ns())
        self.garbled += message.data[STAMP_SIZE:] != self._rest
        try:
            handle.confirm()
        except blazingmq.Error:
            return  # its node is gone: the message will come again
        self.came.confirmed += 1

    def drain(self, timeout_s: float = 60.0) -> None:
        """Wait until all posts are answered, and all acked messages have come."""

        def all_there() -> bool:
            if self.is_posting or self.answered < self.sent.posted:
                return False
            if self._consumer is None:
                return True
            seen = self.came.deliveries.get(self.sent.producer, b"")
            return sum(map(bool, memoryview(seen)[: self.sent.posted])) >= self.sent.acked

        def what() -> str:
            return (
                f"{self.sent.posted} posted, {self.sent.acked} acked, {self.came.delivered} deliveries; {self.events}"
            )

        wait_until(all_there, timeout_s, what)

    def account(self) -> Account:
        return settle([self.sent], [self.came])

    def longest_gap_s(self) -> float:
        """The longest time between two consecutive answers, in seconds."""
        times = sorted(now_ns for _, now_ns in self.ack_times)
        return max((after - before for before, after in pairwise(times)), default=0) / SECOND_NS
