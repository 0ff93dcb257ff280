# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Message filters of subscriptions: by tag, or by expression (source: FilterAPI, ExpressionMessageFilter).

A tag filter compares the hash of a message's tag, from the consume queue; two tags may share one, so clients compare
the tags. An expression tests properties, from the message itself.
"""

from __future__ import annotations

from typing import Final

from broker.rocketmq.consuming.sql import EXPRESSION_BYTES_MAX, SqlError, compile_sql, is_compiled
from broker.rocketmq.remoting.scheduler import Scheduler
from formats.rocketmq.remoting.bodies.clients import ALL, SQL92, TAG, Subscription, make_subscription

__all__ = ["ALL", "SQL92", "TAG", "Filter", "make_subscription", "subscription_of"]

# Units of compiling a character of an expression; see `Scheduler`.
_COMPILE_UNITS: Final = 4_000
_TAGS_BYTES_MAX: Final = 32 << 10


def subscription_of(topic: str, text: str, kind: str | None, version: int = 0) -> Subscription:
    """Return the subscription for an expression of a kind. Raises `SqlError` for tags that are too long."""
    if kind not in (None, "", TAG):
        return Subscription(topic, text, kind or TAG, version)
    if len(text) > _TAGS_BYTES_MAX:
        raise SqlError(f"its tags have more than {_TAGS_BYTES_MAX} characters")
    return make_subscription(topic, text, version)


class Filter:
    """A compiled subscription; `sql` is None unless it is an expression. Raises `SqlError` for an invalid one.

    Compiling spends the budget of `scheduler`.
    """

    def __init__(self, subscription: Subscription, scheduler: Scheduler | None = None) -> None:
        if scheduler is not None and subscription.expression_type == SQL92 and not is_compiled(subscription.sub_string):
            scheduler.spend(_COMPILE_UNITS * min(len(subscription.sub_string), EXPRESSION_BYTES_MAX))
        self.sql = compile_sql(subscription.sub_string) if subscription.expression_type == SQL92 else None
        takes_all = self.sql is not None or subscription.sub_string == ALL
        # The wanted tags' codes; None for all.
        self.codes = None if takes_all else frozenset(subscription.code_set)

    def takes(self, tags_code: int) -> bool:
        """Return whether a message with this code in the consume queue may be wanted."""
        return self.codes is None or tags_code in self.codes
