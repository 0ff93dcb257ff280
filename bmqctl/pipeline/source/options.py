"""The options of `spark.read.format("bmq")`, checked once, in the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

__all__ = ["BadOption", "FileSets", "Mode", "ReadOptions", "Table", "is_live"]

RECORDS_PER_PARTITION = 250_000
Choice = TypeVar("Choice", bound=StrEnum)
_NUMBER = re.compile(r"(\d+):(\d+)-(\d+)", re.ASCII)


class BadOption(ValueError):
    """An option that is invalid or contradicts another; one line."""


class Table(StrEnum):
    """The table to read."""

    RECORDS = "records"
    MESSAGES = "messages"
    CONFIRMS = "confirms"
    QUEUES = "queues"
    LEDGER = "ledger"
    PAYLOADS = "payloads"
    FAULTS = "faults"
    GROUPS = "groups"
    TOPICS = "topics"


class Mode(StrEnum):
    """The handling of damage: rows of the table `faults`, or the end of the job."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


class FileSets(StrEnum):
    """The file sets to read: the one from which a broker would recover, or earlier ones too."""

    CURRENT = "current"
    ALL = "all"


class _Switch(StrEnum):
    FALSE = "false"
    TRUE = "true"


def is_live(options: Mapping[str, str]) -> bool:
    """Return True if the options name a queue to consume, and no store."""
    return any(name.lower() == "queue" for name in options)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read; see `ReadOptions.parse` for their names.

    By partition, `after` has the number (lease id, sequence number) of the last record before the wanted ones, `until`
    that of the last one; a partition without an entry is unbounded. `after` bounds records, payloads and confirms;
    messages have the outcomes of all of them by `until`. `tasks` is the number of tasks that share a partition's
    messages, 0 for one that suits its size.
    """

    paths: tuple[str, ...]
    table: Table = Table.RECORDS
    mode: Mode = Mode.PERMISSIVE
    file_sets: FileSets = FileSets.CURRENT
    columns: tuple[str, ...] = ()
    records_per_partition: int = RECORDS_PER_PARTITION
    tasks: int = 0
    after: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    until: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    payload_format: str = ""
    payload_schema: str = ""
    payload_message: str = ""
    pushdown: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse a reader's options, whose names are case-insensitive. Raises BadOption.

        `path` (or `paths`, a JSON list): directories of stores, journal files, or patterns of them. `table`, `mode`,
        `fileSets`, `columns` (names with commas), `recordsPerPartition`, `tasks`, `after` and `until`
        (`<partition>:<lease id>-<sequence number>`, with commas), `payloadFormat`, `payloadSchema`, `payloadMessage`,
        `pushdown` (see `BmqDataSource.reader`).
        """
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(given.keys() - _KNOWN)
        if unknown:
            raise BadOption(
                f"{unknown[0]}: unknown option; the options of the format bmq are {', '.join(sorted(_SPELLED))}"
            )
        payload_format = given.get("payloadformat", "").lower()
        if payload_format not in ("", "json", "avro", "protobuf"):
            raise BadOption(f"payloadFormat: {payload_format!r} is none of json, avro, protobuf")
        if bool(payload_format) != bool(given.get("payloadschema")):
            raise BadOption("payloadFormat and payloadSchema must be given together")
        if bool(given.get("payloadmessage")) != (payload_format == "protobuf"):
            raise BadOption("payloadMessage names the message type of payloadFormat protobuf, which needs it")
        return cls(
            _paths(given),
            _choice(Table, "table", given),
            _choice(Mode, "mode", given),
            _choice(FileSets, "fileSets", given),
            tuple(name.strip() for name in given.get("columns", "").split(",") if name.strip()),
            _count("recordsPerPartition", given, RECORDS_PER_PARTITION, 1),
            _count("tasks", given, 0, 0),
            _numbers("after", given),
            _numbers("until", given),
            payload_format,
            given.get("payloadschema", ""),
            given.get("payloadmessage", ""),
            _choice(_Switch, "pushdown", given) is _Switch.TRUE,
        )

    @property
    def failfast(self) -> bool:
        return self.mode is Mode.FAILFAST


_SPELLED = (
    "path",
    "paths",
    "table",
    "mode",
    "fileSets",
    "columns",
    "recordsPerPartition",
    "tasks",
    "after",
    "until",
    "payloadFormat",
    "payloadSchema",
    "payloadMessage",
    "pushdown",
)
_KNOWN = {name.lower() for name in _SPELLED}


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("paths")
    if text is None:
        paths = [given["path"]] if given.get("path") else []
    else:
        try:
            paths = json.loads(text)
        except ValueError:
            paths = None
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise BadOption("paths: not a JSON list of paths")
    if not paths:
        raise BadOption("path: name a directory with a store, or several: load(path) or load([path, ...])")
    return tuple(paths)


def _choice(kind: type[Choice], name: str, given: Mapping[str, str]) -> Choice:
    values = list(kind)
    text = given.get(name.lower(), values[0].value)
    try:
        return kind(text.lower())
    except ValueError:
        raise BadOption(f"{name}: {text!r} is none of {', '.join(value.value for value in values)}") from None


def _count(name: str, given: Mapping[str, str], default: int, least: int) -> int:
    text = given.get(name.lower(), str(default))
    if not text.isdecimal() or int(text) < least:
        raise BadOption(f"{name}: {text} is not a number of at least {least}")
    return int(text)


def _numbers(name: str, given: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    numbers: dict[int, tuple[int, int]] = {}
    for part in filter(None, given.get(name, "").split(",")):
        match = _NUMBER.fullmatch(part.strip())
        if match is None:
            raise BadOption(f"{name}: {part!r} is not <partition>:<lease id>-<sequence number>")
        partition, lease, sequence = map(int, match.groups())
        numbers[partition] = (lease, sequence)
    return numbers
