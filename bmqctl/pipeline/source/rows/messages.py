"""The table `messages`: the outcome of each message, followed through a partition by `formats.bmq.stores.lives`.

Tasks share a partition's messages by GUID: each reads all records and selects those of its messages. Memory grows with
the messages alive at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bmqctl.pipeline.source.arrays import Labels, code_labels, hex_array, integers, times
from bmqctl.pipeline.source.names import key_text
from bmqctl.pipeline.source.options import ReadOptions
from bmqctl.pipeline.source.plan import Part
from bmqctl.pipeline.source.pushdown import Bounds
from bmqctl.pipeline.source.rows.fates import ALIVE, Ended, Fates
from bmqctl.pipeline.source.rows.records import message_sizes
from bmqctl.pipeline.source.walk import DataFiles, offsets_of, select, walk
from bmqctl.stores.blazingmq.read.account import Account
from formats.bmq.codes import CompressionAlgorithm
from formats.bmq.disk.columns import guid_numbers, key_numbers
from formats.bmq.disk.journal import ANY_RECORD, CONFIRM_RECORD, LAYOUTS, ConfirmReason, RecordType
from formats.bmq.padding import DWORD
from formats.bmq.stores.live_index import mix
from formats.bmq.stores.lives import Lives, Step

__all__ = ["Follower", "Turn", "ended_in", "guid_bytes", "message_batches"]

ROWS_PER_BATCH = 1 << 15
ROWS_PER_LOOK = 1 << 11
_WITH_GUID = (RecordType.MESSAGE, RecordType.CONFIRM, RecordType.DELETION)


class Turn(NamedTuple):
    """Some records of the share, and their effects."""

    positions: NDArray[Any]
    records: NDArray[Any]
    kinds: NDArray[Any]
    step: Step

    def numbers(self, positions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        records = self.records[np.searchsorted(self.positions, positions)]
        return ANY_RECORD.column(records, "primary_lease_id"), ANY_RECORD.column(records, "sequence_number")


class Follower:
    """Follows the messages of one task; `rejected` are the keys of apps that rejected a live message, by its index."""

    def __init__(self, part: Part, options: ReadOptions, bounds: Bounds, account: Account) -> None:
        self.part = part
        self.account = account
        self.lives = Lives()
        self.rejected: dict[int, set[int]] = {}
        self.options = options
        self._bounds = bounds
        self._keys = np.zeros(0, np.uint64)

    def queue_keys(self) -> NDArray[Any]:
        """The keys of the queues that had messages, by their numbers in `lives`."""
        if len(self._keys) < self.lives.queue_count:
            self._keys = np.array([int.from_bytes(key, "big") for key in self.lives.queue_keys()], np.uint64)
        return self._keys

    def turns(self) -> Iterator[Turn]:
        for chunk, sound in walk(self.part, self.options, self.account, use_after=False):
            kinds = select(chunk, sound, self.part.names, self._bounds, by_time=False)
            rows = np.flatnonzero(_of_share(chunk.records, kinds, self.part))
            if not len(rows):
                continue
            records, positions = chunk.records[rows], chunk.position + rows
            turn = Turn(positions, records, kinds[rows], self.lives.feed(positions, records, kinds[rows]))
            self._note_rejections(turn)
            yield turn
            for index in turn.step.ended["index"].tolist() if self.rejected else ():
                self.rejected.pop(index, None)

    def _note_rejections(self, turn: Turn) -> None:
        records = turn.records[np.searchsorted(turn.positions, turn.step.confirms)].view(CONFIRM_RECORD.dtype)
        some = np.flatnonzero(CONFIRM_RECORD.column(records, "reason") & np.uint64(ConfirmReason.REJECTED))
        keys = key_numbers(records[some], CONFIRM_RECORD, "app_key")
        for index, key in zip(turn.step.confirmed[some].tolist(), keys.tolist(), strict=True):
            self.rejected.setdefault(index, set()).add(key)


def _of_share(records: NDArray[Any], kinds: NDArray[Any], part: Part) -> NDArray[Any]:
    is_queue: NDArray[Any] = kinds == RecordType.QUEUE_OP
    about = (kinds >= RecordType.MESSAGE) & (kinds <= RecordType.DELETION)
    if part.shares == 1:
        return is_queue | about
    high, low = (np.zeros(len(kinds), np.uint64) for _ in range(2))
    for kind in _WITH_GUID:
        layout = LAYOUTS[kind]
        halves = guid_numbers(records.view(layout.dtype), layout)
        for half, values in zip((high, low), halves, strict=True):
            np.copyto(half, values, where=kinds == kind)
    share = (mix(high, low) >> np.uint64(32)) % np.uint64(part.shares)
    ours: NDArray[Any] = is_queue | (about & (share == np.uint64(part.share)))
    return ours


def ended_in(turn: Turn) -> Ended:
    step = turn.step
    by = turn.kinds[np.searchsorted(turn.positions, step.ended_by)]
    return Ended(
        step.ended, step.end, by == RecordType.QUEUE_OP, step.ended_at, *turn.numbers(step.ended_by), step.beyond
    )


def _alive(lives: Lives) -> Ended:
    messages = lives.alive()
    zeros = np.zeros(len(messages), np.int64)
    return Ended(messages, np.full(len(messages), ALIVE, np.uint8), zeros > 0, zeros, zeros, zeros, lives.beyond)


def message_batches(
    part: Part, options: ReadOptions, schema: pa.Schema, bounds: Bounds, account: Account
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `messages`: each message at its end, and finally live ones."""
    follower = Follower(part, options, bounds, account)
    columns = MessageColumns(schema, follower)
    for turn in follower.turns():
        if len(turn.step.ended):
            yield from columns.batches(ended_in(turn), bounds)
    yield from columns.batches(_alive(follower.lives), bounds)


class MessageColumns:
    """Makes rows of `messages`, with the columns in `schema`."""

    def __init__(self, schema: pa.Schema, follower: Follower) -> None:
        self._schema = schema
        self._follower = follower
        self._part = follower.part
        self._fates = Fates(self._part.names, follower.lives, follower.queue_keys)
        self._keys = Labels(key_text)
        self._uris = Labels(self._part.names.uris.get)
        self._compressions = code_labels(CompressionAlgorithm)
        self._files = DataFiles(self._part.journals, follower.options, follower.account)

    def batches(self, ended: Ended, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        arrived = ended.messages["timestamp"]
        since = bounds.since if bounds.since is not None else 0
        wanted = (arrived >= since) & (arrived <= (bounds.until if bounds.until is not None else 1 << 62))
        if not wanted.all():
            ended = ended.take(np.flatnonzero(wanted))
        for start in range(0, len(ended.messages), ROWS_PER_BATCH):
            yield self._batch(ended.take(np.arange(start, min(start + ROWS_PER_BATCH, len(ended.messages)))))

    def _batch(self, ended: Ended) -> pa.RecordBatch:
        messages, count = ended.messages, len(ended.messages)
        made: dict[str, Any] = {"partition_id": pa.array(np.full(count, self._part.partition_id, np.int32))}
        queues = self._follower.queue_keys()[messages["queue"]]
        made["queue_key"], made["queue_uri"] = self._keys.take(queues), self._uris.take(queues)
        made["guid"] = hex_array(guid_bytes(messages["guid_high"], messages["guid_low"]))
        made["arrival_time"] = times(messages["timestamp"])
        made["compression"] = self._compressions.take(messages["compression"].astype(np.uint64))
        for name in ("crc32c", "primary_lease_id", "sequence_number", "ref_count"):
            made[name] = integers(messages[name], self._type(name))
        journals, offsets = offsets_of(self._part, messages["index"])
        made["journal_offset"] = pa.array(offsets)
        at = messages["data_offset_dwords"].astype(np.int64) * DWORD
        made["message_offset"] = pa.array(at)
        if any(name in self._schema.names for name in _SIZES):
            made.update(zip(_SIZES, self._sizes(journals, at, messages), strict=True))
        rows = np.flatnonzero(ended.ends != ALIVE)
        made["removal_time"] = times(ended.removed_at[rows], rows, count)
        for name, column in zip(_REMOVAL, (ended.removal_lease, ended.removal_number), strict=True):
            made[name] = integers(column[rows], pa.int64(), rows, count)
        self._add_fates(made, ended)
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)

    def _type(self, name: str) -> pa.DataType:
        return pa.int32() if name == "ref_count" else pa.int64()

    def _sizes(self, journals: NDArray[Any], offsets: NDArray[Any], messages: NDArray[Any]) -> list[pa.Array]:
        compressions, checksums = messages["compression"], messages["crc32c"]
        columns = [np.full(len(offsets), -1, np.int64) for _ in _SIZES]
        for journal in np.flatnonzero(np.bincount(journals)).tolist():
            of_journal = np.flatnonzero(journals == journal)
            # Live messages are spread over the file: release pages after every few thousand.
            for start in range(0, len(of_journal), ROWS_PER_LOOK):
                rows = of_journal[start : start + ROWS_PER_LOOK]
                found = message_sizes(self._files, journal, offsets[rows], compressions[rows], checksums[rows])
                for column, values in zip(columns, found, strict=True):
                    column[rows] = values
        return [pa.array(column, mask=column < 0) for column in columns]

    def _add_fates(self, made: dict[str, Any], ended: Ended) -> None:
        fates, which = self._fates.of(ended, self._follower.rejected)
        index = pa.array(which)
        made["outcome"] = pa.array([fate.outcome.value for fate in fates], pa.string()).take(index)
        for name, at in _APPS.items():
            made[name] = pa.array([list(fate[at]) for fate in fates], pa.list_(pa.string())).take(index)


_SIZES = ("stored_size", "properties_size", "payload_size")
_REMOVAL = ("removal_primary_lease_id", "removal_sequence_number")
_APPS = {
    "confirmed_apps": 1,
    "rejected_apps": 2,
    "auto_confirmed_apps": 3,
    "purged_apps": 4,
    "pending_apps": 5,
}


def guid_bytes(high: NDArray[Any], low: NDArray[Any]) -> NDArray[Any]:
    halves = np.empty((len(high), 2), ">u8")
    halves[:, 0], halves[:, 1] = high, low
    return halves.view("V16").reshape(-1)
