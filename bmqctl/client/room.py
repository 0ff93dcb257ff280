"""The room for posts, for which tasks wait in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio

__all__ = ["Room"]


class Room:
    """The room for more posts: bounds on the messages without an answer, and on the bytes before the socket.

    Tasks that wait are called in the order of their coming. A task that was called and does not post has to call
    `changed`, so that the next one is called.
    """

    def __init__(self, window: int, bytes_max: int, unanswered: Callable[[], int], unsent: Callable[[], int]) -> None:
        self._window = window
        self._bytes_max = bytes_max
        self._unanswered = unanswered
        self._unsent = unsent
        self._waiting: deque[anyio.Event] = deque()

    def left(self) -> int:
        """Return the number of messages that may be posted."""
        return self._window - self._unanswered() if self._unsent() <= self._bytes_max else 0

    @property
    def is_contended(self) -> bool:
        """True if tasks are waiting, so that a new one has to queue."""
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
                # This task had been called and will not post: its turn goes to the next.
                self.changed()
            raise

    def changed(self) -> None:
        """Wake as many tasks as there is room for."""
        if not self._waiting:
            return
        for _ in range(min(self.left(), len(self._waiting))):
            self._waiting.popleft().set()

    def release(self) -> None:
        """Wake all tasks, as the session has ended."""
        while self._waiting:
            self._waiting.popleft().set()
