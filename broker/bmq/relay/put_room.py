# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Budget for posts that a broker keeps until the upstream acknowledges them."""

from __future__ import annotations

from typing import Final

from broker.bmq.core.messages import Full

__all__ = ["PutRoom"]

# Default limit of the unacknowledged posts of a queue, in bytes.
PUT_BYTES_MAX: Final = 256 << 20
# Default limit of their number.
PUTS_MAX: Final = 1 << 20


class PutRoom:
    """Limits for the posts of one relay, or of several together, and their usage: bytes and messages."""

    __slots__ = ("bytes", "bytes_max", "messages", "messages_max")

    def __init__(self, bytes_max: int | None = None, messages_max: int | None = None) -> None:
        self.bytes_max = PUT_BYTES_MAX if bytes_max is None else bytes_max
        self.messages_max = PUTS_MAX if messages_max is None else messages_max
        self.bytes = self.messages = 0

    def check(self, size: int) -> None:
        if self.messages >= self.messages_max:
            raise Full("LIMIT_MESSAGES", f"{self.messages} posts are unacknowledged")
        if self.bytes + size > self.bytes_max:
            raise Full("LIMIT_BYTES", f"{self.bytes} bytes of posts are unacknowledged")

    def has(self, size: int, count: int) -> bool:
        return self.messages + count <= self.messages_max and self.bytes + size <= self.bytes_max

    def take(self, size: int, count: int = 1) -> None:
        self.messages += count
        self.bytes += size

    def give(self, size: int, count: int = 1) -> None:
        self.messages -= count
        self.bytes -= size
