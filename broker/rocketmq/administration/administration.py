"""Requests that create, change, delete and show topics and groups (source: AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from broker.rocketmq.remoting.changes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, altered, listed_changes
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, failure, success, with_body
from broker.rocketmq.tables import names
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GROUP_CONFIG_LIST, GroupConfig, MessageQueue
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG, TOPIC_CONFIG_LIST, TopicConfig
from formats.rocketmq.remoting.bodies.statistics import QueueOffsets, write_topic_stats
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import administration as headers
from formats.rocketmq.remoting.headers.codec import read_header

__all__ = ["Administration"]

# The maximum of topics or groups in one request.
LIST_MAX: Final = 1_000

C = TypeVar("C", TopicConfig, GroupConfig)


class Administration:
    """Carries out requests of administrators. `removed` gets each deleted topic."""

    def __init__(self, services: Services, removed: Callable[[str], None]) -> None:
        self._services = services
        self._removed = removed
        self.handlers: Handlers = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._create_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_TOPIC_CONFIG: self._get_topic,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._get_group,
        }

    # -- topics

    def _create_topic(self, request: Request) -> Frame:
        header = read_header(headers.CreateTopicRequest, request.fields)
        old = self._services.topics.get(header.topic)
        config = TopicConfig(
            header.topic,
            header.read_queues,
            header.write_queues,
            header.permissions,
            header.topic_filter_type,
            header.topic_system_flags or 0,
            header.is_ordered,
            altered(
                TOPIC_ATTRIBUTES,
                old.attributes if old is not None else {},
                header.attributes or "",
                is_new=old is None,
            ),
        )
        self._check_config(config)
        self._services.topics.put(config, request.now_ms)
        return success()

    def _create_topics(self, request: Request) -> Frame:
        """Create or change several topics; none if one is refused."""
        configs = []
        for told in _bounded(TOPIC_CONFIG_LIST.read(request.body).topic_config_list):
            old = self._services.topics.get(told.topic_name)
            before = old.attributes if old is not None else {}
            changes = listed_changes(told.attributes)
            config = told._replace(attributes=altered(TOPIC_ATTRIBUTES, before, changes, is_new=old is None))
            self._check_config(config)
            configs.append(config)
        self._services.topics.put_all(configs, request.now_ms)
        return success()

    def _delete_topic(self, request: Request) -> Frame:
        topic = read_header(headers.DeleteTopicRequest, request.fields).topic
        self._check_topic(topic)
        # First, as it may be refused.
        self._services.store.delete_topic(topic)
        self._services.topics.delete(topic, request.now_ms)
        self._services.offsets.forget_topic(topic)
        self._removed(topic)
        self._services.statistics.forget_topic(topic)
        return success()

    def _all_topics(self, request: Request) -> Frame:
        topics = self._services.topics
        body = topics.text().encode()
        return success(headers.GetAllTopicConfigResponse(len(topics.table)), body)

    def _get_topic(self, request: Request) -> Frame:
        topic = read_header(headers.GetTopicConfigRequest, request.fields).topic
        config = self._services.topics.get(topic)
        if config is None:
            return failure(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return with_body(TOPIC_CONFIG.write(config))

    def _topic_stats(self, request: Request) -> Frame:
        topic = read_header(headers.GetTopicStatsInfoRequest, request.fields).topic
        config = self._services.topics.get(topic)
        if config is None:
            return failure(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        offsets = {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            begin, end = self._services.store.span(topic, queue_id)
            last_ms = self._services.store.stored_ms(topic, queue_id, end - 1) if end else 0
            offsets[MessageQueue(self._services.options.name, queue_id, topic)] = QueueOffsets(begin, end, last_ms)
        per_second = self._services.statistics.rate("TOPIC_PUT_NUMS", topic, request.now_ms)
        return with_body(write_topic_stats(offsets, per_second))

    def _check_config(self, config: TopicConfig) -> None:
        self._check_topic(config.topic_name)
        most = self._services.options.topic_queues_max
        old = self._services.topics.get(config.topic_name)
        for count, before in (
            (config.read_queue_nums, 0 if old is None else old.read_queue_nums),
            (config.write_queue_nums, 0 if old is None else old.write_queue_nums),
        ):
            if not 0 <= count <= max(most, before):
                raise Refused(ResponseCode.INVALID_PARAMETER, f"a topic has 0 to {most} queues (topicQueueMaxNum)")

    def _check_topic(self, topic: str) -> None:
        fault = names.fault_of_topic(topic)
        if fault is None and self._services.topics.is_system(topic):
            fault = f"The topic[{topic}] is conflict with system topic."
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)

    # -- groups

    def _create_group(self, request: Request) -> Frame:
        self._put_groups([GROUP_CONFIG.read(request.body)], request.now_ms)
        return success()

    def _create_groups(self, request: Request) -> Frame:
        self._put_groups(_bounded(GROUP_CONFIG_LIST.read(request.body).group_config_list), request.now_ms)
        return success()

    def _put_groups(self, configs: list[GroupConfig], now_ms: int) -> None:
        altered_configs = []
        for config in configs:
            fault = names.fault_of_group(config.group_name)
            most = self._services.options.topic_queues_max
            if fault is None and config.retry_queue_nums > most:
                fault = f"a retry topic has at most {most} queues (topicQueueMaxNum)"
            if fault is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, fault)
            old = self._services.groups.table.get(config.group_name)
            before, changes = old.attributes if old is not None else {}, listed_changes(config.attributes)
            attributes = altered(GROUP_ATTRIBUTES, before, changes, is_new=old is None)
            altered_configs.append(config._replace(attributes=attributes))
        self._services.groups.put_all(altered_configs, now_ms)

    def _delete_group(self, request: Request) -> Frame:
        header = read_header(headers.DeleteSubscriptionGroupRequest, request.fields)
        self._services.groups.delete(header.group_name, request.now_ms)
        if header.clean_offset:
            self._services.offsets.forget_group(header.group_name)
        self._services.statistics.forget_group(header.group_name)
        return success()

    def _get_group(self, request: Request) -> Frame:
        name = read_header(headers.GetSubscriptionGroupConfigRequest, request.fields).group
        config = self._services.groups.table.get(name)
        if config is None:
            return failure(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}")
        return with_body(GROUP_CONFIG.write(config))


def _bounded(configs: list[C]) -> list[C]:
    if len(configs) > LIST_MAX:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"a request changes at most {LIST_MAX} topics or groups")
    return configs
