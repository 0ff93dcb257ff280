"""Outcomes of messages in their queues."""

from __future__ import annotations

from enum import StrEnum

from formats.bmq.stores.lives import End

__all__ = ["ENDED", "MessageOutcome"]


class MessageOutcome(StrEnum):
    """The outcome of a message; the values are those of columns and of JSON."""

    OUTSTANDING = "outstanding"  # no app has confirmed it
    PARTIALLY_CONFIRMED = "partially_confirmed"  # some have, others have not yet
    CONFIRMED = "confirmed"  # all have, and it was deleted
    EXPIRED = "expired"  # deleted after its time to live
    NO_QUORUM = "no_quorum"  # deleted since no majority of the cluster received it
    PURGED = "purged"  # an administrator purged it from its last apps, or deleted its queue

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
"""The outcome of a message by the reason for its end."""
