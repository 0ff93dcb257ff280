# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The parts of messages and of a domain's parameters that a relay keeps for delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import Buffer, Content, Message, Unrecorded

__all__ = ["RelayLog", "relay_config"]


def relay_config(config: DomainConfig) -> DomainConfig:
    """Reduce a domain's parameters for a relay: limits, expiry and its apps' subscriptions are the root's task."""
    return replace(
        config,
        queue_messages_max=0,
        queue_bytes_max=0,
        subscriptions=(),
        message_ttl_s=None,
        idle_time_max_ms=0,
        consumers_max=0,
        producers_max=0,
        strong=False,
    )


class RelayLog(Unrecorded):
    """The contents of the messages that have arrived; see `broker.bmq.core.messages.Log`.

    `find` returns a message of the node's own store, or None: those delivered while this node was their root are there,
    unless they are to be redelivered.
    """

    def __init__(self, find: Callable[[bytes], Content | None]) -> None:
        self._find = find

    def read(self, message: Message) -> Buffer:
        return self.read_sound(message) or b""

    def read_sound(self, message: Message) -> Buffer | None:
        if message.payload is None:
            content = self._find(message.guid)
            message.payload = None if content is None else bytes(content.data)
        return message.payload

    def append(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        raise AssertionError("a relay takes no messages from clients")
