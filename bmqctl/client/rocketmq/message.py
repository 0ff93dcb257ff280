"""The content of a RocketMQ message that was received."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from bmqctl.client.remoting.bodies import read_body
from bmqctl.client.remoting.moments import moment
from bmqctl.client.rocketmq.outgoing import SHARDING_KEY
from bmqctl.client.spans import Place, Span, Spans
from formats.rocketmq.files.record import Record
from formats.rocketmq.hosts import Host
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.message_types import priority_of
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.reserved_names import RESERVED_NAMES

__all__ = ["PAYLOAD_SIZE_MAX", "Content"]

PAYLOAD_SIZE_MAX: Final = 64 << 20
_SYSTEM_NAMES: Final = RESERVED_NAMES | {SHARDING_KEY}


class Content:
    """The content of a message. It is decoded on access."""

    __slots__ = ("_decoded", "_record", "_span", "broker", "topic")

    def __init__(self, record: Record, topic: str, broker: str) -> None:
        self._record = record
        self._decoded: dict[str, str] | None = None
        self._span: Span | None = None
        self.topic = topic
        self.broker = broker

    @property
    def _all(self) -> dict[str, str]:
        if self._decoded is None:
            self._decoded = decode_properties(self._record.properties)
        return self._decoded

    @property
    def record(self) -> Record:
        """The message as in the broker's log; internal."""
        return self._record

    @property
    def size(self) -> int:
        return len(self._record.body) + len(self._record.properties)

    @property
    def message_id(self) -> str:
        """The producer's id of the message, the same for each of its deliveries."""
        return self._all.get("UNIQ_KEY") or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id with the broker's storing place, different for each delivery after a rejection."""
        return str(OffsetId(Host.unpack(self._record.store_host), self._record.physical_offset))

    @property
    def payload(self) -> bytes:
        """The decompressed payload.

        Raises `ValueError` if it fails its checksum or cannot be decompressed: LZ4 and ZSTD need pyarrow, of the extra
        `arrow`.
        """
        if not self._record.is_body_sound:
            raise ValueError(f"message {self.message_id}: the checksum of the payload differs")
        return bytes(read_body(self._record, PAYLOAD_SIZE_MAX))

    @property
    def properties(self) -> dict[str, str]:
        return {name: value for name, value in self._all.items() if name not in _SYSTEM_NAMES}

    @property
    def tag(self) -> str | None:
        """The tag; None without one."""
        return self._all.get("TAGS")

    @property
    def keys(self) -> Sequence[str]:
        """The keys by which tools find it."""
        return self._all.get("KEYS", "").split()

    @property
    def sharding_key(self) -> str | None:
        """The key that chose the queue; None without one."""
        return self._all.get(SHARDING_KEY)

    @property
    def priority(self) -> int | None:
        """The priority; None without one."""
        return priority_of(self._all)

    @property
    def queue_id(self) -> int:
        return self._record.queue_id

    @property
    def offset(self) -> int:
        return self._record.queue_offset

    @property
    def attempt(self) -> int:
        """The number of this delivery, 1 for the first, counted by rejections."""
        return self._record.reconsume_times + 1

    @property
    def born_at(self) -> datetime:
        """The time of sending by the producer."""
        return moment(self._record.born_ms)

    def system_property(self, name: str) -> str | None:
        """A property with a meaning in RocketMQ; internal."""
        return self._all.get(name)

    def begin_processing(self, spans: Spans | None, group: str) -> None:
        """Begin the span of the message's processing, if there are spans; internal."""
        if spans is not None:
            place = Place("rocketmq", self.topic, group)
            self._span = spans.begin_processing(place, self.message_id, len(self._record.body), self.properties)

    def end_processing(self, fault: BaseException | None) -> None:
        """End the span of the message's processing; internal."""
        if self._span is not None:
            self._span.end(fault=fault)
