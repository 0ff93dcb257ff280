"""A connection that speaks gRPC: calls, windows, and peers that mean no good."""

from __future__ import annotations

import gzip

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, PingFrame, RstStreamFrame, SettingsFrame
from hypothesis import given
from hypothesis import strategies as st

from broker.rocketmq.grpc.http2.call import Call, Limits
from broker.rocketmq.grpc.http2.session import GrpcSession
from broker.rocketmq.grpc.http2.wire import GrpcError, GrpcStatus, MessageReader, frame_message, status_text, timeout_ms
from formats.rocketmq.hosts import Host
from tests.broker.rocketmq.grpc.http2.peer import Client


class Echo:
    """Answers with what it was sent: at once, at the end (`Late`), or never (`Never`)."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled_calls: list[Call] = []
        self.sessions: list[GrpcSession] = []
        self.kept: dict[Call, list[bytes]] = {}

    def begin(self, call: Call) -> None:
        if call.method.endswith("/Unknown"):
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "no such call: 100 % ä")
        self.calls.append(call)
        self.kept[call] = []

    def message(self, call: Call, data: bytes) -> None:
        if call.method.endswith("/Both"):
            call.send(data)
        self.kept[call].append(data)

    def half_closed(self, call: Call) -> None:
        if not call.method.endswith("/Never"):
            if not call.method.endswith("/Both"):
                for each in self.kept[call]:
                    call.send(each)
            call.finish()

    def cancelled(self, call: Call) -> None:
        self.cancelled_calls.append(call)

    def disconnected(self, session: GrpcSession) -> None:
        self.sessions.append(session)


@pytest.fixture
def echo() -> Echo:
    return Echo()


def test_a_call_is_answered_with_messages_and_a_status(echo: Echo) -> None:
    client = Client(echo)
    stream = client.call("Late", b"one", b"", b"three", x_mq_client_id="me")
    assert client.messages(stream) == [b"one", b"", b"three"]
    assert client.headers[stream][":status"] == "200"
    assert client.headers[stream]["content-type"] == "application/grpc"
    assert client.status(stream) == "0"
    assert stream in client.ended
    assert not client.reset
    assert echo.calls[0].headers["x-mq-client-id"] == "me"


def test_messages_go_both_ways_while_a_call_is_open(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Both")
    for text in (b"a", b"b"):
        client.http.send_data(stream, frame_message(text))
        client.exchange()
        assert client.messages(stream)[-1] == text
        assert client.status(stream) is None
    client.http.end_stream(stream)
    client.exchange()
    assert client.status(stream) == "0"


def test_a_message_may_come_byte_by_byte(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Late")
    for byte in frame_message(b"slow") + frame_message(b"er"):
        client.http.send_data(stream, bytes([byte]))
        client.exchange()
    client.http.end_stream(stream)
    client.exchange()
    assert client.messages(stream) == [b"slow", b"er"]


def test_a_call_that_is_not_known_is_refused_in_its_trailers(echo: Echo) -> None:
    client = Client(echo)
    stream = client.call("Unknown")
    assert client.status(stream) == "12"
    assert client.headers[stream]["grpc-message"] == "no such call: 100 %25 %C3%A4"
    assert not echo.calls


@pytest.mark.parametrize(
    ("headers", "status"),
    [({":method": "GET"}, "405"), ({"content_type": "text/html"}, "415")],
)
def test_call_that_is_not_grpc_is_refused(echo: Echo, headers: dict[str, str], status: str) -> None:
    client = Client(echo)
    stream = client.call("Late", **headers)
    assert client.headers[stream] == {":status": status}
    assert client.status(client.call("Late")) == "0"


def test_a_large_answer_waits_for_the_peers_windows(echo: Echo) -> None:
    client = Client(echo)
    client.acknowledges = False
    stream = client.call("Late", b"x" * 300_000)
    assert len(client.data[stream]) == 65_535
    assert client.status(stream) is None
    client.http.increment_flow_control_window(1 << 20)
    client.exchange()
    assert len(client.data[stream]) == 65_535
    client.http.increment_flow_control_window(100_000, stream)
    client.exchange()
    assert len(client.data[stream]) == 165_535
    # Another initial window widens all streams.
    client.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 400_000})
    client.exchange()
    assert client.messages(stream) == [b"x" * 300_000]
    assert client.status(stream) == "0"


def test_large_messages_are_taken(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Late")
    client.send(stream, b"m" * (3 << 20))
    client.http.end_stream(stream)
    client.exchange()
    assert client.messages(stream) == [b"m" * (3 << 20)]


def test_a_compressed_message_is_read(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Late", grpc_encoding="gzip")
    packed = gzip.compress(b"plain")
    client.http.send_data(stream, b"\1" + len(packed).to_bytes(4) + packed, end_stream=True)
    client.exchange()
    assert client.messages(stream) == [b"plain"]
    assert client.status(client.call("Late", grpc_encoding="snappy")) == "12"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\0\xff\xff\xff\xff", "8"),
        (b"\2\0\0\0\0", "13"),
        (b"\1\0\0\0\1x", "13"),
        (b"\0\0\0\0\5ab", "13"),
    ],
)
def test_messages_that_cannot_be_end_their_call_only(echo: Echo, data: bytes, status: str) -> None:
    client = Client(echo)
    stream = client.open("Late")
    client.http.send_data(stream, data, end_stream=True)
    client.exchange()
    assert client.status(stream) == status
    assert echo.cancelled_calls == [echo.calls[0]]
    assert client.status(client.call("Late")) == "0"


def test_a_small_message_does_not_become_a_large_one() -> None:
    packed = gzip.compress(b"0" * 100_000)
    reader = MessageReader("gzip", 1_000)
    reader.add(b"\1" + len(packed).to_bytes(4) + packed)
    with pytest.raises(GrpcError, match="more than 1000 bytes"):
        reader.next()


def test_the_halves_of_messages_have_a_bound_together(echo: Echo) -> None:
    client = Client(echo, Limits(unread_bytes_max=10_000))
    streams = [client.open("Late") for _ in range(3)]
    for stream in streams:
        client.http.send_data(stream, b"\0\0\0\x20\0" + b"x" * 4_000)
        client.exchange()
    assert [client.status(stream) for stream in streams] == [None, None, "8"]


def test_a_call_that_takes_too_long_is_ended(echo: Echo) -> None:
    client = Client(echo)
    late = client.call("Never", b"x", grpc_timeout="2S")
    longer = client.call("Never", b"x", grpc_timeout="1H")
    client.ms += 1_999
    client.session.tick()
    assert not echo.cancelled_calls
    client.ms += 1
    client.session.tick()
    client.exchange()
    assert client.status(late) == "4"
    assert client.status(longer) is None
    assert [call.stream_id for call in echo.cancelled_calls] == [late]


def test_a_cancelled_call_is_not_answered(echo: Echo) -> None:
    client = Client(echo)
    stream = client.call("Never", b"x")
    client.http.reset_stream(stream, ErrorCodes.CANCEL)
    client.exchange()
    (call,) = echo.cancelled_calls
    assert call.is_over
    call.send(b"late")
    call.finish()
    client.exchange()
    assert stream not in client.data
    assert client.status(client.call("Late")) == "0"


def test_a_call_that_is_cancelled_in_the_same_breath_ends_no_other(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Late")
    client.http.send_data(stream, frame_message(b"x"), end_stream=True)
    client.http.reset_stream(stream, ErrorCodes.CANCEL)
    client.exchange()
    assert not client.is_over()
    assert client.status(client.call("Late", b"y")) == "0"


def test_an_answer_before_the_end_of_the_question_resets_the_rest(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Unknown")
    client.exchange()
    assert client.status(stream) == "12"
    assert client.reset == {stream: ErrorCodes.NO_ERROR}


def test_a_time_without_calls_ends_the_connection(echo: Echo) -> None:
    client = Client(echo)
    stream = client.call("Never", b"x")
    client.ms += 200_000
    client.session.tick()
    assert not client.is_over()
    client.http.reset_stream(stream)
    client.exchange()
    client.ms += 120_001
    client.session.tick()
    client.exchange()
    assert client.is_over()
    assert client.goaway == ErrorCodes.NO_ERROR
    assert "no call" in client.session.reason


def test_the_stop_is_told(echo: Echo) -> None:
    client = Client(echo)
    stream = client.call("Never", b"x")
    client.session.leave()
    client.exchange()
    assert client.status(stream) == "14"
    assert client.goaway == ErrorCodes.NO_ERROR
    assert client.is_over()


def test_the_end_of_a_connection_cancels_its_calls(echo: Echo) -> None:
    client = Client(echo)
    client.call("Never", b"x")
    client.session.end()
    assert echo.cancelled_calls == echo.calls
    assert echo.sessions == [client.session]


# -- peers that mean no good


def raw(client: Client, data: bytes) -> None:
    client.session.receive(memoryview(data))
    for event in client.http.receive_data(bytes(client.session.take_output())):
        client._take(event)


def test_client_that_cancels_every_call_is_disconnected(echo: Echo) -> None:
    client = Client(echo)
    for _ in range(501):
        stream = client.open("Never")
        client.http.reset_stream(stream, ErrorCodes.CANCEL)
        client.exchange()
    assert client.is_over()
    assert client.goaway == ErrorCodes.ENHANCE_YOUR_CALM
    assert "cancels more than 500" in client.session.reason
    assert len(echo.cancelled_calls) == len(echo.calls) > 490


def test_client_that_cancels_some_calls_stays(echo: Echo) -> None:
    client = Client(echo)
    for _ in range(1_200):
        stream = client.open("Never")
        client.http.reset_stream(stream, ErrorCodes.CANCEL)
        client.exchange()
        client.ms += 100
    assert not client.is_over()


@pytest.mark.parametrize(
    "frame", [PingFrame(0, b"12345678"), SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 70_000})]
)
def test_floods_are_ended(echo: Echo, frame: PingFrame | SettingsFrame) -> None:
    client = Client(echo)
    for _ in range(30):
        if client.is_over():
            break
        client.session.receive(memoryview(frame.serialize() * 100))
        client.session.take_output()
    assert client.is_over()
    assert "bring nothing" in client.session.reason


def test_a_ping_for_each_answer_is_no_flood(echo: Echo) -> None:
    client = Client(echo, Limits(controls_max=50))
    for _ in range(200):
        client.call("Late", b"x")
        client.http.ping(b"12345678")
        client.exchange()
    assert not client.is_over()
    raw(client, PingFrame(0, b"12345678").serialize() * 51)
    assert client.is_over()


def test_unused_pings_give_no_right_to_a_flood(echo: Echo) -> None:
    client = Client(echo, Limits(calls_max=20, controls_max=50))
    for _ in range(200):
        client.call("Late", b"x")
    raw(client, PingFrame(0, b"12345678").serialize() * 71)
    assert client.is_over()


def test_empty_data_without_end_is_a_flood(echo: Echo) -> None:
    client = Client(echo)
    stream = client.open("Late")
    client.exchange()
    raw(client, DataFrame(stream).serialize() * 2_001)
    assert client.is_over()
    assert client.goaway == ErrorCodes.ENHANCE_YOUR_CALM


def test_too_many_calls_at_a_time_end_the_connection(echo: Echo) -> None:
    client = Client(echo, Limits(calls_max=3))
    client.http.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 10
    client.http.remote_settings.acknowledge()
    for _ in range(4):
        client.open("Never")
    client.exchange()
    assert client.is_over()
    assert len(echo.calls) <= 3


def test_headers_have_a_bound(echo: Echo) -> None:
    client = Client(echo)
    client.open("Late", big="x" * 20_000)
    client.exchange()
    assert client.is_over()
    assert client.goaway is not None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        bytes(range(256)),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0",
    ],
)
def test_other_protocols_are_sent_away(echo: Echo, data: bytes) -> None:
    session = GrpcSession(1, Host("127.0.0.1", 5), echo, lambda _: None, lambda: 0)
    session.receive(memoryview(data))
    session.receive(memoryview(bytes(64)))
    assert session.finished
    assert "invalid HTTP/2" in session.reason


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_are_a_fault_of_ours(pieces: list[bytes]) -> None:
    echo = Echo()
    client = Client(echo)
    stream = client.open("Both")
    client.exchange()
    kinds = (DataFrame(stream), RstStreamFrame(stream))
    for number, piece in enumerate(pieces):
        head = kinds[number % 2].serialize() if number % 3 == 0 else b""
        client.session.receive(memoryview(head + piece))
        client.session.take_output()
    client.session.tick()
    client.session.end()
    assert len(echo.cancelled_calls) <= len(echo.calls)


@pytest.mark.parametrize(
    ("text", "ms"), [("1H", 3_600_000), ("2M", 120_000), ("3S", 3_000), ("3010m", 3_010), ("5000u", 5), ("1n", 0)]
)
def test_time_outs(text: str, ms: int) -> None:
    assert timeout_ms(text) == ms


@pytest.mark.parametrize("text", ["", "S", "1", "123456789S", "-1S", "1.5S", "1s", "²S"])
def test_time_outs_that_are_none(text: str) -> None:
    with pytest.raises(GrpcError):
        timeout_ms(text)


def test_a_call_with_no_time_out_that_can_be_is_refused(echo: Echo) -> None:
    client = Client(echo)
    assert client.status(client.call("Late", grpc_timeout="soon")) == "3"
    assert not echo.calls


def test_status_texts_are_plain() -> None:
    assert status_text("a%b\nc") == "a%25b%0Ac"
