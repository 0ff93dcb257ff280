"""The clients of a broker and their groups, by heartbeats.

Source: ConsumerManager, ProducerManager. When a group gains or loses a consumer, all its consumers are notified, and
share the queues again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from formats.rocketmq.remoting.bodies.clients import ConsumerData, Heartbeat, Subscription

__all__ = ["EXPIRED_MS", "Clients", "ConsumerGroup", "Member"]

EXPIRED_MS: Final = 120_000

# Maximum of groups of one connection, whose end removes it from all in one step.
CONNECTION_GROUPS_MAX: Final = 4_096

# Approximate memory of a subscription, and of a tag or its hash.
_SUBSCRIPTION_BYTES: Final = 400
_WORD_BYTES: Final = 80


@dataclass
class Member:
    """A client's connection in a group. `user` signed the heartbeat that reported it; "" for none."""

    client_id: str
    heard_ms: int
    language: str = "JAVA"
    version: int = 0
    user: str = ""


@dataclass
class ConsumerGroup:
    """The consumers of a group, with their common settings: those of the newest heartbeat."""

    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[object, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


class Clients:
    """All clients. A connection is any object that stands for one."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[object, Member]] = {}
        # By connection: the groups in which it consumes, and those in which it produces.
        self._memberships: dict[object, tuple[set[str], set[str]]] = {}
        self._membership_count = 0
        self._subscription_bytes = 0

    def fault_of(
        self, heartbeat: Heartbeat, connection: object, memberships_max: int, subscription_bytes_max: int
    ) -> str | None:
        """Return why the bounds leave no room for the contents of a heartbeat; None if they do."""
        named = len(heartbeat.consumer_data_set) + len(heartbeat.producer_data_set)
        consumes, produces = self._memberships.get(connection, (set[str](), set[str]()))
        if named + len(consumes) + len(produces) > CONNECTION_GROUPS_MAX:
            consumes = consumes.union([each.group_name for each in heartbeat.consumer_data_set])
            produces = produces.union([each.group_name for each in heartbeat.producer_data_set])
            if len(consumes) + len(produces) > CONNECTION_GROUPS_MAX:
                return f"its connection would be in more than {CONNECTION_GROUPS_MAX} groups"
        if self._membership_count + named > memberships_max:
            return f"clients are in {self._membership_count} groups, clientMembershipMaxNum allows {memberships_max}"
        size = 0 if heartbeat.is_without_sub else sum(map(_size_of, heartbeat.consumer_data_set))
        if self._subscription_bytes + size > subscription_bytes_max:
            kept = f"the subscriptions of all groups take {self._subscription_bytes} bytes"
            return f"{kept}, clientSubscriptionMaxBytes allows {subscription_bytes_max}"
        return None

    def heard(
        self,
        heartbeat: Heartbeat,
        connection: object,
        now_ms: int,
        language: str = "JAVA",
        version: int = 0,
        user: str = "",
    ) -> list[str]:
        """Handle a heartbeat; return the groups whose members or subscriptions have changed."""
        member = Member(heartbeat.client_id, now_ms, language, version, user)
        changed = [
            consumer.group_name
            for consumer in heartbeat.consumer_data_set
            if self._consume(consumer, heartbeat, connection, member)
        ]
        for producer in heartbeat.producer_data_set:
            members = self.producers.setdefault(producer.group_name, {})
            members[connection] = member
            self._enter(connection, 1, producer.group_name)
        return changed

    def _consume(self, told: ConsumerData, heartbeat: Heartbeat, connection: object, member: Member) -> bool:
        group = self.consumers.get(told.group_name)
        if group is None:
            group = ConsumerGroup(told.consume_type, told.message_model, told.consume_from_where)
            self.consumers[told.group_name] = group
        group.consume_type, group.message_model = told.consume_type, told.message_model
        group.consume_from_where = told.consume_from_where
        is_new = connection not in group.members
        group.members[connection] = member
        self._enter(connection, 0, told.group_name)
        if heartbeat.is_without_sub:
            return is_new
        return self._subscribe(group, told.subscription_data_set) or is_new

    def _subscribe(self, group: ConsumerGroup, told: list[Subscription]) -> bool:
        """Take the newer of each two subscriptions, and drop unreported ones; return whether topics changed."""
        before = sum(map(_subscription_bytes, group.subscriptions.values()))
        topics = {each.topic for each in told}
        changed = topics != set(group.subscriptions)
        group.subscriptions = {topic: each for topic, each in group.subscriptions.items() if topic in topics}
        for each in told:
            known = group.subscriptions.get(each.topic)
            if known is None or each.sub_version > known.sub_version:
                group.subscriptions[each.topic] = each
        self._subscription_bytes += sum(map(_subscription_bytes, group.subscriptions.values())) - before
        return changed

    def _enter(self, connection: object, kind: int, group: str) -> None:
        groups = self._memberships.setdefault(connection, (set(), set()))[kind]
        self._membership_count += group not in groups
        groups.add(group)

    def _leave(self, connection: object, kind: int, group: str) -> None:
        memberships = self._memberships.get(connection)
        if memberships is not None and group in memberships[kind]:
            memberships[kind].remove(group)
            self._membership_count -= 1
            if not any(memberships):
                del self._memberships[connection]

    def unregister_consumer(self, group: str, connection: object) -> bool:
        """Remove a client from a group of consumers; return whether it was in."""
        found = self.consumers.get(group)
        if found is None or found.members.pop(connection, None) is None:
            return False
        self._leave(connection, 0, group)
        if not found.members:
            self._subscription_bytes -= sum(map(_subscription_bytes, found.subscriptions.values()))
            del self.consumers[group]
        return True

    def unregister_producer(self, group: str, connection: object) -> None:
        members = self.producers.get(group, {})
        members.pop(connection, None)
        self._leave(connection, 1, group)
        if not members:
            self.producers.pop(group, None)

    def disconnected(self, connection: object) -> list[str]:
        """Remove a client from all groups; return those with fewer consumers now."""
        consumes, produces = self._memberships.get(connection, (set[str](), set[str]()))
        for group in list(produces):
            self.unregister_producer(group, connection)
        return [group for group in sorted(consumes) if self.unregister_consumer(group, connection)]

    def expire(self, now_ms: int) -> list[object]:
        """Return the connections without a heartbeat for two minutes, for the caller to close."""
        groups = [group.members for group in self.consumers.values()] + list(self.producers.values())
        silent = {
            connection: None
            for members in groups
            for connection, member in members.items()
            if now_ms - member.heard_ms > EXPIRED_MS
        }
        return list(silent)

    def producer(self, client_id: str) -> object | None:
        """Return the connection of a producer; None if it has none."""
        for members in self.producers.values():
            for connection, member in members.items():
                if member.client_id == client_id:
                    return connection
        return None

    def ids(self, group: str) -> list[str]:
        found = self.consumers.get(group)
        return [] if found is None else [member.client_id for member in found.members.values()]


def _size_of(consumer: ConsumerData) -> int:
    return sum(map(_subscription_bytes, consumer.subscription_data_set))


def _subscription_bytes(subscription: Subscription) -> int:
    words = len(subscription.tags_set) + len(subscription.code_set)
    return _SUBSCRIPTION_BYTES + 2 * len(subscription.sub_string) + len(subscription.topic) + _WORD_BYTES * words
