# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Storage keys: the five bytes that identify a queue, an app or a file (source: mqbu::StorageKey, mqbs::StorageUtil).

A key derives from the name and the time: a queue that is created again gets another key, and does not take the old
queue's records for its own. The creator of a queue derives its key; all others read it from the cluster-state ledger or
the QLIST file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

__all__ = ["DEFAULT_APP_KEY", "HASH_SIZE", "KEY_SIZE", "NULL_KEY", "derive_key", "hex_of"]

KEY_SIZE = 5
HASH_SIZE = 16
"""Bytes of a hash in QLIST: a key and zeros."""

NULL_KEY = bytes(KEY_SIZE)
"""No key: the file key of today's DATA files, and the app key of a record about a whole queue."""

DEFAULT_APP_KEY = b"0".ljust(KEY_SIZE, b"\0")
"""The key of the one app of a queue without fanout: sub-queue id 0, printed (mqbi::QueueEngine::k_DEFAULT_APP_KEY)."""


def derive_key(name: str, salt: int, taken: Container[bytes]) -> bytes:
    """Derive a key for `name` that is not in `taken` and not null.

    As in the reference, the key is the head of MD5(name + salt), the salt being 8 bytes; after a collision, the digest
    and the next salt are hashed. The reference's salt is a high resolution clock in native byte order. Any integer that
    differs from call to call will do; 64 bits of it are used.
    """
    digest = hashlib.md5(name.encode() + _salt_bytes(salt), usedforsecurity=False).digest()
    while digest[:KEY_SIZE] in taken or digest[:KEY_SIZE] == NULL_KEY:
        salt += 1
        digest = hashlib.md5(digest + _salt_bytes(salt), usedforsecurity=False).digest()
    return digest[:KEY_SIZE]


def _salt_bytes(salt: int) -> bytes:
    return (salt & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")


def hex_of(key: bytes) -> str:
    """Format a key or GUID as the reference's tools do."""
    return key.hex().upper()
