"""A RocketMQ node whose default port is one that the test was given, in place of the original's."""

from __future__ import annotations

import sys

__all__ = ["with_default"]


def with_default(name: str, port: int) -> tuple[str, ...]:
    """Return the command of a node for which the constant `name` of the configuration is `port`."""
    code = f"from broker.rocketmq.assembly import config; config.{name} = {port}; from bmqctl.app import main; main()"
    return (sys.executable, "-c", code)
