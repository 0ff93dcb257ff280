"""Types with the bounds of all numbers of a configuration.

A number out of bounds is refused when the configuration is read, before anything is written. Numbers that a store or
the protocol holds have the bounds of its fields, as in the reference (mqbs::FileStoreProtocol). Counts, sizes and times
cannot be negative, unless the reference gives a meaning to that; their types in its schemas can.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from formats.bmq.disk.files import (
    DATA_FILE_SIZE_MAX,
    JOURNAL_FILE_SIZE_MAX,
    QLIST_FILE_SIZE_MAX,
    FileType,
    initial_bytes,
)

__all__ = [
    "Amount",
    "Bool",
    "Count",
    "DataFileBytes",
    "Int",
    "JournalFileBytes",
    "LedgerFileBytes",
    "Long",
    "NodeId",
    "PartitionCount",
    "Port",
    "PortOrNone",
    "Positive",
    "QlistFileBytes",
    "Ratio",
    "UInt",
    "ULong",
]

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_BOOLEANS = {"true": True, "false": False}


def _unquoted_integer(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value


def _unquoted_boolean(value: Any) -> Any:
    return _BOOLEANS.get(value, value) if isinstance(value, str) else value


_Integer = Annotated[int, BeforeValidator(_unquoted_integer)]
Bool = Annotated[bool, BeforeValidator(_unquoted_boolean)]

# The integers of the schemas. `Int` and `Long` are for members to which a negative value has a meaning.
Int = Annotated[_Integer, Field(ge=-(1 << 31), le=(1 << 31) - 1)]
UInt = Annotated[_Integer, Field(ge=0, le=(1 << 32) - 1)]
Long = Annotated[_Integer, Field(ge=-(1 << 63), le=(1 << 63) - 1)]
ULong = Annotated[_Integer, Field(ge=0, le=(1 << 64) - 1)]
Ratio = Annotated[float, Field(ge=0, le=1)]

# Numbers of things, sizes or times, which may be 0, or not.
Count = Annotated[_Integer, Field(ge=0, le=(1 << 31) - 1)]
Amount = Annotated[_Integer, Field(ge=0, le=(1 << 63) - 1)]
Positive = Annotated[_Integer, Field(ge=1, le=(1 << 31) - 1)]

# Ports of TCP; -1 for none.
Port = Annotated[_Integer, Field(ge=0, le=65535)]
PortOrNone = Annotated[_Integer, Field(ge=-1, le=65535)]

# Node ids: a signed 32-bit integer in control messages.
NodeId = Annotated[_Integer, Field(ge=0, le=(1 << 31) - 1)]

# STORAGE events hold a partition's number in 16 bits.
PartitionCount = Annotated[_Integer, Field(ge=1, le=1 << 16)]

# Sizes of files: at least the headers, at most what the offsets in records can address, in words of 8 or 4 bytes.
DataFileBytes = Annotated[_Integer, Field(ge=len(initial_bytes(FileType.DATA, 0)), le=DATA_FILE_SIZE_MAX)]
JournalFileBytes = Annotated[_Integer, Field(ge=len(initial_bytes(FileType.JOURNAL, 0)), le=JOURNAL_FILE_SIZE_MAX)]
QlistFileBytes = Annotated[_Integer, Field(ge=len(initial_bytes(FileType.QLIST, 0)), le=QLIST_FILE_SIZE_MAX)]

# The ledger has no offsets, so its limit is the largest file of ext4: blocks of 4 KiB with numbers of 32 bits.
LEDGER_FILE_SIZE_MAX = 0xFFFF_FFFF * 4096
LedgerFileBytes = Annotated[_Integer, Field(ge=0, le=LEDGER_FILE_SIZE_MAX)]
