"""A cache of values that are looked up elsewhere.

As in the original (TopicRouteService, ClusterMetadataService), a known value is used at once, and looked up again
periodically while it is used. Callers wait only for unknown values, and for those found to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import Code

__all__ = ["Cache"]

_REFRESH_MS: Final = 20_000
_UNUSED_MS: Final = 300_000
# The time before another lookup after a failed one.
_RETRY_MS: Final = 1_000
# The time before another lookup of a value that will soon change.
_UNSETTLED_MS: Final = 500
_ENTRIES_MAX: Final = 20_000
_WAITING_MAX: Final = 20_000

T = TypeVar("T")
Found = Callable[[T | CallRejected], None]


@dataclass(slots=True, eq=False)
class _CacheEntry(Generic[T]):
    value: T | None = None
    is_trusted: bool = False
    is_loading: bool = False
    due_ms: int = 0
    used_ms: int = 0
    waiting: list[Found[T]] = field(default_factory=list)


class Cache(Generic[T]):
    """Values by key. `load` looks one up; later it passes the value, or why there is none.

    A value that is not `is_settled` is looked up again soon.
    """

    def __init__(
        self,
        load: Callable[[str, Found[T]], None],
        now_ms: Callable[[], int],
        entries_max: int = _ENTRIES_MAX,
        is_settled: Callable[[T], bool] = lambda value: True,
    ) -> None:
        self._is_settled = is_settled
        self._load_value = load
        self._now_ms = now_ms
        self._entries_max = entries_max
        self._entries: dict[str, _CacheEntry[T]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, key: str) -> T | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def find(self, key: str, found: Found[T]) -> None:
        """Look up a value; at once if it is known."""
        now_ms = self._now_ms()
        entry = self._entries.get(key)
        if entry is None:
            self._make_room()
            entry = self._entries[key] = _CacheEntry()
        entry.used_ms = now_ms
        value = entry.value if entry.is_trusted else None
        if value is not None:
            if now_ms >= entry.due_ms:
                self._load(key, entry)
            found(value)
        elif self._waiting >= _WAITING_MAX:
            found(CallRejected(Code.TOO_MANY_REQUESTS, "too many requests wait for what is not known yet"))
        else:
            self._waiting += 1
            entry.waiting.append(found)
            self._load(key, entry)

    def distrust(self, is_wrong: Callable[[T], bool]) -> None:
        """Look up wrong values again before their next use."""
        for entry in self._entries.values():
            if entry.value is not None and is_wrong(entry.value):
                entry.is_trusted = False

    def tick(self) -> None:
        old_ms = self._now_ms() - _UNUSED_MS
        for key in [key for key, each in self._entries.items() if each.used_ms < old_ms and not each.is_loading]:
            del self._entries[key]

    def _make_room(self) -> None:
        if len(self._entries) >= self._entries_max:
            oldest = next((key for key, entry in self._entries.items() if not entry.is_loading), None)
            if oldest is not None:
                del self._entries[oldest]

    def _load(self, key: str, entry: _CacheEntry[T]) -> None:
        if not entry.is_loading:
            entry.is_loading = True
            self._load_value(key, lambda value: self._loaded(key, entry, value))

    def _loaded(self, key: str, entry: _CacheEntry[T], value: T | CallRejected) -> None:
        entry.is_loading = False
        waiting, entry.waiting = entry.waiting, []
        self._waiting -= len(waiting)
        now_ms = self._now_ms()
        is_believed = entry.is_trusted or now_ms >= entry.due_ms
        if not isinstance(value, CallRejected):
            after_ms = _REFRESH_MS if self._is_settled(value) else _UNSETTLED_MS
            entry.value, entry.is_trusted, entry.due_ms = value, True, now_ms + after_ms
        elif entry.value is None or (value.code == Code.TOPIC_NOT_FOUND and is_believed):
            # A missing thing may be created the next moment.
            if self._entries.get(key) is entry:
                del self._entries[key]
        else:
            # The old value is better than none, unless it is distrusted. A topic seems gone while its only broker is,
            # which may be back at once.
            if entry.is_trusted:
                entry.due_ms = now_ms + _RETRY_MS
            value = entry.value
        for found in waiting:
            found(value)
