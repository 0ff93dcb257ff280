"""One connection that speaks gRPC, without its socket: HTTP/2 by `h2`, and its calls.

A service answers calls at once or later. The peer is not trusted: the number of concurrent calls, the sizes of headers
and messages, the time without calls, the rate of useless events (cancelled calls, settings, pings, window updates), and
the waiting output are bounded. A peer that exceeds a limit, or does not send HTTP/2, gets GOAWAY, and its connection is
closed with a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from broker.common.standing import Standing
from broker.rocketmq.grpc.http2.call import Call, Fields, Limits, Nuisances, Service
from broker.rocketmq.grpc.http2.frames import HEAD_BYTES, FrameFronts
from broker.rocketmq.grpc.http2.header_blocks import BlockDecoder, BlockEncoder
from broker.rocketmq.grpc.http2.header_reader import BadHeaders, HeaderReader
from broker.rocketmq.grpc.http2.wire import (
    GrpcError,
    GrpcStatus,
    MessageReader,
    frame_message,
    status_text,
    timeout_ms,
)
from broker.rocketmq.remoting.step_time import StepTime
from formats.rocketmq.hosts import Host

__all__ = ["GrpcSession"]

log = logging.getLogger("broker.rocketmq.session")

# No more input is read while a peer leaves this much output unread; with another such amount it is given up.
_BACKLOG_BYTES: Final = 1 << 20
_OUTPUT_BYTES_MAX: Final = 64 << 20
# The size of unread answers beyond which calls are refused.
_REFUSING_BYTES: Final = 16 << 20
# Bytes passed to `h2` at once, which starts all calls in them.
_PORTION_BYTES: Final = 8 << 10
_WINDOW_OF_HTTP2: Final = 65_535
_HEADER_TABLE_BYTES_MAX: Final = 4_096
_NO_HTTP: Final = "it sent invalid HTTP/2"

# As bytes on the wire.
_STATUS: Final = b"grpc-status"
_HEADERS: Final = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity,gzip"),
)
_DONE: Final[Fields] = ((_STATUS, b"0"),)
_CONTROL: Final = (
    events.RemoteSettingsChanged,
    events.SettingsAcknowledged,
    events.PingReceived,
    events.PingAckReceived,
    events.PriorityUpdated,
    events.UnknownFrameReceived,
)


class GrpcSession:
    """A connection; `host` is the peer's. `changed` is called when there is output.

    `now_ms` is a clock that never goes back. Calls beyond the time that `step_time` allows wait for a later step. See
    `broker.rocketmq.node.Connection`.
    """

    # It holds parts of messages, and output that waits for the peer's windows.
    keeps_more = True
    # Waiting calls do not delay others.
    input_can_wait = False

    def __init__(
        self,
        session_id: int,
        host: Host,
        service: Service,
        changed: Callable[[GrpcSession], None],
        now_ms: Callable[[], int],
        limits: Limits | None = None,
        step_time: StepTime | None = None,
    ) -> None:
        self.session_id = session_id
        self.host = host
        self.reason = ""
        self.now_ms = now_ms
        self._service = service
        self._changed = changed
        self._limits = limits or Limits()
        self._calls: dict[int, Call] = {}
        # Output that waits for the peer's windows, and calls that wait for the connection's.
        self._blocked_bytes = 0
        self._waiting: dict[Call, None] = {}
        self._is_widened = self._has_new_settings = False
        # The sizes of sent data for which the peer has not widened its window, and of input that waits for the rest of
        # its message or call.
        self._unreturned_bytes = self._unread_bytes = 0
        self._heard_ms = now_ms()
        self._nuisances = Nuisances(self._limits.period_ms, self._heard_ms)
        self._fronts = FrameFronts(self._limits.headers_bytes_max)
        self._step_time = step_time
        # True while calls wait for a later step; and the size of the whole frames with them.
        self.paused = False
        self._whole_bytes = 0
        self.standing = Standing.STRANGER
        self._finished = self._is_heard = False
        self._output = bytearray()
        self._http = _make_http(self._limits)
        self._headers = HeaderReader()

    @property
    def description(self) -> str:
        return f"{self.host}#{self.session_id}"

    # -- bytes; see `broker.shell.connections.link.Machine`

    def receive(self, data: memoryview) -> int:
        """Take the whole frames at the front of `data`; return their size in bytes."""
        if self._finished:
            return len(data)
        self._heard_ms, self._is_heard = self.now_ms(), True
        begin = self._whole_bytes
        end, fault = self._fronts.take(data[begin:], self._http.max_inbound_frame_size)
        end += begin
        try:
            end = self._take_portions(data, end, may_stop=not fault)
            if self.finished:
                return len(data)
        except (ProtocolError, BadHeaders) as error:
            self._close(f"{_NO_HTTP}: {error}", None)
        if fault:
            self._close(f"{_NO_HTTP}: {fault}", ErrorCodes.FRAME_SIZE_ERROR)
        self._use_room()
        self._gather()
        return end

    def _take_portions(self, data: memoryview, end: int, *, may_stop: bool) -> int:
        """Take whole frames while the step has time; return their size in bytes.

        Raises `ProtocolError` and `BadHeaders`.
        """
        at, step_time = 0, self._step_time
        until_ns = 0 if step_time is None else step_time.begin()
        while at < end:
            portion = bytes(data[at : min(end, at + _PORTION_BYTES)])
            at += len(portion)
            for event in self._http.receive_data(portion):
                self._take(event)
                if self.finished:
                    return at
            if step_time is not None and may_stop and at < end and step_time.is_over(until_ns):
                self.paused = True
                step_time.give_way(self)
                break
        self._whole_bytes = end - at
        return at

    def go_on(self) -> None:
        self.paused = False
        self._changed(self)

    def take_output(self) -> bytearray:
        """Return the bytes to send now: none before the peer has spoken, as its protocol is unknown."""
        if not self._is_heard:
            return bytearray()
        output, self._output = self._output, bytearray()
        return output

    def output_size(self) -> int:
        """Return the size of output ready to send, without that which waits for the peer's windows."""
        return len(self._output)

    def memory_size(self) -> int:
        return len(self._output) + self._blocked_bytes + self._unread_bytes + self._fronts.block_bytes

    def output_sent(self) -> None:
        """Do nothing: a peer that only receives counts as silent."""

    @property
    def backlog_bytes_max(self) -> int:
        return _BACKLOG_BYTES

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def event_bytes_max(self) -> int:
        return HEAD_BYTES + self._http.max_inbound_frame_size

    # -- events

    def _take(self, event: object) -> None:
        if isinstance(event, events.DataReceived):
            self._take_data(event)
        elif isinstance(event, events.RequestReceived):
            self._begin(event)
        elif isinstance(event, events.StreamEnded):
            self._half_close(event.stream_id)
        elif isinstance(event, events.WindowUpdated):
            self._widen(event)
        elif isinstance(event, events.StreamReset):
            self._reset(event)
        elif isinstance(event, events.ConnectionTerminated):
            self._close("the peer ends the connection", None)
        elif isinstance(event, events.PingReceived) and self._nuisances.take_ping():
            pass
        elif isinstance(event, _CONTROL):
            if isinstance(event, events.RemoteSettingsChanged):
                self._has_new_settings = True
                # Setting its present size would cancel the notice of it to the peer.
                if self._http.encoder.header_table_size > _HEADER_TABLE_BYTES_MAX:
                    self._http.encoder.header_table_size = _HEADER_TABLE_BYTES_MAX
            self._count_control()

    def _begin(self, event: Any) -> None:
        headers = self._headers.read(event.headers)
        stream_id = event.stream_id
        if headers.get(":method") != "POST" or not headers.get("content-type", "").startswith("application/grpc"):
            status = "405" if headers.get(":method") != "POST" else "415"
            with suppress(ProtocolError):
                self._http.send_headers(stream_id, [(":status", status)], end_stream=True)
                self._reset_rest(stream_id, is_half_closed=event.stream_ended is not None)
            return
        message_bytes_max = self._limits.message_bytes_max
        call = Call(self, stream_id, headers, MessageReader("", message_bytes_max), None)
        call.half_closed = event.stream_ended is not None
        self._calls[stream_id] = call
        try:
            if "grpc-encoding" in headers:
                call.reader = MessageReader(headers["grpc-encoding"], message_bytes_max)
            if "grpc-timeout" in headers:
                call.until_ms = self.now_ms() + timeout_ms(headers["grpc-timeout"])
            if len(self._output) + self._blocked_bytes > _REFUSING_BYTES:
                raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too many answers wait until this connection takes them")
            self._service.begin(call)
        except GrpcError as error:
            self.finish(call, error.status, error.text)

    def _take_data(self, event: Any) -> None:
        if event.flow_controlled_length:
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if not event.data and event.stream_ended is None:
            self._count_control()
        call = self._calls.get(event.stream_id)
        if call is None or call.is_over:
            return
        call.half_closed = event.stream_ended is not None
        call.reader.add(event.data)
        try:
            while not call.is_over and (message := call.reader.next()) is not None:
                self._service.message(call, message)
            if call.half_closed:
                # Kept messages are taken after this, or dropped.
                return
            self._count_unread(call)
            if call.unread_bytes and self._unread_bytes > self._limits.unread_bytes_max:
                raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too many requests of this connection are not whole")
        except GrpcError as error:
            self._refuse(call, error)

    def _count_unread(self, call: Call) -> None:
        if call.is_over:
            call.reader.clear()
            call.kept_bytes = 0
        size = call.reader.size + call.kept_bytes
        self._unread_bytes += size - call.unread_bytes
        call.unread_bytes = size

    def _half_close(self, stream_id: int) -> None:
        call = self._calls.get(stream_id)
        if call is None:
            return
        call.half_closed = True
        if call.is_over:
            return
        try:
            if call.reader.size:
                raise GrpcError(GrpcStatus.INTERNAL, "the last message is not whole")
            call.kept_bytes = 0
            if call.unread_bytes:
                self._count_unread(call)
            self._service.half_closed(call)
        except GrpcError as error:
            self._refuse(call, error)

    def _refuse(self, call: Call, error: GrpcError) -> None:
        if not call.is_over:
            self.finish(call, error.status, error.text)
            self._service.cancelled(call)

    def _reset(self, event: Any) -> None:
        self._drop(event.stream_id)
        # The peer may reset the rest of an answered call's stream at will.
        if event.remote_reset and self._nuisances.add_reset(self.now_ms()) > self._limits.resets_max:
            self._close(f"it cancels more than {self._limits.resets_max} calls in a short time", _CALM)

    def _drop(self, stream_id: int) -> None:
        call = self._calls.pop(stream_id, None)
        if call is None:
            return
        was_answered, call.is_over = call.is_over, True
        self._count_unread(call)
        self._waiting.pop(call, None)
        self._blocked_bytes -= len(call.output or b"")
        call.output = None
        if not was_answered:
            self._service.cancelled(call)

    # -- abuse

    def _count_control(self) -> None:
        if self._nuisances.add_control(self.now_ms()) > self._limits.controls_max:
            text = f"it sends more than {self._limits.controls_max} frames in a short time that bring nothing"
            self._close(text, _CALM)

    # -- answers

    def send(self, call: Call, data: bytes) -> None:
        if call.is_over or self._finished:
            return
        self._add(call, data)
        self._pump(call)
        self._gather()

    def answer(self, call: Call, data: bytes) -> None:
        if call.is_over or self._finished:
            return
        self._add(call, data)
        self._end_call(call, _DONE)

    def finish(self, call: Call, status: GrpcStatus, text: str = "") -> None:
        if call.is_over or self._finished:
            return
        trailers: Fields = _DONE if status is GrpcStatus.OK else ((_STATUS, b"%d" % status),)
        if text:
            trailers += ((b"grpc-message", status_text(text).encode()),)
        self._end_call(call, trailers if call.output is not None else _HEADERS[:2] + trailers)

    def _add(self, call: Call, data: bytes) -> None:
        if call.output is None:
            call.output, call.begins = bytearray(), True
        framed = frame_message(data)
        call.output += framed
        self._blocked_bytes += len(framed)

    def _end_call(self, call: Call, trailers: Fields) -> None:
        call.is_over = True
        if call.unread_bytes or call.reader.size:
            self._count_unread(call)
        call.trailers = trailers
        self._pump(call)
        self._gather()

    def _gather(self) -> None:
        """Take the output of `h2`; give up a peer that receives too little of it."""
        self._output += self._http.data_to_send()
        waiting = len(self._output) + self._blocked_bytes
        if waiting > _OUTPUT_BYTES_MAX:
            self.give_up(f"it takes nothing of the {waiting} bytes that wait for it")
        self._changed(self)

    def _pump(self, call: Call) -> None:
        try:
            self._send_parts(call)
        except ProtocolError:
            # The peer has cancelled the call in the input just read: the event is still to come.
            self._drop(call.stream_id)

    def _send_parts(self, call: Call) -> None:
        output, http, stream_id = call.output, self._http, call.stream_id
        if call.begins:
            call.begins = False
            http.send_headers(stream_id, _HEADERS)
        while output:
            room = min(http.local_flow_control_window(stream_id), http.max_outbound_frame_size)
            if room <= 0:
                if http.outbound_flow_control_window <= 0:
                    self._waiting[call] = None
                return
            part = bytes(output[:room])
            http.send_data(stream_id, part)
            del output[:room]
            self._blocked_bytes -= len(part)
            self._unreturned_bytes += len(part)
            self._nuisances.allow_ping(self._limits.calls_max)
        if call.trailers is not None:
            http.send_headers(stream_id, call.trailers, end_stream=True)
            self._calls.pop(stream_id, None)
            self._reset_rest(stream_id, call.half_closed)

    def _reset_rest(self, stream_id: int, is_half_closed: bool) -> None:
        if not is_half_closed:
            self._http.reset_stream(stream_id, ErrorCodes.NO_ERROR)

    def _widen(self, event: Any) -> None:
        """Continue a call for which the peer has room again, or note that the connection has."""
        if event.stream_id:
            call = self._calls.get(event.stream_id)
            if call is not None and call.output:
                self._pump(call)
            return
        self._is_widened = True
        # A peer returns the room of received data, and rarely has reason to give more.
        self._unreturned_bytes -= event.delta
        if self._unreturned_bytes < 0:
            self._unreturned_bytes = 0
            self._count_control()

    def _use_room(self) -> None:
        """Continue calls that waited for a change by a read, while the connection has room."""
        if self._has_new_settings:
            self._waiting = {call: None for call in self._calls.values() if call.output}
        elif not self._is_widened:
            return
        self._is_widened = self._has_new_settings = False
        while self._waiting and self._http.outbound_flow_control_window > 0:
            call = next(iter(self._waiting))
            del self._waiting[call]
            self._pump(call)

    # -- the end

    def tick(self) -> None:
        """End calls whose time is over, and a connection without any."""
        now_ms = self.now_ms()
        for call in [each for each in self._calls.values() if each.until_ms is not None and each.until_ms <= now_ms]:
            if not call.is_over:
                self.finish(call, GrpcStatus.DEADLINE_EXCEEDED, "the time of the call is over")
                self._service.cancelled(call)
        if not self._calls and now_ms - self._heard_ms > self._limits.idle_ms:
            self._close(f"there was no call for {self._limits.idle_ms // 1000} s", ErrorCodes.NO_ERROR)

    def leave(self) -> None:
        for call in list(self._calls.values()):
            self.finish(call, GrpcStatus.UNAVAILABLE, "the broker stops")
        self._close("the broker stops", ErrorCodes.NO_ERROR)

    def _close(self, reason: str, code: ErrorCodes | None) -> None:
        """End the connection, with GOAWAY unless `h2` or the peer has sent it."""
        if self._finished:
            return
        if code is not None:
            self._http.close_connection(code)
        self._output += self._http.data_to_send()
        self._finish(reason)

    def give_up(self, reason: str) -> None:
        if not self._finished:
            self._http.clear_outbound_data_buffer()
            self._output = bytearray()
            self._finish(reason)

    def _finish(self, reason: str) -> None:
        self._finished = True
        self.reason = reason
        log.info("%s: the connection is closed: %s", self.description, reason)
        self._changed(self)

    def end(self) -> None:
        """Note that the connection is closed, and report the end of each call to the service."""
        self._finished = True
        for stream_id in list(self._calls):
            self._drop(stream_id)
        self._service.disconnected(self)


_CALM: Final = ErrorCodes.ENHANCE_YOUR_CALM


class _Configuration(H2Configuration):
    """The configuration of `h2` as plain attributes, read several times per frame."""

    client_side = False
    validate_inbound_headers = False  # see `HeaderReader`
    normalize_inbound_headers = False
    validate_outbound_headers = False
    normalize_outbound_headers = False
    split_outbound_cookies = False

    def __init__(self) -> None:
        super().__init__(
            client_side=self.client_side,
            header_encoding=None,
            validate_inbound_headers=self.validate_inbound_headers,
            normalize_inbound_headers=self.normalize_inbound_headers,
            validate_outbound_headers=self.validate_outbound_headers,
            normalize_outbound_headers=self.normalize_outbound_headers,
            split_outbound_cookies=self.split_outbound_cookies,
        )


def _make_http(limits: Limits) -> H2Connection:
    http = H2Connection(_Configuration())
    http.decoder, http.encoder = BlockDecoder(), BlockEncoder()
    http.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.calls_max,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.headers_bytes_max,
            SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
        },
    )
    http.decoder.max_header_list_size = limits.headers_bytes_max
    http.initiate_connection()
    http.increment_flow_control_window(limits.window - _WINDOW_OF_HTTP2)
    return http
