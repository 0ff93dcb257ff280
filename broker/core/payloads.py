"""Payloads that do not match their checksums any longer, when they are to be handed out.

They are not: neither sent, nor removed. Where other nodes have copies, these are asked for the payload
(`broker.cluster.mending`), and until they have answered the apps that want it wait. If none can help it is put aside,
and asked for again from time to time; what came after it goes out meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from broker.core.alarms import alarm
from broker.core.messages import Message

__all__ = ["Payloads", "Unsound"]

log = logging.getLogger("broker.shard")


class Unsound(NamedTuple):
    """A message whose payload has rotted; `tried` are the nodes that were asked for it."""

    queue_key: bytes
    message: Message
    tried: set[int]


class Payloads:
    """What is known of one shard's rotten payloads.

    `wanted` are those that other nodes are to be asked for, `withheld` those that they could not give. `settled` are
    the queues whose apps may go on, and what of theirs is mended.
    """

    def __init__(self, partition_id: int, stores: Mapping[bytes, Mapping[bytes, Message]]) -> None:
        self._partition_id = partition_id
        self._stores = stores
        self.wanted: dict[tuple[bytes, bytes], Unsound] = {}
        self.withheld: dict[tuple[bytes, bytes], Unsound] = {}
        self.settled: dict[bytes, list[Message]] = {}

    def found(self, queue_key: bytes, message: Message, *, has_copies: bool) -> None:
        """A payload does not match its checksum: others are asked for it, if they have copies."""
        key = queue_key, message.guid
        if key in self.wanted or key in self.withheld:
            return
        alarm(
            log,
            "STORAGE",
            f"Partition [{self._partition_id}]: the payload of message {message.guid.hex().upper()} at offset "
            f"{message.offset} of DATA does not match its checksum, the disk may be failing. It is not delivered"
            + (" before another node has given it." if has_copies else ", and no other node has it."),
        )
        (self.wanted if has_copies else self.withheld)[key] = Unsound(queue_key, message, set())

    def is_wanted(self, queue_key: bytes, guid: bytes) -> bool:
        """Whether other nodes are being asked for a payload: what comes after it should wait."""
        return (queue_key, guid) in self.wanted

    def alive(self) -> Iterator[Unsound]:
        """Those wanted that are still there; the others are forgotten."""
        for key, unsound in list(self.wanted.items()):
            if self._stores.get(unsound.queue_key, {}).get(unsound.message.guid) is unsound.message:
                yield unsound
            else:
                del self.wanted[key]

    def mended(self, queue_key: bytes, guid: bytes) -> None:
        """A payload is whole again."""
        key = queue_key, guid
        unsound = self.wanted.pop(key, None) or self.withheld.pop(key, None)
        if unsound is not None:
            log.info("Partition [%d]: message %s is whole again", self._partition_id, guid.hex().upper())
            self.settled.setdefault(queue_key, []).append(unsound.message)

    def give_up(self, unsound: Unsound) -> None:
        """No node could give a payload: what comes after it does not wait any longer."""
        key = unsound.queue_key, unsound.message.guid
        del self.wanted[key]
        self.withheld[key] = unsound._replace(tried=set())
        alarm(
            log,
            "STORAGE",
            f"Partition [{self._partition_id}]: no node that can be reached has message "
            f"{unsound.message.guid.hex().upper()} whole. It is withheld, and asked for again",
        )
        self.settled.setdefault(unsound.queue_key, [])

    def ask_again(self) -> None:
        """Other nodes may be there by now."""
        self.wanted |= self.withheld
        self.withheld.clear()

    def clear(self) -> None:
        """This node serves the shard no longer."""
        for each in (self.wanted, self.withheld, self.settled):
            each.clear()
