"""The confirms that a hop keeps for its next upstream, and how many of them."""

from __future__ import annotations

from broker.bmq.relay.confirms import SENT_CONFIRMS_MAX, UNKNOWN_CONFIRMS_MAX, Confirms
from broker.bmq.relay.handles.client_handles import ClientHandles
from broker.common.clock import Now
from broker.common.timers import Timers
from tests.broker.bmq.rig import guid

QUEUE_ID = 5
APP = "__default"


def confirms_without_upstream() -> Confirms:
    now, timers = Now(ms=1000), Timers()
    return Confirms(QUEUE_ID, ClientHandles("bmq://d/q", QUEUE_ID), now, timers)


def fill(confirms: Confirms, most: int) -> int:
    """Send confirms of unknown messages while there is room, up to `most`; return their number."""
    count = 0
    while count < most and confirms.has_room_for(1):
        confirms.send(APP, (guid(count),))
        count += 1
    return count


def test_confirms_of_unknown_messages_are_kept_up_to_a_number() -> None:
    confirms = confirms_without_upstream()
    assert fill(confirms, 1 << 20) == UNKNOWN_CONFIRMS_MAX + SENT_CONFIRMS_MAX


def test_confirms_that_are_sent_again_take_no_room_from_those_of_unknown_messages() -> None:
    confirms = confirms_without_upstream()
    confirms.inherit((1000, guid(each), APP) for each in range(SENT_CONFIRMS_MAX))
    confirms.begin_resending()
    assert fill(confirms, 1 << 20) == UNKNOWN_CONFIRMS_MAX
