"""Message filters of subscriptions: by tag, or by expression (source: FilterAPI, ExpressionMessageFilter).

A broker compares the hash of a message's tag, which the consume queue has; two tags may share one, so clients compare
the tags themselves once more. An expression is about properties, which are in the message itself.
"""

from __future__ import annotations

from broker.rocketmq.core.sql import compile_sql
from formats.rocketmq.client_bodies import ALL, SQL92, TAG, Subscription, make_subscription

__all__ = ["ALL", "SQL92", "TAG", "Filter", "make_subscription"]


class Filter:
    """A compiled subscription; `sql` is None unless it is an expression. Raises `SqlError` for an invalid one."""

    def __init__(self, subscription: Subscription) -> None:
        self.sql = compile_sql(subscription.sub_string) if subscription.expression_type == SQL92 else None
        takes_all = self.sql is not None or subscription.sub_string == ALL
        # The codes of the tags that are wanted; None for all.
        self.codes = None if takes_all else frozenset(subscription.code_set)

    def takes(self, tags_code: int) -> bool:
        """Return whether a message with this code in the consume queue may be wanted."""
        return self.codes is None or tags_code in self.codes
