"""Judgement of what brokers count: room for records to come, what consumers hold, and who has a queue open."""

from __future__ import annotations

from broker.bmq.node.node import Node
from broker.bmq.queue.backlog import Backlog
from broker.bmq.queue.queue import Queue
from tests.simulator.judges.invariants import Violation

__all__ = ["check_room", "miscounted_credit", "miscounted_opens"]


def check_room(node: Node) -> None:
    """Check that each partition served here reserves room for exactly the records that its messages still need."""
    for partition in node.partitions.values():
        if not partition.active or partition.tight is not None:
            continue
        due = 0
        for messages in partition.stores.values():
            # Packed messages stay packed. A compiled `Backlog` takes any mapping for an instance, since it shares the
            # caches of its abstract base.
            some = messages.peek() if type(messages) is Backlog else messages.values()
            due += sum(message.outstanding.bit_count() for message in some)
        if due != partition.due:
            number = partition.partition_id
            raise Violation(f"partition {number} reserves room for {partition.due} records, and {due} are due")


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
