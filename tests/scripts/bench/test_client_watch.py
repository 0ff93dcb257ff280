"""A session of the official client whose queue the client gives up, and one whose broker refuses it."""

from __future__ import annotations

import threading

import blazingmq
from blazingmq import session_events

from scripts.judges.client_watch import ClientWatch
from tests.waiting import WAIT_S

QUEUE = "bmq://domain/queue"


def test_a_queue_that_the_client_gave_up_is_opened_again() -> None:
    opened, tried = threading.Event(), []

    def reopen() -> None:
        tried.append(watch.is_cut_off)
        if len(tried) == 1:
            raise blazingmq.Error("not now")
        opened.set()

    watch = ClientWatch(reopen)
    watch.on_event(session_events.ConnectionLost(None))
    cut_off = [watch.is_cut_off]
    watch.on_event(session_events.Reconnected(None))
    watch.on_event(session_events.QueueReopenFailed(QUEUE, "Failed to send: NOT_CONNECTED (-3)"))
    watch.on_event(session_events.StateRestored(None))
    assert opened.wait(WAIT_S)
    watch.end()
    assert tried == [True, True]
    assert [*cut_off, watch.is_cut_off] == [True, False]
    assert not watch.refused
    assert watch.events == ["ConnectionLost", "Reconnected", "QueueReopenFailed", "StateRestored"]


def test_a_queue_that_a_broker_refuses_is_not_opened_again() -> None:
    watch = ClientWatch(lambda: None)
    watch.on_event(session_events.QueueReopenFailed(QUEUE, "no such domain: REFUSED (-6)"))
    assert watch.refused == [f"<QueueReopenFailed: {QUEUE} no such domain: REFUSED (-6)>"]
    assert not watch.is_cut_off


def test_it_ends_though_the_queue_cannot_be_opened() -> None:
    tried = threading.Event()

    def reopen() -> None:
        tried.set()
        raise blazingmq.Error("never")

    watch = ClientWatch(reopen)
    watch.on_event(session_events.QueueReopenFailed(QUEUE, "NOT_CONNECTED (-3)"))
    assert tried.wait(WAIT_S)
    cut_off = [watch.is_cut_off]
    watch.end()
    assert [*cut_off, watch.is_cut_off] == [True, False]
