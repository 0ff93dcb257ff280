"""The decisions of one bridge, without I/O: which messages to send, and which the source may forget.

Messages come from the source in lanes (`take`). The next steps are returned as actions: `Send` a batch, whose answers
go into `answered`, and `Settle` messages, which the source may forget. Messages are settled after their acknowledgment,
in their lane's order; a bridge therefore keeps no state of its own.

If the destination accepts a message after refusing an earlier one for lack of room, both are sent again in order: each
message that came after another has a copy after that one's last copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from bmqctl.carrying.bridge.account import Account
from bmqctl.carrying.bridge.lifecycle import Lane, LaneInput, step

__all__ = [
    "AGAIN",
    "TAKEN",
    "Action",
    "Answer",
    "AnswerKind",
    "CarriedMessage",
    "Flow",
    "FlowOptions",
    "Send",
    "Settle",
]

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """Limits of a lane's messages and of a batch; with `skip_refused` the bridge goes on after a refusal."""

    window: int = 4096
    window_bytes: int = 32 << 20
    batch_messages: int = 512
    batch_bytes: int = 1 << 20
    skip_refused: bool = False


@dataclass(slots=True, eq=False)
class CarriedMessage:
    """A message in transit. The source needs `token` to forget it, the destination gets `message`.

    `unfit` is the reason why it cannot be carried, or was refused. `sends` counts its sends, and `renewals` how often
    the destination must store it once more. With `is_alone` it is a batch by itself.
    """

    token: Any
    message: Any
    size: int
    unfit: str = ""
    sends: int = 0
    renewals: int = 0
    is_alone: bool = False


class AnswerKind(Enum):
    """The destination's answer to a message."""

    TAKEN = auto()
    AGAIN = auto()  # not stored, or unknown: send it again
    REFUSED = auto()  # permanently


class Answer(NamedTuple):
    """The destination's answer, and its reason."""

    kind: AnswerKind
    reason: str = ""


TAKEN: Final = Answer(AnswerKind.TAKEN)
AGAIN: Final = Answer(AnswerKind.AGAIN)


class Send(NamedTuple):
    """Send these messages to the lane's queue, and pass the answers to `answered` with the batch's number."""

    lane: int
    batch: int
    items: list[CarriedMessage]


class Settle(NamedTuple):
    """Let the source forget these messages of a lane, which follow the settled ones."""

    lane: int
    items: list[CarriedMessage]


Action = Send | Settle


@dataclass(slots=True)
class _Line:
    """A lane's messages: the waiting ones, and the batch at the destination; `size` covers both.

    With `is_stale` the source took back the messages of the batch, and delivers them again. `alone` counts the leading
    messages that are sent one by one.
    """

    state: Lane = Lane.EMPTY
    waiting: deque[CarriedMessage] = field(default_factory=deque)
    sent: list[CarriedMessage] = field(default_factory=list)
    size: int = 0
    batch: int = 0
    alone: int = 0
    is_stale: bool = False
    pause_s: float = PAUSE_MIN_S
    due_s: float = 0.0


class Flow:
    """One bridge's messages, from the source's delivery to the destination's acknowledgment."""

    def __init__(self, options: FlowOptions, lanes: int) -> None:
        self.account = Account()
        self.ended_by = ""
        self.is_up = False
        self.is_stopped = False
        self._options = options
        self._lines = [_Line() for _ in range(lanes)]
        self._batch = 0

    @property
    def is_ended(self) -> bool:
        return self.is_stopped and all(line.state is Lane.ENDED for line in self._lines)

    @property
    def held(self) -> int:
        """The number of messages that wait or are at the destination."""
        return sum(len(line.waiting) + len(line.sent) for line in self._lines)

    @property
    def due_s(self) -> float | None:
        """The time at which `tick` is due, or None."""
        return min((line.due_s for line in self._lines if line.state is Lane.PAUSED), default=None)

    def room(self, lane: int) -> int:
        line = self._lines[lane]
        if line.size >= self._options.window_bytes:
            return 0
        return max(0, self._options.window - len(line.waiting) - len(line.sent))

    def is_free(self, lane: int) -> bool:
        line = self._lines[lane]
        return not line.waiting and not line.sent

    # Input from the source

    def add_lane(self) -> int:
        line = _Line()
        if self.is_stopped:
            line.state = step(line.state, LaneInput.STOPPED)
        self._lines.append(line)
        return len(self._lines) - 1

    def take(self, lane: int, items: Sequence[CarriedMessage]) -> list[Action]:
        """Take messages from the source; they follow the lane's earlier ones."""
        self.account.taken += len(items)
        if self.is_stopped or not items:
            self.account.returned += len(items)
            return []
        line = self._lines[lane]
        line.waiting.extend(items)
        line.size += _size_of(items)
        line.state = step(line.state, LaneInput.TAKEN)
        return self._send(lane)

    def source_lost(self) -> None:
        """Forget unsent messages: the source delivers unsettled ones again."""
        for lane, line in enumerate(self._lines):
            self.release(lane)
            line.is_stale = bool(line.sent)

    def release(self, lane: int) -> None:
        """Forget a lane's unsent messages: the source delivers them to another consumer.

        The answers settle messages at the destination as usual.
        """
        line = self._lines[lane]
        self._return(line)
        line.alone = 0
        if line.state in (Lane.READY, Lane.PAUSED):
            line.state = step(line.state, LaneInput.EMPTIED)

    # Input from the destination

    def destination_up(self) -> list[Action]:
        self.is_up = True
        return [action for lane in range(len(self._lines)) for action in self._send(lane)]

    def destination_down(self, now_s: float, known: Mapping[int, Sequence[Answer]] | None = None) -> list[Action]:
        """Stop sending until `destination_up`, which sends unanswered messages again.

        `known` has the answers to partly answered batches, by lane.
        """
        self.is_up = False
        actions: list[Action] = []
        for lane, line in enumerate(self._lines):
            if line.sent:
                answers = (known or {}).get(lane) or [AGAIN] * len(line.sent)
                actions += self.answered(lane, line.batch, answers, now_s)
        return actions

    def answered(
        self, lane: int, batch: int, answers: Sequence[Answer], now_s: float, *, one_by_one: bool = False
    ) -> list[Action]:
        """Take the answers to a batch, one for each message; ignore those to an earlier batch.

        With `one_by_one`, messages to send again go immediately, each in a batch of its own.
        """
        line = self._lines[lane]
        if batch != line.batch or not line.sent:
            return []
        items, line.sent = line.sent, []
        line.size -= _size_of(items)
        is_stale, line.is_stale = line.is_stale, False
        settled, rest_at = self._count(items, answers)
        actions: list[Action] = [Settle(lane, items[:settled])] if settled and not is_stale else []
        rest, words = items[rest_at:], answers[rest_at:]
        if self.is_stopped or is_stale:
            self._let_go(rest, words)
        else:
            self._put_back(line, rest, words)
        if settled:
            line.pause_s = PAUSE_MIN_S
        if rest and not one_by_one:
            line.state = step(line.state, LaneInput.AGAIN)
            line.due_s = now_s + line.pause_s
            line.pause_s = min(2 * line.pause_s, PAUSE_MAX_S)
        else:
            line.alone = min(max(line.alone, len(rest)), len(line.waiting))
            line.state = step(line.state, LaneInput.SETTLED if line.waiting else LaneInput.EMPTIED)
        return actions + self._send(lane)

    # The clock, and the end

    def tick(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for lane, line in enumerate(self._lines):
            if line.state is Lane.PAUSED and line.due_s <= now_s:
                line.state = step(line.state, LaneInput.DUE if line.waiting else LaneInput.EMPTIED)
                actions += self._send(lane)
        return actions

    def stop(self, reason: str = "") -> None:
        """Send nothing more, but await answers. The first reason is kept."""
        self.ended_by = self.ended_by or reason
        self.is_stopped = True
        for line in self._lines:
            line.state = step(line.state, LaneInput.STOPPED)
            self._return(line)

    def give_up(self) -> None:
        """Stop without waiting: the source keeps unacknowledged messages."""
        self.stop()
        for line in self._lines:
            if line.sent:
                self.account.returned += len(line.sent)
                line.size -= _size_of(line.sent)
                line.sent = []
                line.state = step(line.state, LaneInput.AGAIN)

    # Parts

    def _send(self, lane: int) -> list[Action]:
        line = self._lines[lane]
        actions: list[Action] = []
        while line.state is Lane.READY and line.waiting and line.waiting[0].unfit:
            item = line.waiting.popleft()
            line.size -= item.size
            if self._refuse(item, item.unfit):
                actions.append(Settle(lane, [item]))
        if line.state is not Lane.READY:
            return actions
        if not line.waiting:
            line.state = step(line.state, LaneInput.EMPTIED)
        elif self.is_up:
            line.state = step(line.state, LaneInput.SENT)
            line.sent = self._next_batch(line)
            self._batch += 1
            line.batch = self._batch
            actions.append(Send(lane, line.batch, line.sent))
        return actions

    def _next_batch(self, line: _Line) -> list[CarriedMessage]:
        waiting = line.waiting
        most = 1 if line.alone else self._options.batch_messages
        line.alone = max(0, line.alone - 1)
        left = self._options.batch_bytes
        batch: list[CarriedMessage] = []
        while waiting and len(batch) < most and not waiting[0].unfit and (not batch or waiting[0].size <= left):
            if waiting[0].is_alone:
                if batch:
                    break
                most = 1
            item = waiting.popleft()
            left -= item.size
            self.account.repeated += item.sends > 0
            item.sends += 1
            batch.append(item)
        return batch

    def _count(self, items: Sequence[CarriedMessage], answers: Sequence[Answer]) -> tuple[int, int]:
        """Count the ended messages, up to the first to send again or that ends the bridge.

        Returns their number, and where the messages to send again begin.
        """
        for at, (item, answer) in enumerate(zip(items, answers, strict=True)):
            if answer.kind is AnswerKind.AGAIN:
                return at, at
            if answer.kind is AnswerKind.TAKEN:
                self._delivered(item)
            elif not self._refuse(item, answer.reason):
                self._let_go(items[at + 1 :], answers[at + 1 :])
                return at, len(items)
        return len(items), len(items)

    def _put_back(self, line: _Line, items: Sequence[CarriedMessage], answers: Sequence[Answer]) -> None:
        for item, answer in zip(items, answers, strict=True):
            item.renewals += answer.kind is AnswerKind.TAKEN
        line.waiting.extendleft(reversed(items))
        line.size += _size_of(items)

    def _refuse(self, item: CarriedMessage, reason: str) -> bool:
        """Count a message that cannot be carried; return whether the bridge goes on without it."""
        item.unfit = reason
        self.account.refuse(reason)
        if not self._options.skip_refused:
            self.stop(f"a message cannot be carried: {reason}")
        return self._options.skip_refused

    def _let_go(self, items: Sequence[CarriedMessage], answers: Sequence[Answer]) -> None:
        """Count messages that are neither sent again nor settled: the source keeps them."""
        for item, answer in zip(items, answers, strict=True):
            if answer.kind is AnswerKind.TAKEN:
                self._delivered(item)
            else:
                self.account.returned += 1

    def _delivered(self, item: CarriedMessage) -> None:
        self.account.delivered += 1
        self.account.size_bytes += item.size

    def _return(self, line: _Line) -> None:
        self.account.returned += len(line.waiting)
        line.size -= _size_of(line.waiting)
        line.waiting.clear()


def _size_of(items: Iterable[CarriedMessage]) -> int:
    return sum(item.size for item in items)
