"""Messages that an app gave up after the last delivery attempt, from a store's journals and brokers' logs.

A journal records it only if the message had other apps left; the last app's is a plain deletion. Logs have the alarm,
at most one each 15 s and queue, and the first attempts that a lost consumer used up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bmqctl.stores.blazingmq.read.reader import JournalReader, load_names, with_names
from bmqctl.stores.blazingmq.read.times import shown_time
from formats.bmq.disk.journal import ConfirmReason, RecordType
from formats.bmq.guid import format_guid, parse_guid

__all__ = ["Rejected", "find_rejected", "rejected_in_log"]

_WHERE: Final = r"GUID: '?(?P<guid>[0-9A-F]{32})'?, appId: (?P<app>[^,\]]{1,1000}), subQueueId: \d+\]"
_ALARM: Final = re.compile(
    rf"purged from the queue (?P<queue>bmq://\S+) \[{_WHERE}"
    r"\. Message was transmitted a total of (?P<attempts>\d{1,9}) times"
)
_KEPT_IN: Final = "dumped in file at location ["
# The counter is the number of attempts left.
_LAST_ATTEMPT: Final = re.compile(rf"Queue '(?P<queue>bmq://[^']+)' rejecting PUSH \[{_WHERE} with the counter: \[1\]")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,12}|\d\d[A-Za-z]{3}\d{4}_\d\d:\d\d:\d\d\.\d{3,6}")

Progress = Callable[[int, int], None]


class Rejected(NamedTuple):
    """A message that an app gave up. `kept_in` is the file to which the broker wrote it, by the log.

    `attempts` is None if only the journal has it; `is_stored` says whether the journals have the message.
    """

    time: str | None
    queue_uri: str
    app_id: str
    guid: str
    attempts: int | None
    in_journal: bool
    in_log: bool
    is_stored: bool
    kept_in: str | None


def rejected_in_log(lines: Iterable[str]) -> Iterator[Rejected]:
    """Yield the rejections in a broker's log; a message may occur twice."""
    for line in lines:
        # A cheap test that most lines fail.
        if "GUID: " not in line:
            continue
        found = _ALARM.search(line) or _LAST_ATTEMPT.search(line)
        if found is None:
            continue
        given = found.groupdict()
        yield Rejected(
            _time_of(line),
            given["queue"],
            given["app"],
            given["guid"],
            int(given["attempts"]) if given.get("attempts") else None,
            in_journal=False,
            in_log=True,
            is_stored=False,
            kept_in=_kept_in(line[found.end() :]),
        )


def _kept_in(text: str) -> str | None:
    """The file that the rest of an alarm names, in time linear in the line, which others may have written."""
    file, bracket, _ = text.rpartition(_KEPT_IN)[2].partition("]")
    return file if bracket and _KEPT_IN in text else None


def _time_of(line: str) -> str | None:
    """The time at the start of a line of our log or the C++ broker's; None for another format."""
    found = _TIME.match(line)
    if found is None or found[0][4] == "-":
        return None if found is None else found[0]
    try:
        return datetime.strptime(found[0], "%d%b%Y_%H:%M:%S.%f").isoformat(timespec="milliseconds") + "Z"
    except ValueError:
        return None


def find_rejected(journals: Sequence[Path], told: Iterable[Rejected], on_progress: Progress) -> list[Rejected]:
    """Merge journals and logs: each message once for each app, by time.

    Raises `FormatError` for a journal whose headers are damaged, and `OSError`.
    """
    found: dict[tuple[str, str], Rejected] = {}
    for each in told:
        _add(found, each)
    for number, journal in enumerate(journals):
        on_progress(2 * number, 2 * len(journals))
        for each in _in_journal(journal):
            _add(found, each)
    wanted = {parse_guid(guid) for guid, _ in found}
    stored: set[str] = set()
    for number, journal in enumerate(journals if wanted else ()):
        on_progress(2 * number + 1, 2 * len(journals))
        stored.update(map(format_guid, _stored(journal, wanted)))
    rows = (each._replace(is_stored=each.guid in stored) for each in found.values())
    return sorted(rows, key=lambda each: (each.time or "", each.guid, each.app_id))


def _add(found: dict[tuple[str, str], Rejected], new: Rejected) -> None:
    old = found.setdefault((new.guid, new.app_id), new)
    found[new.guid, new.app_id] = old._replace(
        time=old.time or new.time,
        attempts=old.attempts if new.attempts is None else new.attempts,
        in_journal=old.in_journal or new.in_journal,
        in_log=old.in_log or new.in_log,
        kept_in=new.kept_in or old.kept_in,
    )


def _in_journal(journal: Path) -> Iterator[Rejected]:
    with JournalReader(journal) as reader:
        names = load_names(journal, reader.partition_id)
        for chunk in with_names(reader.chunks(), names):
            part = chunk.of_kind(RecordType.CONFIRM)
            rows = np.flatnonzero(part.column("reason") == ConfirmReason.REJECTED)
            columns = (_values(part.column(name)[rows]) for name in ("timestamp", "queue_key", "app_key", "guid"))
            for timestamp, queue_key, app_key, guid in zip(*columns, strict=True):
                yield Rejected(
                    shown_time(timestamp),
                    names.uris.get(queue_key, queue_key.hex().upper()),
                    names.app_ids.get((queue_key, app_key), app_key.hex().upper()),
                    format_guid(guid),
                    None,
                    in_journal=True,
                    in_log=False,
                    is_stored=False,
                    kept_in=None,
                )


def _stored(journal: Path, wanted: set[bytes]) -> Iterator[bytes]:
    with JournalReader(journal) as reader:
        for chunk in reader.chunks():
            yield from wanted.intersection(_values(chunk.of_kind(RecordType.MESSAGE).column("guid")))


def _values(column: Any) -> list[Any]:
    values: list[Any] = column.tolist()
    return values
