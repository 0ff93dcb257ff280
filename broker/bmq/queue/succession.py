"""Transfer of a consumer's unconfirmed messages to its new subscriptions.

Messages refer to the subscription that they were sent for. There may be a million, so they are not changed: the old
subscription continues in the place of the new one.
"""

from __future__ import annotations

from broker.bmq.queue.routing import Stream, Subscription

__all__ = ["succeed"]


def succeed(stream: Stream, subscriptions: list[Subscription]) -> set[Subscription]:
    """Replace the subscriptions of a stream; return the old ones that still hold messages and have no successor.

    The messages that an old subscription holds count against its successor: the new subscription with the same id and
    expression, else the one with the same expression, else the one with the same id.
    """
    by_id = {each.subscription_id: each for each in subscriptions}
    by_text = {each.text: each for each in subscriptions}
    heirs: dict[Subscription, Subscription] = {}  # by new subscription: the old one in its place
    merged: dict[Subscription, Subscription] = {}  # by old subscription: the one that takes all it holds
    left: set[Subscription] = set()
    for old in [*stream.subscriptions, *stream.former]:
        if not old.holds:
            continue
        new = by_id.get(old.subscription_id)
        if new is None or new.text != old.text:
            new = by_text.get(old.text, new)
        if new is None:
            left.add(old)
        elif new in heirs:
            merged[old] = heirs[new]
        else:
            heirs[new] = old
    for new, old in heirs.items():
        old.become(new)
    if merged:
        for guid, (message, old) in stream.unconfirmed.items():
            if old in merged:
                target = merged[old]
                target.messages_left -= 1
                target.bytes_left -= message.size
                stream.unconfirmed[guid] = (message, target)
    # A set would have them in another order in each process.
    stream.former = [old for old in [*stream.subscriptions, *stream.former] if old in left]
    stream.subscriptions = [heirs.get(each, each) for each in subscriptions]
    return left
