# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Each group's offsets in each queue, and the file that keeps them (source: ConsumerOffsetManager).

The file is written periodically, not with every commit: after a crash some messages come again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.rocketmq.tables.names import OWN_GROUP_PREFIX, is_own
from formats.rocketmq.lite import SECOND_PREFIX
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import CONSUMER_OFFSETS
from formats.rocketmq.remoting.bodies.clients import ConsumerOffsets as OffsetsFile
from formats.rocketmq.remoting.bodies.routes import DATA_VERSION, DataVersion

__all__ = ["Offsets"]

_SEPARATOR: Final = "@"

# Maximum of pulled offsets, kept for administrators; beyond it, the oldest pair of topic and group is forgotten.
PULLED_MAX: Final = 100_000


class Offsets:
    """The offsets of the next messages, by topic, group and queue. `changed`: the file is older than the table.

    `prepare` encodes the changes in parts before `file`. With `parts_lmq`, groups of light message queues have a table
    of their own in the file. Of several stored files the one changed last counts.
    """

    def __init__(self, *stored: bytes, parts_lmq: bool = False) -> None:
        files = [CONSUMER_OFFSETS.read(each) for each in stored if each]
        file = max(files, key=lambda file: file.changed_ms) if files else OffsetsFile()
        self._parts_lmq = parts_lmq
        # Items of groups of light message queues in the file.
        self._lmq_texts: dict[str, str] = {}
        self._table: dict[str, dict[int, int]] = {}
        self._version = file.data_version
        # True after a change that the version must include.
        self._is_newer = False
        # The offsets of messages given to consumers, which may be ahead of the committed ones.
        self._pulled: dict[str, dict[int, int]] = {}
        self._pulled_count = 0
        # The number of offsets; the groups of each topic, and the topics of each group.
        self.count = 0
        self._groups: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}
        # The items of the file, and the keys of outdated ones.
        self._texts: dict[str, str] = {}
        self._stale: dict[str, None] = {}
        for key, queues in file.all_offsets.items():
            self._replace(key, queues)
        self.changed = False

    def __len__(self) -> int:
        return len(self._table)

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the committed offset; None if the group has none there."""
        return self._table.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id)

    def has_any(self, topic: str, group: str) -> bool:
        return f"{topic}{_SEPARATOR}{group}" in self._table

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set an offset of a client's group, which may be lower than the last one.

        Ignores the broker's own groups in its own topics: their offsets are the broker's positions after a restart.
        """
        if not group.startswith(OWN_GROUP_PREFIX) or not is_own(topic):
            self.commit_own(topic, group, queue_id, offset)

    def commit_own(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set an offset of any group, which may be lower than the last one."""
        key = f"{topic}{_SEPARATOR}{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._add(key)
        known = queues.get(queue_id)
        if known != offset:
            if known is None:
                self.count += 1
            queues[queue_id] = offset
            self._stale[key] = None
            self.changed = self._is_newer = True

    def _add(self, key: str) -> dict[int, int]:
        topic, _, group = key.partition(_SEPARATOR)
        self._groups.setdefault(topic, {})[group] = None
        self._topics.setdefault(group, {})[topic] = None
        queues = self._table[key] = {}
        return queues

    def _replace(self, key: str, queues: dict[int, int]) -> None:
        self.count += len(queues) - len(self._table.get(key) or self._add(key))
        self._table[key] = dict(queues)
        self._stale[key] = None
        self.changed = True

    def follow(self, body: bytes | memoryview) -> None:
        """Take a master's offsets and their version. Raises `FormatError`."""
        self._take(CONSUMER_OFFSETS.read(body))

    def follow_newer(self, body: bytes | memoryview) -> bool:
        """Take the offsets of a broker that stood in for this one; return False if they are older.

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
        for key, queues in file.all_offsets.items():
            if self._table.get(key) != queues:
                self._replace(key, queues)

    def note_pulled(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Note, in memory only, that a group was given the messages of a queue before an offset."""
        key = f"{topic}{_SEPARATOR}{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        if queue_id not in queues:
            self._pulled_count += 1
        queues[queue_id] = offset
        while self._pulled_count > PULLED_MAX:
            self._forget_pulled(next(iter(self._pulled)))

    def _forget_pulled(self, key: str) -> None:
        self._pulled_count -= len(self._pulled.pop(key, ()))

    def pulled(self, topic: str, group: str, queue_id: int) -> int:
        """Return the offset before which a group was given messages, or has consumed them."""
        pulled = self._pulled.get(f"{topic}{_SEPARATOR}{group}", {}).get(queue_id, 0)
        return max(pulled, self.get(topic, group, queue_id) or 0)

    def queues(self, topic: str, group: str) -> dict[int, int]:
        return dict(self._table.get(f"{topic}{_SEPARATOR}{group}", {}))

    def all(self) -> list[tuple[str, str, dict[int, int]]]:
        parted = ((key.partition(_SEPARATOR), queues) for key, queues in self._table.items())
        return [(topic, group, queues) for (topic, _, group), queues in parted]

    def topics(self, group: str) -> list[str]:
        return list(self._topics.get(group, ()))

    def groups(self, topic: str) -> list[str]:
        return list(self._groups.get(topic, ()))

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group, except the broker's own in its own topics."""
        for topic in self.topics(group):
            if not _is_own(topic, group):
                self._forget(topic, group)

    def forget_topic(self, topic: str) -> None:
        for group in self.groups(topic):
            self._forget(topic, group)

    def _forget(self, topic: str, group: str) -> None:
        key = f"{topic}{_SEPARATOR}{group}"
        self._forget_pulled(key)
        self.count -= len(self._table.pop(key))
        for index, one, other in ((self._groups, topic, group), (self._topics, group, topic)):
            del index[one][other]
            if not index[one]:
                del index[one]
        self._stale[key] = None
        self.changed = self._is_newer = True

    # -- the file

    def prepare(self, most: int) -> bool:
        """Encode about `most` changed offsets; return True if none is left."""
        while most > 0 and self._stale:
            key = next(iter(self._stale))
            del self._stale[key]
            queues = self._table.get(key)
            most -= 1 if queues is None else len(queues)
            self._lmq_texts.pop(key, None)
            if queues is None:
                self._texts.pop(key, None)
                continue
            if self._parts_lmq and _is_lmq(key, queues):
                self._lmq_texts[key] = fastjson.dumps_pretty_item(key, queues[0], 1)
            items = fastjson.Items([f"{queue_id}:{offset}" for queue_id, offset in queues.items()])
            self._texts[key] = fastjson.dumps_pretty_item(key, items, 1)
        return not self._stale

    def body(self) -> bytes:
        """Return all offsets as JSON, for other brokers and administrators."""
        return fastjson.without_lines(self._text()).encode()

    def file(self, now_ms: int) -> bytes:
        if self._is_newer:
            self._version = DataVersion(self._version.counter + 1, self._version.state_version, now_ms)
        self.changed = self._is_newer = False
        if not self._parts_lmq:
            return self._text().encode()
        self.prepare(self.count + len(self._stale))
        others = [text for key, text in self._texts.items() if key not in self._lmq_texts]
        return self._composed(others, {"lmqOffsetTable": fastjson.Items(self._lmq_texts.values())}).encode()

    def _text(self) -> str:
        self.prepare(self.count + len(self._stale))
        return self._composed(self._texts.values(), {})

    def _composed(self, items: Iterable[str], more: dict[str, fastjson.Items]) -> str:
        version = DATA_VERSION.write_value(self._version)
        return fastjson.dumps_pretty({"dataVersion": version, **more, "offsetTable": fastjson.Items(items)})


def _is_own(topic: str, group: str) -> bool:
    """Return whether an offset is the broker's position in one of its own topics."""
    return group.startswith(OWN_GROUP_PREFIX) and is_own(topic)


def _is_lmq(key: str, queues: dict[int, int]) -> bool:
    """Return whether the offsets are of a group of light message queues in a topic with one queue."""
    return key.partition(_SEPARATOR)[2].startswith(SECOND_PREFIX) and list(queues) == [0]


def _order(version: DataVersion) -> tuple[int, int, int]:
    """Return a sorting key for versions (source: DataVersion.compare)."""
    return version.state_version, version.counter, version.timestamp
