"""Long answers, made in slices.

The answers for one connection are made and sent in the order of their requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from broker.rocketmq.remoting.requests import Refused, Request, failure
from broker.rocketmq.remoting.scheduler import Scheduler
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import FRAME_BYTES_MAX, Frame

__all__ = ["ITEM_UNITS", "Answering", "LongAnswers"]

# Makes an answer, yielding after each part of the work. Raises `Refused`.
Answering = Generator[None, None, Frame]

# Units of examining a queue or a client, and writing the result; see `Scheduler.spend`.
ITEM_UNITS: Final = 20_000
# Maximum of unfinished answers for one connection, and for all.
PEER_ANSWERS_MAX: Final = 16
ANSWERS_MAX: Final = 1_000
# Leaves room for the header.
_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - (64 << 10)


class LongAnswers:
    """The unfinished answers. `failed` ends a connection whose answer raises an exception."""

    def __init__(self, scheduler: Scheduler, failed: Callable[[object, Exception], None]) -> None:
        self._scheduler = scheduler
        self._failed = failed
        self._counts: dict[object, int] = {}
        self._total = 0

    def begin(self, request: Request, work: Answering) -> Frame | None:
        """Return an answer that is complete within the budget of the step; otherwise send it later.

        Raises `Refused`, also for too many unfinished answers.
        """
        peer, scheduler = request.peer, self._scheduler
        while not scheduler.is_spent:
            scheduler.spend(ITEM_UNITS)
            try:
                next(work)
            except StopIteration as end:
                return _bounded(end.value)
        if self._counts.get(peer, 0) >= PEER_ANSWERS_MAX or self._total >= ANSWERS_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, "too many answers are being made")
        self._counts[peer] = self._counts.get(peer, 0) + 1
        self._total += 1
        bare = request._replace(frame=request.frame.bare)
        scheduler.add(("answers", peer), self._make(bare, work))
        return None

    def disconnected(self, peer: object) -> None:
        self._counts.pop(peer, None)

    def _make(self, request: Request, work: Answering) -> Generator[None, None, None]:
        peer = request.peer
        try:
            answer: Frame | None = None
            while answer is None and peer in self._counts:
                try:
                    next(work)
                    yield
                except StopIteration as end:
                    answer = end.value
            if answer is None:
                return
            peer.answer(request.frame, _bounded(answer))
        except Refused as refused:
            peer.answer(request.frame, failure(refused.code, refused.text))
        except Exception as error:
            self._failed(peer, error)
        finally:
            self._total -= 1
            left = self._counts.get(peer, 0) - 1
            if left > 0:
                self._counts[peer] = left
            else:
                self._counts.pop(peer, None)


def _bounded(answer: Frame) -> Frame:
    size = len(answer.body)
    if size <= _BODY_BYTES_MAX:
        return answer
    return failure(ResponseCode.SYSTEM_ERROR, f"the answer has {size} bytes, more than {_BODY_BYTES_MAX}")
