# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The messages of a queue, by GUID and in the order of their arrival. Waiting messages are packed.

A backlog is a row of parts, most of which hold messages as objects. A part may be packed while nothing refers to any of
its messages (`broker.bmq.core.packed`, `broker.bmq.queue.packing`). A lookup of a packed message unpacks its part in
place, so that a message is never more than one object.

Apps wait for a packed part as a whole: it stands in their `pending` for the messages in it that they want. So every app
gets the same objects, and all see one app's confirm.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import islice
from typing import TypeVar, overload

from broker.bmq.core.messages import Message
from broker.bmq.core.packed import PRODUCER_AT, TICKS_AT, Packed
from broker.bmq.store.chunked import FULL

__all__ = ["Backlog", "Part"]

T = TypeVar("T")


class Part:
    """Consecutive messages. `entries` has them by GUID; it is empty while they are `packed`.

    `waits` is the number of apps whose `pending` has the part itself, rather than its messages. `producers`, empty
    while the part is loose, has the least and greatest tick of each producer. `is_fresh` is True shortly after
    unpacking.
    """

    __slots__ = ("entries", "home", "is_fresh", "packed", "producers", "waits")

    def __init__(self, home: Backlog, entries: dict[bytes, Message]) -> None:
        self.home = home
        self.entries = entries
        self.packed: Packed | None = None
        self.producers: dict[bytes, tuple[bytes, bytes]] = {}
        self.waits = 0
        self.is_fresh = False

    @property
    def size(self) -> int:
        packed = self.packed
        return len(self.entries) if packed is None else packed.count

    @property
    def guids(self) -> list[bytes]:
        packed = self.packed
        return list(self.entries) if packed is None else packed.guids

    def unpack(self) -> dict[bytes, Message]:
        """Turn the messages into objects; return them by GUID."""
        if self.packed is not None:
            self.home.unpack(self)
        return self.entries

    def has(self, guid: bytes) -> bool:
        """Return True if one of the messages has this GUID; the part must not be loose."""
        bounds = self.producers.get(guid[PRODUCER_AT:])
        if bounds is None or not bounds[0] <= guid[TICKS_AT:PRODUCER_AT] <= bounds[1]:
            return False
        packed = self.packed
        return guid in self.entries if packed is None else packed.has(guid)

    def let_go(self) -> None:
        """Count one app fewer that waits for the whole part; it must not be packed."""
        self.waits -= 1
        if not self.waits and self.entries:
            self.home.loosen(self)

    def peek(self) -> Sequence[Message]:
        """Return the messages for reading only: copies, if packed."""
        packed = self.packed
        return list(self.entries.values()) if packed is None else packed.unpack()

    def count_of(self, bits: int) -> int:
        if self.packed is not None:
            return self.packed.count_of(bits)
        return sum([1 for each in self.entries.values() if each.outstanding & bits])


class Backlog(Mapping[bytes, Message]):
    """A mapping like `broker.bmq.store.chunked.Chunked`, in several dictionaries for the same reason.

    To iterate over all messages a caller may use `newest` if `older` is empty: it then has all of them. No part is
    empty. `loose` are the older parts that were never packed, or for which no app waits as a whole any more; adjacent
    loose parts are merged. `unpacked` are the other parts that are not packed. Both are unordered.

    `producers` has, for parts that are not loose, each producer's greatest tick and the number of parts that have it:
    nearly every new post is later, and so in none of them.
    """

    __slots__ = ("loose", "newest", "older", "producers", "unpacked")

    def __init__(self) -> None:
        self.newest: dict[bytes, Message] = {}
        self.older: list[Part] = []
        self.loose: list[Part] = []
        self.unpacked: list[Part] = []
        self.producers: dict[bytes, tuple[bytes, int]] = {}

    def turn(self) -> None:
        if self.newest:
            part = Part(self, self.newest)
            self.older.append(part)
            self.loose.append(part)
            self.newest = {}
        self.tidy()

    def tidy(self) -> None:
        older = self.older
        before: Part | None = None
        for part in older:
            is_loose = not part.producers
            if is_loose and before is not None and len(before.entries) + len(part.entries) <= FULL // 2:
                # Copied, since a dictionary does not shrink when entries are removed.
                before.entries = {**before.entries, **part.entries}
                part.entries = {}
                self._drop(part)
                return
            before = part if is_loose else None

    def __len__(self) -> int:
        count = len(self.newest)
        for part in self.older:
            count += part.size
        return count

    def __bool__(self) -> bool:
        return bool(self.newest or self.older)

    def __contains__(self, key: object) -> bool:
        if key in self.newest:
            return True
        for part in self.loose:
            if key in part.entries:
                return True
        return bool(self.producers) and isinstance(key, bytes) and self._whole_with(key) is not None

    def __getitem__(self, key: bytes) -> Message:
        message = self.get(key)
        if message is None:
            raise KeyError(key)
        return message

    @overload
    def get(self, key: bytes, /) -> Message | None: ...
    @overload
    def get(self, key: bytes, /, default: Message | T) -> Message | T: ...
    def get(self, key: bytes, /, default: Message | T | None = None) -> Message | T | None:
        value = self.newest.get(key)
        if value is not None:
            return value
        part = self._older_with(key)
        return default if part is None else part.entries[key]

    def __iter__(self) -> Iterator[bytes]:
        newest = self.newest
        for part in list(self.older):
            yield from part.guids
        yield from newest

    def values(self) -> ValuesView[Message]:
        """The messages, oldest first; each part is unpacked when reached."""
        return _BacklogValues(self)

    def items(self) -> ItemsView[bytes, Message]:
        return _BacklogItems(self)

    def none_of(self, keys: Sequence[bytes]) -> bool:
        if not self.newest.keys().isdisjoint(keys):
            return False
        for part in self.loose:
            if not part.entries.keys().isdisjoint(keys):
                return False
        if self.producers:
            for key in keys:
                if self._whole_with(key) is not None:
                    return False
        return True

    def peek(self, bits: int = -1, offset: int = 0) -> Iterator[Message]:
        """Yield the messages that apps with these bits want, from the `offset`th on, oldest first.

        None is unpacked. Some are copies: do not keep or change them.
        """
        for part in list(self.older):
            if offset:
                count = part.count_of(bits)
                if count <= offset:
                    offset -= count
                    continue
            wanted = (each for each in part.peek() if each.outstanding & bits)
            yield from islice(wanted, offset, None)
            offset = 0
        yield from islice((each for each in self.newest.values() if each.outstanding & bits), offset, None)

    @property
    def first_arrived_ms(self) -> int | None:
        """The arrival of the oldest message; None if there is none."""
        entries = self.newest
        if self.older:
            part = self.older[0]
            if part.packed is not None:
                return part.packed.first_arrived_ms
            entries = part.entries
        for message in entries.values():
            return message.arrived_ms
        return None

    def __setitem__(self, key: bytes, message: Message) -> None:
        """A message that exists keeps its place."""
        part = self._older_with(key) if self.older else None
        if part is not None:
            part.entries[key] = message
            return
        self.add(key, message)

    def add(self, key: bytes, message: Message) -> None:
        self.newest[key] = message
        if len(self.newest) >= FULL:
            self.turn()

    def __delitem__(self, key: bytes) -> None:
        if self.newest.pop(key, None) is not None:
            return
        part = self._older_with(key)
        if part is None:
            raise KeyError(key)
        del part.entries[key]
        if not part.entries:
            self._drop(part)

    def take_newest(self, count: int) -> list[bytes]:
        """Remove about `count` of the newest messages, a packed part only as a whole; return their GUIDs."""
        if not self.newest and self.older:
            part = self.older[-1]
            if part.packed is not None:
                guids = part.guids
                part.packed = None
                self._forget(part)
                self.older.pop()
                return guids
            self._drop(part)
            self.newest = part.entries
        newest = self.newest
        return [newest.popitem()[0] for _ in range(min(count, len(newest)))]

    def clear(self) -> list[dict[bytes, Message]]:
        """Remove all; return the dictionaries, to be freed in slices."""
        chunks = [part.entries for part in (*self.loose, *self.unpacked)]
        chunks.append(self.newest)
        self.newest, self.older, self.loose, self.unpacked, self.producers = {}, [], [], [], {}
        return chunks

    def cut(self, source: Part | None, before: Iterable[Message], messages: Iterable[Message]) -> Part:
        """Make a part of `messages`, which follow `before` in the loose part `source`, or among the newest without one.

        `before` are the first messages there, and become a part of their own.
        """
        entries = self.newest if source is None else source.entries
        made = []
        for some in (before, messages):
            taken = {each.guid: each for each in some}
            for guid in taken:
                del entries[guid]
            if taken:
                made.append(Part(self, taken))
        at = len(self.older) if source is None else self.older.index(source)
        self.older[at:at] = made
        self.loose += made
        if source is not None and not entries:
            self._drop(source)
        return made[-1]

    def pack(self, part: Part, messages: Sequence[Message], producers: dict[bytes, tuple[bytes, bytes]]) -> None:
        """Pack a part with these messages and their producers; nothing else may refer to them."""
        part.packed = Packed(messages)
        part.entries = {}
        if part.producers:
            # There are no more than before.
            self.unpacked.remove(part)
            return
        self.loose.remove(part)
        part.producers = producers
        known = self.producers
        for producer, (_, greatest) in producers.items():
            before = known.get(producer)
            if before is None:
                known[producer] = greatest, 1
            else:
                known[producer] = max(before[0], greatest), before[1] + 1

    def unpack(self, part: Part) -> None:
        packed = part.packed
        assert packed is not None
        part.entries = {each.guid: each for each in packed.unpack()}
        part.packed = None
        part.is_fresh = True
        self.unpacked.append(part)

    def loosen(self, part: Part) -> None:
        """Make an unpacked part loose, and merge it with a loose part before it."""
        self.unpacked.remove(part)
        self._forget(part)
        self.loose.append(part)
        at = self.older.index(part)
        before = self.older[at - 1] if at else part
        if before is not part and not before.producers and len(before.entries) + len(part.entries) <= FULL:
            before.entries.update(part.entries)
            part.entries = {}
            self._drop(part)

    def _forget(self, part: Part) -> None:
        known = self.producers
        producers, part.producers = part.producers, {}
        for producer in producers:
            greatest, count = known[producer]
            if count > 1:
                known[producer] = greatest, count - 1
            else:
                del known[producer]

    def _whole_with(self, key: bytes) -> Part | None:
        known = self.producers.get(key[PRODUCER_AT:])
        if known is None or key[TICKS_AT:PRODUCER_AT] > known[0]:
            return None
        for part in self.older:
            if part.has(key):
                return part
        return None

    def _older_with(self, key: bytes) -> Part | None:
        for part in self.loose:
            if key in part.entries:
                return part
        if not self.producers:
            return None
        # Most lookups are of messages delivered lately.
        for part in self.unpacked:
            if key in part.entries:
                return part
        found = self._whole_with(key)
        if found is not None:
            self.unpack(found)
        return found

    def _drop(self, part: Part) -> None:
        self.older.remove(part)
        if part.producers:
            self._forget(part)
            self.unpacked.remove(part)
        else:
            self.loose.remove(part)


class _BacklogValues(ValuesView[Message]):
    _mapping: Backlog

    def __iter__(self) -> Iterator[Message]:
        newest = self._mapping.newest
        for part in list(self._mapping.older):
            yield from part.unpack().values()
        yield from newest.values()


class _BacklogItems(ItemsView[bytes, Message]):
    _mapping: Backlog

    def __iter__(self) -> Iterator[tuple[bytes, Message]]:
        newest = self._mapping.newest
        for part in list(self._mapping.older):
            yield from part.unpack().items()
        yield from newest.items()
