# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Corrupted payloads, found by their checksums on delivery.

They are neither sent nor removed. The apps that want one wait while nodes with replicas are asked for it
(`replication.mending`). If none can help, the message is put aside, to be requested again from time to time, and later
messages are delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.bmq.core.alarms import alarm
from broker.bmq.core.messages import Message

__all__ = ["Payloads", "UnsoundPayload"]

log: Final = logging.getLogger("broker.partition")


class UnsoundPayload(NamedTuple):
    """A message with a corrupted payload; `tried` are the nodes that were asked for it."""

    queue_key: bytes
    message: Message
    tried: set[int]


class Payloads:
    """The corrupted payloads of one partition.

    `wanted` payloads are to be requested from other nodes; these could not supply `withheld` ones. `settled` has the
    queues whose apps may continue, with their restored messages.
    """

    def __init__(self, partition_id: int, stores: Mapping[bytes, Mapping[bytes, Message]]) -> None:
        self._partition_id = partition_id
        self._stores = stores
        self.wanted: dict[tuple[bytes, bytes], UnsoundPayload] = {}
        self.withheld: dict[tuple[bytes, bytes], UnsoundPayload] = {}
        self.settled: dict[bytes, list[Message]] = {}

    def found(self, queue_key: bytes, message: Message, *, has_copies: bool) -> None:
        """Note a corrupted payload, to be requested from others if they have replicas."""
        key = queue_key, message.guid
        if key in self.wanted or key in self.withheld:
            return
        alarm(
            log,
            "STORAGE",
            f"Partition [{self._partition_id}]: the payload of message {message.guid.hex().upper()} at offset "
            f"{message.offset} of DATA does not match its checksum; the disk may be failing. It is not delivered"
            + (" until another node has supplied it." if has_copies else ", and no other node has it."),
        )
        (self.wanted if has_copies else self.withheld)[key] = UnsoundPayload(queue_key, message, set())

    def is_wanted(self, queue_key: bytes, guid: bytes) -> bool:
        """Return True if other nodes are being asked for a payload: later messages should wait for it."""
        return (queue_key, guid) in self.wanted

    def alive(self) -> Iterator[UnsoundPayload]:
        """Yield wanted payloads of messages that still exist, and drop the others."""
        for key, unsound in list(self.wanted.items()):
            if self._stores.get(unsound.queue_key, {}).get(unsound.message.guid) is unsound.message:
                yield unsound
            else:
                del self.wanted[key]

    def mended(self, queue_key: bytes, guid: bytes) -> None:
        key = queue_key, guid
        unsound = self.wanted.pop(key, None) or self.withheld.pop(key, None)
        if unsound is not None:
            log.info("Partition [%d]: message %s is intact again", self._partition_id, guid.hex().upper())
            self.settled.setdefault(queue_key, []).append(unsound.message)

    def give_up(self, unsound: UnsoundPayload) -> None:
        key = unsound.queue_key, unsound.message.guid
        del self.wanted[key]
        self.withheld[key] = unsound._replace(tried=set())
        alarm(
            log,
            "STORAGE",
            f"Partition [{self._partition_id}]: no reachable node has an intact copy of message "
            f"{unsound.message.guid.hex().upper()}. It is withheld and requested again",
        )
        self.settled.setdefault(unsound.queue_key, [])

    def ask_again(self) -> None:
        self.wanted |= self.withheld
        self.withheld.clear()

    def clear(self) -> None:
        for each in (self.wanted, self.withheld, self.settled):
            each.clear()
