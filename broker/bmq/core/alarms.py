# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Alarms: lines of the log that operators' tools wait for, in the reference's words (source: bmqtsk::AlarmLog)."""

from __future__ import annotations

import logging

__all__ = ["alarm", "panic", "printable"]


def alarm(log: logging.Logger, category: str, text: str) -> None:
    """Log an alarm, maybe of several lines; pass text from peers through `printable` first."""
    log.error("ALARM [%s] %s", category, text, extra={"multiline": True})


def panic(log: logging.Logger, category: str, text: str) -> None:
    """Log that the node cannot do its work; `text` is as for `alarm`."""
    log.error("PANIC [%s] %s", category, text, extra={"multiline": True})


def printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
