"""The cause for which messages are not consumed, or not taken."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Cause", "counted"]


class Cause(NamedTuple):
    """A cause by its short name, the app or group that it concerns, its messages, a sentence, and what to do."""

    cause: str
    app: str
    messages: int
    text: str
    remedy: str


def counted(number: int) -> str:
    """Return a number of messages in words."""
    return f"{number:,} message" + ("" if number == 1 else "s")
