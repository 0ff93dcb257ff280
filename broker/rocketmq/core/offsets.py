"""Each group's offsets in each queue, and the file that keeps them (source: ConsumerOffsetManager).

Offsets are kept from time to time, not with every commit: after a crash some messages come again.
"""

from __future__ import annotations

from typing import Final

from formats.rocketmq import fastjson
from formats.rocketmq.client_bodies import CONSUMER_OFFSETS
from formats.rocketmq.client_bodies import ConsumerOffsets as OffsetsFile
from formats.rocketmq.route_bodies import DataVersion

__all__ = ["Offsets"]

_SEPARATOR: Final = "@"


class Offsets:
    """The offsets of the next messages, by topic, group and queue. `changed`: the file is older than the table."""

    def __init__(self, stored: bytes) -> None:
        file = CONSUMER_OFFSETS.read(stored) if stored else OffsetsFile()
        self._table = {key: dict(queues) for key, queues in file.offset_table.items()}
        self._version = file.data_version
        self.changed = False

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """The committed offset; None if the group has none there."""
        return self._table.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Take an offset, be it before or behind the one that there was."""
        queues = self._table.setdefault(f"{topic}{_SEPARATOR}{group}", {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.changed = True

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """The committed offsets of a group in a topic, by queue."""
        return dict(self._table.get(f"{topic}{_SEPARATOR}{group}", {}))

    def topics(self, group: str) -> list[str]:
        """The topics in which a group has offsets."""
        return [topic for topic, separator, each in (key.partition(_SEPARATOR) for key in self._table) if each == group]

    def groups(self, topic: str) -> list[str]:
        """The groups that have offsets in a topic."""
        return [group for each, _, group in (key.partition(_SEPARATOR) for key in self._table) if each == topic]

    def body(self) -> bytes:
        """All offsets, as other brokers and administrators are given them."""
        return CONSUMER_OFFSETS.write(OffsetsFile(self._table, self._version))

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group."""
        self._forget([key for key in self._table if key.partition(_SEPARATOR)[2] == group])

    def forget_topic(self, topic: str) -> None:
        """Drop the offsets of all groups in a topic."""
        self._forget([key for key in self._table if key.partition(_SEPARATOR)[0] == topic])

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
            self.changed = True

    def file(self, now_ms: int) -> bytes:
        """Return the file's next content."""
        if self.changed:
            self._version = DataVersion(self._version.counter + 1, self._version.state_version, now_ms)
            self.changed = False
        return fastjson.dumps_pretty(CONSUMER_OFFSETS.write_value(OffsetsFile(self._table, self._version))).encode()
