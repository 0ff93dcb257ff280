"""The yardstick: a relay that moves a broker's bytes without interpreting them.

It runs under trio in place of the broker. A producer's bytes go to the consumer as they come; each whole message
returns bytes of an ACK's size to the producer, and the consumer returns bytes of a CONFIRM's. The frames have the sizes
of the official client's and a broker's, so that a broker's figures divided by the relay's compare between machines.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

import trio

__all__ = ["CONFIRM_EVENT_SIZE", "CONSUMER", "PRODUCER", "ack_event", "frame_size", "serve", "take_acks"]

READ_SIZE = 65536
PRODUCER, CONSUMER = b"P", b"C"
# Event header and ack header, followed by one entry for each message (bmqp::EventHeader, AckHeader, AckMessage).
ACK_HEAD_SIZE = 12
ACK_SIZE = 24
# The official client confirms each message in an event of its own (bmqp::ConfirmHeader, ConfirmMessage).
CONFIRM_EVENT_SIZE = 36
_EVENT_AND_PUT_HEADER_SIZE = 44


def frame_size(payload_size: int) -> int:
    """The size of a PUT event with one message: headers, payload, and padding of 1 to 4 bytes."""
    return _EVENT_AND_PUT_HEADER_SIZE + payload_size + 4 - payload_size % 4


def ack_event(messages: int) -> bytes:
    """Make bytes of the size of an ACK event for `messages` messages; the first four contain that number."""
    return messages.to_bytes(4, "big") + bytes(ACK_HEAD_SIZE - 4 + ACK_SIZE * messages)


def take_acks(received: bytearray) -> int:
    """Remove whole ack events from `received`; return the number of messages that they answer."""
    messages = at = 0
    while len(received) - at >= ACK_HEAD_SIZE:
        count = int.from_bytes(received[at : at + 4], "big")
        size = ACK_HEAD_SIZE + ACK_SIZE * count
        if len(received) - at < size:
            break
        at += size
        messages += count
    del received[:at]
    return messages


class _Relay:
    """One producer, one consumer."""

    def __init__(self, frame: int) -> None:
        self.frame = frame
        self.consumer: trio.SocketStream | None = None
        self.ready = trio.Event()

    async def handle(self, stream: trio.SocketStream) -> None:
        try:
            role = await stream.receive_some(1)
            if role == PRODUCER:
                await self.forward(stream)
            elif role == CONSUMER:
                self.consumer = stream
                self.ready.set()
                while await stream.receive_some(READ_SIZE):
                    pass  # confirms
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the other side has gone

    async def forward(self, producer: trio.SocketStream) -> None:
        await self.ready.wait()
        consumer = self.consumer
        assert consumer is not None
        part = 0
        while data := await producer.receive_some(READ_SIZE):
            messages, part = divmod(part + len(data), self.frame)
            await consumer.send_all(data)
            if messages:
                await producer.send_all(ack_event(messages))


def serve(payload_size: int, pipe: Connection) -> None:
    """Relay until killed, after sending the port on `pipe`."""

    async def main() -> None:
        relay = _Relay(frame_size(payload_size))
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        pipe.send(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(relay.handle, listeners)

    trio.run(main)
