"""Requests to a controller, in turn: each is decided once the command of the one before is applied.

So a decision is about the state that its command meets, at every controller. Only the leader sends the answer, after
the command is applied; requests to other controllers, and to one that leads no longer, get only an error.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.rocketmq.controller.commands import encode_command
from broker.rocketmq.controller.decisions import Decision
from broker.rocketmq.raft.raft import NotLeading, Raft
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["NOT_LEADER", "Turns"]

log = logging.getLogger("broker.rocketmq.controller")

WAITING_MAX: Final = 1_024
NOT_LEADER: Final = Decision(code=ResponseCode.CONTROLLER_NOT_LEADER, remark="The controller is not in leader state")
_BUSY: Final = Decision(code=ResponseCode.SYSTEM_BUSY, remark="too many requests wait for this controller")

Decide = Callable[[], Decision]
Done = Callable[[Decision], None]


class _Waiting(NamedTuple):
    decide: Decide
    done: Done


class _Proposed(NamedTuple):
    """A decision whose command is an entry of the log, in a term that this controller leads."""

    position: int
    term: int
    decision: Decision
    done: Done


class Turns:
    """The requests that wait, and the one whose command is not agreed yet."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._waiting: deque[_Waiting] = deque()
        self._proposed: _Proposed | None = None

    def ask(self, decide: Decide, done: Done, now_ms: int) -> None:
        """Queue a request; `done` gets the decision, perhaps at once."""
        if not self._raft.is_leader:
            done(NOT_LEADER)
        elif len(self._waiting) >= WAITING_MAX:
            done(_BUSY)
        else:
            self._waiting.append(_Waiting(decide, done))
            self.go_on(now_ms)

    def go_on(self, now_ms: int) -> None:
        """Pass on the decision that was agreed, and decide the next requests."""
        self._settle()
        while self._waiting and self._proposed is None and self._raft.is_sure(now_ms):
            self._decide(self._waiting.popleft(), now_ms)
            self._settle()

    def _settle(self) -> None:
        raft, proposed = self._raft, self._proposed
        if proposed is not None:
            if not raft.is_leader or raft.term != proposed.term:
                self._proposed = None
                proposed.done(NOT_LEADER)
            elif raft.applied >= proposed.position:
                self._proposed = None
                proposed.done(proposed.decision)
        if not raft.is_leader:
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                each.done(NOT_LEADER)

    def _decide(self, waiting: _Waiting, now_ms: int) -> None:
        decision = waiting.decide()
        if decision.command is None:
            waiting.done(decision)
            return
        try:
            position = self._raft.propose(encode_command(decision.command), now_ms)
        except NotLeading:
            waiting.done(NOT_LEADER)
        except OSError as error:
            text = f"the change cannot be stored: {error}"
            waiting.done(Decision(code=ResponseCode.SYSTEM_ERROR, remark=text))
        else:
            self._proposed = _Proposed(position, self._raft.term, decision, waiting.done)
