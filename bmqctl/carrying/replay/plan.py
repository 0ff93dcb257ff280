"""The plan of a replay: the messages, their order and their target queues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.carrying.replay.messages import MessageSource, Source
from bmqctl.stores.blazingmq.read.chunks import Chunk
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from bmqctl.stores.blazingmq.read.filters import Filters, Selector, places
from bmqctl.stores.blazingmq.read.names import QueueNames
from bmqctl.stores.blazingmq.read.reader import JournalReader, load_names, with_names
from bmqctl.stores.blazingmq.read.wanted import BadFilter, parse_key
from formats.bmq.disk.journal import RecordType
from formats.bmq.disk.keys import hex_of
from formats.bmq.expressions import expression_values
from formats.bmq.stores.lives import BITS, End, Lives, Role
from formats.bmq.stores.outcomes import ENDED, MessageOutcome
from formats.errors import FormatError

__all__ = ["ENTRY", "Matches", "Plan", "Progress", "Selection", "StoreChanged", "make_plan"]

Progress = Callable[[int, int], None]
Matches = Callable[[dict[str, bool | int | str]], bool]

ENTRY = np.dtype([("time", np.int64), ("place", np.uint32), ("journal", np.uint16), ("queue", np.uint32)])
"""A message of BlazingMQ: seconds since 1970 (see `Plan`), its record's slot, the numbers of its journal and queue."""

Beyond = Mapping[int, Mapping[int, Role]]

_CODES = {outcome: code for code, outcome in enumerate(MessageOutcome)}
_ENDED = np.array([_CODES[ENDED[end]] for end in End], np.uint8)


class _App(NamedTuple):
    """A requested app, for the messages in slots [`first`, `end`)."""

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
    """Mark the slots before `end` that have a message with one of `outcomes` (empty: any).

    With `apps`, ids or keys, the message must have one of the outcomes for one of these. An app is done with a message
    that it confirmed, and never had one that was posted before the queue had the app, or that its subscription did not
    select. The journal is read to its end, with one byte for each slot: a message's outcome is known only after its
    last record.
    """
    chooser = _Chooser(end, outcomes, _wanted_apps(reader, names, end, apps) if apps else None)
    for chunk in reader.chunks(0, end):
        chooser.feed(chunk.index, chunk.records, chunk.kinds)
        on_progress(chunk.end_offset, reader.size)
    return chooser.finish()


def _wanted_apps(reader: JournalReader, names: QueueNames, end: int, apps: Collection[str]) -> dict[str, list[_App]]:
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


class StoreChanged(Exception):
    """Error that messages to replay have disappeared; one line."""


@dataclass(frozen=True)
class Selection:
    """Criteria of messages: all must match, each with one of its values; an empty one always matches.

    `queues` and `apps` are names or keys; times are in seconds, [`since`, `until`). `matches` decides by the message's
    properties; a message with unreadable properties is selected, so that it is reported.
    """

    queues: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    guids: frozenset[bytes] = frozenset()
    outcomes: frozenset[MessageOutcome] = frozenset()
    matches: Matches | None = None

    def filters(self) -> Filters:
        """Return the part that a journal's filters can decide. Raises `BadFilter` if times contradict each other."""
        return Filters(
            types=frozenset({RecordType.MESSAGE}),
            queues=self.queues,
            guids=self.guids,
            since=self.since,
            until=self.until,
        )


@dataclass
class Plan:
    """The messages in replay order: `entries` are `ENTRY`, or for RocketMQ `LOG_ENTRY`.

    They are ordered by time. Within a journal the order is that of its records, whatever its clock did: a time is at
    least that of earlier records. `queues` are URIs, or keys in hex if a store has no name; for RocketMQ they are
    topics. `ends` are the ends of the parts read, by file name. `damaged` counts slots without a record before the last
    one. `known` are the names of all queues, selected or not. `per_s` time units make a second. `unseen` are requested
    ids that were not found, `widths` the numbers of topics' queues. `left_out` describes the journals whose files
    cannot be read, and messages that consume queues name and the log lacks.
    """

    sources: Sequence[Source]
    entries: NDArray[Any]
    queues: list[str]
    ends: dict[str, int]
    damaged: int = 0
    known: frozenset[str] = frozenset()
    per_s: int = 1
    unseen: tuple[str, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    def digest(self) -> str:
        """A digest, equal for plans that replay the same messages in the same order."""
        return hashlib.sha256(self.entries.tobytes() + "\n".join(self.queues).encode()).hexdigest()

    def due_s(self, order: NDArray[np.int64], speed: float) -> NDArray[np.float64]:
        """The due times of the entries `order`, in seconds from the first one.

        Messages of the same second or millisecond are spread evenly over it.
        """
        times = self.entries["time"][order]
        if not len(times):
            return np.zeros(0)
        starts = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
        counts = np.diff(starts, append=len(times))
        within = np.arange(len(times)) - np.repeat(starts, counts)
        due: NDArray[np.float64] = (times - times[0] + within / np.repeat(counts, counts)) / (speed * self.per_s)
        return due


@dataclass
class _Queues:
    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, names: QueueNames, keys: list[bytes]) -> list[int]:
        by_key: dict[bytes, int] = {}
        # In order of appearance, so that a repeated plan is the same.
        for key in dict.fromkeys(keys):
            name = names.uris.get(key) or hex_of(key)
            by_key[key] = self.numbers.setdefault(name, len(self.numbers))
        return [by_key[key] for key in keys]


def make_plan(
    journals: list[Path],
    selection: Selection,
    stack: ExitStack,
    ends: Mapping[str, int] | None = None,
    on_progress: Progress = lambda done, total: None,
) -> Plan:
    """Collect the messages of `journals`; their files stay open in `stack`.

    A journal with damaged headers or without a DATA file is left out; raises NotAStoreFile if all are. With the `ends`
    of an earlier plan, later records are left out; raises `StoreChanged` if journals have become shorter or damaged.
    Raises BadFilter if no journal has a requested queue or app.
    """
    sources, left_out = _open_sources(journals, stack, ends)
    names = [load_names(source.path, source.reader.partition_id) for source in sources]
    _check_names(names, selection)
    found, queues = Plan(sources, np.zeros(0, ENTRY), [], dict.fromkeys(left_out, 0)), _Queues()
    found.left_out = list(left_out.values())
    parts = []
    for number, source in enumerate(sources):
        end = source.reader.record_end()
        if ends is not None:
            if end < ends[source.path.name]:
                raise StoreChanged(f"{source.path} has {end} records, and had {ends[source.path.name]}")
            end = ends[source.path.name]
        found.ends[source.path.name] = end

        def show(done: int, total: int, before: int = number) -> None:
            on_progress(before * total + done, len(sources) * total)

        walk = _Walk(source, names[number], selection, end, show)
        parts += [_entries(chunk, names[number], number, queues) for chunk in walk.messages()]
        found.damaged += walk.damaged
    if parts:
        entries = np.concatenate(parts)
        for number in range(len(sources)):
            rows = np.flatnonzero(entries["journal"] == number)
            entries["time"][rows] = np.maximum.accumulate(entries["time"][rows])
        found.entries = entries[np.argsort(entries["time"], kind="stable")]
    found.queues = list(queues.numbers)
    found.known = frozenset(uri for each in names for uri in each.uris.values()).union(found.queues)
    return found


def _open_sources(
    journals: list[Path], stack: ExitStack, ends: Mapping[str, int] | None
) -> tuple[list[MessageSource], dict[str, str]]:
    sources: list[MessageSource] = []
    left_out: dict[str, str] = {}
    for path in journals:
        try:
            sources.append(stack.enter_context(MessageSource(path)))
        except FormatError as error:
            left_out[path.name] = f"{path}: {error}"
        except NotAStoreFile as error:
            left_out[path.name] = str(error)
    if not sources:
        raise NotAStoreFile(next(iter(left_out.values())))
    for name, reason in left_out.items():
        if ends is not None and ends[name]:
            raise StoreChanged(f"{reason}; it was sound when the replay began")
    return sources, left_out


def _check_names(names: list[QueueNames], selection: Selection) -> None:
    for option, wanted, there in (
        ("--queue", selection.queues, {uri for each in names for uri in each.uris.values()}),
        ("--app", selection.apps, {app_id for each in names for app_id in each.app_ids.values()}),
    ):
        for name in wanted:
            if parse_key(name) is None and name not in there:
                listed = ", ".join(sorted(there)[:5]) + (", ..." if len(there) > 5 else "")
                raise BadFilter(f"{option} {name}: not in the store; known names: {listed or 'none'}")


@dataclass
class _Walk:
    """Collects the messages of one journal."""

    source: MessageSource
    names: QueueNames
    selection: Selection
    end: int
    on_progress: Progress
    damaged: int = 0

    def messages(self) -> Iterator[Chunk]:
        """Yield the selected messages in chunks; while one is in use, `names` are those of its records."""
        reader, selection, filters = self.source.reader, self.selection, self.selection.filters()
        chosen = None
        if selection.outcomes or selection.apps:
            chosen = chosen_places(reader, self.names, self.end, selection.outcomes, selection.apps, self.on_progress)
        start, end = places(reader, filters)
        end = self.end if end is None else min(end, self.end)
        selector = Selector(filters, self.names)
        for chunk in with_names(reader.chunks(start, end), self.names):
            self.damaged += len(chunk.faults)
            self.on_progress(chunk.end_offset, reader.size)
            messages = selector.select(chunk.without_faults())
            if chosen is not None:
                messages = messages.where(chosen[messages.index])
            if selection.matches is not None:
                messages = messages.where(self._matching(messages.index.tolist(), selection.matches))
            if len(messages):
                yield messages

    def _matching(self, found: list[int], matches: Matches) -> NDArray[np.bool_]:
        wanted = np.ones(len(found), np.bool_)
        for at, place in enumerate(found):
            try:
                wanted[at] = matches(expression_values(self.source.read(place).properties))
            except (FormatError, OSError):
                continue
        return wanted


def _entries(chunk: Chunk, names: QueueNames, journal: int, queues: _Queues) -> NDArray[Any]:
    part = chunk.of_kind(RecordType.MESSAGE)
    entries = np.zeros(len(part.rows), ENTRY)
    entries["time"] = np.minimum(part.column("timestamp"), _TIME_MAX_S).astype(np.int64)
    entries["place"] = part.places["index"]
    entries["journal"] = journal
    entries["queue"] = queues.of(names, part.column("queue_key").tolist())
    return entries


_TIME_MAX_S = (1 << 63) - 1
