"""Names of a partition's queues and apps, and the spans of apps; picklable, one for all of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from formats.bmq.disk.columns import key_bytes
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from formats.bmq.disk.keys import hex_of
from formats.bmq.stores.queues import Queue

__all__ = ["AppSpan", "Names", "key_text"]


class AppSpan(NamedTuple):
    """An app of messages in positions [`since`, `until`) (None: to the end)."""

    app_key: int
    app_id: str
    since: int
    until: int | None


class Names:
    """Names by numeric key, as from `formats.bmq.disk.columns.key_numbers`."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        """`queues` have offsets that count positions in the partition, of `JOURNAL_RECORD_SIZE` each."""
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
        return {(queue, app.app_key): app.app_id for queue, apps in self.apps.items() for app in apps}


def key_text(number: int) -> str:
    return hex_of(key_bytes(number))


def _position(offset: int) -> int:
    return offset // JOURNAL_RECORD_SIZE
