"""The nameserver's own table: values by namespace and key, kept in a file (source: KVConfigManager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from formats.rocketmq.body_codec import BodyCodec

__all__ = ["ORDER_TOPICS", "KeyValues"]

# The namespace that says how many queues ordered topics have on which broker.
ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"


class _Stored(NamedTuple):
    """The file."""

    config_table: dict[str, dict[str, str]] = {}


class _Table(NamedTuple):
    """The answer to GET_KVLIST_BY_NAMESPACE."""

    table: dict[str, str]


_STORED = BodyCodec(_Stored)
_TABLE = BodyCodec(_Table)


class KeyValues:
    """The table. `keep` writes its file, and may raise `OSError`: the change is not made then."""

    def __init__(self, stored: bytes, keep: Callable[[bytes], None]) -> None:
        self._values = _STORED.read(stored).config_table if stored else {}
        self._keep = keep

    def get(self, namespace: str, key: str) -> str | None:
        """A value; None if there is none."""
        return self._values.get(namespace, {}).get(key)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        self._change(namespace, {**self._values.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if there is one."""
        self._change(namespace, {each: value for each, value in self._values.get(namespace, {}).items() if each != key})

    def _change(self, namespace: str, table: dict[str, str]) -> None:
        values = {**self._values, namespace: table}
        self._keep(_STORED.write(_Stored(values)))
        self._values = values

    def table(self, namespace: str) -> bytes | None:
        """All values of a namespace, as a body; None if it was never used."""
        values = self._values.get(namespace)
        return None if values is None else _TABLE.write(_Table(values))
