"""Messages of one kind share an event, in the order of the decisions."""

from __future__ import annotations

from broker.bmq.session.outbox import EVENT_BYTES_SOFT, Outbox
from formats.bmq.codes import EventType
from formats.bmq.wire.event import HEARTBEAT_RESPONSE, build_event, iter_frames


def kinds(data: bytes) -> list[tuple[EventType, bytes]]:
    return [(EventType(frame.type), data[frame.body : frame.end]) for frame in iter_frames(data, 0, len(data), 1 << 30)]


def test_nothing_was_sent() -> None:
    assert Outbox().take() == b""


def test_messages_of_one_kind_share_an_event() -> None:
    out = Outbox()
    for word in (b"1111", b"2222"):
        data = out.event(EventType.PUT)
        data += word
    data = out.event(EventType.REJECT, b"head")
    data += b"3333"
    data = out.event(EventType.PUT)
    data += b"4444"
    assert kinds(bytes(out.take())) == [
        (EventType.PUT, b"11112222"),
        (EventType.REJECT, b"head3333"),
        (EventType.PUT, b"4444"),
    ]
    assert out.take() == b""


def test_acks_and_confirms_are_gathered_beside_what_takes_turns_with_them() -> None:
    for kind, other in ((EventType.ACK, EventType.PUSH), (EventType.CONFIRM, EventType.PUT)):
        out = Outbox()
        for word in (b"1111", b"2222"):
            data = out.event(kind, b"head")
            data += word
            data = out.event(other)
            data += word
        assert out.size == len(build_event(kind, b"head11112222") + build_event(other, b"11112222"))
        assert kinds(bytes(out.take())) == [(other, b"11112222"), (kind, b"head11112222")]
        assert out.size == 0


def test_acks_and_confirms_are_not_mixed() -> None:
    out = Outbox()
    for kind in (EventType.ACK, EventType.CONFIRM, EventType.ACK):
        data = out.event(kind, b"head")
        data += b"1111"
    assert [kind for kind, _ in kinds(bytes(out.take()))] == [EventType.ACK, EventType.CONFIRM, EventType.ACK]


def test_whole_events_keep_their_place() -> None:
    out = Outbox()
    data = out.event(EventType.ACK, b"head")
    data += b"1111"
    out.whole(HEARTBEAT_RESPONSE)
    data = out.event(EventType.ACK, b"head")
    data += b"2222"
    assert out.take() == build_event(EventType.ACK, b"head1111") + HEARTBEAT_RESPONSE + build_event(
        EventType.ACK, b"head2222"
    )


def test_taken_output_is_whole() -> None:
    out = Outbox()
    data = out.event(EventType.ACK, b"head")
    data += b"1111"
    assert out.take() == build_event(EventType.ACK, b"head1111")
    data = out.event(EventType.ACK, b"head")
    data += b"2222"
    assert out.take() == build_event(EventType.ACK, b"head2222")


def test_a_long_event_is_closed() -> None:
    out = Outbox()
    for _ in range(3):
        data = out.event(EventType.PUSH)
        data += bytes(EVENT_BYTES_SOFT // 2)
    lengths = [len(body) for _, body in kinds(bytes(out.take()))]
    assert lengths == [EVENT_BYTES_SOFT, EVENT_BYTES_SOFT // 2]
