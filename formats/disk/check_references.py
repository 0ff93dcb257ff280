"""Faults between records: messages that nobody posted, queues that nobody created, QLIST entries that say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from formats.disk.check_records import Chunk
from formats.disk.faults import Fault, fault
from formats.disk.files import JOURNAL_RECORD_SIZE
from formats.disk.journal import (
    CONFIRM_RECORD,
    LAYOUTS,
    ConfirmReason,
    RecordType,
)
from formats.disk.keys import KEY_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["References"]

GUID_SIZE = 16
_NEVER = 1 << 62
_BEFORE_MESSAGE = 0  # in the place of a record's type


class References:
    """Gathers who refers to which message and queue, chunk by chunk; `check` says what does not fit.

    Keeps 30 bytes per record of a message.
    """

    def __init__(self, file: str, first_record_offset: int) -> None:
        self.file = file
        self._first = first_record_offset
        self._keys: list[NDArray[Any]] = []
        self._indexes: list[NDArray[Any]] = []
        self._kinds: list[NDArray[Any]] = []

    def add(self, chunk: Chunk, kind: RecordType, records: NDArray[Any], positions: NDArray[Any]) -> None:
        import numpy as np

        if kind is RecordType.JOURNAL_OP or not len(records):
            return
        columns = [_column(records, kind, "queue_key", KEY_SIZE), _column(records, kind, "guid", GUID_SIZE)]
        self._keys.append(np.concatenate(columns, axis=1))
        self._indexes.append(positions + chunk.index)
        kinds = np.full(len(records), kind, np.uint8)
        self._kinds.append(kinds)
        if kind is RecordType.CONFIRM:
            # Written before the message that they speak of, which may then not have been written at all.
            reasons = CONFIRM_RECORD.column(records, "reason").astype(np.uint16)
            kinds[reasons & np.uint16(ConfirmReason.AUTO_CONFIRMED) != 0] = _BEFORE_MESSAGE

    def check(self) -> Iterator[Fault]:
        """All faults between journal records, by kind."""
        import numpy as np

        if not self._keys:
            return
        keys = np.concatenate(self._keys)
        indexes = np.concatenate(self._indexes)
        kinds = np.concatenate(self._kinds)
        yield from self._check_messages(keys, indexes, kinds)

    def _check_messages(self, keys: NDArray[Any], indexes: NDArray[Any], kinds: NDArray[Any]) -> Iterator[Fault]:
        import numpy as np

        of_messages = kinds != _BEFORE_MESSAGE
        keys, indexes, kinds = keys[of_messages], indexes[of_messages], kinds[of_messages]
        if not len(keys):
            return
        # Fixed width, so that dropping trailing zeros (as numpy's byte strings do) makes no two keys equal.
        text = np.ascontiguousarray(keys).view(f"S{KEY_SIZE + GUID_SIZE}").ravel()
        by_index = np.argsort(indexes, kind="stable")
        order = by_index[np.argsort(text[by_index], kind="stable")]
        text, indexes, kinds = text[order], indexes[order], kinds[order]
        starts = np.empty(len(text), bool)
        starts[0] = True
        starts[1:] = text[1:] != text[:-1]
        is_message = kinds == RecordType.MESSAGE
        # Whether the message's own record opens its group, seen from each record of the group.
        posted = is_message[starts][np.cumsum(starts) - 1]
        after_deletion = np.zeros(len(text), bool)
        after_deletion[1:] = ~starts[1:] & (kinds[:-1] == RecordType.DELETION)
        for code, mask, reason in (
            ("unknown-message", ~posted & ~is_message, "no message record before it has"),
            # Posted again once it is gone, a message is a new one.
            ("duplicate-message", is_message & ~starts & ~after_deletion, "another message record before it has"),
            ("after-deletion", posted & ~is_message & after_deletion, "a deletion record before it has"),
        ):
            for at in np.flatnonzero(mask).tolist():
                guid = text[at].ljust(KEY_SIZE + GUID_SIZE, b"\0")[KEY_SIZE:]
                yield fault(code, self.file, self.offset_of(int(indexes[at])), f"{reason} GUID {_hex(guid)}")

    def offset_of(self, index: int) -> int:
        """Where the journal's record `index` lies, in bytes."""
        return self._first + index * JOURNAL_RECORD_SIZE


def _column(records: NDArray[Any], kind: RecordType, name: str, size: int) -> NDArray[Any]:
    """Field `name` as its bytes: shape (n, size)."""
    import numpy as np

    fields = LAYOUTS[kind].dtype.fields
    assert fields is not None
    at = fields[name][1]
    raw = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), JOURNAL_RECORD_SIZE)
    return raw[:, at : at + size]


def _hex(key: bytes) -> str:
    return key.hex().upper()
