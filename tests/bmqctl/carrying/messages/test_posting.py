"""Runs of posts over a sink with given answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

import pytest
import trio
import trio.testing

from bmqctl.carrying.messages.content import BadInput, Outgoing
from bmqctl.carrying.messages.posting import Account, Run, Source
from bmqctl.carrying.options import PostOptions
from bmqctl.client import Ack, AckStatus, ClientError, PostFailed, PostRefused, PostUncertain

pytestmark = pytest.mark.trio

GUID = bytes(16)
USUAL = PostOptions()


class Answer:
    """The answer to one message: at once, or when it is given."""

    def __init__(self, fault: Exception | None = None, is_given: bool = True) -> None:
        self._fault = fault
        self._given = trio.Event()
        if is_given:
            self._given.set()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._given.wait().__await__()
        if self._fault is not None:
            raise self._fault


class FakeSink:
    failed = PostFailed
    uncertain = PostUncertain

    def __init__(self, answer: Callable[[int], Answer]) -> None:
        self._answer = answer
        self.sent: list[tuple[float, Outgoing]] = []

    async def send(self, message: Outgoing) -> Awaitable[object]:
        self.sent.append((trio.current_time(), message))
        return self._answer(len(self.sent))


def source_of(count: int, fault: Exception | None = None) -> Source:
    async def messages() -> AsyncGenerator[tuple[int, Outgoing]]:
        for number in range(1, count + 1):
            await trio.lowlevel.checkpoint()
            yield number, Outgoing(b"%d" % number)
        if fault is not None:
            raise fault

    return Source("line", messages)


async def run(sink: FakeSink, source: Source, options: PostOptions = USUAL) -> Account:
    work = Run(options, lambda done: None)
    with trio.fail_after(1000), work.scope:
        await work.carry_out(sink, source)
    return work.account


def refused(status: AckStatus) -> Exception:
    kind = PostUncertain if status is AckStatus.UNKNOWN else PostRefused
    return kind(status.name, Ack(GUID, status))


async def test_all_is_posted_and_counted() -> None:
    account = await run(FakeSink(lambda number: Answer()), source_of(300))
    assert account == Account(posted=300, acknowledged=300, payload_bytes=9 + 90 * 2 + 201 * 3)
    assert account.is_complete


async def test_the_run_ends_at_the_first_that_is_not_acknowledged(autojump_clock: trio.testing.MockClock) -> None:
    sink = FakeSink(lambda number: Answer(refused(AckStatus.LIMIT_MESSAGES) if number == 5 else None))
    account = await run(sink, source_of(1000), PostOptions(rate=1))
    assert len(sink.sent) in (5, 6)
    assert (account.posted, account.acknowledged, account.refused) == (len(sink.sent), len(sink.sent) - 1, 1)
    (failure,) = account.failures
    assert (failure.unit, failure.number, failure.reason) == ("line", 5, "LIMIT_MESSAGES")
    assert account.ended_by == "line 5 was not acknowledged"
    assert account.unanswered == 0


async def test_post_with_an_unknown_outcome_is_unanswered() -> None:
    account = await run(FakeSink(lambda number: Answer(refused(AckStatus.UNKNOWN))), source_of(1))
    assert (account.posted, account.refused, account.unanswered) == (1, 0, 1)
    assert account.failures[0].is_uncertain


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (BadInput("line 4: is not JSON"), "line 4: is not JSON"),
        (OSError(5, "Input/output error"), "cannot read the input: Input/output error"),
    ],
)
async def test_an_input_that_fails_ends_the_run_after_the_answers(fault: Exception, reason: str) -> None:
    account = await run(FakeSink(lambda number: Answer()), source_of(3, fault))
    assert (account.posted, account.acknowledged, account.ended_by) == (3, 3, reason)
    assert not account.is_complete


@pytest.mark.parametrize("fault", [ValueError("too large"), ClientError("the session has ended")])
async def test_a_message_that_cannot_be_sent_ends_the_run(fault: Exception) -> None:
    class Refusing(FakeSink):
        async def send(self, message: Outgoing) -> Awaitable[object]:
            if message.payload == b"3":
                raise fault
            return await super().send(message)

    account = await run(Refusing(lambda number: Answer()), source_of(9))
    assert (account.posted, account.acknowledged, account.ended_by) == (2, 2, f"line 3: {fault}")


async def test_patience_ends_a_run_without_answers(autojump_clock: trio.testing.MockClock) -> None:
    """Five answers come, one each 9 s; then none."""

    class Slow(Answer):
        def __init__(self, number: int) -> None:
            super().__init__(is_given=False)
            self._number = number

        def __await__(self) -> Generator[Any, Any, None]:
            yield from (trio.sleep(9) if self._number <= 5 else trio.sleep_forever()).__await__()

    began = trio.current_time()
    account = await run(FakeSink(Slow), source_of(8), PostOptions(patience_s=10))
    assert trio.current_time() - began == 5 * 9 + 10
    assert (account.posted, account.acknowledged, account.unanswered) == (8, 5, 3)
    assert account.ended_by == "no answer within 10 s"


async def test_an_input_that_is_slow_needs_no_patience(autojump_clock: trio.testing.MockClock) -> None:
    sink = FakeSink(lambda number: Answer())
    account = await run(sink, source_of(3), PostOptions(rate=0.01, patience_s=10))
    assert account.is_complete
    began = sink.sent[0][0]
    assert [at - began for at, _ in sink.sent] == [0, 100, 200]
