from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples in every run; and no deadline, as the first example may unpack a capture on a busy machine.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A node that was set up in this process has taken over the broker's logs: give them back."""
    root, raises = logging.getLogger("broker"), logging.raiseExceptions
    before = (root.level, root.propagate, [*root.handlers])
    yield
    for handler in set(root.handlers) - set(before[2]):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[0])
    root.propagate, logging.raiseExceptions = before[1], raises
