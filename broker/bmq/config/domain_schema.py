"""`domains/<name>.json`: one domain. Source: the reference's schema `mqbconf.xsd`, type `DomainVariant`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from broker.bmq.config.bounds import Amount, Bool, Count, Ratio
from broker.bmq.config.model import Choice, Model, NoEffect

__all__ = ["Domain", "DomainDefinition", "DomainVariant", "Limits", "QueueMode"]

# A store's QLIST counts both with 16 bits: the apps, and the words of each app's name, at most one per character.
APP_IDS_MAX = 65_535
APP_ID_CHARACTERS_MAX = 65_000
AppId = Annotated[str, Field(max_length=APP_ID_CHARACTERS_MAX)]


class Limits(Model):
    """Limits of the stored messages, and the ratios of them at which an alarm is raised."""

    messages: Amount
    """Maximum number of messages."""
    messages_watermark_ratio: Ratio = 0.8
    """Part of them at which an alarm is raised."""
    bytes: Amount
    """Maximum number of bytes of messages."""
    bytes_watermark_ratio: Ratio = 0.8
    """Part of them at which an alarm is raised."""


class MsgGroupIdConfig(Model):
    rebalance: Bool = False
    max_groups: Count = 2147483647
    ttl_seconds: Amount = 0


class QueueModeFanout(Model):
    """Every app receives all messages."""

    app_ids: tuple[AppId, ...] = Field(default=(), alias="appIDs", max_length=APP_IDS_MAX)
    """Ids of the apps. Each app receives every message."""
    publish_app_id_metrics: Bool = True
    """Metrics of each app, beside those of the queue."""


class QueueModePriority(Model):
    pass


class QueueModeBroadcast(Model):
    pass


class QueueMode(Choice):
    fanout: QueueModeFanout | None = None
    """Every app receives every message."""
    priority: QueueModePriority | None = None
    """Each message goes to one consumer of the highest priority."""
    broadcast: QueueModeBroadcast | None = None
    """Every connected consumer receives each message; messages are not stored."""


class Eventual(Model):
    pass


class Strong(Model):
    pass


class Consistency(Choice):
    """The number of copies that a message needs before it is acknowledged and delivered."""

    eventual: Eventual | None = None
    """A message is acknowledged when the primary has stored it."""
    strong: Strong | None = None
    """A message is acknowledged and delivered when a majority of the nodes has stored it."""


class ExpressionVersion(Enum):
    UNDEFINED = "E_UNDEFINED"
    VERSION_1 = "E_VERSION_1"


class Expression(Model):
    version: ExpressionVersion = ExpressionVersion.UNDEFINED
    """Version of the expression language."""
    text: str = ""
    """Text of the expression over message properties."""


class Subscription(Model):
    app_id: str
    """Id of the app that the expression is for."""
    expression: Expression = Expression()
    """The expression that selects the app's messages."""


class InMemoryStorage(Model):
    pass


class FileBackedStorage(Model):
    pass


class Storage(Choice):
    in_memory: InMemoryStorage | None = None
    """Messages are kept in memory only; for broadcast, and for single nodes."""
    file_backed: FileBackedStorage | None = None
    """Messages are stored in the files of the queue's partition."""


class StorageDefinition(Model):
    domain_limits: Limits
    """Limits of all queues of the domain together."""
    queue_limits: Limits
    """Limits of each queue."""
    config: Storage
    """Storage of messages: in files or in memory."""


# The reference's default.
_EVENTUAL = Consistency.model_validate({"eventual": Eventual()})


class Domain(Model):
    """The parameters of a domain's queues. A `max_...` of 0 means no limit."""

    name: Annotated[str, NoEffect("a domain has the name of its file, as in the BlazingMQ broker")] = ""
    mode: QueueMode
    """Routing of messages to consumers."""
    storage: StorageDefinition
    """Storage of messages, and its limits."""
    max_consumers: Count = 0
    """Maximum number of consumers of a queue; 0: no limit."""
    max_producers: Count = 0
    """Maximum number of producers of a queue; 0: no limit."""
    max_queues: Count = 0
    """Maximum number of queues of the domain; 0: no limit."""
    msg_group_id_config: Annotated[
        MsgGroupIdConfig | None, NoEffect("the BlazingMQ broker has no message groups either")
    ] = None
    max_idle_time: Count = 0
    """Time without consumption, in seconds, after which a queue with messages raises an alarm; 0: never."""
    message_ttl: Amount
    """Time after which an unconfirmed message is removed, in seconds."""
    max_delivery_attempts: Count = 0
    """Maximum number of deliveries of a message to a consumer; 0: no limit."""
    deduplication_time_ms: Count = 300_000
    """Time for which a message that is posted again is recognized by its GUID, in milliseconds."""
    consistency: Consistency = _EVENTUAL
    """Copies that a message needs before it is acknowledged: eventual if absent."""
    subscriptions: tuple[Subscription, ...] = ()
    """Expressions that select the messages of each app."""


class DomainDefinition(Model):
    """A domain: its cluster and its parameters."""

    location: Annotated[str, Field(min_length=1)]
    """Name of the cluster that has the domain's queues."""
    parameters: Domain
    """Parameters of the domain's queues."""


class DomainVariant(Choice):
    """A domain's definition, or a redirection to another domain."""

    definition: DomainDefinition | None = None
    """The domain's definition."""
    redirect: str | None = None
    """Name of the domain that this name stands for."""
