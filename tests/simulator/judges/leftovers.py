"""The disks of stopped nodes: all have the same messages, and know the ones that were removed lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.store.recovery import Recovered
from broker.bmq.store.removals import hashes_of
from tests.simulator.judges.invariants import Promise, Records, Violation, name_of

__all__ = ["Left", "check_files", "check_left", "left_in"]

KNOWN_US = 240_000_000  # the time for which a removed message must be known at least


class Left(NamedTuple):
    """The content of a disk: its messages with their queues and the apps that have confirmed them, and the hashes of
    removed messages.
    """

    messages: frozenset[tuple[str, str, tuple[str, ...]]]
    removed: frozenset[int]


def check_files(node: str, names: Iterable[str], partition_count: int) -> None:
    """Check that the folder of a stopped node has one set of files for each partition, one ledger, and no others."""
    kinds = Counter(name.rpartition(".")[2] for name in names)
    wanted = dict.fromkeys(("bmq_data", "bmq_journal", "bmq_qlist"), partition_count) | {"bmq_csl": 1}
    if any(kinds[kind] != wanted.get(kind, kinds["removed"]) for kind in (*wanted, *kinds)):
        raise Violation(f"the folder of {node} has {dict(kinds)} files")


def left_in(partitions: Iterable[tuple[StoredPartition, Recovered]], now_ms: int) -> Left:
    """Collect what is in some partitions."""
    messages, removed = set(), set[int]()
    for partition, recovered in partitions:
        messages |= {
            (message.queue_key.hex(), message.guid.hex(), tuple(sorted(key.hex() for key in message.confirmed)))
            for message in recovered.messages
        }
        hashes = [hashes_of(guids) for guids in recovered.gone.values()]
        removals = partition.removals
        for before in removals.before(partition.files, recovered.timestamp, now_ms).values():
            hashes += [each.hashes for each in before if each.age_ms <= removals.retention_ms]
        removed.update(*(each.tolist() for each in hashes))
    return Left(frozenset(messages), frozenset(removed))


def check_left(records: Records, left: dict[str, Left]) -> None:
    """Check that nodes have left the same messages, and none has forgotten what was removed lately."""
    (first_name, first), *others = left.items()
    for name, other in others:
        if other.messages != first.messages:
            differing = sorted(other.messages ^ first.messages)
            raise Violation(f"{name} and {first_name} keep different messages: {differing}")
    if records.forgets or records.was_short:
        return
    kept = {bytes.fromhex(guid) for _, guid, _ in first.messages}
    since_us = records.clock.us - KNOWN_US
    gone = [
        post
        for post in records.posts.values()
        if post.acked and post.done_us > max(0, since_us) and not post.refused and post.guid not in kept
        if records.promises[post.uri] is Promise.KEPT
    ]
    hashes = hashes_of(b"".join(post.guid for post in gone)).tolist()
    for post, each in zip(gone, hashes, strict=True):
        for name, of_node in left.items():
            if each not in of_node.removed:
                raise Violation(f"{name} does not know any longer that {name_of(post)} was removed")
