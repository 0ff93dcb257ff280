"""The promises that are still open once there are no faults any longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.simulator.rocketmq.consumers import PullGroup
from tests.simulator.rocketmq.grpc_clients import GrpcPopGroup
from tests.simulator.rocketmq.poppers import PopGroup
from tests.simulator.rocketmq.promises import Promises
from tests.simulator.rocketmq.stores import Kept

__all__ = ["what_is_owed"]


def what_is_owed(
    kept: list[Kept], promises: Promises, pullers: Iterable[PullGroup], poppers: Iterable[PopGroup]
) -> Iterator[str]:
    """Yield what has not come yet: acknowledged messages, for every group, and messages that were given back."""
    by_topic: dict[str, set[str]] = {}
    for each in kept:
        by_topic.setdefault(each.topic, set()).add(each.name)
    for sent in promises.messages.values():
        if sent.is_owed and sent.name not in by_topic.get(sent.topic, ()):
            yield f"{sent.name} was acknowledged, and is not in {sent.topic}"
    for group in pullers:
        for each in kept:
            if group.is_owed(each, promises) and each.name not in group.consumed:
                yield f"{group.name} has never got {each.name} of {each.topic}"
    for popper in poppers:
        dead: set[str] = set()
        if isinstance(popper, GrpcPopGroup):
            dead = by_topic.get(popper.dead, dead)
            yield from filter(None, map(popper.check_dead, sorted(dead)))
        done = popper.acknowledged | popper.perhaps_acknowledged | dead
        for name in sorted(by_topic.get(popper.topic, set()) - done):
            if popper.filter.tag in (None, promises.messages[name].tag):
                yield f"{popper.name} could never acknowledge {name} of {popper.topic}"
    # A consumer may give a message back twice; the second copy may come after the time of day was set back.
    come: dict[tuple[str, str, int], int] = {}
    for each in kept:
        key = each.topic, each.name, each.times
        come[key] = max(each.stored_ms, come.get(key, each.stored_ms))
    for back in promises.backs:
        stored_ms = come.get((back.topic, back.name, back.times))
        if stored_ms is None or stored_ms < back.not_before_ms:
            yield f"{back.name} was given back the {back.times}. time, and is not in {back.topic} in due time"
