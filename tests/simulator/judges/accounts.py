"""Judgement of what brokers count: room for records and posts, usage, what consumers hold, who has a queue open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.bmq.node.node import Node
from broker.bmq.queue.backlog import Backlog
from broker.bmq.queue.queue import Queue
from tests.simulator.judges.invariants import Violation

if TYPE_CHECKING:
    from tests.simulator.machines.hosts import Host

__all__ = [
    "check_counts",
    "check_refusal",
    "check_room",
    "check_usage",
    "check_waiting",
    "miscounted_credit",
    "miscounted_opens",
]


def check_counts(host: Host) -> None:
    """Check the counts that must be right after each step of a node, if one runs."""
    node, member = host.node, host.member
    if node is None:
        return
    check_room(node)
    check_waiting(node)
    # A partition that is being restored has queues which the node does not show yet.
    if member is None or all(each.taking_over is None for each in member.partitions.values()):
        check_usage(node)


def check_usage(node: Node) -> None:
    """Check that root queues count the messages that they have, and each domain those of its queues."""
    roots = [queue for queue in node.queues.values() if queue.is_root]
    for queue in roots:
        if queue.usage.messages != len(queue.messages):
            raise Violation(f"{queue.uri} counts {queue.usage.messages} messages, and has {len(queue.messages)}")
        _check_admission(queue)
    for name, domain in node.domains.items():
        usages = [queue.usage for queue in roots if queue.domain_usage is domain.usage]
        counted = domain.usage.messages, domain.usage.bytes
        has = sum(each.messages for each in usages), sum(each.bytes for each in usages)
        if counted != has:
            raise Violation(f"domain '{name}' counts {counted} messages and bytes, and its queues {has}")


def _check_admission(queue: Queue) -> None:
    """Check that a root queue has no more producers, and none of its apps more consumers, than its domain admits."""
    config = queue.config
    if config.producers_max and queue.writers > config.producers_max:
        raise Violation(f"{queue.uri} has {queue.writers} producers, and its domain admits {config.producers_max}")
    for app in queue.apps.values() if config.consumers_max else ():
        readers = sum(stream.readers for stream in app.streams)
        if readers > config.consumers_max:
            what = f"'{app.app_id}' of {queue.uri} has {readers} consumers"
            raise Violation(f"{what}, and its domain admits {config.consumers_max}")


def check_refusal(node: Node | None, uri: str, guid: bytes) -> None:
    """Check that a node which refuses a post, as its root holds too many messages, holds more than the limit."""
    queue = node.queues.get(uri) if node is not None else None
    if queue is None or not queue.is_root or guid in queue.messages:
        return
    usages = [usage for usage in (queue.usage, queue.usage.parent) if usage is not None and usage.messages_max]
    if usages and all(usage.messages <= usage.messages_max for usage in usages):
        raise Violation(f"{uri} refuses a message, and holds {usages[0].messages} of {usages[0].messages_max}")


def check_waiting(node: Node) -> None:
    """Check that each partition counts exactly the bytes of the posts that wait for its rollover."""
    for partition in node.partitions.values():
        waiting = partition.rollovers._waiting
        size = sum(size for _, size in waiting._posts)
        if waiting._bytes != size:
            number = partition.partition_id
            raise Violation(f"partition {number} counts {waiting._bytes} bytes of waiting posts, and there are {size}")


def check_room(node: Node) -> None:
    """Check that each partition served here reserves room for exactly the records that its messages still need."""
    for partition in node.partitions.values():
        if not partition.active or partition.room.tight is not None:
            continue
        due = 0
        for messages in partition.records.stores.values():
            # Packed messages stay packed. A compiled `Backlog` takes any mapping for an instance, since it shares the
            # caches of its abstract base.
            some = messages.peek() if type(messages) is Backlog else messages.values()
            due += sum(message.outstanding.bit_count() for message in some)
        if due != partition.records.due:
            number = partition.partition_id
            raise Violation(f"partition {number} reserves room for {partition.records.due} records, and {due} are due")


def miscounted_credit(node: Node) -> str:
    """Describe a consumer whose limits count messages when there are none; empty if there is no such consumer."""
    for queue in node.queues.values():
        for app in queue.apps.values():
            for stream in app.streams:
                for each in (*stream.subscriptions, *stream.former):
                    if each.holds or each.holds_bytes:
                        held = f"{each.holds} messages of {each.holds_bytes} bytes"
                        return (
                            f"the limits of a consumer of '{app.app_id}' of {queue.uri} count {held}, and it has none"
                        )
    return ""


def miscounted_opens(queue: Queue, writers: int, readers: dict[str, int]) -> str:
    """Describe a root queue that counts other opens than its clients have; empty if it counts these."""
    if queue.writers != writers:
        return f"{queue.uri} counts {queue.writers} opens for writing, and its clients have {writers}"
    for app in queue.apps.values():
        count = sum(stream.readers for stream in app.streams)
        if count != readers.get(app.app_id, 0):
            return f"{queue.uri} counts {count} readers of '{app.app_id}', and there are {readers.get(app.app_id, 0)}"
    return ""
