"""The limit of the time in which a source is away, or a destination accepts nothing although messages wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from bmqctl.carrying.bridge.carrying import Bridge

__all__ = ["Patience"]

_WATCH_INTERVAL_S: Final = 1.0


class Patience:
    """Watches a bridge that carries a known number of messages; `tell` is for its ends."""

    def __init__(self, patience_s: float) -> None:
        self.ended_by: str | None = None
        self._patience_s = patience_s
        self._told = ""

    def tell(self, text: str) -> None:
        self._told = "" if text.endswith(" again") else text

    async def watch(self, bridge: Bridge, taken: Callable[[], int]) -> None:
        """Give the bridge up if `taken` stagnates too long while messages are held or the source is away."""
        seen, since_s = -1, trio.current_time()
        while True:
            await trio.sleep(min(_WATCH_INTERVAL_S, self._patience_s / 4))
            if seen != taken() or not (bridge.flow.held or bridge.is_source_away):
                seen, since_s = taken(), trio.current_time()
            elif trio.current_time() - since_s > self._patience_s:
                self.ended_by = f"{self._told or 'the broker does not answer'}, for {self._patience_s:g} s"
                bridge.give_up()
                return
