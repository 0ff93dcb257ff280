"""Outcomes of all selected messages: consistent counts, in total and for each queue."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bmqctl.carrying.replay.plan import Plan
from bmqctl.carrying.replay.progress import ReplayStep
from bmqctl.carrying.replay.run import Run

__all__ = ["QUEUE_KEYS", "Account", "Counts", "count_steps", "make_account"]


class Counts(NamedTuple):
    """Counts of the `selected` messages: `before` were posted by earlier runs, `posted` by this one, the rest never."""

    selected: int
    before: int
    posted: int
    refused: int
    unreadable: int
    unfit: int
    unanswered: int
    left: int

    @property
    def is_complete(self) -> bool:
        return self.before + self.posted == self.selected


QUEUE_KEYS: Final = ("from", "to", *Counts._fields, "payload_bytes")


class Account(NamedTuple):
    """The account of a run. `again` were in flight when an earlier run ended and are repeated; `queues` are as planned.

    `refused` counts by the broker's status or reason. `damaged` is the plan's.
    """

    total: Counts
    queues: list[Counts]
    payload_bytes: list[int]
    again: int
    refused: dict[str, int]
    damaged: int

    def as_json(self, plan: Plan, targets: list[str]) -> dict[str, Any]:
        return {
            **self.total._asdict(),
            "posted_again": self.again,
            "refused_by_status": self.refused,
            "payload_bytes": sum(self.payload_bytes),
            "damaged_places": self.damaged,
            "left_out": list(plan.left_out),
            "queues": self.rows(plan, targets),
        }

    def rows(self, plan: Plan, targets: list[str]) -> list[dict[str, Any]]:
        return [
            dict(zip(QUEUE_KEYS, (source, target, *counts, size), strict=True))
            for source, target, counts, size in zip(plan.queues, targets, self.queues, self.payload_bytes, strict=True)
        ]


def count_steps(plan: Plan, steps: NDArray[np.uint8]) -> NDArray[np.int64]:
    width = len(ReplayStep)
    flat = np.bincount(plan.entries["queue"].astype(np.int64) * width + steps, minlength=len(plan.queues) * width)
    return flat.reshape(len(plan.queues), width)


def make_account(run: Run, before: NDArray[np.int64], rehearsed: NDArray[np.int64] | None = None) -> Account:
    """Make the account of a run; `before` is the result of `count_steps` at its start.

    With `rehearsed`, the messages that a dry run could post count as posted.
    """
    steps = run.progress.steps
    if rehearsed is not None:
        steps = steps.copy()
        steps[rehearsed] = ReplayStep.POSTED
    after = count_steps(run.plan, steps)
    posted = after[:, ReplayStep.POSTED] - before[:, ReplayStep.POSTED]
    done = run.acked if rehearsed is None else len(rehearsed)
    # Counted twice, by acks and by each message's step: a discrepancy is a bug in this program.
    assert posted.sum() == done, (posted.sum(), done)
    rows = np.stack(
        [
            after.sum(axis=1),
            before[:, ReplayStep.POSTED],
            posted,
            *(
                after[:, step]
                for step in (
                    ReplayStep.REFUSED,
                    ReplayStep.UNREADABLE,
                    ReplayStep.UNFIT,
                    ReplayStep.SENT,
                    ReplayStep.NEW,
                )
            ),
        ],
        axis=1,
    )
    return Account(
        Counts(*rows.sum(axis=0).tolist()),
        [Counts(*row) for row in rows.tolist()],
        run.payload_bytes.tolist(),
        int(before[:, ReplayStep.SENT].sum()),
        dict(Counter(run.refused.values())),
        run.plan.damaged,
    )
