"""The topics of a broker, and the file that keeps them (source: TopicConfigManager).

Every change raises the version that brokers and nameservers compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from broker.rocketmq.core import names
from broker.rocketmq.core.options import BrokerOptions
from formats.rocketmq import fastjson
from formats.rocketmq.body_codec import BodyCodec
from formats.rocketmq.lite import is_lite_queue
from formats.rocketmq.route_bodies import DataVersion, Permission, TopicConfig

__all__ = ["QUEUES_MAX", "Topics"]

# The queues of a topic; the original has no such bound.
QUEUES_MAX: Final = 65_536

_BENCHMARK_QUEUES: Final = 1024
_DELAY_QUEUES: Final = 18
_DEFAULT_QUEUES: Final = 16
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)
_INHERIT: Final = int(Permission.INHERIT)


class _File(NamedTuple):
    """`config/topics.json`."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


_FILE = BodyCodec(_File)


class Topics:
    """The topics of a broker. `keep` writes their file; it may raise `OSError`, and the change is not made then."""

    def __init__(self, options: BrokerOptions, stored: bytes, keep: Callable[[bytes], None]) -> None:
        self._options = options
        self._keep = keep
        self._system = frozenset(config.topic_name for config in _system_topics(options))
        file = _FILE.read(stored) if stored else _File()
        self.table: dict[str, TopicConfig] = {**file.topic_config_table}
        for config in _system_topics(options):
            self.table.setdefault(config.topic_name, config)
        self.version = file.data_version

    def get(self, topic: str) -> TopicConfig | None:
        """A topic; None if there is none of that name."""
        return self.table.get(topic)

    def is_system(self, topic: str) -> bool:
        """Return whether a topic belongs to the system, so that nobody makes, changes or deletes it."""
        return names.is_system(topic) or topic in self._system

    def put(self, config: TopicConfig, now_ms: int) -> None:
        """Make a topic, or change it."""
        self.put_all([config], now_ms)

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int) -> None:
        """Make or change topics, all in one."""
        changed = {config.topic_name: config for config in configs}
        if changed:
            self._change({**self.table, **changed}, now_ms)

    def touch(self, now_ms: int) -> None:
        """Make the topics that every broker has, and raise the version: nameservers are told everything anew."""
        system = {config.topic_name: config for config in _system_topics(self._options)}
        self._change({**system, **self.table}, now_ms)

    def delete(self, topic: str, now_ms: int) -> None:
        """Delete a topic, if it is there."""
        if topic in self.table:
            self._change({name: config for name, config in self.table.items() if name != topic}, now_ms)

    def follow(self, table: dict[str, TopicConfig], version: DataVersion) -> list[str]:
        """Take the topics of a master, with their version; the topics that are no more."""
        if version == self.version:
            return []
        gone = [name for name in self.table if name not in table]
        self._keep(fastjson.dumps_pretty(_FILE.write_value(_File(table, version))).encode())
        self.table, self.version = dict(table), version
        return gone

    def begin_epoch(self, epoch: int, now_ms: int, queues: Mapping[str, int]) -> list[str]:
        """Raise the version to that of a master of this epoch: nameservers pass over those of earlier ones.

        `queues` has the topics with messages and their number of queues. One that is not known here is made, and
        returned: the master before was lost before it had told of it, and slaves remove the messages of topics that
        their master does not have.
        """
        missing = [
            self._unknown(topic, min(count, QUEUES_MAX))
            for topic, count in queues.items()
            if topic not in self.table and not topic.startswith(names.SYSTEM_PREFIX) and not is_lite_queue(topic)
        ]
        table = {**self.table, **{config.topic_name: config for config in missing}}
        self._replace(table, DataVersion(self.version.counter + 1, epoch, now_ms))
        return [config.topic_name for config in missing]

    def _unknown(self, topic: str, queues: int) -> TopicConfig:
        if not topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
            queues = max(queues, self._options.default_topic_queues)
        return TopicConfig(topic, queues, queues, _READ_WRITE)

    def _change(self, table: dict[str, TopicConfig], now_ms: int) -> None:
        self._replace(table, DataVersion(self.version.counter + 1, self.version.state_version, now_ms))

    def _replace(self, table: dict[str, TopicConfig], version: DataVersion) -> None:
        self._keep(fastjson.dumps_pretty(_FILE.write_value(_File(table, version))).encode())
        self.table, self.version = table, version

    def make_for_sender(
        self, topic: str, default_topic: str, queues: int, system_flags: int, now_ms: int
    ) -> TopicConfig | None:
        """Make a topic that somebody sends to, after the example of another one; None if that allows no such thing."""
        default = self.get(default_topic)
        if default is None or not default.perm & Permission.INHERIT:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self._options.auto_create_topic:
            return None
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
        """A retry or dead letter topic, made if need be."""
        config = self.get(topic)
        if config is None:
            config = TopicConfig(topic, queues, queues, _READ_WRITE, topic_sys_flag=system_flags)
            self.put(config, now_ms)
        return config


def _system_topics(options: BrokerOptions) -> list[TopicConfig]:
    """The topics that every broker has."""

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
