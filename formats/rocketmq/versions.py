"""Versions of RocketMQ as frames carry them: the ordinal numbers of the releases (source: MQVersion)."""

from __future__ import annotations

from typing import Final

__all__ = ["STANDARD_JSON_VERSION", "VERSION", "VERSION_NAME"]

# 5.4.0, whose behaviour ours is.
VERSION: Final = 493
VERSION_NAME: Final = "V5_4_0"
# 4.9.4, from which on clients read standard JSON.
STANDARD_JSON_VERSION: Final = 403
