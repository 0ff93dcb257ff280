"""Pulls of one queue, several at a time, from a broker that answers as the tests say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
import trio
import trio.testing

from bmqctl.client.remoting.ahead import PullsAhead
from bmqctl.client.remoting.client import RequestRefused
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.client.remoting.link import NoAnswer, OnAnswer, RemotingLink
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

HOST = b"\x7f\0\0\1\0\0\0\0"


def stored(offset: int) -> bytes:
    return encode_record(
        Record(Magic.V1, body_crc(b""), 0, 5, offset, 0, 0, 0, HOST, 0, HOST, 0, 0, b"", "t", b"a\x01b\x02")
    )


class Broker:
    """A queue of `end` messages, and a link to it. An answer has at most `most` of them, by the offset asked for."""

    def __init__(self, end: int, most: Callable[[int], int]) -> None:
        self.end = end
        self.waiting: deque[tuple[dict[str, str], OnAnswer]] = deque()
        self.deepest = 0
        self.asked = 0
        self._most = most

    def ask(self, code: int, fields: dict[str, str], on_answer: OnAnswer, timeout_s: float) -> None:
        self.waiting.append((fields, on_answer))
        self.asked += 1
        self.deepest = max(self.deepest, len(self.waiting))

    def check(self) -> None:
        """The link is open."""

    def answer(self) -> None:
        fields, on_answer = self.waiting.popleft()
        offset, wanted = int(fields["queueOffset"]), int(fields["maxMsgNums"])
        begin = min(offset, self.end)
        count = max(0, min(wanted, self._most(offset), self.end - offset))
        code = ResponseCode.SUCCESS if count else ResponseCode.PULL_NOT_FOUND
        told = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": str(self.end)}
        told["nextBeginOffset"] = str(begin + count)
        body = b"".join(stored(begin + number) for number in range(count))
        on_answer(Frame(code, 0, 1, None, told, body))


def puller_of(broker: Broker) -> QueuePuller:
    link: RemotingLink = broker  # type: ignore[assignment]
    return QueuePuller(link, "g", "t", 3, 5.0)


def read_all(broker: Broker, wanted: int, messages_max: int = 1024) -> list[int]:
    """Pull until there are `wanted` messages; return their offsets."""
    found: list[int] = []
    puller = puller_of(broker)

    async def run() -> None:
        async with trio.open_nursery() as nursery:

            async def answer() -> None:
                while True:
                    await trio.sleep(0)
                    while broker.waiting:
                        broker.answer()

            nursery.start_soon(answer)
            pulls = PullsAhead(puller, 4)
            while len(found) < wanted:
                found.extend(record.queue_offset for record in await pulls.next_records(messages_max))
                assert puller.offset == len(found)
            nursery.cancel_scope.cancel()

    trio.run(run)
    return found


def test_several_pulls_are_on_their_way() -> None:
    broker = Broker(1000, lambda offset: 32)
    assert read_all(broker, 1000) == list(range(1000))
    assert broker.deepest == 4
    assert broker.asked == 32


@pytest.mark.parametrize(
    "most",
    [lambda offset: 7, lambda offset: 500, lambda offset: 1 + offset % 40, lambda offset: 32 if offset % 3 else 5],
)
def test_messages_come_once_and_in_order_whatever_an_answer_has(most: Callable[[int], int]) -> None:
    assert read_all(Broker(1000, most), 1000) == list(range(1000))


def test_only_the_first_pull_is_held_and_none_is_behind_the_end() -> None:
    broker = Broker(40, lambda offset: 32)
    puller = puller_of(broker)

    async def run() -> None:
        pulls = PullsAhead(puller)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.next_records, 1024)
            await trio.testing.wait_all_tasks_blocked()
            broker.answer()
        assert puller.offset == 32
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.next_records, 1024)
            await trio.testing.wait_all_tasks_blocked()
            # The eight that are left are no whole answer: nothing after them is requested.
            (only,) = broker.waiting
            assert (only[0]["queueOffset"], only[0]["sysFlag"]) == ("32", "6")
            broker.answer()
        assert puller.offset == 40

    trio.run(run)


def test_room_bounds_what_is_asked_for() -> None:
    broker = Broker(1000, lambda offset: 32)
    read_all(broker, 500, 64)
    assert broker.deepest == 2


def test_a_pull_without_an_answer_fails() -> None:
    for answer, fault in (("timed out", NoAnswer), (Frame(ResponseCode.NO_PERMISSION, 0), RequestRefused)):
        broker = Broker(10, lambda offset: 32)

        async def run(broker: Broker = broker, answer: Frame | str = answer, fault: type[Exception] = fault) -> None:
            pulls = PullsAhead(puller_of(broker))
            async with trio.open_nursery() as nursery:

                async def give() -> None:
                    await trio.testing.wait_all_tasks_blocked()
                    broker.waiting.popleft()[1](answer)

                nursery.start_soon(give)
                with pytest.raises(fault):
                    await pulls.next_records(10)

        trio.run(run)
