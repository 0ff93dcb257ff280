"""Hold back the output of a node with SYNC_FLUSH until its messages are on the disk.

All output waits until the log is on the disk, up to its end at that time. Flushes run beside the loop, one at a time;
messages written meanwhile go with the next one (group commit).

A slow disk must not silence the node: after `timeout_ms` output is sent all the same, with answers to senders turned
into FLUSH_DISK_TIMEOUT (source: GroupCommitRequest, FlushDiskWatcher). The messages are stored, but may not survive a
loss of power.

A flush that fails is the last one: the kernel reports lost pages once, and a second flush of the same file succeeds
without them. Nothing passes the gate from then on, and the process ends with the step.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.common.clock import Now
from broker.common.faults import Inconsistent
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame

__all__ = ["DiskSilent", "FlushGate", "Flushed", "Flusher", "Held", "LogFlush", "Said"]

log = logging.getLogger("broker.rocketmq")

# Maximum time for which a file's write waits for the flush of the log before it; the loop stops meanwhile.
FILE_WAIT_MS: Final = 1_000

_SUCCESS, _TIMEOUT = ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT


class DiskSilent(OSError):
    """A file is not written, as the log, which goes first, is not on the disk in time, or cannot get there."""


# The bytes of frames, or the frames themselves.
Said = TypeVar("Said", bytearray, list[Frame])
_Said_contra = TypeVar("_Said_contra", bytearray, list[Frame], contravariant=True)


class Held(Protocol[_Said_contra]):
    """A connection whose output waits."""

    def pass_on(self, data: _Said_contra, held_size: int) -> None:
        """Send data in place of output of this size that was held back, unless the connection is over."""
        ...


# Called in the loop when the flush is complete, or with its error.
Flushed = Callable[[Exception | None], None]


class Flusher(Protocol):
    """A thread, or the like, that flushes beside the loop, one flush at a time."""

    def begin(self, work: Callable[[], None], done: Flushed) -> None: ...

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the begun work, and call `done`; return False after `timeout_s`."""
        ...


class LogFlush(Protocol):
    """The part of the store that the gate uses."""

    @property
    def flushed(self) -> int:
        """The offset of the log before which everything is on the disk."""
        ...

    @property
    def log_end(self) -> int: ...

    def begin_log_flush(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return a function that waits until the written part of the log is on the disk, and one that notes it."""
        ...


class _HeldOutput(NamedTuple):
    end: int
    until_ms: int
    # Passes on the output as it is, or with answers that the disk is late.
    pass_on: Callable[[bool], None]


class FlushGate:
    """All waiting output, in order; see `broker.rocketmq.node.Part`."""

    def __init__(self, store: LogFlush, flusher: Flusher, now: Now, timeout_ms: int) -> None:
        self._store = store
        self._flusher = flusher
        self._now = now
        self._timeout_ms = timeout_ms
        self._entries: deque[_HeldOutput] = deque()
        # The start of the present flush.
        self._since_ms: int | None = None
        self._error: Exception | None = None
        self._is_late = False

    def take(self, holder: Held[Said], data: Said) -> Said:
        """Return the data if it can be sent at once; otherwise nothing, and pass it on later."""
        store = self._store
        end = store.log_end
        if store.flushed >= end and self._error is None:
            self._release()
            return data
        if self._timeout_ms == 0 and self._error is None:
            data = late(data)
            self._begin()
            return data
        self._entries.append(_HeldOutput(end, self._now.ms + self._timeout_ms, partial(_pass_on, holder, data)))
        self._begin()
        return type(data)()

    def reach(self) -> int:
        """Return the offset up to which the log is on the disk, and start a flush of the rest.

        When that is complete, the step ends like any other: callers can ask again then.
        """
        if self._error is not None:
            return 0
        if self._store.flushed < self._store.log_end:
            self._begin()
        return self._store.flushed

    def keep_order(self) -> None:
        """Wait until the log is on the disk, before a file is written that records progress in it.

        Raises `DiskSilent`: the file can be written later.
        """
        for _ in range(2):
            if self._is_flushed():
                return
            # A flush under way may have begun before the last messages: then another one follows.
            self._begin()
            if self._since_ms is None:
                continue
            left_ms = FILE_WAIT_MS - (self._now.ms - self._since_ms)
            if left_ms <= 0 or not self._flusher.wait(left_ms / 1000):
                break
        if not self._is_flushed():
            raise DiskSilent(errno.ETIMEDOUT, "the disk does not complete a flush")

    def _is_flushed(self) -> bool:
        """Return whether the whole log is on the disk. Raises `DiskSilent` if that is unknown."""
        if self._error is not None:
            raise DiskSilent(errno.EIO, f"a flush of the commit log has failed: {self._error}")
        return self._store.flushed >= self._store.log_end

    def _begin(self) -> None:
        if self._since_ms is not None or self._error is not None:
            return
        work, note = self._store.begin_log_flush()
        self._since_ms = self._now.ms

        def done(error: Exception | None) -> None:
            self._since_ms = None
            if error is not None:
                self._error = error
                return
            note()
            if self._is_late:
                self._is_late = False
                log.warning("the disk completes flushes again")
            self._release()
            if self._entries:
                self._begin()

        self._flusher.begin(work, done)

    def _release(self) -> None:
        if self._error is not None:
            return
        entries, flushed = self._entries, self._store.flushed
        while entries and entries[0].end <= flushed:
            entries.popleft().pass_on(False)

    # -- see `broker.rocketmq.node.Part`

    def end_step(self) -> bool:
        """Raise the error of a flush: the state of the disk is unknown."""
        if self._error is not None:
            raise self._error
        return False

    def tick(self) -> None:
        self._release()
        entries, now_ms = self._entries, self._now.ms
        while entries and entries[0].until_ms <= now_ms:
            if not self._is_late:
                self._is_late = True
                log.error(
                    "a flush of the commit log takes more than %d ms: messages are answered FLUSH_DISK_TIMEOUT",
                    self._timeout_ms,
                )
            entries.popleft().pass_on(True)

    def leave(self) -> None:
        """Wait for the disk, within the time-out of the output, and send everything.

        Raises `Inconsistent` if a flush fails: a store that is closed after that would count as whole.
        """
        deadline_s = self._timeout_ms / 1000
        while self._since_ms is not None and self._flusher.wait(deadline_s):
            pass
        if self._error is not None:
            raise Inconsistent("taking the commit log to the disk", self._error)
        self.end_waits()

    def end_waits(self) -> None:
        """Send all waiting output: as with a silent disk, senders get FLUSH_DISK_TIMEOUT."""
        while self._entries:
            self._entries.popleft().pass_on(True)


def _pass_on(holder: Held[Any], data: Any, is_late: bool) -> None:
    holder.pass_on(late(data) if is_late else data, len(data))


def late(data: Said) -> Said:
    """Turn the answers to senders of messages into FLUSH_DISK_TIMEOUT; leave everything else as it is."""
    if isinstance(data, list):
        return [frame._replace(code=_TIMEOUT) if _is_sent(frame) else frame for frame in data]
    made: list[bytes] = []
    view, at, end = memoryview(bytes(data)), 0, len(data)
    while (found := next_frame(view, at, end, end)) is not None:
        frame, behind = found
        whole = bytes(view[at:behind])
        made.append(encode_frame(frame._replace(code=_TIMEOUT)) if _is_sent(frame) else whole)
        at = behind
    return bytearray(b"".join(made))


_SENT: Final[Sequence[str]] = ("msgId", "queueOffset", "transactionId")


def _is_sent(frame: Frame) -> bool:
    fields = frame.ext_fields
    return frame.is_response and frame.code == _SUCCESS and fields is not None and all(name in fields for name in _SENT)
