"""Confirms of messages that a root does not have.

Most are duplicates, from a relay that does not know whether its last upstream received them. But a primary that was
replaced without noticing it yet lacks the messages posted at its successor: it sends it these confirms later. And a new
primary may get a message that its predecessor acknowledged alone from one relay, after its confirm from another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["CONFIRMS_KEPT_MAX", "CONFIRMS_KEPT_MS", "UnknownConfirms"]

# Limits of the number and the age of a queue's confirms that are sent to another primary. The age exceeds the time
# after which a silent broker's connection is closed.
CONFIRMS_KEPT_MAX = 1 << 16
CONFIRMS_KEPT_MS = 40_000


class UnknownConfirms:
    """The unknown confirms of one queue: when each came, the message's GUID, and the app."""

    __slots__ = ("_apps", "_taken")

    def __init__(self) -> None:
        self._taken: deque[tuple[int, bytes, str]] = deque()
        self._apps: dict[bytes, list[str]] = {}  # by GUID

    def add(self, now_ms: int, guid: bytes, app_id: str) -> None:
        """Note an app's confirm of a message that is not here, or that the app has confirmed before."""
        self._forget(now_ms)
        if len(self._taken) == CONFIRMS_KEPT_MAX:
            self._pop()
        self._taken.append((now_ms, guid, app_id))
        self._apps.setdefault(guid, []).append(app_id)

    def apps_of(self, now_ms: int, guid: bytes) -> Sequence[str]:
        """Return the apps that are done with a message that comes only now."""
        self._forget(now_ms)
        return self._apps.get(guid, ())

    def since(self, since_ms: int) -> list[tuple[int, bytes, str]]:
        """Return the confirms that came after a time, oldest first."""
        return [each for each in self._taken if each[0] > since_ms]

    def _forget(self, now_ms: int) -> None:
        taken = self._taken
        while taken and taken[0][0] <= now_ms - CONFIRMS_KEPT_MS:
            self._pop()

    def _pop(self) -> None:
        _, guid, app_id = self._taken.popleft()
        apps = self._apps[guid]
        apps.remove(app_id)
        if not apps:
            del self._apps[guid]
