"""`domains/<name>.json`: one domain. Source: the reference's schema `mqbconf.xsd`, type `DomainVariant`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from broker.bmq.config.model import Bool, Choice, Int, Long, Model

__all__ = ["Domain", "DomainDefinition", "DomainVariant", "Limits", "QueueMode"]

Ratio = Annotated[float, Field(ge=0, le=1)]

# A store's QLIST counts both with 16 bits: the apps, and the words of each one's name, one for each character at most.
APP_IDS_MAX = 65_535
APP_ID_CHARACTERS_MAX = 65_000
AppId = Annotated[str, Field(max_length=APP_ID_CHARACTERS_MAX)]


class Limits(Model):
    """A ratio is the part of the limit at which an alarm is raised."""

    messages: Annotated[Long, Field(ge=0)]
    """Messages at most."""
    messages_watermark_ratio: Ratio = 0.8
    """Part of them at which an alarm is raised."""
    bytes: Annotated[Long, Field(ge=0)]
    """Bytes at most."""
    bytes_watermark_ratio: Ratio = 0.8
    """Part of them at which an alarm is raised."""


class MsgGroupIdConfig(Model):
    rebalance: Bool = False
    max_groups: Int = 2147483647
    ttl_seconds: Long = 0


class QueueModeFanout(Model):
    """`app_ids` are the consumers that each get all messages."""

    app_ids: tuple[AppId, ...] = Field(default=(), alias="appIDs", max_length=APP_IDS_MAX)
    """The apps. Each receives every message."""
    publish_app_id_metrics: Bool = True
    """Accepted; has no effect."""


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
    """Every consumer that is connected receives each message; none is kept."""


class Eventual(Model):
    pass


class Strong(Model):
    pass


class Consistency(Choice):
    """`strong` waits for receipts of a majority before it acknowledges or delivers."""

    eventual: Eventual | None = None
    """A post is acknowledged when the primary has it."""
    strong: Strong | None = None
    """A post is acknowledged when a majority of the nodes has it."""


class ExpressionVersion(Enum):
    UNDEFINED = "E_UNDEFINED"
    VERSION_1 = "E_VERSION_1"


class Expression(Model):
    version: ExpressionVersion = ExpressionVersion.UNDEFINED
    """The language of the expression."""
    text: str = ""
    """The expression over message properties."""


class Subscription(Model):
    app_id: str
    """The app."""
    expression: Expression = Expression()
    """The expression that selects its messages."""


class InMemoryStorage(Model):
    pass


class FileBackedStorage(Model):
    pass


class Storage(Choice):
    in_memory: InMemoryStorage | None = None
    """Messages are not stored. For broadcast, and for a node that is alone."""
    file_backed: FileBackedStorage | None = None
    """Messages are stored in the partition's files."""


class StorageDefinition(Model):
    domain_limits: Limits
    """Limits of all queues together."""
    queue_limits: Limits
    """Limits of each queue."""
    config: Storage
    """Storage of messages: in files or in memory."""


# What the reference does where no consistency is given.
_EVENTUAL = Consistency.model_validate({"eventual": Eventual()})


class Domain(Model):
    """The parameters of a domain's queues; `max_...` 0 is no limit, `message_ttl` and `max_idle_time` are seconds."""

    name: str = ""
    """The domain's name."""
    mode: QueueMode
    """Routing of messages to consumers."""
    storage: StorageDefinition
    """Storage of messages, and its limits."""
    max_consumers: Int = 0
    """Consumers of a queue at most; 0 for no limit."""
    max_producers: Int = 0
    """Producers of a queue at most; 0 for no limit."""
    max_queues: Int = 0
    """Queues at most; 0 for no limit."""
    msg_group_id_config: MsgGroupIdConfig | None = None
    """Accepted; has no effect."""
    max_idle_time: Int = 0
    """Seconds that the oldest message may wait for a consumer before an alarm is raised; 0 for never."""
    message_ttl: Annotated[Long, Field(ge=0)]
    """Seconds that a message is kept."""
    max_delivery_attempts: Int = 0
    """Maximum number of deliveries of a message; 0 for no limit."""
    deduplication_time_ms: Int = 300_000
    """Time in which a message that is posted again is recognized by its GUID."""
    consistency: Consistency = _EVENTUAL
    """Copies that a post needs before it is acknowledged."""
    subscriptions: tuple[Subscription, ...] = ()
    """The expressions that select each app's messages."""


class DomainDefinition(Model):
    """`location` is the name of the cluster that has the domain's queues."""

    location: Annotated[str, Field(min_length=1)]
    """Name of the cluster that has its queues."""
    parameters: Domain
    """Parameters of its queues."""


class DomainVariant(Choice):
    """A definition, or the name of the domain that is meant."""

    definition: DomainDefinition | None = None
    """A definition."""
    redirect: str | None = None
    """Name of the domain that is meant."""
