# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Routing: subscriptions, grouped by expression and priority (source: mqbblp::Routers).

All subscriptions of an app with one expression are a `Group`; only those of the highest priority receive, in turn. A
message goes to the group of the highest priority whose expression matches, even if that has no room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Final, cast

from broker.bmq.core.messages import Message, Sink
from broker.bmq.core.redelivery import Lot, Returning, Wanted
from broker.bmq.core.statistics import QueueStatistics
from broker.bmq.queue.backlog import Part
from broker.bmq.store.chunked import Chunked
from formats.bmq.expressions import Expression, ExpressionError, Values, compile_expression

__all__ = ["LOW_DIVISOR", "App", "Group", "Stream", "Subscription"]

# A client's full subscription gets more when this part of its limit is left: what ceil(0.8 * limit) leaves.
LOW_DIVISOR: Final = 5

# The time of a stream's last message if there was none, or if the next may be sent at once.
NEVER_MS: Final = -(1 << 62)

# The confirms of a stream with more subscriptions do not wait: each time all of them would be looked at.
SLACK_SUBSCRIPTIONS_MAX: Final = 16


class Subscription:
    """One subscription of a stream: its remaining limits count down as messages are sent, and up as they are confirmed.

    A client's subscription that has reached a limit gets nothing more until only four fifths of it are unconfirmed.
    Confirms until then count in `messages_freed` and `bytes_freed`, which are 0 while there is room. `messages_low` and
    `bytes_low` are what must be left of each limit.

    A broker's limits are the sums of its consumers', and each confirm makes room: under the rule of four fifths, one
    consumer with more than that of the sum, and no confirms, would stop all others. The broker applies the rule to each
    of its consumers.

    `text` is its expression, empty for all messages; `count` is the number of consecutive messages in its turn.
    """

    __slots__ = (
        "bytes_freed",
        "bytes_left",
        "bytes_low",
        "bytes_max",
        "count",
        "group",
        "messages_freed",
        "messages_left",
        "messages_low",
        "messages_max",
        "priority",
        "stream",
        "subscription_id",
        "text",
        "turns_left",
    )

    def __init__(
        self,
        stream: Stream,
        subscription_id: int,
        priority: int,
        messages_max: int,
        bytes_max: int,
        text: str = "",
        count: int = 1,
    ) -> None:
        self.stream = stream
        self.subscription_id = subscription_id
        self.priority = priority
        self.messages_max = self.messages_left = messages_max
        self.bytes_max = self.bytes_left = bytes_max
        self.messages_freed = self.bytes_freed = 0
        if stream.sink.takes_all:
            self.messages_low = self.bytes_low = 0
        else:
            self.messages_low, self.bytes_low = messages_max // LOW_DIVISOR, bytes_max // LOW_DIVISOR
        self.text = text
        self.count = self.turns_left = count
        self.group: Group | None = None

    @property
    def holds(self) -> int:
        return self.messages_max - self.messages_left - self.messages_freed

    @property
    def holds_bytes(self) -> int:
        return self.bytes_max - self.bytes_left - self.bytes_freed

    def regain(self, size: int) -> None:
        """Count a confirmed message while there is no room, of messages or bytes."""
        if self.messages_left > 0:
            self.messages_left += 1
        else:
            self.messages_freed += 1
            left = self.messages_left + self.messages_freed
            if left >= self.messages_low:
                self.messages_left, self.messages_freed = left, 0
        if self.bytes_left > 0:
            self.bytes_left += size
        else:
            self.bytes_freed += size
            left = self.bytes_left + self.bytes_freed
            if left >= self.bytes_low:
                self.bytes_left, self.bytes_freed = left, 0
        if self.messages_left > 0 and self.bytes_left > 0 and self.group is not None:
            self.group.blocked = False

    def clear(self) -> None:
        self.messages_left, self.bytes_left = self.messages_max, self.bytes_max
        self.messages_freed = self.bytes_freed = 0

    def become(self, other: Subscription) -> None:
        """Take over another subscription's parameters; this one's messages count against them."""
        self.messages_left = other.messages_left - self.holds
        self.bytes_left = other.bytes_left - self.holds_bytes
        self.messages_freed = self.bytes_freed = 0
        self.messages_max, self.bytes_max = other.messages_max, other.bytes_max
        self.messages_low, self.bytes_low = other.messages_low, other.bytes_low
        self.subscription_id, self.text, self.priority = other.subscription_id, other.text, other.priority
        self.count = self.turns_left = other.count


class Stream:
    """A client's stream of one app (a sub-stream of a queue handle).

    `former` are earlier subscriptions for which it still holds messages. `last_sent_ms` and `last_sent` are of its last
    message sent after waiting: poisonous messages are delayed after that.
    """

    __slots__ = (
        "app",
        "former",
        "last_sent",
        "last_sent_ms",
        "queue_id",
        "readers",
        "schemas_sent",
        "sink",
        "sub_queue_id",
        "subscriptions",
        "unconfirmed",
    )

    def __init__(self, app: App, sink: Sink, queue_id: int, sub_queue_id: int) -> None:
        self.app = app
        self.sink = sink
        self.queue_id = queue_id
        self.sub_queue_id = sub_queue_id
        self.readers = 1  # the client's opens
        self.subscriptions: list[Subscription] = []
        self.former: list[Subscription] = []
        self.unconfirmed: Chunked[tuple[Message, Subscription]] = Chunked()
        self.schemas_sent: set[int] = set()
        self.last_sent: Message | None = None
        self.last_sent_ms = NEVER_MS

    def has_slack(self, messages: int, size: int) -> bool:
        """Return True if `messages` more, of `size` bytes together, may be sent, and nothing waits for that.

        Also False with many subscriptions: calls are frequent, and a client may have any number of subscriptions.
        """
        return (
            self.app.is_at_rest
            and len(self.subscriptions) <= SLACK_SUBSCRIPTIONS_MAX
            and all(each.messages_left >= messages and each.bytes_left >= size for each in self.subscriptions)
        )


class Group:
    """The subscriptions of an app with one expression, those of the highest priority, in the order of their turns.

    `blocked` is True if none of them had room when last tried; `waiting` are messages put aside for that reason. Some
    of these may have gone elsewhere since.
    """

    __slots__ = ("blocked", "expression", "group_id", "priority", "subscriptions", "text", "waiting")

    def __init__(self, text: str, expression: Expression | None, priority: int, group_id: int) -> None:
        self.text = text
        self.expression = expression
        self.priority = priority
        self.group_id = group_id
        self.subscriptions: list[Subscription] = []
        self.blocked = False
        self.waiting: deque[Message] = deque()

    def matches(self, values: Values) -> bool:
        return self.expression is None or self.expression.matches(values)

    def choose(self) -> Subscription | None:
        """Return the next subscription in turn that has room; None, with the group blocked, if there is none."""
        # The last message may exceed the limit of bytes, or one larger than the limit would never be sent.
        subscriptions = self.subscriptions
        if len(subscriptions) == 1:
            only = subscriptions[0]
            if only.messages_left > 0 and only.bytes_left > 0 and only.stream.sink.ready:
                return only
            self.blocked = True
            return None
        for at, candidate in enumerate(subscriptions):
            if candidate.messages_left > 0 and candidate.bytes_left > 0 and candidate.stream.sink.ready:
                candidate.turns_left -= 1
                if candidate.turns_left == 0:
                    candidate.turns_left = candidate.count
                    del subscriptions[at]
                    subscriptions.append(candidate)
                return candidate
        self.blocked = True
        return None


class App:
    """One app of a queue; `bit` marks it in `Message.outstanding`.

    `redelivery` is in order and older than `pending`; messages on their way there are in `returning`. A part of the
    queue's messages in `pending` stands for those in it that the app wants (see `broker.bmq.queue.backlog`). `aside`
    holds, by GUID, messages that matched no group or only full ones, of the groups in `sorted_by`. `attempts` has the
    number of attempts left of rejected messages. `subscription` is the domain's filter of the app's messages. While the
    app `is_behind`, only a task delivers what waits.
    """

    __slots__ = (
        "app_id",
        "aside",
        "attempts",
        "bit",
        "bytes",
        "delayed_until_ms",
        "groups",
        "is_behind",
        "key",
        "levels",
        "messages",
        "only",
        "pending",
        "redelivery",
        "returning",
        "sorted_by",
        "statistics",
        "streams",
        "subscription",
    )

    def __init__(self, app_id: str, key: bytes, bit: int) -> None:
        self.app_id = app_id
        self.key = key
        self.bit = bit
        self.subscription: Expression | None = None
        self.pending: deque[Message | Part] = deque()
        self.redelivery: deque[Message] = deque()
        self.returning: Returning | None = None
        self.is_behind = False
        self.aside: Chunked[Message] = Chunked()
        self.sorted_by: dict[str, Group] = {}
        self.attempts: Chunked[int] = Chunked()
        self.delayed_until_ms = NEVER_MS
        self.streams: list[Stream] = []
        self.groups: dict[str, Group] = {}
        self.levels: list[list[Group]] = []  # highest first
        self.messages = self.bytes = 0  # not confirmed yet
        self.statistics = QueueStatistics()
        self.only: Group | None = None  # the group that takes every message, if it is the only one

    @property
    def active(self) -> list[Subscription]:
        return [subscription for group in self.groups.values() for subscription in group.subscriptions]

    @property
    def is_at_rest(self) -> bool:
        """True if confirms release no waiting message, and have nothing else to clear."""
        return (
            self.delayed_until_ms == NEVER_MS
            and self.returning is None
            and not (self.redelivery or self.pending or self.aside or self.attempts)
        )

    def has_room(self) -> bool:
        return any(not group.blocked for group in self.groups.values())

    def rebuild(self) -> dict[str, ExpressionError]:
        """Regroup the subscriptions; messages put aside are tried again if the groups have changed.

        Returns the faults of expressions that do not compile; these match everything, as in the reference.
        """
        faults: dict[str, ExpressionError] = {}
        known = self.groups
        self.groups = {}
        subscriptions = [each for stream in self.streams for each in stream.subscriptions]
        for subscription in sorted(subscriptions, key=lambda each: -each.priority):
            text = subscription.text
            group = self.groups.get(text)
            if group is None:
                expression = None
                if text:
                    try:
                        expression = compile_expression(text)
                    except ExpressionError as error:
                        faults[text] = error
                group_id = known[text].group_id if text in known else _free_id(known, self.groups)
                group = self.groups[text] = Group(text, expression, subscription.priority, group_id)
            subscription.group = group
            if subscription.priority == group.priority:
                group.subscriptions.append(subscription)
        by_level = groupby(self.groups.values(), attrgetter("priority"))
        self.levels = [list(groups) for _, groups in by_level]
        groups = list(self.groups.values())
        self.only = groups[0] if len(groups) == 1 and groups[0].expression is None else None
        # Without consumers nothing changes: new ones may want the same as the previous ones.
        if self.groups:
            self._sort_again()
        return faults

    def _sort_again(self) -> None:
        before, self.sorted_by = self.sorted_by, self.groups
        if not self.aside:
            return
        if {text: group.priority for text, group in before.items()} == {
            text: group.priority for text, group in self.groups.items()
        }:
            for text, group in self.groups.items():
                group.waiting = before[text].waiting
            return
        aside, self.aside = self.aside, Chunked()
        self.give_back(aside.chunks)

    def give_back(self, lots: Sequence[Lot], wanted: Wanted | None = None) -> None:
        """Return messages that were tried or delivered before, for redelivery in their order.

        The lots are taken over, less what is not `wanted`; `Delivery.take_back` orders them, with least work if each
        has newer messages than the one before.
        """
        if self.returning is None:
            self.returning = Returning(self.bit)
        for lot in reversed(lots):
            self.returning.add(lot, wanted)

    def take_waiting(self) -> list[Lot]:
        """Take all waiting messages, oldest first in each lot.

        No lot is copied, and messages at consumers are unaffected. For relays, where no messages are packed.
        """
        lots: list[Lot] = [] if self.returning is None else self.returning.lots
        lots += [self.redelivery, *self.aside.chunks, cast("deque[Message]", self.pending)]
        self.pending, self.redelivery, self.returning, self.aside = deque(), deque(), None, Chunked()
        for group in chain(self.groups.values(), self.sorted_by.values()):
            group.waiting = deque()
        return [lot for lot in lots if lot]

    def sift(self, wanted: Wanted) -> None:
        """Drop all waiting messages that are not `wanted`, as `give_back` does."""
        returning, self.returning = self.returning, None
        lots = self.take_waiting()
        if returning is not None:
            returning.sift(wanted)
            self.returning = returning
        if lots:
            self.give_back(lots, wanted)

    def forget(self, message: Message) -> None:
        """Drop a message; in `pending`, `redelivery` and `waiting` it is skipped later."""
        message.outstanding &= ~self.bit
        self.leave_out((message,), message.size)

    def leave_out(self, messages: Sequence[Message], size: int) -> None:
        """Drop messages, of `size` bytes together, whose bits are cleared."""
        statistics, aside, attempts = self.statistics, self.aside, self.attempts
        if self.messages > statistics.messages_max or self.bytes > statistics.bytes_max:
            statistics.observe(self.messages, self.bytes)
        self.messages -= len(messages)
        self.bytes -= size
        if aside.newest or aside.older or attempts.newest or attempts.older:
            for message in messages:
                aside.take(message.guid)
                attempts.take(message.guid)

    def waiting(self) -> Iterator[Message]:
        """Yield messages that the app wants and no consumer has; messages put aside are in no order.

        Some are copies of packed messages: do not change them.
        """
        for messages in (self.redelivery, self.returning or (), self.aside.values()):
            for message in messages:
                if message.outstanding & self.bit:
                    yield message
        for item in self.pending:
            for message in item.peek() if isinstance(item, Part) else (item,):
                if message.outstanding & self.bit:
                    yield message

    def unfold(self) -> None:
        part = self.pending.popleft()
        assert isinstance(part, Part)
        bit = self.bit
        self.pending.extendleft([each for each in reversed(part.unpack().values()) if each.outstanding & bit])
        part.let_go()


def _free_id(*taken: dict[str, Group]) -> int:
    return 1 + max((group.group_id for groups in taken for group in groups.values()), default=0)
