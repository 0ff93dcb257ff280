"""The room for posts, for which tasks wait in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio

__all__ = ["Room"]


class Room:
    """The room for more posts: limits of unanswered messages, and of bytes before the socket.

    Waiting tasks are called in order of arrival. A task that was called and does not post must call `changed`, so that
    the next one is called.
    """

    def __init__(self, window: int, bytes_max: int, unanswered: Callable[[], int], unsent: Callable[[], int]) -> None:
        self._window = window
        self._bytes_max = bytes_max
        self._unanswered = unanswered
        self._unsent = unsent
        self._waiting: deque[anyio.Event] = deque()

    def left(self) -> int:
        return self._window - self._unanswered() if self._unsent() <= self._bytes_max else 0

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    async def wait(self) -> None:
        """Wait until there is room and this task is at the head of the queue."""
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                # This task will not post: its turn goes to the next.
                self.changed()
            raise

    def changed(self) -> None:
        if not self._waiting:
            return
        for _ in range(min(self.left(), len(self._waiting))):
            self._waiting.popleft().set()

    def release(self) -> None:
        while self._waiting:
            self._waiting.popleft().set()
