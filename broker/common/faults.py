# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Faults of this program itself, and their consequences.

An unexpected exception ends the session whose step it was, between two steps (`Faults`). One that cuts a change to
shared state short leaves nothing to go on with: `Inconsistent` ends the process on purpose.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, Protocol

from broker.common.clock import Now

__all__ = ["Change", "Failing", "Faults", "Inconsistent", "describe"]

log: Final = logging.getLogger("broker.faults")

# Faults of all sessions that are logged with tracebacks in one window of time.
TOLD_MAX: Final = 10
WINDOW_MS: Final = 60_000


class Inconsistent(BaseException):
    """A change to state that sessions share was cut short: the process must end. The text names the change.

    It is no `Exception`, so that it is not taken for the fault of one session on its way to the loop.
    """

    def __init__(self, change: str, error: Exception) -> None:
        super().__init__(f"{change} was interrupted by {describe(error)}")
        self.__cause__ = error


class Change:
    """A section that must not be left half done; an exception in it becomes `Inconsistent`.

    Exceptions of the types `refusals` are raised before anything is changed, and pass. Only for rare work: on the path
    of messages, a `try` statement does the same without a cost.
    """

    __slots__ = ("_name", "_refusals")

    def __init__(self, name: str, *refusals: type[Exception]) -> None:
        self._name = name
        self._refusals = refusals

    def __enter__(self) -> None:
        """Begin the change; it needs no preparation."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, self._refusals):
            raise Inconsistent(self._name, error)


class Failing(Protocol):
    """A session that a fault may end."""

    def give_up(self, reason: str) -> None:
        """End at once; unsent output is dropped, as it may be incomplete."""
        ...

    @property
    def description(self) -> str: ...

    @property
    def finished(self) -> bool: ...


class Faults:
    """The faults of one process: the sessions that they end, and their number.

    `failed` are the sessions to end, in the order of their faults. `of_sessions` counts the ended sessions, `others`
    the faults that ended none.
    """

    def __init__(self, now: Now) -> None:
        self.of_sessions = 0
        self.others = 0
        self._now = now
        self.failed: dict[Failing, None] = {}
        self._since_ms = now.ms - WINDOW_MS
        self._told = 0
        self._untold = 0

    def end_session(self, session: Failing, error: Exception) -> None:
        """Note that a session's work failed: the session ends after this step."""
        if session in self.failed or session.finished:
            return
        self.failed[session] = None
        self.of_sessions += 1
        self._tell(f"{session.description}: the session is closed because of a fault of this broker", error)

    def note(self, what: str, error: Exception) -> None:
        self.others += 1
        self._tell(f"{what} failed because of a fault of this broker", error)

    def next_failed(self) -> Failing | None:
        """Return the next session to end; None if there is none left."""
        for session in self.failed:
            del self.failed[session]
            return session
        return None

    def _tell(self, text: str, error: Exception) -> None:
        now_ms = self._now.ms
        if now_ms - self._since_ms >= WINDOW_MS:
            if self._untold:
                log.error("%d more faults were not logged in the last %d s", self._untold, WINDOW_MS // 1000)
            self._since_ms, self._told, self._untold = now_ms, 0, 0
        if self._told >= TOLD_MAX:
            self._untold += 1
            return
        self._told += 1
        log.error("%s: %s", text, describe(error), exc_info=error)


def describe(error: BaseException) -> str:
    text = str(error).replace("\n", " ")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
