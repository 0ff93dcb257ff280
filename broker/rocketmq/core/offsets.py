"""Each group's offsets in each queue, and the file that keeps them (source: ConsumerOffsetManager).

Offsets are kept from time to time, not with every commit: after a crash some messages come again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.rocketmq.core.names import OWN_GROUP_PREFIX, is_own
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
        # Whether anything changed that the version is to tell.
        self._is_newer = False
        # What was given to consumers, which may be ahead of what they have done.
        self._pulled: dict[str, dict[int, int]] = {}
        self.changed = False

    def __len__(self) -> int:
        return len(self._table)

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """The committed offset; None if the group has none there."""
        return self._table.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id)

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Take an offset of a client's group, be it before or behind the one that there was.

        Nothing is taken for a group of the broker in one of its own topics: the next start would read on from there.
        """
        if not _is_own(topic, group):
            self.commit_own(topic, group, queue_id, offset)

    def commit_own(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Take an offset of any group, be it before or behind the one that there was."""
        queues = self._table.setdefault(f"{topic}{_SEPARATOR}{group}", {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.changed = self._is_newer = True

    def follow(self, body: bytes | memoryview) -> None:
        """Take the offsets of a master, and their version. Raises `FormatError`."""
        self._take(CONSUMER_OFFSETS.read(body))

    def follow_newer(self, body: bytes | memoryview) -> bool:
        """Take the offsets of a broker that stood in for this one, unless they are older; whether they were taken.

        Raises `FormatError`.
        """
        file = CONSUMER_OFFSETS.read(body)
        if _order(file.data_version) < _order(self._version):
            return False
        self._take(file)
        return True

    def _take(self, file: OffsetsFile) -> None:
        if file.data_version != self._version:
            self._version, self._is_newer, self.changed = file.data_version, False, True
        for key, queues in file.offset_table.items():
            if self._table.get(key) != queues:
                self._table[key] = dict(queues)
                self.changed = True

    def note_pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """A group was given the messages of a queue before an offset; that is not kept."""
        self._pulled.setdefault(f"{topic}{_SEPARATOR}{group}", {})[queue_id] = offset

    def pulled(self, topic: str, group: str, queue_id: int) -> int:
        """The offset before which a group was given messages, or has consumed them."""
        pulled = self._pulled.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id, 0)
        return max(pulled, self.get(topic, group, queue_id) or 0)

    def clone(self, topic: str, source: str, target: str) -> None:
        """Give one group the offsets of another in a topic."""
        for queue_id, offset in self.queues(topic, source).items():
            self.commit(topic, target, queue_id, offset)

    def least(self, topic: str, without: Collection[str]) -> dict[int, int]:
        """Return the least offset of any group in a topic, by queue, leaving out the groups in `without`."""
        found: dict[int, int] = {}
        for group in self.groups(topic):
            if group not in without:
                for queue_id, offset in self.queues(topic, group).items():
                    found[queue_id] = min(offset, found.get(queue_id, offset))
        return found

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """The committed offsets of a group in a topic, by queue."""
        return dict(self._table.get(f"{topic}{_SEPARATOR}{group}", {}))

    def all(self) -> list[tuple[str, str, dict[int, int]]]:
        """The committed offsets by queue of each topic and group."""
        parted = ((key.partition(_SEPARATOR), queues) for key, queues in self._table.items())
        return [(topic, group, queues) for (topic, _, group), queues in parted]

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
        """Drop all offsets of a group, but those of the broker in its own topics."""
        keys = [key for key in (*self._table, *self._pulled) if key.partition(_SEPARATOR)[2] == group]
        self._forget([key for key in keys if not _is_own(key.partition(_SEPARATOR)[0], group)])

    def forget_topic(self, topic: str) -> None:
        """Drop the offsets of all groups in a topic."""
        self._forget([key for key in (*self._table, *self._pulled) if key.partition(_SEPARATOR)[0] == topic])

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            self._pulled.pop(key, None)
            if self._table.pop(key, None) is not None:
                self.changed = self._is_newer = True

    def file(self, now_ms: int) -> bytes:
        """Return the file's next content."""
        if self._is_newer:
            self._version = DataVersion(self._version.counter + 1, self._version.state_version, now_ms)
        self.changed = self._is_newer = False
        return fastjson.dumps_pretty(CONSUMER_OFFSETS.write_value(OffsetsFile(self._table, self._version))).encode()


def _is_own(topic: str, group: str) -> bool:
    """Return whether an offset says how far the broker has read one of its own topics."""
    return group.startswith(OWN_GROUP_PREFIX) and is_own(topic)


def _order(version: DataVersion) -> tuple[int, int, int]:
    """Return what is greater for the newer of two versions (source: DataVersion.compare)."""
    return version.state_version, version.counter, version.timestamp
