"""Messages that come a second time: known while they are here and for a while after, and not longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.bmq.core.history import CHUNK_BYTES, TAIL_BYTES, History
from formats.bmq.codes import AckStatus
from formats.bmq.guid import GUID_SIZE
from tests.broker.bmq.rig import ACK, DOMAINS, READ, WRITE, Rig, guid, start

QUEUE = "bmq://priority/q"


def of(ticks: int, producer: int = 1) -> bytes:
    """The GUID of a producer's message."""
    return b"\x40\0\0" + ticks.to_bytes(7, "big") + producer.to_bytes(6, "big")


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), max_size=200), st.integers(1, 200))
def test_it_knows_all_that_are_gone(posts: list[tuple[int, int]], here: int) -> None:
    """Posts in any order; all but the last few are gone."""
    history = History(1000)
    known: list[bytes] = []
    for each in (of(*post) for post in posts):
        if each in known[-here:]:
            continue  # the queue itself knows what is here
        assert history.is_new(each) is (each not in known)
        if each not in known:
            known.append(each)
            if len(known) > here:
                history.add(known[-1 - here], 1)


def test_many_are_known_in_any_order() -> None:
    history = History(1000)
    count = CHUNK_BYTES // GUID_SIZE * 2 + TAIL_BYTES
    for number in range(count):
        history.add(of(number), number)
    assert history.is_new(of(count))
    assert history.size == count
    for number in (*range(0, count, 9973), count - 1):
        assert not history.is_new(of(number))
    assert history.is_new(of(7, producer=3))
    # GUIDs added after the index was made are found, too, but only whole ones.
    history.add(of(5, producer=4), count)
    assert history.is_new(of(6, producer=4))
    assert not history.is_new(of(5, producer=4))
    shifted = (of(1, 9) + of(2, 9))[1:17]
    history.add(of(1, 9), count)
    history.add(of(2, 9), count)
    assert history.is_new(shifted)
    assert history.is_new(shifted)


def test_they_are_forgotten_in_time() -> None:
    history = History(8000)
    assert history.is_new(of(5))
    history.add(of(5), 1000)
    history.expire(3000)
    assert not history.is_new(of(5))
    history.expire(11_500)
    assert history.size == 0
    assert history.is_new(of(5))
    for now_ms in (30_000, 50_000, 70_000):
        history.expire(now_ms)
    assert not history._latest
    assert not history._latest_before


def test_no_window_no_memory() -> None:
    history = History(0)
    assert history.is_new(of(5))
    history.add(of(5), 1)
    assert history.size == 0
    assert history.is_new(of(5))


@pytest.mark.parametrize("uri", [QUEUE, "bmq://memory/q"])
def test_a_message_posted_again_after_its_last_confirm_stays_gone(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = start()
    client = rig.connect()
    client.open(1, uri, READ | WRITE | ACK)
    client.configure(1)
    for number in (1, 2, 3):
        client.post(1, guid(number), b"data")
    assert len(client.pushes()) == 3
    client.confirm(1, guid(1), guid(2), guid(3))
    other = rig.connect()
    other.open(1, uri, WRITE | ACK)
    assert other.post(1, guid(2), b"data") is AckStatus.SUCCESS
    assert client.pushes() == []
    assert f"Duplicate PUT message queue [{uri}] from client [client:42@" in caplog.text
    # It is acknowledged even if nobody asked: its producer waits for that.
    other.put(1, guid(2), b"data", flags=0)
    assert len(other.acks()) == 1
    other.post(1, guid(4), b"data")
    assert len(client.pushes()) == 1


def test_it_may_come_again_when_the_window_is_over() -> None:
    rig: Rig = start(domains=[replace(DOMAINS["priority"], deduplication_time_ms=4000)])
    client = rig.connect()
    client.open(1, QUEUE, READ | WRITE | ACK)
    client.configure(1)
    client.post(1, guid(1), b"data")
    client.confirm(1, guid(1))
    rig.wait(3000)
    client.post(1, guid(1), b"data")
    assert len(client.pushes()) == 1
    rig.wait(7000)
    client.post(1, guid(1), b"data")
    assert len(client.pushes()) == 1


def test_expired_and_purged_messages_are_known_too() -> None:
    rig = start(domains=[replace(DOMAINS["priority"], message_ttl_s=1)])
    client = rig.connect()
    client.open(1, QUEUE, WRITE | ACK)
    client.post(1, guid(1), b"data")
    rig.wait(3000)
    assert client.post(1, guid(1), b"data") is AckStatus.SUCCESS
    assert not rig.node.queues[QUEUE].messages


def test_restored_history_knows_removed_messages() -> None:
    history = History(60_000)
    history.restore(guid(5) + guid(7), 1000)
    assert not history.is_new(guid(5))
    assert not history.is_new(guid(7))
    assert history.is_new(guid(6))
    assert history.is_new(guid(8))
    assert history.size == 2


def test_one_that_waited_for_longer_than_the_window_is_known_once_it_is_gone() -> None:
    history = History(1000)
    assert history.is_new(of(1))
    assert history.is_new(of(2))
    for now_ms in range(1000, 6000, 250):
        history.expire(now_ms)
    history.add(of(9, producer=2), 6000)
    history.add(of(2), 6000)
    history.add(of(1), 6000)
    assert not history.are_new([of(1), of(2)])
    assert not history.is_new(of(1))
    assert not history.is_new(of(2))
    history.expire(6900)
    assert not history.is_new(of(2))


def test_one_that_is_gone_is_known_for_a_whole_window_whenever_it_was_seen() -> None:
    for removed_ms in range(100, 3000, 100):
        history = History(1000)
        assert history.are_new([of(1)])
        for now_ms in range(100, removed_ms + 1000, 100):
            history.expire(now_ms)
            if now_ms == removed_ms:
                history.add(of(1), now_ms)
        assert not history.are_new([of(1)]), removed_ms
        assert not history.is_new(of(1)), removed_ms


def test_buried_messages_that_waited_for_longer_than_the_window_are_known() -> None:
    history = History(1000)
    buried = {of(1), of(2)}
    history.bury(buried)
    assert not history.are_new([of(1), of(2)])
    assert not history.is_new(of(1))
    assert not history.is_new(of(2))
    assert history.is_new(of(3))
