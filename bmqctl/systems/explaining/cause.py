"""The cause for which messages are not consumed, or not accepted."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Cause", "counted"]


class Cause(NamedTuple):
    """A cause: its short name, its app or group, its messages, a sentence, and the remedy."""

    cause: str
    app: str
    messages: int
    text: str
    remedy: str


def counted(number: int) -> str:
    return f"{number:,} message" + ("" if number == 1 else "s")
