"""Confirms of messages that a root has not got."""

from __future__ import annotations

from broker.bmq.queue.unknown_confirms import CONFIRMS_KEPT_MAX, CONFIRMS_KEPT_MS, UnknownConfirms
from formats.bmq.codes import AckStatus
from tests.broker.bmq.rig import ACK, APPS, READ, WRITE, guid, start


def test_the_latest_are_kept() -> None:
    confirms = UnknownConfirms()
    for number in range(CONFIRMS_KEPT_MAX + 3):
        confirms.add(7, guid(number), "foo")
    kept = confirms.since(0)
    assert len(kept) == CONFIRMS_KEPT_MAX
    assert (kept[0], kept[-1]) == ((7, guid(3), "foo"), (7, guid(CONFIRMS_KEPT_MAX + 2), "foo"))


def test_those_of_long_ago_are_forgotten_when_others_come() -> None:
    confirms = UnknownConfirms()
    confirms.add(0, guid(0), "foo")
    confirms.add(1, guid(1), "bar")
    assert confirms.since(0) == [(1, guid(1), "bar")]
    confirms.add(CONFIRMS_KEPT_MS, guid(2), "foo")
    assert confirms.since(-1) == [(1, guid(1), "bar"), (CONFIRMS_KEPT_MS, guid(2), "foo")]


def test_which_apps_were_done_with_a_message_before_it_came() -> None:
    confirms = UnknownConfirms()
    for app in ("foo", "bar", "foo"):
        confirms.add(1, guid(1), app)
    assert confirms.apps_of(2, guid(1)) == ["foo", "bar", "foo"]
    assert confirms.apps_of(CONFIRMS_KEPT_MS + 1, guid(1)) == ()
    for number in range(CONFIRMS_KEPT_MAX + 1):
        confirms.add(7, guid(number), "foo")
    assert (confirms.apps_of(7, guid(0)), confirms.apps_of(7, guid(1))) == ((), ["foo"])


def test_an_app_does_not_get_a_message_whose_confirm_came_first() -> None:
    """One hop had it from the last primary, which another's post had reached."""
    rig = start()
    consumers = {app: rig.connect() for app in APPS}
    for app, consumer in consumers.items():
        consumer.open(1, "bmq://fanout/q", READ, app, 1)
        consumer.configure(1, app)
    consumers[APPS[0]].confirm(1, guid(1), sub_id=1)
    producer = rig.connect()
    producer.open(1, "bmq://fanout/q", WRITE | ACK)
    assert producer.post(1, guid(1), b"1") is AckStatus.SUCCESS
    assert consumers[APPS[0]].pushes() == []
    for app in APPS[1:]:
        assert [push.guid for push in consumers[app].pushes()] == [guid(1)]
        consumers[app].confirm(1, guid(1), sub_id=1)
    assert list(rig.node.queues["bmq://fanout/q"].messages) == []
    assert list(rig.restart().node.queues["bmq://fanout/q"].messages) == []
