"""Times of records, in seconds since the epoch, as text."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["CLOCK_SLACK_S", "iso_time", "shown_time"]

CLOCK_SLACK_S = 3600
"""Seconds by which a new primary's clock may lag its predecessor's."""


def iso_time(seconds: int) -> str | None:
    """Format a time as ISO 8601, UTC; None if beyond the year 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None


def shown_time(seconds: int) -> str:
    """Format a time as ISO 8601, UTC; its number of seconds if beyond the year 9999."""
    return iso_time(seconds) or f"{seconds} s"
