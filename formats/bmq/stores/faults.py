"""The catalogue of a store's faults: a code for each kind, with its severity and advice.

An error means that written data is lost or that the files contradict each other; a warning, a possible effect of a
crash, or something unusual but harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

__all__ = ["CATALOGUE", "Fault", "FaultKind", "Severity", "fault"]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class FaultKind(NamedTuple):
    severity: Severity
    advice: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; `offset` is in bytes from the start of `file`, `reason` one clause, `advice` one sentence."""

    code: str
    severity: Severity
    file: str
    offset: int
    reason: str
    advice: str


_REPLICA = "Restore the partition's files from another node or a backup, or keep what is sound: bmqctl journal repair."
_PAYLOAD = "The message cannot be delivered as it was posted; restore the partition's files from another node."
_TAIL = "Nothing to do: a stop amid a write leaves this, and opening the store cuts it off."
_LEDGER = "Remove the ledger if other nodes have theirs: the leader sends it again."
_BETWEEN = "Nothing to do after a stop between two writes; otherwise compare with another node."
_LOST_MESSAGE = "The message's own record is damaged or missing, or was deleted before. " + _REPLICA
_WRITER = "Find out which program wrote it; a broker of a later version may use the field."

CATALOGUE: dict[str, FaultKind] = {
    # headers and files
    "unreadable": FaultKind(Severity.ERROR, "The disk is failing: copy the store to another one. " + _REPLICA),
    "header": FaultKind(Severity.ERROR, _REPLICA),
    "header-unknown": FaultKind(Severity.WARNING, _WRITER),
    "partition-mismatch": FaultKind(Severity.ERROR, "Put the file back under the name that it was created with."),
    "set-incomplete": FaultKind(Severity.ERROR, "Find the missing file; a broker leaves the set out of recovery."),
    "rollover-offset": FaultKind(Severity.ERROR, _REPLICA),
    "rollover-unfinished": FaultKind(
        Severity.WARNING, "Keep the older file set: a broker recovers from it when a rollover was cut short."
    ),
    # journal records
    "record-magic": FaultKind(Severity.ERROR, _REPLICA),
    "record-type": FaultKind(Severity.ERROR, _REPLICA),
    "record-numbers": FaultKind(Severity.ERROR, _REPLICA),
    "records-after-end": FaultKind(Severity.ERROR, "A broker would drop these records on opening. " + _REPLICA),
    "torn-tail": FaultKind(Severity.WARNING, _TAIL),
    "lease-backwards": FaultKind(Severity.ERROR, _REPLICA),
    "lease-start": FaultKind(Severity.WARNING, "Compare with another node: records may be missing before this one."),
    "sequence-gap": FaultKind(Severity.ERROR, _REPLICA),
    "sequence-repeated": FaultKind(Severity.ERROR, _REPLICA),
    "timestamp-implausible": FaultKind(Severity.WARNING, "Check the clock of the node that was primary then."),
    "timestamp-backwards": FaultKind(Severity.WARNING, "Check the clock of the node that was primary then."),
    "reserved-not-zero": FaultKind(Severity.WARNING, _WRITER),
    "field-unknown": FaultKind(Severity.WARNING, _WRITER),
    "field-invalid": FaultKind(Severity.ERROR, _REPLICA),
    "journal-op-unknown": FaultKind(Severity.WARNING, _WRITER),
    "sync-point": FaultKind(Severity.ERROR, _REPLICA),
    # payloads
    "data-offset": FaultKind(Severity.ERROR, _PAYLOAD),
    "data-record": FaultKind(Severity.ERROR, _PAYLOAD),
    "data-unaligned": FaultKind(Severity.ERROR, _PAYLOAD),
    "data-overlap": FaultKind(Severity.ERROR, _PAYLOAD),
    "data-gap": FaultKind(Severity.ERROR, "Compare with another node: a message record may be missing here."),
    "data-tail": FaultKind(Severity.WARNING, _TAIL),
    "payload-checksum": FaultKind(Severity.ERROR, _PAYLOAD),
    # references between records
    "unknown-queue-key": FaultKind(Severity.ERROR, "A broker ignores the record, or refuses the store. " + _REPLICA),
    "queue-created-twice": FaultKind(Severity.ERROR, "A broker refuses the store. " + _REPLICA),
    "unknown-app-key": FaultKind(Severity.ERROR, _REPLICA),
    "confirm-without-message": FaultKind(Severity.ERROR, _LOST_MESSAGE),
    "deletion-without-message": FaultKind(Severity.ERROR, _LOST_MESSAGE),
    "confirm-repeated": FaultKind(Severity.WARNING, "Nothing to do: an app needs one confirm, more change nothing."),
    "ref-count": FaultKind(
        Severity.WARNING, "The message may stay for ever, or go before all apps had it: compare with another node."
    ),
    "duplicate-message": FaultKind(Severity.ERROR, _REPLICA),
    "qlist-offset": FaultKind(Severity.ERROR, _REPLICA),
    "qlist-record": FaultKind(Severity.ERROR, _REPLICA),
    "qlist-mismatch": FaultKind(Severity.ERROR, _REPLICA),
    "qlist-tail": FaultKind(Severity.WARNING, _TAIL),
    # cluster-state ledger
    "ledger-record": FaultKind(Severity.ERROR, _LEDGER),
    "ledger-checksum": FaultKind(Severity.ERROR, _LEDGER),
    "ledger-message": FaultKind(Severity.ERROR, _LEDGER),
    "ledger-order": FaultKind(Severity.ERROR, _LEDGER),
    "ledger-name": FaultKind(Severity.ERROR, "Put the file back under the name that it was created with."),
    "ledger-tail": FaultKind(Severity.WARNING, _TAIL),
    # the ledger and other files
    "ledger-disagreement": FaultKind(
        Severity.ERROR, "The ledger has checksums, QLIST has none: what the ledger says is more likely right."
    ),
    "ledger-lease": FaultKind(
        Severity.ERROR, "Find out where the ledger comes from: it is older than the journal, or another store's."
    ),
    "partition-unserved": FaultKind(
        Severity.ERROR, "Set numPartitions to the number of partitions of the store: a broker with fewer hides these."
    ),
    "ledger-lacks": FaultKind(Severity.WARNING, _BETWEEN),
    "ledger-ahead": FaultKind(Severity.WARNING, _BETWEEN),
}


def fault(code: str, file: str, offset: int, reason: str) -> Fault:
    kind = CATALOGUE[code]
    return Fault(code, kind.severity, file, offset, reason, kind.advice)
