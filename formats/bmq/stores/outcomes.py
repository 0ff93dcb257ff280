"""Outcomes of messages in their queues."""

from __future__ import annotations

from enum import StrEnum

from formats.bmq.stores.lives import End

__all__ = ["ENDED", "MessageOutcome"]


class MessageOutcome(StrEnum):
    """The outcome of a message; the values are those of columns and of JSON."""

    OUTSTANDING = "outstanding"  # not confirmed by any app
    PARTIALLY_CONFIRMED = "partially_confirmed"  # confirmed by some apps
    CONFIRMED = "confirmed"  # confirmed by all, and deleted
    EXPIRED = "expired"  # deleted after its time to live
    NO_QUORUM = "no_quorum"  # deleted since no majority received it
    PURGED = "purged"  # purged from its last apps, or deleted with its queue, by an administrator

    @property
    def word(self) -> str:
        """The value with hyphens, as on command lines."""
        return self.value.replace("_", "-")


ENDED = {
    End.CONFIRMED: MessageOutcome.CONFIRMED,
    End.EXPIRED: MessageOutcome.EXPIRED,
    End.NO_QUORUM: MessageOutcome.NO_QUORUM,
    End.PURGED: MessageOutcome.PURGED,
    End.QUEUE_DELETED: MessageOutcome.PURGED,
}
