"""The faults of a RocketMQ store: a code for each kind, with severity and advice."""

from __future__ import annotations

from typing import Final

from formats.bmq.stores.faults import Fault, FaultKind, Severity

__all__ = ["CATALOGUE", "fault"]

_REPAIR: Final = "Restore the store from a replica or a backup, or keep what is sound: bmqctl journal repair."
_QUEUES: Final = (
    "The messages are in the commit log. Stop the broker and move the folder consumequeue away: it is rebuilt from "
    "the log; or bmqctl journal repair."
)
_INDEX: Final = (
    "Messages may not be found by key; nothing else uses the index. bmqctl journal repair rebuilds it from the log."
)
_TAIL: Final = "Nothing to do: a crash during a write leaves this, and a broker that opens the store removes it."
_BEHIND: Final = "Nothing to do: a broker enters what is missing, while it runs or when it starts."
_CONFIG: Final = "Put the file of the same name with .bak in its place, or one from a replica or a backup."
_OFFSET: Final = "A broker lets the group go on at the end of the queue. Find out whether messages have been lost."
_EPOCHS: Final = (
    "Remove the replica's store: it gets everything from its master. At the last replica: bmqctl journal repair."
)


def _error(advice: str) -> FaultKind:
    return FaultKind(Severity.ERROR, advice)


def _warning(advice: str) -> FaultKind:
    return FaultKind(Severity.WARNING, advice)


CATALOGUE: Final[dict[str, FaultKind]] = {
    # the commit log
    "record": _error(_REPAIR),
    "body-checksum": _error("The message is not what was sent. " + _REPAIR),
    "log-file-missing": _error("Bring the file back: a broker refuses the store. " + _REPAIR),
    "log-file-size": _error("A broker refuses the store. " + _REPAIR),
    "log-tail": _error("The store was stopped, so nothing may follow the last record. " + _REPAIR),
    "torn-tail": _warning(_TAIL),
    "old-tail": _warning(
        "Nothing to do: where Apache's broker cuts its log after a change of the master, it leaves the old log's rest."
    ),
    # consume queues
    "number-gap": _error("Messages of the queue are missing in the log. " + _REPAIR),
    "number-repeated": _error(_REPAIR),
    "entry-missing": _error(_QUEUES),
    "entry-offset": _error(_QUEUES),
    "entry-size": _error(_QUEUES),
    "entry-tag": _error("Consumers that choose by tag may miss the message. " + _QUEUES),
    "entry-order": _error(_QUEUES),
    "entry-without-record": _error("The message is lost or damaged. " + _REPAIR),
    "queue-hole": _error(_QUEUES),
    "queue-missing": _error(_QUEUES),
    "queue-file-missing": _error(_QUEUES),
    "queue-file-size": _error(_QUEUES),
    "queue-behind": _warning(_BEHIND),
    "queue-ahead": _warning(_TAIL),
    # the index
    "index-layout": _error(_INDEX),
    "index-header": _error(_INDEX),
    "index-slot": _error(_INDEX),
    "index-chain": _error(_INDEX),
    "index-key": _error(_INDEX),
    "index-time": _error(_INDEX),
    "index-lacks": _warning(_INDEX),
    "index-behind": _warning(_BEHIND),
    # the state in which the store was left
    "not-stopped": _warning("The broker is running, or did not stop as it should: the next start mends the store."),
    "checkpoint": _error("The next start after a crash relies on it. " + _REPAIR),
    "checkpoint-ahead": _error("Messages that were on the disk are missing at the end of the log. " + _REPAIR),
    "epoch-file": _error(_EPOCHS),
    "epoch-offset": _error(_EPOCHS),
    # configuration files
    "config-file": _error(_CONFIG),
    "offset-ahead": _warning(_OFFSET),
    "offset-invalid": _error(_CONFIG),
    # any file
    "unreadable": _error("The disk is failing: copy the store to another one. " + _REPAIR),
}


def fault(code: str, file: str, offset: int, reason: str) -> Fault:
    kind = CATALOGUE[code]
    return Fault(code, kind.severity, file, offset, reason, kind.advice)
