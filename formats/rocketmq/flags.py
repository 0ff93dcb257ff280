"""The bits of a message's system flags (source: MessageSysFlag, CompressionType)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "COMPRESSION_FLAGS",
    "TRANSACTION_MASK",
    "CompressionType",
    "SystemFlag",
    "Transaction",
    "compression_of",
    "transaction_of",
]


class SystemFlag(IntFlag):
    """Single bits of the system flags; the transaction state and the compression type take several."""

    COMPRESSED = 1 << 0
    MULTI_TAGS = 1 << 1
    BORN_HOST_V6 = 1 << 4
    STORE_HOST_V6 = 1 << 5
    NEED_UNWRAP = 1 << 6
    INNER_BATCH = 1 << 7


TRANSACTION_MASK = 0b1100
_COMPRESSION_SHIFT = 8
_COMPRESSION_MASK = 0b111
COMPRESSION_FLAGS = int(SystemFlag.COMPRESSED) | _COMPRESSION_MASK << _COMPRESSION_SHIFT
"""All bits that say whether and how a body is compressed."""


class Transaction(IntEnum):
    """A message's part in a transaction, as bits of the system flags."""

    NONE = 0
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12


class CompressionType(IntEnum):
    """The algorithm of a compressed body; older clients leave it 0 and mean zlib."""

    UNNAMED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def transaction_of(system_flags: int) -> Transaction:
    return Transaction(system_flags & TRANSACTION_MASK)


def compression_of(system_flags: int) -> CompressionType | None:
    """The algorithm of a message's body; None for a plain body.

    Raises `ValueError` for the numbers 4 to 7, which no version assigns.
    """
    if not system_flags & SystemFlag.COMPRESSED:
        return None
    named = CompressionType(system_flags >> _COMPRESSION_SHIFT & _COMPRESSION_MASK)
    return CompressionType.ZLIB if named is CompressionType.UNNAMED else named
