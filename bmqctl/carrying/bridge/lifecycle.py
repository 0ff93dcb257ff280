"""The states of a lane, as one table.

A lane leads to one queue of the destination, and keeps its order: at most one batch is at the destination. A pair
(state, input) that the table lacks cannot happen.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["LANE_TABLE", "ImpossibleForBridge", "Lane", "LaneInput", "step"]


class ImpossibleForBridge(Exception):
    """An input that must not happen in a state."""


class Lane(Enum):
    EMPTY = auto()
    READY = auto()  # messages wait
    SENDING = auto()  # a batch is at the destination
    PAUSED = auto()  # messages must be sent again, but not immediately
    ENDING = auto()  # stopped, with a batch at the destination
    ENDED = auto()


class LaneInput(Enum):
    TAKEN = auto()  # messages came from the source
    SENT = auto()  # the waiting messages made a batch
    SETTLED = auto()  # the batch ended, or could not be sent unchanged; messages wait
    EMPTIED = auto()  # no messages wait, and no batch is at the destination
    AGAIN = auto()  # the batch, or its rest, must be sent again later
    DUE = auto()  # the pause is over
    STOPPED = auto()


LANE_TABLE: Final[dict[tuple[Lane, LaneInput], Lane]] = {
    (Lane.EMPTY, LaneInput.TAKEN): Lane.READY,
    (Lane.EMPTY, LaneInput.STOPPED): Lane.ENDED,
    (Lane.READY, LaneInput.TAKEN): Lane.READY,
    (Lane.READY, LaneInput.SENT): Lane.SENDING,
    # The waiting messages could not be carried, or the source took them back.
    (Lane.READY, LaneInput.EMPTIED): Lane.EMPTY,
    (Lane.READY, LaneInput.STOPPED): Lane.ENDED,
    (Lane.SENDING, LaneInput.TAKEN): Lane.SENDING,
    (Lane.SENDING, LaneInput.SETTLED): Lane.READY,
    (Lane.SENDING, LaneInput.EMPTIED): Lane.EMPTY,
    (Lane.SENDING, LaneInput.AGAIN): Lane.PAUSED,
    (Lane.SENDING, LaneInput.STOPPED): Lane.ENDING,
    (Lane.PAUSED, LaneInput.TAKEN): Lane.PAUSED,
    (Lane.PAUSED, LaneInput.DUE): Lane.READY,
    (Lane.PAUSED, LaneInput.EMPTIED): Lane.EMPTY,
    (Lane.PAUSED, LaneInput.STOPPED): Lane.ENDED,
    # Nothing is sent any more, and so nothing is sent again.
    (Lane.ENDING, LaneInput.STOPPED): Lane.ENDING,
    (Lane.ENDING, LaneInput.SETTLED): Lane.ENDED,
    (Lane.ENDING, LaneInput.EMPTIED): Lane.ENDED,
    (Lane.ENDING, LaneInput.AGAIN): Lane.ENDED,
    (Lane.ENDED, LaneInput.STOPPED): Lane.ENDED,
}


def step(state: Lane, happened: LaneInput) -> Lane:
    """The next state. Raises `ImpossibleForBridge` if the table has no such row."""
    try:
        return LANE_TABLE[state, happened]
    except KeyError:
        raise ImpossibleForBridge(f"lane {state.name} on {happened.name}") from None
