"""The table `confirms`: a row for each app that was done with a message, and when.

It has recorded confirms, confirms implied by a deletion (`implied`), and confirms of messages that are not in the
files, whose arrival is unknown. An app's second confirm of a message is left out.
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
from bmqctl.pipeline.source.rows.fates import Fates
from bmqctl.pipeline.source.rows.messages import Follower, Turn, ended_in, guid_bytes
from bmqctl.pipeline.source.rows.records import AppLabels
from bmqctl.pipeline.source.walk import offsets_of, up_to
from bmqctl.stores.blazingmq.read.account import Account
from formats.bmq.disk.columns import guid_numbers, key_numbers
from formats.bmq.disk.journal import CONFIRM_RECORD, ConfirmReason, RecordType
from formats.bmq.stores.lives import End

__all__ = ["confirm_batches"]


class Rows(NamedTuple):
    """Confirms, as arrays of one length. `arrived` (seconds) and `message` (position) are -1 if unknown."""

    positions: NDArray[Any]
    queues: NDArray[Any]
    apps: NDArray[Any]
    guids: NDArray[Any]
    seconds: NDArray[Any]
    reasons: NDArray[Any]
    arrived: NDArray[Any]
    message: NDArray[Any]


def confirm_batches(
    part: Part, options: ReadOptions, schema: pa.Schema, bounds: Bounds, account: Account
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task's messages, in record order, implied ones after the others of a turn."""
    follower = Follower(part, options, bounds, account)
    columns = ConfirmColumns(schema, follower)
    after = options.after.get(part.partition_id)
    for turn in follower.turns():
        for rows, implied in ((_told(turn), False), (columns.implied(turn), True)):
            if after is not None:
                late = ~up_to(turn.records[np.searchsorted(turn.positions, rows.positions)], after)
                rows = Rows(*(column[late] for column in rows))
            if len(rows.positions):
                yield columns.batch(turn, rows, implied=implied)


def _told(turn: Turn) -> Rows:
    at = np.flatnonzero(turn.kinds == RecordType.CONFIRM)
    at = at[~np.isin(turn.positions[at], turn.step.repeated)]
    records = turn.records[at].view(CONFIRM_RECORD.dtype)
    positions = turn.positions[at]
    arrived, message = np.full(len(at), -1, np.int64), np.full(len(at), -1, np.int64)
    order = np.argsort(turn.step.confirms)
    met = turn.step.confirms[order]
    if len(met):
        found = np.minimum(np.searchsorted(met, positions), len(met) - 1)
        rows = np.flatnonzero(met[found] == positions)
        arrived[rows] = turn.step.confirmed_arrived[order][found[rows]]
        message[rows] = turn.step.confirmed[order][found[rows]]
    high, low = guid_numbers(records, CONFIRM_RECORD)
    return Rows(
        positions,
        key_numbers(records, CONFIRM_RECORD, "queue_key"),
        key_numbers(records, CONFIRM_RECORD, "app_key"),
        guid_bytes(high, low),
        CONFIRM_RECORD.column(records, "timestamp").astype(np.int64),
        CONFIRM_RECORD.column(records, "reason"),
        arrived,
        message,
    )


class ConfirmColumns:
    """Makes rows of `confirms`, with the columns in `schema`."""

    def __init__(self, schema: pa.Schema, follower: Follower) -> None:
        self._schema = schema
        self._part = follower.part
        self._follower = follower
        names = follower.part.names
        self._fates = Fates(names, follower.lives, follower.queue_keys)
        self._keys = Labels(key_text)
        self._uris = Labels(names.uris.get)
        self._app_ids = AppLabels(names)
        self._reasons = code_labels(ConfirmReason)

    def implied(self, turn: Turn) -> Rows:
        ended = ended_in(turn)
        by = turn.step.ended_by
        chosen = np.flatnonzero(ended.ends == End.CONFIRMED)
        ended, by = ended.take(chosen), by[chosen]
        fates, which = self._fates.of(ended, self._follower.rejected)
        counts = np.array([len(fate.implied) for fate in fates], np.int64)[which] if fates else np.zeros(0, np.int64)
        rows = np.repeat(np.arange(len(by)), counts)
        apps = [key for number in which.tolist() for key in fates[number].implied]
        messages = ended.messages[rows]
        queue_keys = self._follower.queue_keys()
        return Rows(
            by[rows],
            queue_keys[messages["queue"]] if len(rows) else np.zeros(0, np.uint64),
            np.array(apps, np.uint64),
            guid_bytes(messages["guid_high"], messages["guid_low"]),
            ended.removed_at[rows],
            np.full(len(rows), int(ConfirmReason.CONFIRMED), np.uint64),
            messages["timestamp"],
            messages["index"],
        )

    def batch(self, turn: Turn, rows: Rows, *, implied: bool) -> pa.RecordBatch:
        count = len(rows.positions)
        known = np.flatnonzero(rows.arrived >= 0)
        lease, number = turn.numbers(rows.positions)
        made: dict[str, Any] = {
            "partition_id": pa.array(np.full(count, self._part.partition_id, np.int32)),
            "queue_uri": self._uris.take(rows.queues),
            "queue_key": self._keys.take(rows.queues),
            "app_id": self._app_ids.take(rows.queues, rows.apps),
            "app_key": self._keys.take(rows.apps),
            "guid": hex_array(rows.guids),
            "confirm_time": times(rows.seconds),
            "confirm_reason": self._reasons.take(rows.reasons.astype(np.uint64)),
            "implied": pa.array(np.full(count, implied)),
            "arrival_time": times(rows.arrived[known], known, count),
            "latency_s": integers((rows.seconds - rows.arrived)[known], pa.int64(), known, count),
            "primary_lease_id": integers(lease, pa.int64()),
            "sequence_number": integers(number, pa.int64()),
            "offset": pa.array(offsets_of(self._part, rows.positions)[1]),
            "message_journal_offset": integers(
                offsets_of(self._part, rows.message[known])[1], pa.int64(), known, count
            ),
        }
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)
