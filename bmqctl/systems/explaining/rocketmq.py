"""The causes for which a RocketMQ group lags, from the brokers' offsets and consumers."""

from __future__ import annotations

import trio

from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.systems.explaining.cause import Cause, counted
from bmqctl.systems.rocketmq.status.asker import asker_of
from bmqctl.systems.rocketmq.status.group import GroupState, GroupUnknown, NobodyAnswers, group_state
from formats.addresses import shown_place

__all__ = ["causes_of_group", "explain"]


def explain(end: RocketEnd, reach: Reach) -> list[Cause]:
    """Ask the brokers of a topic why the group's messages wait. Raises `CannotBegin`."""
    if not end.group:
        raise CannotBegin(f"{end}: name the group, as in {end}?group=GROUP")
    asker = asker_of(reach)
    try:
        state = trio.run(group_state, [shown_place(end.host, end.port)], end.topic, end.group, asker)
    except (NobodyAnswers, GroupUnknown) as fault:
        raise CannotBegin(str(fault)) from None
    return causes_of_group(end.group, end.topic, state)


def causes_of_group(group: str, topic: str, state: GroupState) -> list[Cause]:
    """Return why a group lags in a topic; nothing if it does not."""
    behind = [each for each in state.queues if each.messages]
    lag = sum(each.messages for each in behind)
    if not lag:
        return []
    oldest_s = max(each.oldest_ms for each in behind) / 1000
    where = ", ".join(f"{each.broker_name}/{each.queue_id} ({each.messages:,})" for each in behind[:5])
    more = f" and {len(behind) - 5} more" if len(behind) > 5 else ""
    text = f"{counted(lag)} of {topic} not consumed, the oldest {oldest_s:,.0f} s old, in queues {where}{more}"
    if not state.consumers:
        return [Cause("no consumer", group, lag, f"no consumer of group {group} is connected: {text}", "start one")]
    if len(behind) < len(state.queues):
        remedy = "check the consumer of these queues: it hangs, or fails at a message that is redelivered"
    elif len(state.consumers) >= len(state.queues):
        remedy = f"check that consumers neither hang nor fail; more consumers need more queues than {len(state.queues)}"
    else:
        remedy = f"start more consumers, up to {len(state.queues)}, one for each queue; check that they do not fail"
    return [
        Cause("lag", group, lag, f"group {group}, with {len(state.consumers)} connected, is behind: {text}", remedy)
    ]
