"""Ways to break the core, each of which the simulator must notice: what an invariant is worth is what it catches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from broker.core import shard as shard_module
from broker.core.delivery import Delivery
from broker.core.history import History
from broker.core.messages import Content, Message
from broker.core.routing import App
from broker.core.shard import Shard

__all__ = ["MUTATIONS", "mutated"]

Make = Callable[[Any], Any]


def _every(number: int, mutant: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The original, and the mutant every so many calls."""
    calls = 0

    def either(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return (original if calls % number else mutant)(*args, **kwargs)

    return either


def _lose_a_message(original: Any) -> Any:
    """The journal record of a message is not written: acked, delivered, and gone after the next start."""

    def append_message(self: Shard, key: bytes, message: Message, content: Content, *rest: Any) -> None:
        end, number = self.files.journal_end, self.sequence_number
        original(self, key, message, content, *rest)
        self.files.journal.buffer[end : self.files.journal_end] = bytes(self.files.journal_end - end)
        self.files.journal_end, self.sequence_number = end, number

    return _every(20, append_message, original)


def _lose_a_removal(original: Any) -> Any:
    """A deletion record is not written: what was confirmed is there again after the next start."""

    def append_deletion(self: Shard, key: bytes, message: Message, *rest: Any) -> None:
        self.due -= message.outstanding.bit_count() or 1

    return _every(20, append_deletion, original)


def _forget_who_confirmed(original: Any) -> Any:
    """One app's confirm is not written: it gets the message again."""

    def append_confirm(self: Shard, key: bytes, message: Message, *rest: Any) -> None:
        self.due -= 1

    return _every(20, append_confirm, original)


def _take_twice(original: Any) -> Any:
    """A retransmission of what is gone already is taken for a new message."""
    return lambda self, guid: True


def _give_back_nothing(original: Any) -> Any:
    """What a lost consumer held goes to nobody."""
    return lambda self, messages: list(messages) and None


def _give_back_last(original: Any) -> Any:
    """What waits is handed out newest first."""

    def deliver(self: Delivery, app: App) -> None:
        if len(app.pending) > 1:
            app.pending.rotate(1)
        original(self, app)

    return _every(20, deliver, original)


def _ack_without_room(original: Any) -> Any:
    """A shard that is full takes the message, and keeps it in memory only."""

    def append_message(self: Shard, key: bytes, message: Message, content: Content, *rest: Any) -> None:
        try:
            original(self, key, message, content, *rest)
        except Exception:
            message.offset = self.files.data_end - len(content.data) - 16

    return append_message


def _spoil_a_payload(original: Any) -> Any:
    """A byte of the payload is written wrong."""

    def write(buffer: memoryview, offset: int, data: Any, *rest: Any) -> int:
        spoiled = bytearray(data)
        spoiled[-1] ^= 1
        end: int = original(buffer, offset, spoiled, *rest)
        return end

    return _every(20, write, original)


# The name of each: what is replaced, and with what.
MUTATIONS: dict[str, tuple[Any, str, Make]] = {
    "a message is not written": (Shard, "append_message", _lose_a_message),
    "a deletion is not written": (Shard, "append_deletion", _lose_a_removal),
    "a confirm is not written": (Shard, "append_confirm", _forget_who_confirmed),
    "a retransmission is taken twice": (History, "is_new", _take_twice),
    "a lost consumer's messages are not given back": (App, "give_back", _give_back_nothing),
    "the order is not kept": (Delivery, "deliver", _give_back_last),
    "a full shard takes messages": (Shard, "append_message", _ack_without_room),
    "a payload is spoiled": (shard_module, "write_data_record", _spoil_a_payload),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The core is broken in the named way."""
    target, attribute, make = MUTATIONS[name]
    with patch.object(target, attribute, make(getattr(target, attribute))):
        yield
