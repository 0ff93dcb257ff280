"""Bounds that a world would never reach, lowered while it lives: of each kind its seed has one of several values."""

from __future__ import annotations

from random import Random

import pytest

__all__ = ["lower"]

# Where a bound is known by its name, and its values.
_BOUNDS = {
    (
        "broker.bmq.store.chunked.FULL",
        "broker.bmq.queue.backlog.FULL",
        "broker.bmq.queue.root_queue.FULL",
        "broker.bmq.queue.delivery.FULL",
        "broker.bmq.relay.relay_links.FULL",
    ): (4, 8, 32),
    ("broker.bmq.relay.pending_pushes._WAITING_MAX",): (1, 4, 32),
    ("broker.bmq.store.removals.FILE_BYTES_MAX",): (200, 2000),
    ("broker.bmq.store.removals.PENDING_BYTES_MAX",): (16, 400),
    ("broker.bmq.store.removals.SLICE_RECORDS",): (2, 16),
    ("broker.bmq.replication.replication.SLICE_BYTES",): (600, 6000),
    ("broker.bmq.session.posting.RUN_BYTES_MAX",): (300, 900),
}


def lower(patches: pytest.MonkeyPatch, random: Random) -> None:
    """Lower each bound, or leave it as it is."""
    for places, values in _BOUNDS.items():
        value = random.choice((None, *values))
        for place in places if value is not None else ():
            patches.setattr(place, value)
