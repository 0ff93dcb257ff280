"""What a shard's queues and apps are called, and when an app was there: picklable, one for all tasks of a shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from formats.disk.columns import key_bytes
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.queues import Queue, hex_of

__all__ = ["AppSpan", "Names", "key_text"]


class AppSpan(NamedTuple):
    """An app that is there for messages from position `since` on and before `until` (None: to the end)."""

    app_key: int
    app_id: str
    since: int
    until: int | None


class Names:
    """Keys are numbers, as `formats.disk.columns.key_numbers` gives them."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        """`queues` with offsets that count positions in the shard, of `JOURNAL_RECORD_SIZE` each."""
        self.uris: dict[int, str] = {}
        self.apps: dict[int, tuple[AppSpan, ...]] = {}
        for queue in queues:
            key = int(queue.queue_key, 16)
            if queue.uri is not None:
                self.uris[key] = queue.uri
            self.apps[key] = tuple(
                AppSpan(int(app.app_key, 16), app.app_id, _position(app.since), app.until and _position(app.until))
                for app in queue.apps
            )

    def app_ids(self) -> Mapping[tuple[int, int], str]:
        """By queue key and app key."""
        return {(queue, app.app_key): app.app_id for queue, apps in self.apps.items() for app in apps}


def key_text(number: int) -> str:
    """A key as the reference's tools print it."""
    return hex_of(key_bytes(number))


def _position(offset: int) -> int:
    return offset // JOURNAL_RECORD_SIZE
