"""`domains/<name>.json`: one domain. Source: the reference's schema `mqbconf.xsd`, type `DomainVariant`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from broker.config.model import Bool, Choice, Int, Long, Model

__all__ = ["Domain", "DomainDefinition", "DomainVariant", "Limits", "QueueMode"]

Ratio = Annotated[float, Field(ge=0, le=1)]

# A store's QLIST counts both with 16 bits: the apps, and the words of each one's name, one for each character at most.
APP_IDS_MAX = 65_535
APP_ID_CHARACTERS_MAX = 65_000
AppId = Annotated[str, Field(max_length=APP_ID_CHARACTERS_MAX)]


class Limits(Model):
    """A ratio is the part of the limit at which an alarm is raised."""

    messages: Annotated[Long, Field(ge=0)]
    messages_watermark_ratio: Ratio = 0.8
    bytes: Annotated[Long, Field(ge=0)]
    bytes_watermark_ratio: Ratio = 0.8


class MsgGroupIdConfig(Model):
    rebalance: Bool = False
    max_groups: Int = 2147483647
    ttl_seconds: Long = 0


class QueueModeFanout(Model):
    """`app_ids` are the consumers that each get all messages."""

    app_ids: tuple[AppId, ...] = Field(default=(), alias="appIDs", max_length=APP_IDS_MAX)
    publish_app_id_metrics: Bool = True


class QueueModePriority(Model):
    pass


class QueueModeBroadcast(Model):
    pass


class QueueMode(Choice):
    fanout: QueueModeFanout | None = None
    priority: QueueModePriority | None = None
    broadcast: QueueModeBroadcast | None = None


class Eventual(Model):
    pass


class Strong(Model):
    pass


class Consistency(Choice):
    """`strong` waits for receipts of a majority before it acknowledges or delivers."""

    eventual: Eventual | None = None
    strong: Strong | None = None


class ExpressionVersion(Enum):
    UNDEFINED = "E_UNDEFINED"
    VERSION_1 = "E_VERSION_1"


class Expression(Model):
    version: ExpressionVersion = ExpressionVersion.UNDEFINED
    text: str = ""


class Subscription(Model):
    app_id: str
    expression: Expression = Expression()


class InMemoryStorage(Model):
    pass


class FileBackedStorage(Model):
    pass


class Storage(Choice):
    in_memory: InMemoryStorage | None = None
    file_backed: FileBackedStorage | None = None


class StorageDefinition(Model):
    domain_limits: Limits
    queue_limits: Limits
    config: Storage


# What the reference does where no consistency is given.
_EVENTUAL = Consistency.model_validate({"eventual": Eventual()})


class Domain(Model):
    """The parameters of a domain's queues; `max_...` 0 is no limit, `message_ttl` and `max_idle_time` are seconds."""

    name: str = ""
    mode: QueueMode
    storage: StorageDefinition
    max_consumers: Int = 0
    max_producers: Int = 0
    max_queues: Int = 0
    msg_group_id_config: MsgGroupIdConfig | None = None
    max_idle_time: Int = 0
    message_ttl: Annotated[Long, Field(ge=0)]
    max_delivery_attempts: Int = 0
    deduplication_time_ms: Int = 300_000
    consistency: Consistency = _EVENTUAL
    subscriptions: tuple[Subscription, ...] = ()


class DomainDefinition(Model):
    """`location` is the name of the cluster that has the domain's queues."""

    location: Annotated[str, Field(min_length=1)]
    parameters: Domain


class DomainVariant(Choice):
    """A definition, or the name of the domain that is meant."""

    definition: DomainDefinition | None = None
    redirect: str | None = None
