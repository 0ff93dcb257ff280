"""Numbers and names that clients choose: whatever they are, they serve, or are refused with a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from formats.bmq.codes import AckStatus
from formats.bmq.control.messages import CloseQueue, CloseQueueResponse, OpenQueueResponse, Status, StatusCategory
from formats.bmq.control.messages import SubQueueIdInfo as Info
from tests.broker.bmq.rig import ACK, READ, WRITE, Client, Rig, guid, handle, start

QUEUE = "bmq://priority/q"
FANOUT = "bmq://fanout/q"
INVALID = StatusCategory.INVALID_ARGUMENT
NEGATIVE = Status(category=INVALID, code=0, message="readCount, writeCount and adminCount must not be negative")


@pytest.fixture
def rig() -> Rig:
    return start()


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.connect()


@pytest.mark.parametrize("queue_id", [0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFF4])
def test_a_queue_id_with_the_highest_bit_set(client: Client, queue_id: int) -> None:
    """Messages carry it signed; the reference takes the bits for what they are."""
    client.read(queue_id, QUEUE)
    client.open(queue_id, QUEUE, WRITE | ACK)
    signed = int.from_bytes(queue_id.to_bytes(4, "big"), "big", signed=True)
    assert client.post(signed, guid(1), b"payload") is AckStatus.SUCCESS
    (push,) = client.pushes()
    assert (push.queue_id, push.payload) == (signed, b"payload")
    client.confirm(signed, guid(1))
    assert not client.node.queues[QUEUE].messages
    client.close(queue_id, QUEUE, READ | WRITE)
    assert not client.session.handles


@pytest.mark.parametrize("sub_id", [0x8000_0000, 0xFFFF_FFFF])
def test_a_sub_queue_id_with_the_highest_bit_set(client: Client, sub_id: int) -> None:
    client.open(1, FANOUT, WRITE | ACK)
    client.read(2, FANOUT, "foo", sub_id)
    client.post(1, guid(1), b"payload")
    (push,) = client.pushes()
    assert push.subscription_id == sub_id
    app = client.node.queues[FANOUT].apps["foo"]
    assert app.messages == 1
    client.confirm(2, guid(1), sub_id=int.from_bytes(sub_id.to_bytes(4, "big"), "big", signed=True))
    assert app.messages == 0


def test_two_apps_under_one_sub_queue_id(rig: Rig, client: Client) -> None:
    client.open(1, FANOUT, READ, "foo", 7)
    status = client.try_open(1, f"{FANOUT}?id=bar", READ, sub_id_info=Info(sub_id=7, app_id="bar"))
    assert status == Status(category=INVALID, code=-1, message="subId 7 is already in use for a different appId")
    queue = rig.node.queues[FANOUT]
    assert [app for app, each in queue.apps.items() if each.streams] == ["foo"]
    client.drop()
    assert not queue.is_open


def test_client_that_leaves_keeps_nothing_whatever_ids_it_used(rig: Rig) -> None:
    """A consumer that is gone must not keep its turn: others are to get all that is posted."""
    odd, steady = rig.connect(), rig.connect()
    odd.read(1, FANOUT, "foo", 7)
    odd.try_open(1, f"{FANOUT}?id=bar", READ, sub_id_info=Info(sub_id=7, app_id="bar"))
    odd.drop()
    steady.open(1, FANOUT, WRITE | ACK)
    steady.read(2, FANOUT, "foo", 1)
    for number in range(10):
        steady.post(1, guid(number), b"%d" % number)
    assert len(steady.pushes()) == 10


def test_an_app_that_is_opened_under_another_sub_queue_id_goes_by_that(client: Client) -> None:
    client.read(1, FANOUT, "foo", 7)
    client.open(1, FANOUT, READ, "foo", 8)
    client.open(2, FANOUT, WRITE | ACK)
    client.post(2, guid(1), b"payload")
    assert len(client.pushes()) == 1
    app = client.node.queues[FANOUT].apps["foo"]
    client.confirm(1, guid(1), sub_id=8)
    assert app.messages == 0
    client.close(1, f"{FANOUT}?id=foo", READ, final=False, sub_id=8, app="foo")
    client.close(1, f"{FANOUT}?id=foo", READ, final=False, sub_id=8, app="foo")
    assert not app.streams


@pytest.mark.parametrize(("flags", "changed"), [(WRITE, {"read_count": -1}), (READ, {"write_count": -(1 << 31)})])
def test_counts_that_are_negative_are_refused(client: Client, flags: int, changed: dict[str, int]) -> None:
    assert client.try_open(1, QUEUE, flags, **changed) == NEGATIVE


@pytest.mark.parametrize("changed", [{"read_count": -1}, {"admin_count": -(1 << 31)}])
def test_a_close_with_a_negative_count_closes_nothing(client: Client, changed: dict[str, Any]) -> None:
    client.open(1, QUEUE, WRITE)
    parameters = replace(handle(1, QUEUE, WRITE), **changed)
    assert client.ask(CloseQueue(handle_parameters=parameters)) == NEGATIVE
    assert client.post(1, guid(1), b"still open") is AckStatus.SUCCESS


def test_counts_as_high_as_can_be(rig: Rig, client: Client) -> None:
    most = (1 << 31) - 1
    for _ in range(3):
        assert isinstance(client.try_open(1, QUEUE, READ | WRITE, read_count=most, write_count=most), OpenQueueResponse)
    assert rig.node.queues[QUEUE].writers == 3 * most
    parameters = handle(1, QUEUE, READ | WRITE, read_count=most, write_count=most)
    for _ in range(3):
        assert client.ask(CloseQueue(handle_parameters=parameters)) == CloseQueueResponse()
    assert not rig.node.queues[QUEUE].is_open


def test_an_app_without_a_name_is_refused(client: Client) -> None:
    status = client.try_open(1, FANOUT, READ, sub_id_info=Info(sub_id=1, app_id=""))
    assert status == Status(category=INVALID, code=0, message="appId must not be empty")
