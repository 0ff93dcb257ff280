"""A RocketMQ node whose default port is one of the test's, in place of the original's."""

from __future__ import annotations

import sys

from broker.rocketmq.config import node

__all__ = ["with_default"]


def with_default(name: str, port: int) -> tuple[str, ...]:
    """Return the command of a node for which the constant `name` of the configuration is `port`."""
    assert hasattr(node, name), name
    code = f"from {node.__package__} import node; node.{name} = {port}; from bmqctl.app import main; main()"
    return (sys.executable, "-c", code)
