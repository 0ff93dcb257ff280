"""A small store in which messages end in every way that there is."""

from __future__ import annotations

from typing import Any

from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag, QueueOpType
from formats.bmq.disk.keys import DEFAULT_APP_KEY
from tests.bmqctl.pipeline.written import WrittenStore

__all__ = ["lifecycles"]

Q, F, GONE, UNKNOWN = b"queue", b"fanou", b"gone!", b"?????"
FOO, BAR, BAZ = b"foooo", b"baaar", b"baaaz"


def guid(number: int) -> bytes:
    return bytes(15) + bytes([number])


def lifecycles() -> tuple[WrittenStore, dict[int, tuple[Any, ...]]]:
    """A store with one message for each way to end, and what is to be said of each.

    That is: outcome, confirmed, rejected, automatically confirmed, purged and pending apps.
    """
    store = WrittenStore(partition_id=1)
    said: dict[int, tuple[Any, ...]] = {}
    store.queue(Q, "bmq://domain/priority", ("__default", DEFAULT_APP_KEY))
    store.queue(F, "bmq://domain/fanout", ("foo", FOO), ("bar", BAR))
    store.queue(GONE, "bmq://domain/gone", ("__default", DEFAULT_APP_KEY))

    store.message(Q, guid(1))
    store.deletion(Q, guid(1), DeletionRecordFlag.IMPLICIT_CONFIRM)
    said[1] = ("confirmed", ["__default"], [], [], [], [])
    store.message(Q, guid(2))
    store.deletion(Q, guid(2), DeletionRecordFlag.NO_SC_QUORUM)
    said[2] = ("no_quorum", [], [], [], [], [])

    store.message(F, guid(3), ref_count=2)
    store.confirm(F, guid(3), BAR, ConfirmReason.REJECTED)
    store.deletion(F, guid(3))
    said[3] = ("confirmed", ["foo"], ["bar"], [], [], [])
    store.message(F, guid(4), ref_count=2)
    store.confirm(F, guid(4), FOO)
    store.deletion(F, guid(4), DeletionRecordFlag.TTL_EXPIRATION)
    said[4] = ("expired", ["foo"], [], [], [], [])
    # The broker writes automatic confirms before the message, and does not count them as references.
    store.confirm(F, guid(5), FOO, ConfirmReason.AUTO_CONFIRMED)
    store.message(F, guid(5), ref_count=1)
    said[5] = ("outstanding", [], [], ["foo"], [], ["bar"])

    # bar is purged from the second of these on; the first was not there any more, the last comes later.
    store.message(F, guid(6), ref_count=2)
    start = store.message(F, guid(7), ref_count=2)
    store.message(F, guid(8), ref_count=2)
    store.confirm(F, guid(8), FOO)
    store.message(F, guid(9), ref_count=2)
    store.confirm(F, guid(9), BAR)
    store.queue_op(QueueOpType.PURGE, F, BAR, start=start)
    store.deletion(F, guid(8))
    store.message(F, guid(10), ref_count=2)
    said[6] = ("outstanding", [], [], [], [], ["bar", "foo"])
    said[7] = ("partially_confirmed", [], [], [], ["bar"], ["foo"])
    said[8] = ("purged", ["foo"], [], [], ["bar"], [])
    said[9] = ("partially_confirmed", ["bar"], [], [], [], ["foo"])
    said[10] = ("outstanding", [], [], [], [], ["bar", "foo"])

    # An app that came later has nothing to do with what was there before, nor one that went with what comes after.
    store.queue(F, "bmq://domain/fanout", ("baz", BAZ), kind=QueueOpType.ADDITION)
    store.queue_op(QueueOpType.DELETION, F, BAR)
    store.message(F, guid(11), ref_count=2)
    store.confirm(F, guid(11), FOO)
    said[11] = ("partially_confirmed", ["foo"], [], [], [], ["baz"])

    store.message(GONE, guid(12))
    store.deletion(GONE, guid(12))
    store.message(GONE, guid(13))
    store.queue_op(QueueOpType.PURGE, GONE)
    store.message(GONE, guid(14))
    said[12] = ("confirmed", ["__default"], [], [], [], [])
    said[13] = ("purged", [], [], [], ["__default"], [])
    said[14] = ("outstanding", [], [], [], [], ["__default"])

    store.message(UNKNOWN, guid(15))
    store.confirm(UNKNOWN, guid(15), FOO)
    said[15] = ("partially_confirmed", [FOO.hex().upper()], [], [], [], [])
    return store, said
