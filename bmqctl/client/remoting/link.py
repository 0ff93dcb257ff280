"""A connection over TCP under anyio: carries a machine's bytes, and hands each request its answer.

One task reads, one writes, one watches the clock. The writer sends all output since its last turn in one piece.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint
from anyio.streams.tls import TLSStream

from bmqctl.client.remoting.machine import Answered, Asked, Ended, Event, Machine, State, Unanswered
from bmqctl.common.dialing import dial_stream
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import ACCESS_KEY, SIGNATURE, sign
from formats.schema import Buffer

__all__ = ["AccessKeys", "LinkLost", "NoAnswer", "OnAnswer", "RemotingLink", "dial"]

READ_SIZE = 262_144
TICK_S = 0.25
SECOND_NS = 1_000_000_000
WATERMARK_BYTES = 4 << 20

# Gets the answer, or the reason why there is none.
OnAnswer = Callable[[Frame | str], None]


class AccessKeys(NamedTuple):
    """The name of a user, and the secret that signs requests."""

    access_key: str
    secret: str


class LinkLost(Exception):
    """The end of a connection; the text is the reason."""


class NoAnswer(Exception):
    """A request without an answer; the text is the reason."""


class RemotingLink:
    """A connection to a nameserver or a broker; `keys` sign its requests.

    `on_asked` gets the peer's own requests. Requests for which it returns False are refused, except one-way ones.
    """

    def __init__(
        self,
        stream: anyio.abc.ByteStream,
        name: str,
        keys: AccessKeys | None = None,
        on_asked: Callable[[Frame], bool] | None = None,
    ) -> None:
        self.name = name
        self._keys = keys
        self._on_asked = on_asked
        self._machine: Machine[OnAnswer] = Machine()
        self._stream = stream
        self._sending = 0
        self._wanted = anyio.Event()
        self._drained = anyio.Event()
        self._ended = anyio.Event()
        self._fault: str | None = None

    def ask(
        self, code: int, fields: Mapping[str, str] | None, on_answer: OnAnswer, timeout_s: float, body: Buffer = b""
    ) -> None:
        """Send a request. Raises `LinkLost` if the connection is over."""
        self.check()
        deadline_ns = time.monotonic_ns() + int(timeout_s * SECOND_NS)
        if self._keys is not None:
            fields = _signed(fields, body, self._keys)
        self._machine.request(code, fields, context=on_answer, deadline_ns=deadline_ns, body=body)
        self._wanted.set()

    async def call(self, code: int, fields: Mapping[str, str] | None, timeout_s: float, body: Buffer = b"") -> Frame:
        """Send a request and wait for its answer. Raises `LinkLost`, or `NoAnswer` in time."""
        done = anyio.Event()
        found: list[Frame | str] = []

        def on_answer(answer: Frame | str) -> None:
            found.append(answer)
            done.set()

        self.ask(code, fields, on_answer, timeout_s, body)
        await done.wait()
        answer = found[0]
        if isinstance(answer, str):
            self.check()
            raise NoAnswer(f"{self.name}: {answer}")
        return answer

    def notify(self, code: int, fields: Mapping[str, str] | None, body: Buffer = b"") -> None:
        """Send a one-way request. Raises `LinkLost` if the connection is over."""
        self.check()
        if self._keys is not None:
            fields = _signed(fields, body, self._keys)
        self._machine.notify(code, fields, body)
        self._wanted.set()

    @property
    def is_open(self) -> bool:
        return self._fault is None

    def check(self) -> None:
        if self._fault is not None:
            raise LinkLost(f"{self.name}: {self._fault}")

    async def drain(self) -> None:
        """Wait until fewer bytes than the watermark await the socket; always a checkpoint."""
        self.check()
        await checkpoint()
        while self._machine.pending_size + self._sending > WATERMARK_BYTES:
            await self._drained.wait()
            self.check()

    async def lost(self) -> str:
        await self._ended.wait()
        return f"{self.name}: {self._fault}"

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                group.start_soon(self._watch)
                await self._read()
                group.cancel_scope.cancel()
        finally:
            await anyio.aclose_forcefully(self._stream)

    def end(self, reason: str) -> None:
        """Give up all requests; cancel `run` afterwards."""
        self._handle(self._machine.lost(reason))

    def _handle(self, events: list[Event[OnAnswer]]) -> None:
        for event in events:
            match event:
                case Answered(on_answer, frame):
                    on_answer(frame)
                case Unanswered(on_answer, reason):
                    on_answer(reason)
                case Asked(frame):
                    if self._on_asked is None or not self._on_asked(frame):
                        self._machine.refuse(frame)
                        self._wanted.set()
                case Ended(reason):
                    self._fault = reason
                    self._ended.set()
                    self._drained.set()

    async def _read(self) -> None:
        # A node that expects TLS closes a plain connection without a reason.
        advice = "" if isinstance(self._stream, TLSStream) else "; it may expect TLS"
        while self._machine.state is State.OPEN:
            try:
                data = await self._stream.receive(READ_SIZE)
            except anyio.EndOfStream:
                self.end(f"the peer closed the connection{advice}")
                return
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as fault:
                self.end(f"connection lost: {fault.__cause__ or type(fault).__name__}{advice}")
                return
            advice = ""
            self._handle(self._machine.receive(data))

    async def _write(self) -> None:
        while True:
            data = self._machine.data_to_send()
            if not data:
                self._wanted = anyio.Event()
                await self._wanted.wait()
                continue
            self._sending = len(data)
            try:
                await self._stream.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the reader finds out why
            self._sending = 0
            self._drained.set()
            self._drained = anyio.Event()

    async def _watch(self) -> None:
        while True:
            deadline_ns = self._machine.deadline_ns
            wait_s = TICK_S if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / SECOND_NS
            await anyio.sleep(min(max(wait_s, 0.0), TICK_S))
            self._handle(self._machine.tick(time.monotonic_ns()))


def _signed(fields: Mapping[str, str] | None, body: Buffer, keys: AccessKeys) -> dict[str, str]:
    whole = {**(fields or {}), ACCESS_KEY: keys.access_key}
    return {**whole, SIGNATURE: sign(whole, body, keys.secret)}


async def dial(
    host: str,
    port: int,
    timeout_s: float,
    *,
    tls: ssl.SSLContext | None = None,
    keys: AccessKeys | None = None,
    on_asked: Callable[[Frame], bool] | None = None,
) -> RemotingLink:
    """Connect; `run` the link afterwards. Raises `OSError` if nobody listens there, answers in time, or is trusted."""
    stream = await dial_stream(host, port, timeout_s, tls)
    return RemotingLink(stream, f"{host}:{port}", keys, on_asked)
