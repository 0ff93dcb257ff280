# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Message rates: counted by the second, over the last ten seconds, minute and ten minutes."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Rate"]

_SPANS_S: Final = (10, 60, 600)


class Rate:
    """A counter, and its samples."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SPANS_S[-1] + 1)

    def add(self, count: int = 1) -> None:
        self.total += count

    def sample(self, now_ms: int) -> None:
        """Remember the count; to be called once a second."""
        self._samples.append((now_ms, self.total))

    def text(self) -> str:
        """Return the three rates, as the original writes them."""
        return " ".join(str(self._over(span)) for span in _SPANS_S)

    def _over(self, seconds: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        end_ms, end = self._samples[-1]
        begin_ms, begin = self._samples[max(0, len(self._samples) - 1 - seconds)]
        return (end - begin) * 1000 / max(1, end_ms - begin_ms)
