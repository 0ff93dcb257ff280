"""Versions of RocketMQ as frames carry them: the ordinal numbers of the releases (source: MQVersion)."""

from __future__ import annotations

from typing import Final

__all__ = ["STANDARD_JSON_VERSION", "VERSION", "VERSION_NAME", "version_name"]

# 5.4.0, whose behaviour bmqctl implements.
VERSION: Final = 493
VERSION_NAME: Final = "V5_4_0"
# 4.9.4, the first whose clients read standard JSON.
STANDARD_JSON_VERSION: Final = 401

_FIRST: Final = (
    *("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5", "BETA6_SNAPSHOT", "BETA6", "BETA7_SNAPSHOT"),
    *("BETA7", "BETA8_SNAPSHOT", "BETA8", "BETA9_SNAPSHOT", "BETA9", "FINAL"),
)
# The first and last patch of each minor version up to 3.9; from 4.0 on there are ten of each.
_OLD: Final = ((1, 15), (0, 9), (0, 9), *((1, 9),) * 7)
_FROM_4_0: Final = 212
_HIGHER: Final = 612


def version_name(number: int) -> str:
    """Return the name of a release by its ordinal number; each but the first has a snapshot before it."""
    if number < len(_FIRST):
        return f"V3_0_0_{_FIRST[number]}" if number >= 0 else "UNKNOWN"
    if number >= _HIGHER:
        return "HIGHER_VERSION"
    if number >= _FROM_4_0:
        place = (number - _FROM_4_0) // 2
        major, minor, patch = 4 + place // 100, place // 10 % 10, place % 10
    else:
        major, minor, patch = _old_version((number - len(_FIRST)) // 2)
    return f"V{major}_{minor}_{patch}{'_SNAPSHOT' if number % 2 == 0 else ''}"


def _old_version(place: int) -> tuple[int, int, int]:
    for minor, (first, last) in enumerate(_OLD):
        if place <= last - first:
            return 3, minor, first + place
        place -= last - first + 1
    raise ValueError("the number is that of a later version")
