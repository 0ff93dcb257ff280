"""Bounds of a connection that speaks gRPC: what waits to be sent, windows, tables of headers, halves of messages."""

from __future__ import annotations

import pytest
from h2.settings import SettingCodes
from hyperframe.frame import WindowUpdateFrame

from broker.rocketmq.grpc.http2 import session as sessions
from broker.rocketmq.grpc.http2.call import Call, Limits
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.http2.wire import frame_message
from tests.broker.rocketmq.grpc.http2.peer import Client
from tests.broker.rocketmq.grpc.http2.test_session import Echo

WINDOW_MAX = (1 << 31) - 1


@pytest.fixture
def echo() -> Echo:
    return Echo()


def with_wide_windows(echo: Echo) -> Client:
    """A client that lets the broker send whatever there is."""
    client = Client(echo)
    client.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_MAX})
    client.http.increment_flow_control_window(WINDOW_MAX - 65_535)
    client.exchange()
    return client


def test_waiting_output_is_counted(echo: Echo) -> None:
    client = with_wide_windows(echo)
    client.call("Never", b"x")
    (call,) = echo.calls
    call.send(bytes(100_000))
    assert client.session.output_size() > 100_000
    call.finish()
    size = client.session.output_size()
    assert len(client.session.take_output()) == size
    assert client.session.output_size() == 0


def test_answers_during_a_read_are_counted(echo: Echo) -> None:
    client = with_wide_windows(echo)
    stream = client.open("Late")
    client.http.send_data(stream, frame_message(bytes(10_000)), end_stream=True)
    client.session.receive(memoryview(client.http.data_to_send()))
    assert client.session.output_size() > 10_000


def test_peer_that_reads_nothing_is_disconnected(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_OUTPUT_BYTES_MAX", 1 << 20)
    client = with_wide_windows(echo)
    client.call("Never", b"x")
    for _ in range(10):
        echo.calls[0].send(bytes(90_000))
    assert not client.is_over()
    for _ in range(2):
        echo.calls[0].send(bytes(90_000))
    assert client.is_over()
    assert "takes nothing" in client.session.reason
    assert client.session.output_size() == 0


def test_output_that_waits_for_windows_and_for_the_link_has_one_bound(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_OUTPUT_BYTES_MAX", 100_000)
    client = Client(echo)
    client.call("Never", b"x")
    echo.calls[0].send(bytes(60_000))
    echo.calls[0].send(bytes(39_000))
    assert not client.is_over()
    echo.calls[0].send(bytes(2_000))
    assert client.is_over()


# -- frames


def head(length: int, kind: int, flags: int = 0, stream: int = 1) -> bytes:
    return length.to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)


@pytest.mark.parametrize("kind", range(12))
def test_an_overlong_frame_is_refused_when_its_head_is_there(echo: Echo, kind: int) -> None:
    client = Client(echo)
    whole = head(16_385, kind)
    assert client.session.receive(memoryview(whole[:8])) == 0
    assert not client.is_over()
    client.session.receive(memoryview(whole))
    assert client.is_over()
    assert "16385" in client.session.reason


def test_calls_before_an_overlong_frame_are_taken(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Never")
    client.http.send_data(stream, frame_message(b"x"), end_stream=True)
    client.session.receive(memoryview(client.http.data_to_send() + head(1 << 20, 0)))
    assert len(echo.calls) == 1
    assert client.is_over()


def test_a_block_of_headers_that_goes_on_is_refused(echo: Echo) -> None:
    client = Client(echo)
    session = client.session
    session.receive(memoryview(head(10_000, 1) + bytes(10_000)))
    assert session.memory_size() >= 10_000
    assert not client.is_over()
    session.receive(memoryview(head(10_000, 9) + bytes(10_000)))
    assert client.is_over()


def test_a_frame_in_pieces_stays_with_the_link(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Late")
    client.http.send_data(stream, frame_message(bytes(5_000)), end_stream=True)
    data = client.http.data_to_send()
    held = b""
    for at in range(0, len(data), 700):
        held += data[at : at + 700]
        held = held[client.session.receive(memoryview(held)) :]
        assert len(held) <= client.session.event_bytes_max
    assert held == b""
    client.exchange()
    assert client.messages(stream)


def test_memory_of_a_peer_is_counted(echo: Echo) -> None:
    client = Client(echo)
    before = client.session.memory_size()
    stream = client.open("Late")
    client.http.send_data(stream, frame_message(bytes(9_000))[:8_000])
    client.exchange()
    assert client.session.memory_size() == before + 8_000
    client.http.reset_stream(stream)
    client.exchange()
    assert client.session.memory_size() == before


def test_calls_are_refused_while_too_many_answers_wait(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_REFUSING_BYTES", 100_000)
    client = Client(echo)
    client.call("Never", b"x")
    echo.calls[0].send(bytes(200_000))
    stream = client.call("Never", b"x")
    assert client.headers[stream]["grpc-status"] == "8"
    assert len(echo.calls) == 1
    assert not client.is_over()


# -- windows


class Counted(GrpcSession):
    """Counts how often it goes on with a call."""

    pumped = 0

    def _pump(self, call: Call) -> None:
        self.pumped += 1
        super()._pump(call)


def blocked(echo: Echo, monkeypatch: pytest.MonkeyPatch, window: int) -> tuple[Client, Counted]:
    """A client with twenty answers for which its windows have no room."""
    monkeypatch.setattr("tests.broker.rocketmq.grpc.http2.peer.GrpcSession", Counted)
    client = Client(echo)
    client.acknowledges = False
    client.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    client.exchange()
    for _ in range(20):
        client.call("Late", bytes(10_000))
    session = client.session
    assert isinstance(session, Counted)
    session.pumped = 0
    return client, session


def updates(count: int, increment: int = 1) -> memoryview:
    frame = WindowUpdateFrame(0)
    frame.window_increment = increment
    return memoryview(frame.serialize() * count)


def test_a_wider_connection_is_no_work_for_calls_that_wait_for_their_own_windows(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, session = blocked(echo, monkeypatch, window=0)
    session.receive(updates(100))
    assert session.pumped == 0
    assert not client.is_over()


def test_a_wider_connection_is_used_once_a_read(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    client, session = blocked(echo, monkeypatch, window=70_000)
    assert sum(map(len, client.data.values())) == 65_535
    session.receive(updates(100))
    # The hundred bytes go to the first call that waits.
    assert session.pumped == 1
    client.http.increment_flow_control_window(1 << 20)
    client.exchange()
    assert [client.status(stream) for stream in client.headers] == ["0"] * 20


def test_windows_that_are_made_wider_for_nothing_are_a_flood(echo: Echo) -> None:
    client = Client(echo)
    for _ in range(21):
        client.session.receive(updates(100))
    assert client.is_over()
    assert "bring nothing" in client.session.reason


def test_peer_that_opens_its_window_piece_by_piece_stays(echo: Echo) -> None:
    client = with_wide_windows(echo)
    client.acknowledges = False
    client.call("Late", bytes(300_000))
    for _ in range(29):
        client.session.receive(updates(100, increment=100))
    assert not client.is_over()


# -- tables of headers


def test_the_table_of_headers_grows_for_nobody(echo: Echo) -> None:
    client = Client(echo)
    client.http.update_settings({SettingCodes.HEADER_TABLE_SIZE: (1 << 32) - 1})
    client.exchange()
    for number in range(100):
        stream = client.call("Unknown" if number % 2 else "Late", b"x")
        assert client.status(stream) is not None
    assert client.session._http.encoder.header_table_size == 4_096
    client.http.update_settings({SettingCodes.HEADER_TABLE_SIZE: 100})
    client.exchange()
    assert client.session._http.encoder.header_table_size == 100
    assert client.status(client.call("Late", b"x")) == "0"


# -- halves of messages


def half(client: Client, size: int, method: str = "Late") -> int:
    stream = client.open(method)
    client.http.send_data(stream, b"\0\0\0\x40\0" + bytes(size))
    client.exchange()
    return stream


def test_halves_of_messages_of_calls_that_are_over_are_not_kept(echo: Echo) -> None:
    client = Client(echo, Limits(unread_bytes_max=10_000))
    for _ in range(5):
        client.http.reset_stream(half(client, 6_000))
        client.exchange()
    for _ in range(5):
        half(client, 6_000)
        echo.calls[-1].finish()
        client.exchange()
    kept = half(client, 6_000)
    assert client.status(kept) is None
    assert client.status(half(client, 6_000)) == "8"
    # Complete messages are not counted, either.
    client.http.send_data(kept, bytes((0x40 << 8) - 6_000), end_stream=True)
    client.exchange()
    assert client.status(kept) == "0"
    assert client.status(half(client, 6_000)) is None


def test_a_call_that_is_over_keeps_nothing_of_its_question_while_its_answer_waits(echo: Echo) -> None:
    client = Client(echo)
    client.acknowledges = False
    half(client, 6_000)
    (call,) = echo.calls
    call.send(bytes(100_000))
    call.finish()
    assert call.reader.size == 0


def test_a_call_may_have_a_smaller_bound_on_its_messages(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(call: Call) -> None:
        Echo.begin(echo, call)
        call.bound_messages(1_000)

    monkeypatch.setattr(echo, "begin", begin)
    client = Client(echo)
    assert client.status(client.call("Late", bytes(1_000))) == "0"
    assert client.status(client.call("Late", bytes(1_001))) == "8"
