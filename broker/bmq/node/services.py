# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The services that a node needs of its process, and the parameters of its queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.bmq.core.config import MessageThrottle, ReopenPace
from broker.bmq.session.authentication import Authentications
from broker.bmq.session.authorization import Authorizations

__all__ = ["ProcessServices", "QueueSettings", "RunCommand"]

# Time for which an unused queue is kept (mqbcfg::QueueOperationsConfig).
KEEPALIVE_MS: Final = 1_800_000
OPEN_TIMEOUT_MS: Final = 300_000
SHUTDOWN_TIMEOUT_MS: Final = 20_000


class RunCommand(Protocol):
    """Executes an admin command."""

    def __call__(self, line: str, source: str, may_read: Callable[[str], bool] = ..., /) -> tuple[int, str]:
        """Return its status, 0 for success, and its answer. `may_read` tells which queues the source may read."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The limits and the timeouts of a node's queues.

    `open_timeout_ms` is the time that a client waits for a queue that is opened elsewhere, and `shutdown_timeout_ms`
    the time that a stopping node waits for confirms.
    """

    throttle: MessageThrottle = field(default_factory=MessageThrottle)
    keepalive_ms: int = KEEPALIVE_MS
    open_timeout_ms: int = OPEN_TIMEOUT_MS
    reopen_pace: ReopenPace = field(default_factory=ReopenPace)
    shutdown_timeout_ms: int = SHUTDOWN_TIMEOUT_MS


def _sent_at_once() -> None:
    """Do nothing first."""


def _no_files(text: str) -> str:
    raise OSError("this node keeps no rejected messages")


@dataclass(frozen=True, slots=True)
class ProcessServices:
    """The services of a node's process.

    `before_sending` is called before anything leaves the node, to flush to the disk if configured. `keep_rejected`
    writes a rejected message into a file for people and returns its path, or raises OSError.
    """

    authentications: Authentications = field(default_factory=Authentications.open)
    authorizations: Authorizations = field(default_factory=Authorizations.open)
    before_sending: Callable[[], None] = _sent_at_once
    keep_rejected: Callable[[str], str] = _no_files
