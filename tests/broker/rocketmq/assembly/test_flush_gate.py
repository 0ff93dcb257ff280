"""Output that waits for the disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.common.clock import Now
from broker.common.faults import Inconsistent
from broker.rocketmq.flush_gate import DiskSilent, Flushed, FlushGate, late
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame

TIMEOUT_MS = 5_000
SENT = {"msgId": "1", "queueId": "0", "queueOffset": "7", "transactionId": "2"}


class Log:
    """A log of which `flushed` bytes are on the disk; `written` can be more."""

    def __init__(self) -> None:
        self.flushed = 0
        self.log_end = 0
        self.on_disk = 0

    def begin_log_flush(self) -> tuple[Callable[[], None], Callable[[], None]]:
        end = self.log_end

        def work() -> None:
            self.on_disk = max(self.on_disk, end)

        def note() -> None:
            self.flushed = max(self.flushed, end)

        return work, note


class Slow:
    """A disk that finishes a flush when the test lets it; `waits` is whether it does in time for who waits."""

    def __init__(self) -> None:
        self.begun: tuple[Callable[[], None], Flushed] | None = None
        self.waits = False
        self.error: Exception | None = None

    def begin(self, work: Callable[[], None], done: Flushed) -> None:
        assert self.begun is None, "one flush at a time"
        self.begun = work, done

    def finish(self, error: Exception | None = None) -> None:
        assert self.begun is not None
        (work, done), self.begun = self.begun, None
        if error is None:
            work()
        done(error)

    def wait(self, timeout_s: float) -> bool:
        if not self.waits or self.begun is None:
            return False
        error, self.error = self.error, None
        self.finish(error)
        return True


class Rig:
    def __init__(self, timeout_ms: int = TIMEOUT_MS) -> None:
        self.log, self.disk, self.now = Log(), Slow(), Now()
        self.gate = FlushGate(self.log, self.disk, self.now, timeout_ms)
        self.sent: list[bytes] = []
        self.held = 0

    def pass_on(self, data: bytearray, held_size: int) -> None:
        self.sent.append(bytes(data))
        self.held -= held_size

    def say(self, data: bytes) -> None:
        passed = self.gate.take(self, bytearray(data))
        if passed:
            self.sent.append(bytes(passed))
        else:
            self.held += len(data)


class Framed:
    def __init__(self, passed: list[Frame]) -> None:
        self.passed = passed

    def pass_on(self, data: list[Frame], held_size: int) -> None:
        assert held_size == len(data)
        self.passed += data


def answer(code: int = ResponseCode.SUCCESS, encoding: HeaderEncoding = HeaderEncoding.JSON, **fields: str) -> bytes:
    return encode_frame(Frame(code, 3, FrameFlag.RESPONSE, ext_fields={**SENT, **fields}, encoding=encoding))


def codes(data: bytes | bytearray) -> list[int]:
    view, at, found = memoryview(bytes(data)), 0, []
    while (parsed := next_frame(view, at, len(view))) is not None:
        frame, at = parsed
        found.append(frame.code)
    return found


def test_answer_waits_for_the_log_as_it_was_then() -> None:
    rig = Rig()
    rig.say(b"nothing was written")
    rig.log.log_end = 10
    rig.say(b"a")
    rig.log.log_end = 20
    rig.say(b"b")
    assert rig.sent == [b"nothing was written"]
    rig.disk.finish()
    # The flush began when only the first had been written; the next one takes the rest.
    assert rig.sent == [b"nothing was written", b"a"]
    rig.disk.finish()
    assert rig.sent[2:] == [b"b"]
    assert (rig.disk.begun, rig.held) == (None, 0)
    rig.say(b"c")
    assert rig.sent[3:] == [b"c"]


def test_flush_of_somebody_else_lets_go_as_well() -> None:
    rig = Rig()
    rig.log.log_end = 10
    rig.say(b"a")
    rig.log.flushed = 10
    rig.say(b"b")
    assert rig.sent == [b"a", b"b"]


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_after_the_time_senders_are_told_that_the_disk_is_late(encoding: HeaderEncoding) -> None:
    rig = Rig()
    rig.log.log_end = 10
    other = encode_frame(Frame(ResponseCode.PULL_NOT_FOUND, 4, FrameFlag.RESPONSE, body=b"x" * 50))
    refused = answer(ResponseCode.NO_PERMISSION, encoding)
    rig.say(answer(encoding=encoding) + other + refused + answer(encoding=encoding))
    rig.now.ms += TIMEOUT_MS - 1
    rig.gate.tick()
    assert rig.sent == []
    rig.now.ms += 1
    rig.gate.tick()
    (sent,) = rig.sent
    assert codes(sent) == [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.NO_PERMISSION,
        ResponseCode.FLUSH_DISK_TIMEOUT,
    ]
    assert other in sent
    assert refused in sent
    first = next_frame(memoryview(sent), 0, len(sent))
    assert first is not None
    assert (first[0].opaque, first[0].ext_fields, first[0].encoding) == (3, SENT, encoding)
    # The disk comes back: the next message is answered as ever.
    assert rig.held == 0
    rig.disk.finish()
    rig.log.log_end = 20
    rig.say(answer())
    rig.disk.finish()
    assert codes(rig.sent[1]) == [ResponseCode.SUCCESS]


def test_without_time_everybody_is_told_at_once() -> None:
    rig = Rig(timeout_ms=0)
    rig.log.log_end = 10
    rig.say(answer())
    assert codes(rig.sent[0]) == [ResponseCode.FLUSH_DISK_TIMEOUT]
    assert rig.disk.begun is not None


def test_answers_of_other_kinds_are_left_as_they_are() -> None:
    batch = encode_frame(Frame(0, 1, FrameFlag.RESPONSE, ext_fields={"msgId": "1"}))
    request = encode_frame(Frame(0, 1, ext_fields=dict(SENT)))
    assert late(bytearray(batch + request)) == batch + request


def test_frames_wait_as_their_bytes_do() -> None:
    rig, frames = Rig(), [Frame(ResponseCode.SUCCESS, 3, FrameFlag.RESPONSE, ext_fields=SENT), Frame(7, 1)]
    passed: list[Frame] = []
    holder = Framed(passed)
    assert rig.gate.take(holder, frames) == frames
    rig.log.log_end = 10
    assert rig.gate.take(holder, frames) == []
    rig.disk.finish()
    assert passed == frames
    rig.log.log_end = 20
    assert rig.gate.take(holder, frames) == []
    rig.now.ms += TIMEOUT_MS
    rig.gate.tick()
    assert [each.code for each in passed[2:]] == [ResponseCode.FLUSH_DISK_TIMEOUT, 7]


def test_error_of_the_disk_ends_the_step() -> None:
    rig = Rig()
    rig.log.log_end = 10
    rig.say(b"a")
    rig.disk.finish(OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        rig.gate.end_step()
    assert rig.sent == []


def test_flush_after_a_failed_one_hides_nothing() -> None:
    rig = Rig()
    rig.log.log_end = 10
    rig.say(answer())
    # The kernel reports lost pages only once.
    rig.disk.waits, rig.disk.error = True, OSError(5, "Input/output error")
    for _ in range(2):
        with pytest.raises(DiskSilent, match=r"has failed: .*Input/output error"):
            rig.gate.keep_order()
    assert rig.disk.begun is None
    # Nor does somebody else's flush.
    rig.log.flushed = 10
    with pytest.raises(DiskSilent):
        rig.gate.keep_order()
    rig.say(answer())
    rig.gate.tick()
    assert rig.sent == []
    with pytest.raises(OSError, match="Input/output error"):
        rig.gate.end_step()


def test_question_about_the_flushed_offset_does_not_wait_for_the_disk() -> None:
    rig = Rig()
    assert rig.gate.reach() == 0
    assert rig.disk.begun is None
    rig.log.log_end = 10
    assert rig.gate.reach() == 0
    rig.log.log_end = 20
    rig.disk.finish()
    assert rig.gate.reach() == 10
    rig.disk.finish()
    assert rig.gate.reach() == 20
    rig.log.log_end = 30
    rig.gate.reach()
    rig.disk.finish(OSError(5, "Input/output error"))
    assert (rig.gate.reach(), rig.disk.begun) == (0, None)


def test_failed_flush_is_not_hidden_either_where_nobody_waits() -> None:
    rig = Rig(timeout_ms=0)
    rig.log.log_end = 10
    rig.say(answer())
    rig.disk.finish(OSError(5, "Input/output error"))
    rig.say(answer())
    assert rig.disk.begun is None
    assert len(rig.sent) == 1


def test_failed_flush_at_the_end_leaves_a_store_that_is_not_closed() -> None:
    rig = Rig()
    rig.log.log_end = 10
    rig.say(answer())
    rig.disk.waits, rig.disk.error = True, OSError(5, "Input/output error")
    with pytest.raises(Inconsistent, match="Input/output error"):
        rig.gate.leave()
    assert rig.sent == []


def test_files_wait_for_the_log_and_not_for_ever() -> None:
    rig = Rig()
    rig.gate.keep_order()
    rig.log.log_end = 10
    rig.disk.waits = True
    rig.gate.keep_order()
    assert rig.log.on_disk == 10
    # A flush that began before the last message is followed by another one.
    rig.log.log_end = 20
    rig.say(b"a")
    rig.log.log_end = 30
    rig.gate.keep_order()
    assert rig.log.on_disk == 30
    assert rig.sent == [b"a"]
    rig.log.log_end = 40
    rig.disk.waits = False
    with pytest.raises(DiskSilent, match="does not complete"):
        rig.gate.keep_order()
    # No request waits again for a flush that has been silent for that time.
    rig.disk.waits = True
    rig.now.ms += 1_000
    with pytest.raises(DiskSilent):
        rig.gate.keep_order()


@pytest.mark.parametrize("waits", [True, False])
def test_at_the_end_nothing_is_left(waits: bool) -> None:
    rig = Rig()
    rig.log.log_end = 10
    rig.say(answer())
    rig.log.log_end = 20
    rig.say(answer())
    rig.disk.waits = waits
    rig.gate.leave()
    expected = ResponseCode.SUCCESS if waits else ResponseCode.FLUSH_DISK_TIMEOUT
    assert [codes(sent) for sent in rig.sent] == [[expected], [expected]]


@given(st.lists(st.sampled_from(["write", "say", "finish", "tick", "wait"]), max_size=60))
def test_success_means_that_it_is_on_the_disk(actions: list[str]) -> None:
    rig = Rig()
    said: list[int] = []
    for action in actions:
        if action == "write":
            rig.log.log_end += 1
        elif action == "say":
            said.append(rig.log.log_end)
            rig.say(answer(queueOffset=str(rig.log.log_end)))
        elif action == "finish" and rig.disk.begun is not None:
            rig.disk.finish()
        elif action == "wait":
            rig.now.ms += TIMEOUT_MS // 2
        elif action == "tick":
            rig.gate.tick()
        for data in rig.sent:
            found = next_frame(memoryview(data), 0, len(data))
            assert found is not None
            frame, _ = found
            assert frame.ext_fields is not None
            if frame.code == ResponseCode.SUCCESS:
                assert int(frame.ext_fields["queueOffset"]) <= rig.log.on_disk
        # In their order, and each once.
        assert len(rig.sent) <= len(said)
        offsets = [next_frame(memoryview(data), 0, len(data)) for data in rig.sent]
        found_offsets = [int((each[0].ext_fields or {})["queueOffset"]) for each in offsets if each is not None]
        assert found_offsets == said[: len(found_offsets)]
    while rig.disk.begun is not None:
        rig.disk.finish()
    rig.now.ms += TIMEOUT_MS
    rig.gate.tick()
    assert len(rig.sent) == len(said)
    assert rig.held == 0
