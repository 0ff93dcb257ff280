"""Messages that push consumers work on: they stay hidden while the client is there (source: ReceiptHandleManager).

Such a message is hidden for a minute, renewed before each end, up to three hours in all; then it comes again after the
delay of its group's policy. The client keeps its first handle. When it leaves, its messages soon become visible again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.rocketmq.grpc.calling import Asked
from broker.rocketmq.grpc.consuming.handles import ReceiptHandle

__all__ = ["HIDDEN_MS", "Changed", "Held", "Renewals"]

HIDDEN_MS: Final = 60_000
# A handle is renewed this long before it expires; the interval of the checks.
_AHEAD_MS: Final = 10_000
_LOOK_MS: Final = 5_000
_WHOLE_MS: Final = 3 * 3_600_000
# Maximum of failed renewals in a row.
_FAILURES_MAX: Final = 3
# The invisible time of a client's messages once it has unregistered.
_LEFT_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class Held:
    """A message that a client works on: its current handle, since when, and the delay before its next delivery.

    During a renewal its handle cannot be used: the `waiting` functions are called when the next one is known.
    """

    asked: Asked
    group: str
    topic: str
    handle: ReceiptHandle
    since_ms: int
    retry_ms: int
    failures: int = 0
    is_changing: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)


# Takes the new handle; without one, whether another attempt may succeed.
Changed = Callable[[ReceiptHandle | None, bool], None]
# Hides a message for another period.
Change = Callable[[Held, int, Changed], None]


class Renewals:
    """All such messages, by client and by the client's handle."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._held: dict[object, dict[str, Held]] = {}
        self._looked_ms = 0

    def hold(self, held: Held) -> None:
        self._held.setdefault(held.asked.client.key, {})[str(held.handle)] = held

    def count(self, client: object) -> int:
        return len(self._held.get(client, ()))

    def take(self, client: object, text: str) -> Held | None:
        """Stop renewing a message that its client has dealt with; return None if it is not renewed."""
        messages = self._held.get(client)
        held = None if messages is None else messages.pop(text, None)
        if messages is not None and not messages:
            del self._held[client]
        return held

    def left(self, client: object, done: Callable[[], None]) -> None:
        """Return the messages of a client that leaves; call `done` when the broker has been asked for all.

        A message in renewal is returned once its next handle is known.
        """
        messages = self._held.pop(client, {}).values()
        changing = {held for held in messages if held.is_changing}
        for held in messages:
            if not held.is_changing:
                self._give_back(held)
        if not changing:
            done()
            return

        def changed(held: Held) -> None:
            self._give_back(held)
            changing.discard(held)
            if not changing:
                # Until now, the client may have received more.
                self.left(client, done)

        for held in changing:
            held.waiting.append(partial(changed, held))

    def _give_back(self, held: Held) -> None:
        self._change(held, _LEFT_MS, lambda *_: None)

    def tick(self, now_ms: int) -> None:
        if 0 <= now_ms - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now_ms
        for client, messages in list(self._held.items()):
            for text, held in list(messages.items()):
                left_ms = held.handle.receipt.visible_ms - now_ms
                if held.is_changing or left_ms > _AHEAD_MS:
                    continue
                if left_ms <= 0 or not held.asked.client.is_present:
                    # A visible message may have been delivered to another client.
                    self.take(client, text)
                elif now_ms - held.since_ms >= _WHOLE_MS:
                    self.take(client, text)
                    self._change(held, held.retry_ms, lambda *_: None)
                else:
                    held.is_changing = True
                    self._change(held, HIDDEN_MS, partial(self._changed, client, text, held))

    def _changed(self, client: object, text: str, held: Held, handle: ReceiptHandle | None, may_succeed: bool) -> None:
        held.is_changing = False
        if handle is not None:
            held.handle, held.failures = handle, 0
        else:
            held.failures += 1
            if not may_succeed or held.failures >= _FAILURES_MAX:
                self.take(client, text)
        waiting, held.waiting = held.waiting, []
        for go_on in waiting:
            go_on()
