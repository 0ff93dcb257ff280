# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The subscriptions that a relay asks its upstream for: for each app, the sum of its consumers'."""

from __future__ import annotations

from typing import Final

from broker.bmq.queue.routing import App, Stream, Subscription
from broker.bmq.relay.handles.handle_counts import COUNT_MAX
from formats.bmq.control.messages import ConsumerInfo, Expression, ExpressionVersion
from formats.bmq.control.messages import Subscription as SubscriptionInfo

__all__ = ["INT64_MAX", "AskedSubscriptions"]

INT64_MAX: Final = (1 << 63) - 1


class AskedSubscriptions:
    """The subscriptions of one queue. Each allows at most `bytes_max` unconfirmed bytes."""

    __slots__ = ("_bytes_max", "_ids", "_last_id", "app_ids", "wanted")

    def __init__(self, bytes_max: int) -> None:
        self.wanted: dict[Stream, list[Subscription]] = {}
        self.app_ids: dict[int, str] = {}  # by the numbers of subscriptions upstream
        self._ids: dict[tuple[str, str], int] = {}  # these numbers, by app id and expression
        self._last_id = 0
        self._bytes_max = bytes_max

    def forget(self, app_id: str) -> None:
        for key in [key for key in self._ids if key[0] == app_id]:
            del self.app_ids[self._ids.pop(key)]

    def texts(self, app: App) -> set[str]:
        return {each.text for stream in app.streams for each in self.wanted.get(stream, ())}

    def summed(self, app: App) -> tuple[SubscriptionInfo, ...]:
        """Combine all streams of an app: a subscription for each expression, with a consumer for each priority."""
        summed: dict[str, dict[int, ConsumerInfo]] = {}
        for stream in app.streams:
            for each in self.wanted.get(stream, ()):
                by_priority = summed.setdefault(each.text, {})
                so_far = by_priority.get(each.priority) or ConsumerInfo(consumer_priority=each.priority)
                by_priority[each.priority] = ConsumerInfo(
                    max_unconfirmed_messages=min(so_far.max_unconfirmed_messages + each.messages_max, INT64_MAX),
                    max_unconfirmed_bytes=min(so_far.max_unconfirmed_bytes + each.bytes_max, self._bytes_max),
                    consumer_priority=each.priority,
                    consumer_priority_count=min(so_far.consumer_priority_count + each.count, COUNT_MAX),
                )
        found = []
        for text, by_priority in summed.items():
            version = ExpressionVersion.VERSION_1 if text else ExpressionVersion.UNDEFINED
            consumers = tuple(by_priority[priority] for priority in sorted(by_priority, reverse=True))
            subscription_id = self._subscription_id(app, text)
            expression = Expression(version=version, text=text)
            found.append(SubscriptionInfo(s_id=subscription_id, expression=expression, consumers=consumers))
        return tuple(found)

    def _subscription_id(self, app: App, text: str) -> int:
        """Return the number of an app's expression upstream; kept while the app is open, for messages in flight."""
        known = self._ids.get((app.app_id, text))
        if known is None:
            self._last_id += 1
            known = self._ids[app.app_id, text] = self._last_id
            self.app_ids[known] = app.app_id
        return known
