# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Domains in use."""

from __future__ import annotations

from broker.bmq.core.config import DomainConfig
from broker.bmq.queue.capacity import Usage

__all__ = ["DomainInUse"]


class DomainInUse:
    """The configuration of a domain in use, and what its queues hold together.

    None of its queues can be opened while it is `removing`; none is left once it is `removed`.
    """

    __slots__ = ("config", "removed", "removing", "usage")

    def __init__(self, config: DomainConfig) -> None:
        self.removing = self.removed = False
        self.usage = Usage(f"domain [bmq://{config.name}]")
        self.configure(config)

    def configure(self, config: DomainConfig) -> None:
        self.config = config
        self.usage.set_limits(
            config.domain_messages_max,
            config.domain_bytes_max,
            config.domain_messages_ratio,
            config.domain_bytes_ratio,
        )
