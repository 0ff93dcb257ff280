"""Outcomes of messages, app by app, computed once for all messages with the same history.

Most messages of a queue share their fate with thousands of others. It is therefore looked up by the queue, its apps
when the message arrived, what each of them did, and how the message ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.pipeline.source.names import Names, key_text
from formats.bmq.stores.live_index import mix
from formats.bmq.stores.lives import BITS, End, Lives, Role
from formats.bmq.stores.outcomes import ENDED, MessageOutcome

__all__ = ["ALIVE", "Fate", "Fates"]

KNOWN_MAX = 1 << 16
ALIVE = 255
"""A value in addition to those of `End`: the message is alive."""


class Ended(NamedTuple):
    """Messages that ended or are alive; all arrays except `beyond` are of one length.

    `messages` are `message_dtype`, `ends` of `End` or ALIVE; `whole` is True if the message ended with all of its
    queue. The removal (seconds, and the record's number) is 0 for live messages. `beyond` is as in `Step`.
    """

    messages: NDArray[Any]
    ends: NDArray[Any]
    whole: NDArray[Any]
    removed_at: NDArray[Any]
    removal_lease: NDArray[Any]
    removal_number: NDArray[Any]
    beyond: Mapping[int, Mapping[int, Role]]

    def take(self, rows: NDArray[Any]) -> Ended:
        return Ended(
            self.messages[rows],
            self.ends[rows],
            self.whole[rows],
            self.removed_at[rows],
            self.removal_lease[rows],
            self.removal_number[rows],
            self.beyond,
        )


class Fate(NamedTuple):
    """Apps by id (or key, if the id is unknown), sorted; `implied` are keys of apps whose confirm is the deletion."""

    outcome: MessageOutcome
    confirmed: tuple[str, ...]
    rejected: tuple[str, ...]
    automatic: tuple[str, ...]
    purged: tuple[str, ...]
    pending: tuple[str, ...]
    implied: tuple[int, ...]


class Fates:
    """The fates of a partition's messages, which `lives` follows."""

    def __init__(self, names: Names, lives: Lives, queue_keys: Callable[[], NDArray[Any]]) -> None:
        """`queue_keys` returns the keys of queues by their number in `lives`."""
        self._names = names
        self._lives = lives
        self._queue_keys = queue_keys
        self._ids = names.app_ids()
        self._known: dict[tuple[int, ...], Fate] = {}
        self._changes: list[NDArray[Any]] = []
        self._last: NDArray[Any] = np.zeros(0, np.int64)
        self._count: NDArray[Any] = np.zeros(0, np.int64)

    def of(self, ended: Ended, rejected: Mapping[int, set[int]]) -> tuple[list[Fate], NDArray[Any]]:
        """The distinct fates, and the index of each message's fate.

        `rejected` are the keys of the apps that rejected a message, by the message's index.
        """
        messages, ends, whole, beyond = ended.messages, ended.ends, ended.whole, ended.beyond
        if not len(messages):
            return [], np.zeros(0, np.int64)
        epochs = self._epochs(messages)
        alone = np.zeros(len(messages), np.uint64)
        if beyond or rejected:
            special = np.array([*beyond, *rejected], np.int64)
            at = np.flatnonzero(np.isin(messages["index"], special))
            alone[at] = at + 1
        ways = ends.astype(np.uint64) << np.uint64(1) | whole.astype(np.uint64)
        where = messages["queue"].astype(np.uint64) << np.uint64(32) | epochs.astype(np.uint64)
        hashes = mix(mix(where, ways, alone), messages["confirmed"], mix(messages["automatic"], messages["purged"]))
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        fates = []
        for row in first.tolist():
            message = messages[row]
            index = int(message["index"])
            if alone[row]:
                roles = beyond.get(index, {})
                fates.append(
                    self._work_out(message, int(ends[row]), bool(whole[row]), roles, rejected.get(index, set()))
                )
                continue
            key = (
                int(where[row]),
                int(ways[row]),
                *(int(message[name]) for name in ("confirmed", "automatic", "purged")),
            )
            if key not in self._known:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[key] = self._work_out(message, int(ends[row]), bool(whole[row]), {}, set())
            fates.append(self._known[key])
        return fates, inverse.reshape(-1)

    def _epochs(self, messages: NDArray[Any]) -> NDArray[Any]:
        queues = self._queue_keys()
        for number in range(len(self._changes), len(queues)):
            spans = self._names.apps.get(int(queues[number]), ())
            changes = {at for span in spans for at in (span.since, span.until) if at is not None and at > 0}
            self._changes.append(np.array(sorted(changes), np.int64))
        if len(self._last) < len(self._changes):
            self._last = np.array([each[-1] if len(each) else -1 for each in self._changes])
            self._count = np.array([len(each) for each in self._changes])
        # Nearly all messages come after all changes; a search for each queue would cost more than the rest.
        of_queue = messages["queue"].astype(np.int64)
        epochs: NDArray[Any] = self._count[of_queue]
        for row in np.flatnonzero(messages["index"] < self._last[of_queue]).tolist():
            epochs[row] = np.searchsorted(self._changes[of_queue[row]], messages["index"][row])
        return epochs

    def _queue_key(self, queue: int) -> int:
        return int(self._queue_keys()[queue])

    def _work_out(self, message: Any, end: int, whole: bool, beyond: Mapping[int, Role], rejected: set[int]) -> Fate:
        queue, here = int(message["queue"]), int(message["index"])
        queue_key = self._queue_key(queue)
        keys = [int.from_bytes(key, "big") for key in self._lives.app_keys(queue)]

        def apps(role: Role) -> set[int]:
            mask = int(message[role.name.lower()])
            found = {key for bit, key in enumerate(keys[:BITS]) if mask >> bit & 1}
            return found | {keys[number] for number, its in beyond.items() if its is role}

        confirmed, automatic, purges = (apps(role) for role in (Role.CONFIRMED, Role.AUTOMATIC, Role.PURGED))
        spans = self._names.apps.get(queue_key, ())
        there = {span.app_key for span in spans if span.since < here and (span.until is None or span.until > here)}
        others = there - confirmed - automatic
        purged = others if whole else others & purges
        others = others - purged
        outcome = ENDED[End(end)] if end != ALIVE else _standing(confirmed, purged, others)
        implied = others if outcome is MessageOutcome.CONFIRMED else set()
        waits = outcome in (MessageOutcome.OUTSTANDING, MessageOutcome.PARTIALLY_CONFIRMED)

        def named(some: set[int]) -> tuple[str, ...]:
            return tuple(sorted(self._ids.get((queue_key, key)) or key_text(key) for key in some))

        return Fate(
            outcome,
            named(confirmed - rejected | implied),
            named(rejected),
            named(automatic),
            named(purged),
            named(others if waits else set()),
            tuple(sorted(implied)),
        )


def _standing(confirmed: set[int], purged: set[int], others: set[int]) -> MessageOutcome:
    if purged and not others:
        return MessageOutcome.PURGED
    return MessageOutcome.PARTIALLY_CONFIRMED if confirmed or purged else MessageOutcome.OUTSTANDING
