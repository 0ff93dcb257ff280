# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Posts that wait while a partition rolls over, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from broker.bmq.core.messages import Full
from broker.bmq.core.work import Task, Work

__all__ = ["WAITING_BYTES_MAX", "WaitingPosts"]

# Maximum size of the posts that wait for a rollover, in bytes; further ones are refused.
WAITING_BYTES_MAX: Final = 64 << 20


class Rolling(Protocol):
    """The partition that the posts are for."""

    partition_id: int

    @property
    def is_copying(self) -> bool:
        """True while a rollover is copying messages, and no post is taken."""
        ...


class WaitingPosts:
    """The posts that wait; each takes some bytes of memory."""

    __slots__ = ("_bytes", "_lets_in", "_partition", "_posts")

    def __init__(self, partition: Rolling) -> None:
        self._partition = partition
        self._posts: deque[tuple[Callable[[], None], int]] = deque()
        self._bytes = 0
        self._lets_in = False  # waiting posts are admitted

    def __bool__(self) -> bool:
        return bool(self._posts)

    @property
    def are_first(self) -> bool:
        return bool(self._posts) and not self._lets_in

    def add(self, post: Callable[[], None], size: int) -> None:
        """Make a post of `size` bytes wait. Raises `Full` if too many wait already."""
        if self._bytes + size > WAITING_BYTES_MAX:
            raise Full(
                "STORAGE_FAILURE",
                f"partition {self._partition.partition_id} is rolling over, and too many posts are waiting",
            )
        if self._lets_in:
            # It had its turn, and has to wait for yet another rollover.
            self._posts.appendleft((post, size))
        else:
            self._posts.append((post, size))
        self._bytes += size

    def clear(self) -> None:
        self._posts.clear()
        self._bytes = 0

    def let_in(self, work: Work) -> Task:
        """Post them in order; if another rollover begins meanwhile, the rest waits for that."""
        partition = self._partition
        while self._posts:
            while not work.may_go_on():
                yield
            if not self._posts or partition.is_copying:
                return
            work.left -= 1
            post, size = self._posts.popleft()
            self._bytes -= size
            self._lets_in = True
            try:
                post()
            finally:
                self._lets_in = False
