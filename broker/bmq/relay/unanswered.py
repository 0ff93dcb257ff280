"""Clients that wait for an upstream's answers to the configurations and close requests that a relay has sent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

__all__ = ["Unanswered"]

Action = Callable[[], None]


class Unanswered:
    """The waiting clients of one queue."""

    def __init__(self) -> None:
        self._configuring: list[Action] = []
        self._closing: dict[int, list[Action]] = {}  # by the number of the close request
        self._numbers = count()

    def configuring(self, configured: Action) -> Action:
        """Note a configuration that is sent; return what is to be called when it is answered."""
        self._configuring.append(configured)

        def answered() -> None:
            if configured in self._configuring:
                self._configuring.remove(configured)
                configured()

        return answered

    def closing(self) -> Action:
        """Note a close request that is sent; return what is to be called when it is answered."""
        number = next(self._numbers)
        self._closing[number] = []

        def answered() -> None:
            for closed in self._closing.pop(number, ()):
                closed()

        return answered

    def after_closing(self, closed: Action) -> None:
        """Call `closed` when every close request so far is answered."""
        if self._closing:
            # Requests for one queue are carried out in order.
            next(reversed(self._closing.values())).append(closed)
        else:
            closed()

    def give_up(self) -> None:
        """Call everything that waits, as no answers will come."""
        configuring, self._configuring = self._configuring, []
        closing, self._closing = self._closing, {}
        for action in configuring:
            action()
        for waiting in closing.values():
            for action in waiting:
                action()
