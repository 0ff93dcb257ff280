# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Pushes that wait until this node's own store has the message of the first one.

A primary pushes to a replica without the payload, which is in the replica's store. While that is being healed, it may
lack the message. All later pushes wait as well, to stay in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Final

from formats.bmq.wire.options import SubQueueInfo
from formats.bmq.wire.push import Push

__all__ = ["PendingPushes"]

# Beyond that the queue is opened again instead.
_WAITING_MAX: Final = 1 << 16


class PendingPushes:
    """The waiting pushes of one queue, oldest first.

    `begin` is called when the first one begins to wait, or the first message is dropped; None if there is no store to
    wait for.
    """

    def __init__(self, begin: Callable[[], None] | None) -> None:
        self.begin: Final = begin
        self.waiting: deque[tuple[Push, Sequence[SubQueueInfo]]] = deque()
        self.removed: set[bytes] = set()  # messages of waiting pushes that the store has removed
        self.dropped: set[bytes] = set()  # messages taken from consumers for a removal in the store
        self.is_going_on = False  # they are delivered, in slices

    def add(self, push: Push, infos: Sequence[SubQueueInfo]) -> bool:
        """Add a push, whose buffers may be reused; return False if there are too many."""
        if len(self.waiting) >= _WAITING_MAX:
            return False
        kept = push._replace(options=memoryview(bytes(push.options)), data=memoryview(bytes(push.data)))
        self.waiting.append((kept, tuple(infos)))
        return True

    def note_removed(self, guids: Sequence[Container[bytes]]) -> None:
        """Note that messages are removed. Their pushes wait nevertheless: a message may have been posted again."""
        for push, _ in self.waiting:
            if any(push.guid in some for some in guids):
                self.removed.add(push.guid)

    def note_dropped(self, guid: bytes) -> None:
        """Note that a message was taken from consumers.

        A store that heals learns of removals late: if it has the message once healed, that was posted again.
        """
        if self.begin is not None:
            if not self.dropped:
                self.begin()
            self.dropped.add(guid)

    def take_dropped(self) -> set[bytes]:
        dropped, self.dropped = self.dropped, set()
        return dropped

    def pop(self) -> None:
        self.waiting.popleft()
        if not self.waiting:
            self.removed.clear()

    def clear(self) -> None:
        self.waiting.clear()
        self.removed.clear()
        self.dropped.clear()
