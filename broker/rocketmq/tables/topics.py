"""The topics of a broker, and the file that keeps them (source: TopicConfigManager).

Every change raises the version that brokers and nameservers compare.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.common.kept import Keep, KeptTable
from broker.common.limited_log import LimitedLog
from broker.rocketmq.remoting.requests import Refused
from broker.rocketmq.tables import names
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.lite import is_lite_queue
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import DATA_VERSION, TOPIC_CONFIG, DataVersion, Permission, TopicConfig
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["EVERY", "QUEUES_MAX", "Topics"]

log = logging.getLogger("broker.rocketmq.topics")

# The original has no such bound.
QUEUES_MAX: Final = 65_536

_BENCHMARK_QUEUES: Final = 1024
_DELAY_QUEUES: Final = 18
_DEFAULT_QUEUES: Final = 16
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)
_INHERIT: Final = int(Permission.INHERIT)
# Maximum number of deleted topics that are remembered.
_DELETED_MAX: Final = 10_000
# A permission that limits nothing.
EVERY: Final = -1


class _File(NamedTuple):
    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


_FILE = BodyCodec(_File, fastjson.FILE)


class Topics:
    """The topics of a broker. `keep` writes their file; if it raises `OSError`, the change is undone.

    With a `Keeper`, changes are written at the end of the step. Only this class modifies `table`.
    """

    def __init__(self, options: BrokerOptions, stored: bytes, keep: Keep) -> None:
        self._options = options
        self._system = frozenset(config.topic_name for config in _system_topics(options))
        file = _FILE.read(stored) if stored else _File()
        table = {**file.topic_config_table}
        for config in _system_topics(options):
            table.setdefault(config.topic_name, config)
        # Topics whose change is on the disk, but not yet with the nameservers.
        self._news: dict[str, None] = {}
        self.kept: KeptTable[str, TopicConfig, str, DataVersion] = KeptTable(
            keep, table, file.data_version, _encode, _compose, self._stored, lambda name, config: _is_for_group(name)
        )
        # True once this broker is, or was, master of an epoch; and the topics that were deleted here, the oldest first.
        self._has_epoch = False
        self._deleted: dict[str, None] = {}
        self._refusals = LimitedLog(log)
        self.table: Mapping[str, TopicConfig] = self.kept.table

    @property
    def version(self) -> DataVersion:
        return self.kept.version

    def get(self, topic: str) -> TopicConfig | None:
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        """Return whether a topic belongs to the system: no request creates, changes or deletes it."""
        return names.is_system(topic) or topic in self._system

    def get_for_sender(self, topic: str) -> TopicConfig | None:
        """Return a topic, and delay the answer to the present request until it is on the disk."""
        self.kept.rely_on(topic)
        return self.table.get(topic)

    def put(self, config: TopicConfig, now_ms: int) -> None:
        self.put_all([config], now_ms)

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int) -> None:
        """Create or change topics, all in one change. Raises `Refused` beyond `topicMaxNum`."""
        changed = {config.topic_name: config for config in configs}
        most = self._options.topics_max
        if len(self.table) + len(changed) > most and len(self.table.keys() | changed.keys()) > most:
            text = f"the broker has {len(self.table)} topics, topicMaxNum allows {most}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        self.kept.put(changed, self._next_version(now_ms))

    def touch(self, now_ms: int) -> None:
        """Create the topics that every broker has, and raise the version, so that all topics are registered again."""
        system = {config.topic_name: config for config in _system_topics(self._options)}
        missing = {name: config for name, config in system.items() if name not in self.table}
        self._news.update(dict.fromkeys(self.table))
        self.kept.change(missing, self._next_version(now_ms))

    def delete(self, topic: str, now_ms: int) -> None:
        self.kept.put({topic: None}, self._next_version(now_ms))
        self._deleted[topic] = None
        if len(self._deleted) > _DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]

    def follow(self, table: Mapping[str, TopicConfig], version: DataVersion) -> list[str]:
        if version == self.kept.next_version:
            return []
        gone = [name for name in self.table if name not in table]
        changed = {name: config for name, config in table.items() if self.table.get(name) != config}
        self.kept.change({**changed, **dict.fromkeys(gone)}, version)
        return gone

    def begin_epoch(self, epoch: int, now_ms: int, queues: Mapping[str, int]) -> list[str]:
        """Raise the version to that of a master of this epoch: nameservers ignore earlier ones.

        `queues` has the topics with messages and their number of queues. Unknown ones are created, and returned: the
        previous master was lost before it had sent them, and slaves remove the messages of topics that their master
        lacks. `restore` does the same for messages that wait. Returns when all is on the disk. Raises `OSError` if it
        cannot be written.
        """
        self._has_epoch = True
        missing = [
            self._unknown(topic, min(count, QUEUES_MAX))
            for topic, count in queues.items()
            if topic not in self.table and not topic.startswith(names.SYSTEM_PREFIX) and not is_lite_queue(topic)
        ]
        changed = {config.topic_name: config for config in missing}
        self.kept.change(changed, DataVersion(self.kept.next_version.counter + 1, epoch, now_ms))
        self.kept.file.store_now()
        return [config.topic_name for config in missing]

    def restore(self, topic: str, queue_id: int, now_ms: int) -> None:
        """Create the topic of a message that has waited, if an earlier master of the group may not have sent it.

        A topic that was deleted here stays deleted, unless `_DELETED_MAX` others were deleted after it.
        """
        if self._has_epoch and topic not in self.table and topic not in self._deleted:
            log.warning("topic %s has messages, which no master has sent: it is created here", topic)
            self.kept.put({topic: self._unknown(topic, queue_id + 1)}, self._next_version(now_ms))

    def _unknown(self, topic: str, queues: int) -> TopicConfig:
        if not topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
            queues = max(queues, self._options.default_topic_queues)
        return TopicConfig(topic, queues, queues, _READ_WRITE)

    def _next_version(self, now_ms: int) -> DataVersion:
        counter, state, _ = self.kept.next_version
        return DataVersion(counter + 1, state, now_ms)

    # -- bodies

    def _stored(self, written: Iterable[str]) -> None:
        self._news.update(dict.fromkeys(written))

    def take_news(self) -> list[str]:
        """Return the topics changed or deleted since the last call."""
        news, self._news = self._news, {}
        return list(news)

    def text(
        self, wanted: Iterable[str] | None = None, permission: int = EVERY, version: DataVersion | None = None
    ) -> str:
        """Return `TopicConfigs` in JSON: the topics `wanted`, or all, with no permission beyond `permission`."""
        texts = self.kept.texts
        found = texts if wanted is None else [name for name in wanted if name in texts]
        items = [texts[name] if permission == EVERY else self._limited(name, permission) for name in found]
        return fastjson.without_lines(_text(items, version or self.version))

    def _limited(self, name: str, permission: int) -> str:
        perm = self.table[name].perm
        # No attribute can contain this text, since quotation marks are escaped in it.
        return self.kept.texts[name].replace(f'"perm":{perm}', f'"perm":{perm & permission}', 1)

    # -- topics created on demand

    def make_for_sender(
        self, topic: str, default_topic: str, queues: int, system_flags: int, now_ms: int
    ) -> TopicConfig | None:
        """Create a topic for a sender, after the example of another one; return None if that one does not permit it.

        Raises `Refused` beyond `autoCreateTopicMaxNum` topics.
        """
        default = self.get(default_topic)
        if default is None or not default.perm & Permission.INHERIT:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self._options.auto_create_topic:
            return None
        if not _is_for_group(topic):
            most, others = self._options.auto_topics_max, len(self.table) - self.kept.weight
            self._check_room(topic, others, most, "autoCreateTopicMaxNum", now_ms)
        else:
            self.check_room_for_group(topic, now_ms)
        count = max(0, min(queues, default.write_queue_nums))
        config = TopicConfig(
            topic,
            count,
            count,
            default.perm & ~Permission.INHERIT,
            default.topic_filter_type,
            system_flags,
        )
        self.put(config, now_ms)
        return config

    def make_for_group(self, topic: str, queues: int, system_flags: int, now_ms: int) -> TopicConfig:
        """Return a retry or dead letter topic, created if missing. Raises `Refused` like `check_room_for_group`."""
        config = self.get_for_sender(topic)
        if config is None:
            self.check_room_for_group(topic, now_ms)
            config = TopicConfig(topic, queues, queues, _READ_WRITE, topic_sys_flag=system_flags)
            self.put(config, now_ms)
        return config

    def make_for_groups(self, wanted: Mapping[str, tuple[int, int]], now_ms: int) -> None:
        """Create retry topics, given their queues and flags, in one change, up to the bound."""
        made: list[TopicConfig] = []
        for topic, (queues, flags) in wanted.items():
            if topic not in self.table:
                if self.kept.weight + len(made) >= self._options.auto_retry_topics_max:
                    self._refusals.add(f"autoCreateRetryTopicMaxNum allows no topic {topic}", now_ms)
                    break
                made.append(TopicConfig(topic, queues, queues, _READ_WRITE, topic_sys_flag=flags))
        self.put_all(made, now_ms)

    def check_room_for_group(self, topic: str, now_ms: int) -> None:
        """Raise `Refused` if a retry or dead letter topic is missing, and the bound does not permit it."""
        if topic not in self.table:
            most = self._options.auto_retry_topics_max
            self._check_room(topic, self.kept.weight, most, "autoCreateRetryTopicMaxNum", now_ms)

    def _check_room(self, topic: str, count: int, most: int, name: str, now_ms: int) -> None:
        if count >= most:
            bound = f"the broker has {count} topics of this kind, {name} allows {most}"
            text = f"topic[{topic}] not exist, and is not made: {bound}"
            self._refusals.add(text, now_ms)
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)


def _is_for_group(topic: str) -> bool:
    return topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX))


def _encode(name: str, config: TopicConfig) -> str:
    return fastjson.dumps_pretty_item(name, TOPIC_CONFIG.write_value(config), 1)


def _compose(texts: Iterable[str], version: DataVersion) -> bytes:
    return _text(texts, version).encode()


def _text(texts: Iterable[str], version: DataVersion) -> str:
    version_value = DATA_VERSION.write_value(version)
    return fastjson.dumps_pretty({"dataVersion": version_value, "topicConfigTable": fastjson.Items(texts)})


def _system_topics(options: BrokerOptions) -> list[TopicConfig]:
    def topic(name: str, queues: int = 1, permission: int = _READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, permission)

    everything = _INHERIT | _READ_WRITE
    topics = [
        topic("SELF_TEST_TOPIC"),
        topic("BenchmarkTest", _BENCHMARK_QUEUES),
        topic(options.cluster, _DEFAULT_QUEUES, everything),
        topic(options.name, 1, everything),
        topic("OFFSET_MOVED_EVENT"),
        topic(names.DELAY_TOPIC, _DELAY_QUEUES),
        topic(f"{options.cluster}_REPLY_TOPIC"),
        topic(names.revive_topic(options.cluster), options.revive_queues),
        topic(f"rmq_sys_SYNC_BROKER_MEMBER_{options.name}", 1, _INHERIT),
        topic(names.HALF_TOPIC),
        topic(names.OP_TOPIC),
        topic(names.TIMER_TOPIC),
    ]
    if options.auto_create_topic:
        topics.append(topic(names.AUTO_CREATE_TOPIC, options.default_topic_queues, everything))
    if options.trace_topic is not None:
        topics.append(topic(options.trace_topic))
    return topics
