# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The part of messages and of a domain's parameters that a relay keeps for delivery."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

from broker.bmq.core.config import DomainConfig
from broker.bmq.core.messages import Buffer, Content, Message
from formats.bmq.disk.journal import ConfirmReason, DeletionRecordFlag
from formats.bmq.disk.keys import NULL_KEY

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


class RelayLog:
    """The contents of the messages that have arrived; see `broker.bmq.core.messages.Log`. Nothing is recorded.

    `find` returns a message of the node's own store, or None. Messages delivered while this node was their root are
    read there, unless they are to be redelivered.
    """

    is_replicated = False
    wants_copies = False
    is_cut_off = False
    is_copying = False
    is_rolling_over = False

    def __init__(self, find: Callable[[bytes], Content | None]) -> None:
        self._find = find

    def read(self, message: Message) -> Buffer:
        return self.read_sound(message) or b""

    def read_sound(self, message: Message) -> Buffer | None:
        if message.payload is None:
            content = self._find(message.guid)
            message.payload = None if content is None else bytes(content.data)
        return message.payload

    def awaits_payload(self, message: Message) -> bool:
        return False

    def append(
        self,
        messages: Sequence[Message],
        payloads: Sequence[Buffer],
        options: Buffer,
        ref_count: int,
        auto_confirms: Sequence[bytes] = (),
    ) -> bool:
        raise AssertionError("a relay takes no messages from clients")

    def when_copied(self, messages: Sequence[Message], action: Callable[[Sequence[Message]], None]) -> None:
        raise AssertionError("a relay has no copies")

    def settle(
        self, messages: Sequence[Message], app_key: bytes, reason: ConfirmReason = ConfirmReason.CONFIRMED
    ) -> None:
        """Record nothing."""

    def remove(self, message: Message, flag: DeletionRecordFlag = DeletionRecordFlag.NONE) -> None:
        """Record nothing."""

    def purge(self, app_key: bytes = NULL_KEY, first: Message | None = None, awaiting: Container[bytes] = ()) -> None:
        """Record nothing."""

    def holds(self, messages: Mapping[bytes, Message]) -> None:
        """Note nothing."""

    def when_open(self, post: Callable[[], None], size: int) -> None:
        raise AssertionError("a relay takes no messages from clients")

    def begin_purge(self, task: Iterator[None]) -> None:
        """Leave the task alone, as there are no files."""

    def release(self, records: int) -> None:
        """Release nothing, as no records were set aside."""
