"""The clients of version 5: their settings, their groups, and the stream by which brokers send them requests.

Source: GrpcClientSettingsManager, ClientActivity. A client sends its settings over the stream of Telemetry, and gets
the effective ones in answer; its groups go to the broker as other clients' heartbeats do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.rocketmq.consuming.filters import SQL92, make_subscription
from broker.rocketmq.consuming.lite.attributes import lite_group
from broker.rocketmq.grpc.brokers.backend import Link
from broker.rocketmq.grpc.calling import Answer, Asked, Handlers
from broker.rocketmq.grpc.consuming.lite import LITE_TYPES, check_kind
from broker.rocketmq.grpc.conversion import BODY_BYTES_MAX
from broker.rocketmq.grpc.http2.call import Call
from broker.rocketmq.grpc.statuses import OK, CallRejected, rejection, status
from broker.rocketmq.grpc.validation import check_count, check_group, check_size, check_topic
from formats.rocketmq.grpc.codes import ClientType, Code, FilterType
from formats.rocketmq.grpc.messages import Message, duration_of_ms, make
from formats.rocketmq.hosts import Host
from formats.rocketmq.lite import NAME_BYTES_MAX
from formats.rocketmq.remoting.bodies.clients import (
    HEARTBEAT,
    ConsumerData,
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupConfig,
    Heartbeat,
    ProducerData,
    Subscription,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, LanguageCode

__all__ = ["ClientCalls", "GrpcClient"]

# Settings are kept while the client is connected.
_SETTINGS_BYTES_MAX: Final = 64 << 10
_PRODUCER_ATTEMPTS: Final = 3
_PRODUCER_FIRST_MS, _PRODUCER_LAST_MS = 10, 1_000
_FACTOR: Final = 2.0
_BATCH: Final = 32
_POLL_MS: Final = 20_000
# The maximum of the type of durations, in ms.
_DURATION_MS_MAX: Final = 315_576_000_000_000
_CLIENT_TYPES: Final = frozenset(each.value for each in ClientType)
_CONSUME_TYPES: Final = {
    ClientType.PUSH_CONSUMER: "CONSUME_PASSIVELY",
    ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
    ClientType.LITE_PUSH_CONSUMER: "CONSUME_PASSIVELY",
    ClientType.LITE_SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
}


class GrpcClient:
    """A client: its identity, and its settings and open stream of Telemetry, if any.

    `user` is the user of its calls, where access is checked.
    """

    def __init__(self, client_id: str, host: Host, language: str, user: str = "") -> None:
        self.client_id = client_id
        self.user = user
        self.host = host
        self.language = LanguageCode.__members__.get(language.upper(), LanguageCode.OTHER)
        self.heard_ms = 0
        self.settings: Message | None = None
        self.telemetry: Call | None = None
        self.link: Link | None = None


class ClientCalls:
    """Handles settings and heartbeats. `find` returns the client of a call, `leave` forgets it."""

    def __init__(self, find: Callable[[Asked], GrpcClient], leave: Callable[[GrpcClient], None]) -> None:
        self._find = find
        self._leave = leave
        self.handlers: Handlers = {
            "Heartbeat": self._heartbeat,
            "NotifyClientTermination": self._terminate,
            "Telemetry": self._command,
        }

    def _command(self, asked: Asked, answer: Answer) -> None:
        """Handle a command of the stream of Telemetry; only settings are answered."""
        if asked.request.WhichOneof("command") != "settings":
            return
        told = asked.request.settings
        kind = told.WhichOneof("pub_sub")
        if kind is None:
            raise CallRejected(Code.BAD_REQUEST, "there is no publishing or subscription data in settings")
        check_size(told, "settings", _SETTINGS_BYTES_MAX)
        check_count(len(told.publishing.topics), "topics")
        check_count(len(told.subscription.subscriptions), "subscriptions")
        client = self._find(asked)
        settings = make("Settings")
        settings.CopyFrom(told)
        if kind == "publishing":
            for topic in settings.publishing.topics:
                check_topic(topic)
            _complete_producer(settings)
            self._register(asked, client, settings, answer)
            return

        def found(config: GroupConfig) -> None:
            check_kind(settings, lite_group(config), topic)
            _complete_consumer(settings, config)
            self._register(asked, client, settings, answer)

        subscription = settings.subscription
        topic = check_topic(subscription.subscriptions[0].topic) if subscription.subscriptions else None
        asked.client.find_group(check_group(subscription.group), topic, found)

    def _register(self, asked: Asked, client: GrpcClient, settings: Message, answer: Answer) -> None:
        settings.metric.CopyFrom(make("Metric"))

        def registered(frame: Frame) -> None:
            if frame.code != ResponseCode.SUCCESS:
                raise rejection(frame)
            client.settings = settings
            answer(make("TelemetryCommand", status=OK, settings=settings))

        _join(asked, client, settings, registered)

    def _heartbeat(self, asked: Asked, answer: Answer) -> None:
        client = self._find(asked)
        settings = client.settings
        if settings is None:
            raise CallRejected(Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        if settings.client_type in _CONSUME_TYPES:
            check_group(asked.request.group)
        elif settings.client_type != ClientType.PRODUCER:
            raise CallRejected(Code.UNRECOGNIZED_CLIENT_TYPE, _name_of(settings.client_type))

        def done(frame: Frame) -> None:
            if frame.code != ResponseCode.SUCCESS:
                raise rejection(frame)
            answer(make("HeartbeatResponse", status=OK))

        _join(asked, client, settings, done)

    def _terminate(self, asked: Asked, answer: Answer) -> None:
        client = self._find(asked)
        if client.settings is None:
            text = "cannot find client settings for this client"
            answer(make("NotifyClientTerminationResponse", status=status(Code.UNRECOGNIZED_CLIENT_TYPE, text)))
            return
        self._leave(client)
        answer(make("NotifyClientTerminationResponse", status=OK))


def _name_of(client_type: int) -> str:
    return ClientType(client_type).name if client_type in _CLIENT_TYPES else "UNRECOGNIZED"


def _join(asked: Asked, client: GrpcClient, settings: Message, done: Callable[[Frame], None]) -> None:
    """Register a client. Producers have no groups: a topic's name is the group's."""
    groups = [topic.name for topic in settings.publishing.topics]
    asked.client.join(_heartbeat(client, settings), groups, done)


def _heartbeat(client: GrpcClient, settings: Message) -> Frame:
    """Make a client's remoting heartbeat. Raises `CallRejected`."""
    consumers, producers = [], []
    if settings.WhichOneof("pub_sub") == "publishing":
        producers = [ProducerData(topic.name) for topic in settings.publishing.topics]
    else:
        subscription = settings.subscription
        kind = _CONSUME_TYPES.get(settings.client_type)
        if kind is None:
            raise CallRejected(
                Code.UNRECOGNIZED_CLIENT_TYPE, f"client type {settings.client_type} does not consume here"
            )
        entries = [_subscription(entry) for entry in subscription.subscriptions]
        model = "LITE_SELECTIVE" if settings.client_type in LITE_TYPES else "CLUSTERING"
        consumers = [ConsumerData(subscription.group.name, kind, model, subscription_data_set=entries)]
    body = HEARTBEAT.write(Heartbeat(client.client_id, consumers, producers))
    return Frame(RequestCode.HEART_BEAT, 0, body=body, language=client.language)


def _subscription(entry: Message) -> Subscription:
    topic, expression = check_topic(entry.topic), entry.expression.expression
    if entry.expression.type == FilterType.SQL:
        return Subscription(topic, expression, SQL92)
    return make_subscription(topic, expression)


def _complete_producer(settings: Message) -> None:
    backoff = settings.backoff_policy
    backoff.max_attempts = _PRODUCER_ATTEMPTS
    _exponential(backoff, _PRODUCER_FIRST_MS, _PRODUCER_LAST_MS, _FACTOR)
    settings.publishing.validate_message_type = True
    settings.publishing.max_body_size = BODY_BYTES_MAX


def _complete_consumer(settings: Message, config: GroupConfig) -> None:
    subscription, backoff = settings.subscription, settings.backoff_policy
    subscription.receive_batch_size = _BATCH
    subscription.long_polling_timeout.CopyFrom(duration_of_ms(_POLL_MS))
    subscription.fifo = config.consume_message_orderly
    if settings.client_type in LITE_TYPES:
        subscription.lite_subscription_quota = lite_group(config).client_quota
        subscription.max_lite_topic_size = NAME_BYTES_MAX
    backoff.max_attempts = config.retry_max_times + 1
    policy = config.group_retry_policy
    if policy.type == "EXPONENTIAL":
        _exponential(backoff, *(policy.exponential_retry_policy or ExponentialRetryPolicy()))
    else:
        delays_ms = (policy.customized_retry_policy or CustomizedRetryPolicy()).next
        steps = make("CustomizedBackoff", next=[_duration(delay_ms) for delay_ms in delays_ms])
        backoff.customized_backoff.CopyFrom(steps)


def _exponential(backoff: Message, first_ms: int, last_ms: int, factor: float) -> None:
    first, last = _duration(first_ms), _duration(last_ms)
    backoff.exponential_backoff.CopyFrom(make("ExponentialBackoff", initial=first, max=last, multiplier=factor))


def _duration(ms: int) -> Message:
    """Make a duration of any number that an administrator has set."""
    return duration_of_ms(min(max(ms, 0), _DURATION_MS_MAX))
