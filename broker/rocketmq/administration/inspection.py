"""Requests that show administrators the state of a broker (source: AdminBrokerProcessor, Broker2Client)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, cast

from broker.rocketmq.administration.retention import FileRetention
from broker.rocketmq.consuming.commits import check_commit
from broker.rocketmq.delays.levels import Delays
from broker.rocketmq.remoting.long_answers import ITEM_UNITS, Answering, LongAnswers
from broker.rocketmq.remoting.requests import Handlers, Peer, Refused, Request, success, with_body, with_progress
from broker.rocketmq.tables.clients import ConsumerGroup, Member
from broker.rocketmq.tables.names import DELAY_TOPIC, is_system
from broker.rocketmq.tables.services import Services
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.clients import SUBSCRIPTION, MessageQueue
from formats.rocketmq.remoting.bodies.delays import DELAY_OFFSETS, DelayOffsets
from formats.rocketmq.remoting.bodies.inspection import (
    CONNECTION,
    CONSUMER_CONNECTION,
    GROUP_LIST,
    KEY_VALUE_TABLE,
    PRODUCER,
    PRODUCER_CONNECTION,
    Connection,
    ConsumerConnection,
    GroupList,
    KeyValueTable,
    ProducerConnection,
    ProducerInfo,
    write_reset_offsets,
)
from formats.rocketmq.remoting.bodies.routes import TOPIC_LIST, TopicList
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import administration as headers
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.versions import VERSION_NAME

__all__ = ["Inspection"]

_NOW: Final = -1
# Units of writing a tag of a subscription, or its hash; see `Scheduler.spend`.
_TAG_UNITS: Final = 1_000
# Offsets that a slice encodes, and the units of each.
_OFFSETS_AT_ONCE: Final = 256
_OFFSET_UNITS: Final = 500

# Requests are carried out as they come, unlike with the original's thread pools.
_NO_QUEUES: Final = {
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    **{
        f"{kind}ThreadPoolQueue{what}": "0"
        for kind in ("send", "pull", "litePull", "query", "ack")
        for what in ("Size", "HeadWaitTimeMills")
    },
    "EndTransactionQueueSize": "0",
}


class Inspection:
    """Shows the state of the broker. `forget` receives each queue whose offset is reset."""

    def __init__(
        self,
        services: Services,
        delays: Delays,
        booted_ms: int,
        forget: Callable[[tuple[str, str, int]], None],
        retention: FileRetention,
        waiting_timers: Callable[[], int],
        answers: LongAnswers,
    ) -> None:
        self._services = services
        self._delays = delays
        self._booted_ms = booted_ms
        self._forget = forget
        self._retention = retention
        self._waiting_timers = waiting_timers
        self._answers = answers
        self.handlers: Handlers = {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._all_delays,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._who_consumes,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._consumed_topics,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
        }

    # -- the broker

    def _runtime(self, request: Request) -> Frame:
        log, now_ms = self._services.store.log, request.now_ms
        seconds = max(0, now_ms - self._booted_ms) // 1000
        days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
        earliest = self._services.store.log.read(log.begin).record.stored_ms if log.end > log.begin else -1
        table = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerActive": "true",
            "bootTimestamp": str(self._booted_ms),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
            "commitLogMinOffset": str(log.begin),
            "commitLogMaxOffset": str(log.end),
            "dispatchBehindBytes": "0",
            "earliestMessageTimeStamp": str(earliest),
            "startAcceptSendRequestTimeStamp": "0",
            "remainHowManyDataToFlush": f"{log.end - self._services.store.flushed} B",
            **self._counts(),
            **self._disk(),
            "timerCongestNum": str(self._waiting_timers()),
            **_NO_QUEUES,
        }
        for level, offset in self._delays.offsets.items():
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{self._services.store.span(DELAY_TOPIC, level - 1)[1]}"
        return with_body(KEY_VALUE_TABLE.write(KeyValueTable(table)))

    def _counts(self) -> dict[str, str]:
        counts = self._services.statistics
        put, found = counts.put, counts.found
        mean = counts.put_bytes / put.total if put.total else 0.0
        return {
            "putMessageTimesTotal": str(put.total),
            "putMessageSizeTotal": str(counts.put_bytes),
            "putMessageAverageSize": str(mean),
            "putTps": put.text(),
            "getTransferredTps": found.text(),
            "getFoundTps": found.text(),
            "msgPutTotalYesterdayMorning": str(counts.put_morning.yesterday),
            "msgPutTotalTodayMorning": str(counts.put_morning.today),
            "msgPutTotalTodayNow": str(put.total),
            "msgGetTotalYesterdayMorning": str(counts.found_morning.yesterday),
            "msgGetTotalTodayMorning": str(counts.found_morning.today),
            "msgGetTotalTodayNow": str(found.total),
        }

    def _disk(self) -> dict[str, str]:
        used, alarm = str(round(self._retention.disk_used(), 4)), self._retention.alarm
        # The original lacks the last.
        return {"commitLogDiskRatio": used, "consumeQueueDiskRatio": used, "unconsumedFileAlarm": alarm}

    def _all_groups(self, request: Request) -> Frame:
        groups = self._services.groups
        return success(headers.GetAllSubscriptionGroupResponse(len(groups.table)), groups.body())

    def _all_offsets(self, request: Request) -> Frame | None:
        return self._answers.begin(request, self._find_offsets())

    def _find_offsets(self) -> Answering:
        offsets = self._services.offsets
        while not offsets.prepare(_OFFSETS_AT_ONCE):
            self._services.scheduler.spend(_OFFSETS_AT_ONCE * _OFFSET_UNITS)
            yield
        return with_progress(offsets.body(), self._services.store.log.end)

    def _all_delays(self, request: Request) -> Frame:
        value = DELAY_OFFSETS.write_value(DelayOffsets(self._delays.offsets))
        return with_progress(fastjson.dumps(value).encode(), self._services.store.log.end)

    def _system_topics(self, request: Request) -> Frame:
        names = [name for name in self._services.topics.table if is_system(name)]
        options = self._services.options
        return with_body(TOPIC_LIST.write(TopicList([*names, options.cluster, options.name])))

    # -- groups

    def _who_consumes(self, request: Request) -> Frame:
        topic = read_header(headers.QueryTopicConsumeByWhoRequest, request.fields).topic
        groups = {name for name, group in self._services.clients.consumers.items() if topic in group.subscriptions}
        return with_body(GROUP_LIST.write(GroupList(sorted(groups | set(self._services.offsets.groups(topic))))))

    def _consumed_topics(self, request: Request) -> Frame:
        group = read_header(headers.QueryTopicsByConsumerRequest, request.fields).group
        return with_body(TOPIC_LIST.write(TopicList(self._services.offsets.topics(group))))

    def _consumers(self, request: Request) -> Frame | None:
        name = read_header(headers.GetConsumerConnectionListRequest, request.fields).consumer_group
        group = self._services.clients.consumers.get(name)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        return self._answers.begin(request, self._find_consumers(group))

    def _find_consumers(self, group: ConsumerGroup) -> Answering:
        names = group.consume_type, group.message_model, group.consume_from_where
        value = CONSUMER_CONNECTION.write_value(ConsumerConnection([], {}, *names))
        value["connectionSet"] = yield from self._connections(group.members)
        value["subscriptionTable"] = items = fastjson.Items()
        for topic, subscription in list(group.subscriptions.items()):
            items.append(fastjson.dumps_item(topic, SUBSCRIPTION.write_value(subscription)))
            tags = len(subscription.tags_set) + len(subscription.code_set)
            self._services.scheduler.spend(ITEM_UNITS + tags * _TAG_UNITS)
            yield
        return with_body(fastjson.dumps(value).encode())

    def _producers(self, request: Request) -> Frame | None:
        name = read_header(headers.GetProducerConnectionListRequest, request.fields).producer_group
        members = self._services.clients.producers.get(name)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return self._answers.begin(request, self._find_connections(members))

    def _find_connections(self, members: Mapping[object, Member]) -> Answering:
        value = PRODUCER_CONNECTION.write_value(ProducerConnection([]))
        value["connectionSet"] = yield from self._connections(members)
        return with_body(fastjson.dumps(value).encode())

    def _connections(self, members: Mapping[object, Member]) -> Generator[None, None, fastjson.Texts]:
        found = fastjson.Texts()
        for peer, member in list(members.items()):
            host = str(cast(Peer, peer).host)
            value = CONNECTION.write_value(Connection(member.client_id, host, member.language, member.version))
            found.append(fastjson.dumps(value))
            self._services.scheduler.spend(ITEM_UNITS)
            yield
        return found

    def _all_producers(self, request: Request) -> Frame | None:
        return self._answers.begin(request, self._find_producers())

    def _find_producers(self) -> Answering:
        table: dict[str, Any] = {}
        for group, members in list(self._services.clients.producers.items()):
            found = table[group] = fastjson.Texts()
            for peer, member in list(members.items()):
                host = cast(Peer, peer).host
                info = ProducerInfo(member.client_id, f"/{host}", member.language, member.version, member.heard_ms)
                found.append(fastjson.dumps(PRODUCER.write_value(info)))
                self._services.scheduler.spend(ITEM_UNITS)
                yield
        return with_body(fastjson.dumps({"data": table}).encode())

    def _reset(self, request: Request) -> Frame:
        """Set a group's offsets to a time: those kept here, and those of its connected consumers."""
        header = read_header(headers.ResetOffsetRequest, request.fields)
        topic = self._services.topics.get(header.topic)
        if topic is None:
            text = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)
        if header.group not in self._services.groups.table:
            text = f"subscription group [{header.group}] does not exist"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
        reset: dict[MessageQueue, int] = {}
        wanted = range(topic.write_queue_nums) if header.queue_id < 0 else [header.queue_id]
        for queue_id in wanted:
            known = self._services.offsets.get(header.topic, header.group, queue_id)
            offset = self._offset_of(header, queue_id)
            if not header.is_force and known is not None and offset > known:
                offset = known
            reset[MessageQueue(self._services.options.name, queue_id, header.topic)] = offset
            check_commit(self._services, header.topic, header.group, queue_id, offset)
        for queue, offset in reset.items():
            self._services.offsets.commit(header.topic, header.group, queue.queue_id, offset)
            self._services.offsets.note_pulled(header.topic, header.group, queue.queue_id, offset)
            self._forget((header.topic, header.group, queue.queue_id))
        body = write_reset_offsets(reset)
        group = self._services.clients.consumers.get(header.group)
        for peer in list(group.members) if group is not None else ():
            told = Frame(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 0, ext_fields=write_header(header), body=body)
            cast(Peer, peer).ask(told, one_way=True)
        return with_body(body)

    def _offset_of(self, header: headers.ResetOffsetRequest, queue_id: int) -> int:
        begin, end = self._services.store.span(header.topic, queue_id)
        # The time counts without an offset, or with -1; for all queues, also with another one below 0.
        if header.offset is not None and (header.offset >= 0 or (header.offset < -1 and header.queue_id >= 0)):
            if not begin <= header.offset <= end:
                text = f"Target offset {header.offset} not in consume queue range [{begin}-{end}]"
                raise Refused(ResponseCode.SYSTEM_ERROR, text)
            return header.offset
        if header.time_ms == _NOW:
            return end
        return self._services.store.find_time(header.topic, queue_id, header.time_ms)
