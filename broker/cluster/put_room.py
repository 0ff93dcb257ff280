"""How much of what is posted a broker keeps while it is on its way up, be it for want of an upstream."""

from __future__ import annotations

from broker.core.messages import Full

__all__ = ["PutRoom"]

# Of one queue, unless somebody says otherwise.
PUT_BYTES_MAX = 256 << 20
PUTS_MAX = 1 << 20


class PutRoom:
    """Bounds for the posts of one hop, or of several together, and what they keep: bytes and messages."""

    __slots__ = ("bytes", "bytes_max", "messages", "messages_max")

    def __init__(self, bytes_max: int | None = None, messages_max: int | None = None) -> None:
        self.bytes_max = PUT_BYTES_MAX if bytes_max is None else bytes_max
        self.messages_max = PUTS_MAX if messages_max is None else messages_max
        self.bytes = self.messages = 0

    def check(self, size: int) -> None:
        """Whether there is room for one more; `Full` otherwise."""
        if self.messages >= self.messages_max:
            raise Full("LIMIT_MESSAGES", f"{self.messages} posts are on their way")
        if self.bytes + size > self.bytes_max:
            raise Full("LIMIT_BYTES", f"{self.bytes} bytes of posts are on their way")

    def has(self, size: int, count: int) -> bool:
        """Whether there is room for so many more, of so many bytes together."""
        return self.messages + count <= self.messages_max and self.bytes + size <= self.bytes_max

    def take(self, size: int, count: int = 1) -> None:
        """So many more are kept, be there room or not."""
        self.messages += count
        self.bytes += size

    def give(self, size: int, count: int = 1) -> None:
        """So many are kept no longer, of so many bytes together."""
        self.messages -= count
        self.bytes -= size
