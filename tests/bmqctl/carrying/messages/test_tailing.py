"""Runs of `bmqctl tail` over a feed of messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from bmqctl.carrying.messages.framing import Frame
from bmqctl.carrying.messages.received import Received, Undecodable, UnreadableMessage, to_raw
from bmqctl.carrying.messages.tailing import Outcome, Tail, TailOptions
from bmqctl.client import ClientError

pytestmark = pytest.mark.trio

USUAL = TailOptions(Frame(to_raw))
LIST = Frame(to_raw, b"[", b",", b"\n]\n")


class FakeMessage:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.is_rejected = False

    def reject(self) -> None:
        self.is_rejected = True


class FakeFeed:
    """Gives lists of messages, then none come."""

    def __init__(self, *pieces: list[bytes]) -> None:
        self.messages = [[FakeMessage(each) for each in piece] for piece in pieces]
        self._pieces = [list(piece) for piece in self.messages]
        self.confirmed: list[bytes] = []
        self.asked: list[int] = []
        self.left: list[bytes] = []
        self.keeps = True
        self.fault: ClientError | None = None

    async def receive(self, count_max: int) -> Sequence[FakeMessage]:
        await trio.lowlevel.checkpoint()
        self.asked.append(count_max)
        if not self._pieces:
            if self.fault is not None:
                raise self.fault
            await trio.sleep_forever()
        piece = self._pieces.pop(0)
        if len(piece) > count_max:
            self._pieces.insert(0, piece[count_max:])
        return piece[:count_max]

    def read(self, message: FakeMessage) -> Received:
        if message.payload == b"damaged":
            raise UnreadableMessage("message 40: is damaged")
        return Received("40", {}, message.payload, [])

    def confirm(self, messages: Sequence[FakeMessage]) -> None:
        self.confirmed += [each.payload for each in messages]

    def leave(self, message: FakeMessage) -> bool:
        self.left.append(message.payload)
        return self.keeps


class FakeOutput:
    def __init__(self, left_after: int | None = None) -> None:
        self.written = b""
        self._left_after = left_after

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._left_after == 0:
            raise BrokenPipeError
        if self._left_after is not None:
            self._left_after -= 1
        self.written += data

    async def until_left(self) -> None:
        await trio.sleep(50)


async def run(feed: FakeFeed, output: FakeOutput, options: TailOptions) -> tuple[Outcome, list[str]]:
    told: list[str] = []
    tail = Tail(options, output, told.append)
    with trio.fail_after(1000):
        await tail.carry_out(feed)
    return tail.outcome, told


async def test_tail_confirms_the_messages_it_shows_and_shows_no_more_than_wanted() -> None:
    feed, output = FakeFeed([b"a", b"b"], [b"c", b"d", b"e"]), FakeOutput()
    outcome, _ = await run(feed, output, USUAL._replace(count_max=4))
    assert output.written == b"a\nb\nc\nd\n"
    assert feed.confirmed == [b"a", b"b", b"c", b"d"]
    assert feed.asked == [4, 2]
    assert outcome == Outcome(shown=4)


async def test_a_run_ends_when_nothing_comes(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    outcome, _ = await run(FakeFeed([b"a"]), FakeOutput(), USUAL._replace(idle_s=7))
    assert trio.current_time() - began == 7
    assert outcome == Outcome(shown=1)


async def test_undecodable_message_is_reported_and_not_confirmed(autojump_clock: trio.testing.MockClock) -> None:
    feed, output = FakeFeed([b"a", b"damaged", b"b"]), FakeOutput()
    outcome, told = await run(feed, output, USUAL._replace(idle_s=1))
    assert output.written == b"a\nb\n"
    assert feed.confirmed == [b"a", b"b"]
    assert [each.is_rejected for each in feed.messages[0]] == [False, True, False]
    assert (outcome.shown, outcome.unreadable, told) == (2, 1, ["message 40: is damaged"])


def decoding(message: Received) -> bytes:
    """Show messages, as if their payloads were decoded."""
    if message.payload == b"odd":
        raise Undecodable("message 40: is odd")
    return to_raw(message)


async def test_a_payload_that_is_not_decoded_is_told_and_left(autojump_clock: trio.testing.MockClock) -> None:
    feed, output = FakeFeed([b"a", b"odd", b"b"]), FakeOutput()
    outcome, told = await run(feed, output, TailOptions(Frame(decoding), idle_s=1))
    assert (output.written, feed.confirmed, feed.left) == (b"a\nb\n", [b"a", b"b"], [b"odd"])
    assert not any(each.is_rejected for each in feed.messages[0])
    assert (outcome.shown, outcome.unreadable, outcome.ended_by, told) == (2, 1, "", ["message 40: is odd"])


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_run_ends_when_no_more_can_come(autojump_clock: trio.testing.MockClock, keeps: bool) -> None:
    feed, output = FakeFeed([b"odd"], [b"odd", b"a"], [b"b", b"c"]), FakeOutput()
    feed.keeps = keeps
    outcome, _ = await run(feed, output, TailOptions(Frame(decoding), count_max=2, idle_s=1))
    assert output.written == (b"a\n" if keeps else b"a\nb\n")
    assert ("as many as may be unconfirmed" in outcome.ended_by) is keeps


async def test_a_list_is_closed_however_it_ends(autojump_clock: trio.testing.MockClock) -> None:
    options = USUAL._replace(frame=LIST)
    output = FakeOutput()
    await run(FakeFeed([b"1"], [b"2", b"3"]), output, options._replace(idle_s=1))
    assert output.written == b"[\n1,\n2,\n3\n]\n"
    output = FakeOutput()
    await run(FakeFeed([b"1", b"2"]), output, options._replace(count_max=1))
    assert output.written == b"[\n1\n]\n"
    output = FakeOutput()
    await run(FakeFeed(), output, options._replace(idle_s=1))
    assert output.written == b"[\n]\n"
    feed, output = FakeFeed([b"1"]), FakeOutput()
    feed.fault = ClientError("the session ended")
    with pytest.raises(ClientError, match="the session ended"):
        await run(feed, output, options)
    assert output.written == b"[\n1\n]\n"


async def test_message_that_could_not_be_written_is_not_confirmed() -> None:
    feed, output = FakeFeed([b"a"], [b"b"]), FakeOutput(left_after=1)
    with pytest.raises(BrokenPipeError):
        await run(feed, output, USUAL)
    assert feed.confirmed == [b"a"]


async def test_a_run_ends_when_its_reader_has_left_though_nothing_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tail = Tail(USUAL, FakeOutput(), lambda text: None)
    began = trio.current_time()
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tail.watch_reader)
            await tail.carry_out(FakeFeed([b"a"]))
    assert trio.current_time() - began == 50
    assert tail.outcome == Outcome(shown=1, has_reader_left=True)
