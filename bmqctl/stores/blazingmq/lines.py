"""The lines that `bmqctl journal build` reads: a model for each kind of record, with the names that `dump` prints.

Fields that follow from others, or from a record's position in its file (`index`, `offset`, `time`, `data_offset`,
`payload_size`, `qlist_offset` and the file offsets of sync points), are accepted and ignored, so that a dump can be
read back. Other unknown fields are rejected, so that no misspelling is lost.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from crc32c import crc32c
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter

from formats.bmq.codes import CompressionAlgorithm, PropertyType
from formats.bmq.disk.journal import REF_COUNT_MAX
from formats.bmq.wire.application_data import build_application_data
from formats.bmq.wire.properties import Property, PropertyValue, encode_properties

__all__ = [
    "App",
    "ConfirmLine",
    "Content",
    "DeletionLine",
    "JournalOpLine",
    "LedgerLine",
    "Line",
    "MessageLine",
    "PartitionLine",
    "QueueOpLine",
    "parse_line",
]

SCHEMA_ID = 1
"""The schema id of properties in the newer encoding without a schema of their own (bmqp::MessagePropertiesInfo)."""

Key = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{10}$")]
Guid = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{32}$")]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9A-Fa-f]{2})*$")]
U32 = Annotated[int, Field(ge=0, lt=1 << 32)]
U64 = Annotated[int, Field(ge=0, lt=1 << 64)]
Flags = Annotated[int, Field(ge=0, lt=1 << 12)]


def _upper(value: object) -> object:
    return value.upper().replace("-", "_") if isinstance(value, str) else value


class _Base(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    # A dump prints these; the record's position implies them.
    index: Any = None
    offset: Any = None
    time: Any = None
    timestamp: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None


class PartitionLine(_Base):
    """The fields common to a journal's records."""

    partition_id: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    primary_lease_id: Annotated[int, Field(ge=1, lt=1 << 32)] | None = None
    sequence_number: Annotated[int, Field(ge=1, lt=1 << 48)] | None = None


class _QueueLine(PartitionLine):
    queue_uri: str | None = None
    queue_key: Key | None = None
    app_id: str | None = None
    app_key: Key | None = None


class TypedProperty(BaseModel):
    """A property whose type differs from what its JSON value suggests; BINARY and CHAR are hex."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Annotated[Literal["BOOL", "CHAR", "SHORT", "INT32", "INT64", "STRING", "BINARY"], BeforeValidator(_upper)]
    value: bool | int | str

    def typed(self, name: str) -> Property:
        kind = PropertyType[self.type]
        value: PropertyValue = self.value
        if kind in (PropertyType.CHAR, PropertyType.BINARY):
            if not isinstance(value, str):
                raise ValueError(f"properties.{name}: {kind.name} needs hex digits")
            value = bytes.fromhex(value)
        return Property(name, kind, value)


class Content(NamedTuple):
    """A message's content in the DATA file, and its description in the records."""

    data: bytes
    has_properties: bool
    schema_id: int
    compression: CompressionAlgorithm

    def crc32c(self) -> int:
        return crc32c(self.data)


class MessageLine(_QueueLine):
    """A message, with its payload as `payload` (text) or `payload_hex`.

    Alternatively `application_data_hex` has all stored bytes: properties and compressed payload.
    """

    type: Literal["MESSAGE"]
    guid: Guid | None = None
    ref_count: Annotated[int, Field(ge=0, le=REF_COUNT_MAX)] | None = None
    compression: Annotated[Literal["NONE", "ZLIB"], BeforeValidator(_upper)] = "NONE"
    crc32c: U32 | None = None
    data_offset: Any = None
    payload_size: Any = None
    payload: str | None = None
    payload_hex: Hex | None = None
    application_data_hex: Hex | None = None
    properties: dict[str, bool | int | str | TypedProperty] = {}
    has_properties: bool | None = None
    schema_id: Annotated[int, Field(ge=0, lt=1 << 16)] | None = None

    def content(self) -> Content:
        """The message's content. Raises ValueError if the line has it twice, or properties cannot be encoded."""
        given = [self.payload is not None, self.payload_hex is not None, self.application_data_hex is not None]
        if sum(given) > 1:
            raise ValueError("payload, payload_hex and application_data_hex: give exactly one of them")
        algorithm = CompressionAlgorithm[self.compression]
        if self.application_data_hex is not None:
            if self.properties:
                raise ValueError("properties: application_data_hex holds them already; leave one of the two out")
            data = bytes.fromhex(self.application_data_hex)
            return Content(data, bool(self.has_properties), self.schema_id or 0, algorithm)
        payload = (self.payload or "").encode() if self.payload_hex is None else bytes.fromhex(self.payload_hex)
        schema_id = 0
        area = b""
        if self.properties:
            schema_id = SCHEMA_ID if self.schema_id is None else self.schema_id
            area = encode_properties([_property(name, value) for name, value in self.properties.items()], schema_id)
        data, algorithm = build_application_data(area, payload, schema_id, algorithm)
        if not data:
            raise ValueError("payload: a message has at least one byte, or a property")
        return Content(data, bool(self.properties), schema_id, algorithm)


def _property(name: str, value: bool | int | str | TypedProperty) -> Property:
    if isinstance(value, TypedProperty):
        return value.typed(name)
    if isinstance(value, bool):
        return Property(name, PropertyType.BOOL, value)
    if isinstance(value, int):
        return Property(name, PropertyType.INT64, value)
    return Property(name, PropertyType.STRING, value)


class ConfirmLine(_QueueLine):
    """An app's confirm of a message."""

    type: Literal["CONFIRM"]
    guid: Guid
    reason: Annotated[Literal["CONFIRMED", "REJECTED", "AUTO_CONFIRMED"], BeforeValidator(_upper)] | Flags = "CONFIRMED"


class DeletionLine(_QueueLine):
    """The deletion of a message."""

    type: Literal["DELETION"]
    guid: Guid
    deletion_flag: (
        Annotated[Literal["NONE", "IMPLICIT_CONFIRM", "TTL_EXPIRATION", "NO_SC_QUORUM"], BeforeValidator(_upper)]
        | Flags
    ) = "NONE"


class App(BaseModel):
    """An app of a queue; without a key, one is derived from its id."""

    model_config = ConfigDict(extra="forbid", strict=True)

    app_id: str
    app_key: Key | None = None


class QueueOpLine(_QueueLine):
    """A queue's creation, addition of apps, purge or deletion."""

    type: Literal["QUEUE_OP"] = "QUEUE_OP"
    queue_op_type: Annotated[Literal["CREATION", "ADDITION", "PURGE", "DELETION"], BeforeValidator(_upper)] = "CREATION"
    apps: list[str | App] = []
    start_primary_lease_id: U32 = 0
    start_sequence_number: U64 = 0
    qlist_offset: Any = None


class JournalOpLine(PartitionLine):
    """A sync point."""

    type: Literal["JOURNAL_OP"] = "JOURNAL_OP"
    journal_op_type: Literal["SYNCPOINT"] = "SYNCPOINT"
    sync_point_type: Annotated[Literal["REGULAR", "ROLLOVER"], BeforeValidator(_upper)] = "REGULAR"
    sync_point_primary_lease_id: U32 | None = None
    sync_point_sequence_number: U64 | None = None
    primary_node_id: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)] | None = None
    data_file_offset: Any = None
    qlist_file_offset: Any = None


class LedgerLine(_Base):
    """A record of the cluster-state ledger; `message` as `bmqctl journal dump` prints it."""

    type: Literal["SNAPSHOT", "UPDATE", "COMMIT", "ACK"]
    elector_term: U64
    sequence_number: U64
    message: dict[str, Any]


Line = MessageLine | ConfirmLine | DeletionLine | QueueOpLine | JournalOpLine | LedgerLine

_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def parse_line(text: str) -> Line:
    """Parse a line of JSON. Raises pydantic's ValidationError if it is not a record."""
    return _LINE.validate_json(text)
