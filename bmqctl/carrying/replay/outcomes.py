"""Selection of a journal's messages by outcome: that of the message as a whole, or for some of its apps.

A message's outcome is known only after its last record: the journal is read to its end, with one byte for
each of its slots. With apps, a message's outcome is that for the app: an app is done with a message that it confirmed
while others are not, and never had one that was posted before it was an app of the queue, or that its subscription
did not select.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.reader import JournalReader
from formats.bmq.disk.journal import RecordType
from formats.bmq.disk.keys import hex_of
from formats.bmq.stores.lives import BITS, End, Lives, Role
from formats.bmq.stores.outcomes import ENDED, MessageOutcome

__all__ = ["chosen_places"]

Progress = Callable[[int, int], None]
Beyond = Mapping[int, Mapping[int, Role]]


_CODES = {outcome: code for code, outcome in enumerate(MessageOutcome)}
_ENDED = np.array([_CODES[ENDED[end]] for end in End], np.uint8)


class _App(NamedTuple):
    """A requested app, for the messages from slot `first` up to, but not including, `end`."""

    app_key: str
    first: int
    end: int


def chosen_places(
    reader: JournalReader,
    names: QueueNames,
    end: int,
    outcomes: Collection[MessageOutcome],
    apps: Collection[str],
    on_progress: Progress = lambda done, total: None,
) -> NDArray[np.bool_]:
    """Mark the slots before `end` that hold a message with one of `outcomes` (empty: any).

    With `apps`, ids or keys, the message must have one of the outcomes for one of these.
    """
    chooser = _Chooser(end, outcomes, _wanted_apps(reader, names, end, apps) if apps else None)
    for chunk in reader.chunks(0, end):
        chooser.feed(chunk.index, chunk.records, chunk.kinds)
        on_progress(chunk.end_offset, reader.size)
    return chooser.finish()


def _wanted_apps(reader: JournalReader, names: QueueNames, end: int, apps: Collection[str]) -> dict[str, list[_App]]:
    """Find the requested apps, by their queue's key."""
    ops: list[tuple[int, NDArray[Any]]] = []
    for chunk in reader.chunks(0, end):
        rows = np.flatnonzero(chunk.kinds == RecordType.QUEUE_OP).tolist()
        ops += [(int(chunk.offset[row]), chunk.records[row : row + 1].copy()) for row in rows]
    keys = {name.upper() for name in apps}
    return {
        queue.queue_key: [
            _App(
                app.app_key,
                reader.index_of(max(0, app.since)),
                end if app.until is None else reader.index_of(app.until),
            )
            for app in queue.apps
            if app.app_id in apps or app.app_key in keys
        ]
        for queue in names.queues(ops)
    }


class _Chooser:
    def __init__(self, end: int, outcomes: Collection[MessageOutcome], apps: dict[str, list[_App]] | None) -> None:
        self._wanted = np.zeros(len(MessageOutcome), np.bool_)
        self._wanted[[_CODES[outcome] for outcome in outcomes or MessageOutcome]] = True
        self._apps = apps
        self._lives = Lives()
        self._chosen = np.zeros(end, np.bool_)

    def feed(self, indexes: NDArray[Any], records: NDArray[Any], kinds: NDArray[Any]) -> None:
        step = self._lives.feed(indexes, records, kinds)
        self._choose(step.ended, _ENDED[step.end], step.beyond)

    def finish(self) -> NDArray[np.bool_]:
        alive = self._lives.alive()
        outstanding = np.full(len(alive), _CODES[MessageOutcome.OUTSTANDING], np.uint8)
        self._choose(alive, outstanding, self._lives.beyond)
        return self._chosen

    def _choose(self, messages: NDArray[Any], outcomes: NDArray[np.uint8], beyond: Beyond) -> None:
        if self._apps is None:
            wanted = self._is_wanted(outcomes, messages["confirms"] > 0)
        else:
            wanted = self._wanted_by_apps(self._apps, messages, outcomes, beyond)
        self._chosen[messages["index"][wanted]] = True

    def _is_wanted(self, outcomes: NDArray[np.uint8], confirmed_by_some: NDArray[np.bool_]) -> NDArray[np.bool_]:
        partially = (outcomes == _CODES[MessageOutcome.OUTSTANDING]) & confirmed_by_some
        wanted: NDArray[np.bool_] = self._wanted[outcomes]
        wanted |= partially & self._wanted[_CODES[MessageOutcome.PARTIALLY_CONFIRMED]]
        return wanted

    def _wanted_by_apps(
        self, apps: dict[str, list[_App]], messages: NDArray[Any], outcomes: NDArray[np.uint8], beyond: Beyond
    ) -> NDArray[np.bool_]:
        wanted = np.zeros(len(messages), np.bool_)
        queue_keys = self._lives.queue_keys()
        for number in np.unique(messages["queue"]).tolist():
            rows = np.flatnonzero(messages["queue"] == number)
            mine, places = messages[rows], messages["index"][rows]
            known = [hex_of(key) for key in self._lives.app_keys(number)]
            for app in apps.get(hex_of(queue_keys[number]), []):
                at = known.index(app.app_key) if app.app_key in known else None
                own = outcomes[rows].copy()
                own[_did(mine, at, Role.CONFIRMED, beyond)] = _CODES[MessageOutcome.CONFIRMED]
                own[_did(mine, at, Role.PURGED, beyond)] = _CODES[MessageOutcome.PURGED]
                is_of_app = (places >= app.first) & (places < app.end) & ~_did(mine, at, Role.AUTOMATIC, beyond)
                wanted[rows] |= is_of_app & self._is_wanted(own, mine["confirms"] > 0)
        return wanted


_FIELDS = {Role.CONFIRMED: "confirmed", Role.AUTOMATIC: "automatic", Role.PURGED: "purged"}


def _did(messages: NDArray[Any], app: int | None, role: Role, beyond: Beyond) -> NDArray[np.bool_]:
    """Mark the messages that have the app in `role`; none if `app` is None, for an app without records."""
    if app is None:
        return np.zeros(len(messages), np.bool_)
    if app < BITS:
        done: NDArray[np.bool_] = messages[_FIELDS[role]] >> np.uint64(app) & np.uint64(1) != 0
        return done
    roles = (beyond.get(index, {}).get(app) for index in messages["index"].tolist())
    return np.array([found is role for found in roles], np.bool_)
