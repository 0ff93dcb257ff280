"""The nameserver's own table: values by namespace and key, kept in a file (source: KVConfigManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.common.kept import Keep, KeptTable
from broker.rocketmq.nameserver.bounds import NameserverBounds
from broker.rocketmq.settings import SettingRefused
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["ORDER_TOPICS", "KeyValues"]

# The namespace with the number of queues of ordered topics on each broker.
ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"


class _KeyValueFile(NamedTuple):
    config_table: dict[str, dict[str, str]] = {}


class _Text(NamedTuple):
    """An item of the file; None for the namespace itself."""

    namespace: str
    item: str | None


_STORED = BodyCodec(_KeyValueFile, fastjson.FILE)

# A namespace and one of its keys; None for the namespace itself, which remains without keys.
_Key = tuple[str, str | None]


class KeyValues:
    """The table. `keep` writes its file; if it raises `OSError`, the change is undone.

    With a `Keeper` for the `file`, changes are written at the end of the step.
    """

    def __init__(self, stored: bytes, keep: Keep) -> None:
        self.bounds = NameserverBounds()
        table: dict[_Key, str] = {}
        for namespace, values in (_STORED.read(stored).config_table if stored else {}).items():
            table[namespace, None] = ""
            table.update({(namespace, key): value for key, value in values.items()})
        self._kept: KeptTable[_Key, str, _Text, None] = KeptTable(keep, table, None, _encode, _compose, weigh=_size)
        self.file = self._kept.file

    def get(self, namespace: str, key: str) -> str | None:
        return self._kept.table.get((namespace, key))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises `SettingRefused` beyond the bounds."""
        changes: dict[_Key, str | None] = {(namespace, None): "", (namespace, key): value}
        self._check_room({each: text or "" for each, text in changes.items()})
        self._kept.change(changes, None)

    def _check_room(self, added: dict[_Key, str]) -> None:
        table, bounds = self._kept.table, self.bounds
        size = sum(_size(*item) for item in added.items())
        if size > bounds.kv_value_bytes_max:
            _refuse(
                f"the value has {size} bytes with its key, kvConfigValueMaxBytes allows {bounds.kv_value_bytes_max}"
            )
        if len(table) + sum(key not in table for key in added) > bounds.kv_entries_max:
            _refuse(f"there are {len(table)} keys and namespaces, kvConfigMaxNum allows {bounds.kv_entries_max}")
        whole = self._kept.weight + size - sum(_size(key, table[key]) for key in added if key in table)
        if whole > bounds.kv_bytes_max:
            _refuse(f"all values would have {whole} bytes, kvConfigMaxBytes allows {bounds.kv_bytes_max}")

    def delete(self, namespace: str, key: str) -> None:
        if (namespace, key) in self._kept.table:
            self._kept.change({(namespace, key): None}, None)

    def table(self, namespace: str) -> bytes | None:
        """Return all values of a namespace as a body; None if it was never used."""
        if (namespace, None) not in self._kept.table:
            return None
        texts = self._kept.texts.values()
        items = [text.item for text in texts if text.item is not None and text.namespace == namespace]
        return fastjson.dumps({"table": fastjson.Items(items)}).encode()


def _refuse(text: str) -> None:
    raise SettingRefused(ResponseCode.SYSTEM_ERROR, f"the value is refused: {text}")


def _size(key: _Key, value: str) -> int:
    return sum(map(len, filter(None, key))) + len(value)


def _encode(key: _Key, value: str) -> _Text:
    namespace, name = key
    return _Text(namespace, None if name is None else fastjson.dumps_item(name, value))


def _compose(texts: Iterable[_Text], _: None) -> bytes:
    found: dict[str, fastjson.Items] = {}
    for namespace, item in texts:
        items = found.setdefault(namespace, fastjson.Items())
        if item is not None:
            items.append(item)
    return fastjson.dumps({"configTable": found}).encode()
