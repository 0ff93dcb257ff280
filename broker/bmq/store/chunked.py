# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A dictionary of very many messages that never takes long to grow.

A full dictionary moves all entries to a larger table at once: a tenth of a second for a million entries. This one has
several dictionaries of at most `FULL` entries, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Final, TypeVar, overload

__all__ = ["FULL", "Chunked"]

T = TypeVar("T")
V = TypeVar("V")

# The capacity of a table of 2**18 places: one more entry makes it grow.
FULL: Final = (1 << 18) * 2 // 3


class Chunked(Mapping[bytes, V]):
    """Values by GUID, or by another key of messages, in the order in which they were added.

    A loop over single messages may use `newest` itself: look there first, then in the `older` chunks, oldest first; add
    missing keys to it, and call `turn` once it has `FULL`. No older chunk is empty.
    """

    __slots__ = ("newest", "older")

    def __init__(self) -> None:
        self.newest: dict[bytes, V] = {}
        self.older: list[dict[bytes, V]] = []

    def turn(self) -> None:
        """Begin another chunk, and merge the first two neighbours that together fill at most half of one.

        There are at most four times as many chunks as needed, plus one.
        """
        older = self.older
        if self.newest:
            older.append(self.newest)
            self.newest = {}
        for at in range(len(older) - 1):
            if len(older[at]) + len(older[at + 1]) <= FULL // 2:
                # A new dictionary: the old tables keep their size.
                older[at : at + 2] = [{**older[at], **older[at + 1]}]
                break

    @property
    def chunks(self) -> list[dict[bytes, V]]:
        return [*self.older, self.newest]

    def __len__(self) -> int:
        return len(self.newest) + sum(map(len, self.older))

    def __bool__(self) -> bool:
        return bool(self.newest or self.older)

    def __contains__(self, key: object) -> bool:
        return key in self.newest or any(key in chunk for chunk in self.older)

    def __getitem__(self, key: bytes) -> V:
        for chunk in self.older:
            if key in chunk:
                return chunk[key]
        return self.newest[key]

    @overload
    def get(self, key: bytes, /) -> V | None: ...
    @overload
    def get(self, key: bytes, /, default: V | T) -> V | T: ...
    def get(self, key: bytes, /, default: V | T | None = None) -> V | T | None:
        value = self.newest.get(key)
        if value is None:
            for chunk in self.older:
                if key in chunk:
                    return chunk[key]
            return default
        return value

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self.chunks)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def items(self) -> ItemsView[bytes, V]:
        return _Items(self)

    def __setitem__(self, key: bytes, value: V) -> None:
        """Set an entry; an existing one keeps its place."""
        for chunk in self.older:
            if key in chunk:
                chunk[key] = value
                return
        self.newest[key] = value
        if len(self.newest) >= FULL:
            self.turn()

    def add(self, key: bytes, value: V) -> None:
        self.newest[key] = value
        if len(self.newest) >= FULL:
            self.turn()

    def put(self, keys: Collection[bytes], values: Iterable[V]) -> None:
        """Set many entries; those of older chunks move to the end."""
        if self.older:
            for chunk in list(self.older):
                for key in chunk.keys() & set(keys):
                    self._take_older(key)
        self.newest.update(zip(keys, values, strict=True))
        if len(self.newest) >= FULL:
            self.turn()

    def take(self, key: bytes) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        value = self.newest.pop(key, None)
        return self._take_older(key) if value is None and self.older else value

    def _take_older(self, key: bytes) -> V | None:
        for at, chunk in enumerate(self.older):
            if key in chunk:
                value = chunk.pop(key)
                if not chunk:
                    del self.older[at]
                return value
        return None

    def __delitem__(self, key: bytes) -> None:
        if self.take(key) is None:
            raise KeyError(key)

    def popitem(self) -> tuple[bytes, V]:
        if not self.newest and self.older:
            self.newest = self.older.pop()
        return self.newest.popitem()

    def clear(self) -> None:
        self.newest, self.older = {}, []


class _Values(ValuesView[V]):
    _mapping: Chunked[V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable([each.values() for each in self._mapping.chunks])


class _Items(ItemsView[bytes, V]):
    _mapping: Chunked[V]

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        return chain.from_iterable([each.items() for each in self._mapping.chunks])
