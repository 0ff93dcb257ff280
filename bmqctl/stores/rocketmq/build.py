"""Builds a RocketMQ store from JSON lines, as printed by `bmqctl journal dump` or written by hand; see `lines`.

A line is one message. Values that follow from its position are computed; others have defaults: queue offsets count up,
times stay. Nothing is random and the clock is not read, so that the same lines produce the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from bmqctl.stores.rocketmq.build_files import BadPlace, IndexWriter, LogWriter, QueueWriter, StoreSizes
from bmqctl.stores.rocketmq.lines import BadMessage, MessageLine, parse_message
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC, TopicKind, kind_of
from formats.errors import FormatError
from formats.rocketmq.files.checkpoints import CHECKPOINT_BYTES, STORE_CHECKPOINT, StoreCheckpoint
from formats.rocketmq.files.consume_queue import ConsumeQueueEntry
from formats.rocketmq.files.index import message_index_keys
from formats.rocketmq.files.property_text import PROPERTIES_ENCODING, read_properties
from formats.rocketmq.files.record import encode_record
from formats.rocketmq.flags import TRANSACTION_MASK, Transaction
from formats.rocketmq.java import index_hash, string_hash
from formats.rocketmq.lite import QUEUE_ID, branch_of
from formats.rocketmq.numbers import read_digits
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import DataVersion, TopicConfig

__all__ = ["BuildOptions", "LogStoreBuilder", "build_log_store", "read_build_options"]

_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL_MAX: Final = 10**10 - 1
# No consume queue has messages of these types.
_NOT_CONSUMED: Final = frozenset({int(Transaction.PREPARED), int(Transaction.ROLLBACK)})
_KEPT_TOPICS: Final = frozenset({TopicKind.ORDINARY, TopicKind.RETRY, TopicKind.DEAD_LETTERS})


class BuildOptions(NamedTuple):
    """Sizes of the files, and the delays of all levels, of the broker that will serve the store."""

    sizes: StoreSizes = StoreSizes()
    delays_ms: tuple[int, ...] = ()


class _Topics(NamedTuple):
    """`config/topics.json`."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


_TOPICS: Final = BodyCodec(_Topics)


class LogStoreBuilder:
    """Writes messages to the files of a store as they come, and checkpoint and topics at the end."""

    def __init__(self, directory: Path, start_ms: int, options: BuildOptions) -> None:
        """`start_ms` is the time of the first message unless its line has one."""
        self.directory = directory
        sizes = options.sizes
        for name in ("commitlog", "consumequeue", "index", "config"):
            (directory / name).mkdir()
        self._log = LogWriter(directory / "commitlog", sizes.commit_log_file_bytes)
        self._queues = QueueWriter(directory / "consumequeue", sizes.consume_queue_file_bytes)
        self._index = IndexWriter(directory / "index", sizes.index_slots, sizes.index_entries)
        self._delays_ms = options.delays_ms
        self._stored_ms = start_ms
        self.messages: Counter[str] = Counter()
        self._queue_counts: dict[str, int] = {}

    def __enter__(self) -> LogStoreBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()
        self._index.close()
        if kind is None:
            self._queues.flush()
            self._write_checkpoint()
            self._write_topics()

    @property
    def log_end(self) -> int:
        return self._log.end

    @property
    def queue_counts(self) -> dict[str, int]:
        """The number of queues of each topic, from its highest queue number."""
        return self._queue_counts

    def add(self, text: str) -> None:
        """Write the message of a line. Raises `BadMessage` if it contradicts earlier lines."""
        line = parse_message(text, self._stored_ms)
        try:
            self._add(line)
        except BadPlace as error:
            raise BadMessage(str(error)) from None

    def _add(self, line: MessageLine) -> None:
        record, properties = line.record, line.properties
        topic, queue_id = record.topic, record.queue_id
        is_consumed = record.system_flags & TRANSACTION_MASK not in _NOT_CONSUMED
        number = line.queue_offset
        if number is None:
            number = self._queues.next_offset(topic, queue_id) if is_consumed else 0
        if is_consumed:
            self._queues.check(topic, queue_id, number)
        branch = branch_of(topic, properties)
        if branch is not None:
            if len(branch.queue.encode()) > _FOLDER_BYTES_MAX:
                raise BadMessage(f"properties: {branch.queue[:40]}... is too long a name for the queue of a lite topic")
            self._queues.check(branch.queue, QUEUE_ID, branch.offset)
        offset = self._log.place(line.size, line.offset)
        self._log.write(offset, encode_record(record._replace(physical_offset=offset, queue_offset=number)))
        self._stored_ms = record.stored_ms
        if is_consumed:
            code = self._tags_code(topic, properties, record.stored_ms)
            self._queues.add(topic, queue_id, number, ConsumeQueueEntry(offset, line.size, code))
            self.messages[topic] += 1
            self._queue_counts[topic] = max(self._queue_counts.get(topic, 0), queue_id + 1)
        if branch is not None:
            entry = ConsumeQueueEntry(offset, line.size, _tag_hash(properties))
            self._queues.add(branch.queue, QUEUE_ID, branch.offset, entry)
        if record.system_flags & TRANSACTION_MASK != int(Transaction.ROLLBACK):
            for key in message_index_keys(topic, properties):
                self._index.add(index_hash(key), offset, record.stored_ms)

    def _tags_code(self, topic: str, properties: dict[str, str], stored_ms: int) -> int:
        """The hash of a message's tag; in the delay topic, its due time."""
        level = _number(properties.get("DELAY", "")) if topic == DELAY_TOPIC and self._delays_ms else 0
        if level > 0:
            return stored_ms + self._delays_ms[min(level, len(self._delays_ms)) - 1]
        return _tag_hash(properties)

    def _write_checkpoint(self) -> None:
        ms = self._stored_ms if self._log.begin is not None else 0
        found = StoreCheckpoint(ms, ms, self._index.full_ms, 0, 0)
        (self.directory / "checkpoint").write_bytes(STORE_CHECKPOINT.pack(found).ljust(CHECKPOINT_BYTES, b"\0"))

    def _write_topics(self) -> None:
        table = {
            topic: TopicConfig(topic, count, count)
            for topic, count in sorted(self._queue_counts.items())
            if kind_of(topic) in _KEPT_TOPICS
        }
        text = fastjson.dumps_pretty(_TOPICS.write_value(_Topics(table)))
        (self.directory / "config" / "topics.json").write_bytes(text.encode())


_FOLDER_BYTES_MAX: Final = 255


def _number(text: str) -> int:
    return read_digits(text, _LEVEL_MAX) or 0


def _tag_hash(properties: dict[str, str]) -> int:
    tag = properties.get("TAGS")
    return string_hash(tag) if tag else 0


def build_log_store(lines: Iterable[str], directory: Path, start_ms: int, options: BuildOptions) -> LogStoreBuilder:
    """Write the store that `lines` describe to `directory`.

    Raises `BadMessage`, with the line number, at the first bad line, and `OSError`.
    """
    with LogStoreBuilder(directory, start_ms, options) as builder:
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                builder.add(text)
            except BadMessage as error:
                raise BadMessage(f"line {number}: {error}") from None
    return builder


def read_build_options(config: Path | None) -> BuildOptions:
    """The options in a broker's configuration file; the original's defaults without one. Raises `BadMessage`."""
    if config is None:
        return BuildOptions(delays_ms=_delays(_DELAY_LEVELS))
    try:
        found = read_properties(config.read_bytes().decode(PROPERTIES_ENCODING))
    except FormatError as error:
        raise BadMessage(f"{config}: {error.reason}") from None
    given = {name: value.strip() for name, value in found.items()}
    numbers = {}
    for name, (field, low, high) in _SIZES.items():
        if name in given:
            numbers[field] = _number(given[name])
            if not low <= numbers[field] <= high:
                raise BadMessage(f"{config}: {name}={given[name]}: is not a number between {low} and {high}")
    if "consume_queue_file_bytes" in numbers:
        # The original rounds up to whole entries.
        numbers["consume_queue_file_bytes"] += -numbers["consume_queue_file_bytes"] % 20
    try:
        delays_ms = _delays(given.get("messageDelayLevel", _DELAY_LEVELS))
    except ValueError as error:
        raise BadMessage(f"{config}: messageDelayLevel: {error}") from None
    return BuildOptions(StoreSizes(**numbers), delays_ms)


_SIZES: Final = {
    "mappedFileSizeCommitLog": ("commit_log_file_bytes", 4096, (1 << 31) - 1),
    "mappedFileSizeConsumeQueue": ("consume_queue_file_bytes", 20, 1 << 31),
    "maxHashSlotNum": ("index_slots", 1, 1 << 30),
    "maxIndexNum": ("index_entries", 2, 1 << 30),
}


def _delays(text: str) -> tuple[int, ...]:
    delays = []
    for word in text.split():
        unit, number = _UNITS_MS.get(word[-1:]), read_digits(word[:-1], _LEVEL_MAX)
        if unit is None or number is None:
            raise ValueError(f"{word!r} is no delay; write a number and s, m, h or d, as in 1s 5m")
        delays.append(number * unit)
    return tuple(delays)
