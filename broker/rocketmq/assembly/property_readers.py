"""Readers of configuration files and of the values of their properties.

Those of values raise `ValueError` for a text that they cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.rocketmq.replication.options import Role
from formats.errors import FormatError
from formats.rocketmq.files.index import IndexFile
from formats.rocketmq.files.property_text import PROPERTIES_ENCODING, read_properties
from formats.rocketmq.numbers import read_digits

__all__ = [
    "MISREAD",
    "PropertyError",
    "data_of",
    "index_faults",
    "is_misread",
    "number",
    "properties_of",
    "raise_first",
    "read_addresses",
    "read_bool",
    "read_broker_id",
    "read_consume_queue_bytes",
    "read_flush_type",
    "read_hours",
    "read_master_role",
    "read_metrics_exporter",
    "read_path",
    "read_paths",
    "read_role",
    "read_text",
]


# The original counts the bytes of a file in 32 bits.
_FILE_BYTES_MAX: Final = (1 << 31) - 1
MISREAD: Final = "has characters in UTF-8, and Java's properties are in ISO-8859-1"


class PropertyError(Exception):
    """A configuration that cannot be used: `problem` says where and why, and `remedy`, if there is one, what to do.

    `others` are the faults behind it in the same file.
    """

    def __init__(self, problem: str, remedy: str = "", others: tuple[PropertyError, ...] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.others = others

    def __str__(self) -> str:
        more = f" ({len(self.others)} more after this)" if self.others else ""
        return f"{self.problem}; {self.remedy}{more}" if self.remedy else f"{self.problem}{more}"


def raise_first(faults: Sequence[PropertyError]) -> None:
    """Raise the first of a file's faults, with those behind it, if there is one."""
    if faults:
        raise PropertyError(faults[0].problem, faults[0].remedy, tuple(faults[1:]))


def properties_of(path: Path) -> dict[str, str]:
    """Return the properties of a configuration file, without blanks around the values. Raises `PropertyError`.

    Source: BrokerStartup.SystemConfigFileHelper, MixAll.properties2Object.
    """
    try:
        found = read_properties(data_of(path).decode(PROPERTIES_ENCODING))
    except FormatError as error:
        raise PropertyError(f"{path}: {error.reason}", "write a backslash as two") from None
    return {name: value.strip() for name, value in found.items()}


def data_of(path: Path) -> bytes:
    """Return the bytes of a configuration file. Raises `PropertyError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PropertyError(f"{path}: {error.strerror}") from None


def is_misread(value: str) -> bool:
    """Return whether a value that was read as ISO-8859-1 has characters that somebody wrote in UTF-8."""
    try:
        return not value.isascii() and value.encode(PROPERTIES_ENCODING).decode() != value
    except UnicodeError:
        return False


def index_faults(path: Path, slots: int, entries: int) -> list[PropertyError]:
    """Return the fault of a configuration whose index files are larger than the original can map, if they are."""
    size = IndexFile.size_of(slots, entries)
    if size <= _FILE_BYTES_MAX:
        return []
    problem = f"{path}: maxHashSlotNum={slots} and maxIndexNum={entries} make index files of {size} bytes"
    return [PropertyError(problem, f"lower them: {_FILE_BYTES_MAX} bytes are possible")]


def read_bool(text: str) -> bool:
    """Read true or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


def number(least: int, most: int) -> Callable[[str], int]:
    """Return what reads a number from `least` to `most`."""

    def read(text: str) -> int:
        value = read_digits(text)
        if value is None or not least <= value <= most:
            raise ValueError(f"is not a number between {least} and {most}")
        return value

    return read


def read_broker_id(text: str) -> int:
    """Read the id of a broker."""
    # The original's examples have -1 where a controller gives the id.
    return -1 if text == "-1" else number(0, (1 << 63) - 1)(text)


def read_text(text: str) -> str:
    """Read a text that is not empty."""
    if not text:
        raise ValueError("is empty")
    return text


def read_metrics_exporter(text: str) -> bool:
    """Read the kind of exporter of metrics; True for PROM, the only one that there is here."""
    if text not in ("DISABLE", "OTLP_GRPC", "PROM", "LOG"):
        raise ValueError("is none of DISABLE, OTLP_GRPC, PROM and LOG")
    return text == "PROM"


def read_flush_type(text: str) -> bool:
    """Read the kind of flush; True for SYNC_FLUSH."""
    if text not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ValueError("is neither ASYNC_FLUSH nor SYNC_FLUSH")
    return text == "SYNC_FLUSH"


def read_role(text: str) -> Role:
    """Read a role."""
    try:
        return Role(text)
    except ValueError:
        raise ValueError("is none of " + ", ".join(role.value for role in Role)) from None


def read_master_role(text: str) -> Role:
    """Read the role of a master."""
    role = read_role(text)
    if role is Role.SLAVE:
        raise ValueError("is only used at the start of a broker")
    return role


def read_consume_queue_bytes(text: str) -> int:
    """Read the size of the files of a consume queue."""
    # The original rounds up to whole entries.
    return -(-number(20, _FILE_BYTES_MAX // 20 * 20)(text) // 20) * 20


def read_hours(text: str) -> frozenset[int]:
    """Read hours of the day, separated by semicolons."""
    words = [read_digits(word.strip(), 23) for word in text.split(";") if word.strip()]
    hours = frozenset(hour for hour in words if hour is not None)
    if not hours or None in words:
        raise ValueError("is not an hour between 00 and 23, or several separated by semicolons")
    return hours


def read_addresses(text: str) -> tuple[str, ...]:
    """Read addresses, separated by semicolons."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def read_path(text: str) -> Path:
    """Read the path of a file or a folder."""
    if not text or "\0" in text:
        raise ValueError("is no path")
    return Path(text)


def read_paths(text: str) -> tuple[Path, ...]:
    """Read the paths of folders, separated by commas. Their order has no meaning."""
    names = text.split(",")
    # The original's configurations have commas after the last path, too.
    while len(names) > 1 and not names[-1]:
        names.pop()
    for name in names:
        if not name or name != name.strip():
            raise ValueError("has a path that is empty, or begins or ends with a blank")
    paths = tuple(map(read_path, names))
    if len({*paths}) < len(paths):
        raise ValueError("names a folder twice")
    return paths
