"""Outcomes of messages: what became of each of them in its queue."""

from __future__ import annotations

from enum import StrEnum

from formats.bmq.stores.lives import End

__all__ = ["ENDED", "MessageOutcome"]


class MessageOutcome(StrEnum):
    """The outcome of a message; the values are those of columns and of JSON."""

    OUTSTANDING = "outstanding"  # no app has confirmed it
    PARTIALLY_CONFIRMED = "partially_confirmed"  # some have, and others are still to
    CONFIRMED = "confirmed"  # all have, and it was deleted
    EXPIRED = "expired"  # deleted when its time to live was over
    NO_QUORUM = "no_quorum"  # deleted since no majority of the cluster received it
    PURGED = "purged"  # an administrator took it from the last apps that it was for, or its queue was deleted

    @property
    def word(self) -> str:
        """The value as command lines spell it, with hyphens."""
        return self.value.replace("_", "-")


ENDED = {
    End.CONFIRMED: MessageOutcome.CONFIRMED,
    End.EXPIRED: MessageOutcome.EXPIRED,
    End.NO_QUORUM: MessageOutcome.NO_QUORUM,
    End.PURGED: MessageOutcome.PURGED,
    End.QUEUE_DELETED: MessageOutcome.PURGED,
}
"""The outcome of a message by the reason for its end."""
