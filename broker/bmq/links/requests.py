# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Requests among brokers: numbered, answered once, with a time limit (source: mqbnet::MultiRequestManager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.bmq.links.links import Links
from broker.common.clock import Now
from broker.common.timers import Timers
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AdminCommandResponse,
    CloseQueueResponse,
    ClusterMessage,
    ClusterStateFSMMessage,
    ConfigureQueueStreamResponse,
    ConfigureStreamResponse,
    ControlMessage,
    DisconnectResponse,
    FollowerClusterStateResponse,
    FollowerLSNResponse,
    OpenQueueResponse,
    PartitionMessage,
    PrimaryStateResponse,
    RegistrationResponse,
    ReplicaDataResponse,
    ReplicaStateResponse,
    Status,
    StatusCategory,
    StopResponse,
)
from formats.bmq.wire.event import build_schema_event

__all__ = ["REQUEST_TIMEOUT_MS", "Answered", "Requests"]

REQUEST_TIMEOUT_MS: Final = 60_000

# Maximum of `ControlMessage.r_id`, after which the numbers start over.
NUMBER_MAX: Final = (1 << 31) - 1

ANSWERS: Final = (
    Status,
    AdminCommandResponse,
    CloseQueueResponse,
    ConfigureQueueStreamResponse,
    ConfigureStreamResponse,
    DisconnectResponse,
    FollowerClusterStateResponse,
    FollowerLSNResponse,
    OpenQueueResponse,
    PrimaryStateResponse,
    RegistrationResponse,
    ReplicaDataResponse,
    ReplicaStateResponse,
    StopResponse,
)

# Any choice of `ControlMessage`.
Choice = object
# The choice of the answer; a `Status` if the request failed, in transit or at the receiver.
Answered = Callable[[Choice], None]


class PendingRequest(NamedTuple):
    node_id: int
    answered: Answered


class Requests:
    """The requests of one node to its peers."""

    def __init__(self, links: Links, now: Now, timers: Timers) -> None:
        self._links = links
        self._now = now
        self._timers = timers
        self._pending: dict[int, PendingRequest] = {}
        self._last = 0

    def send(
        self, node_id: int, choice: Choice, answered: Answered, timeout_ms: int | None = REQUEST_TIMEOUT_MS
    ) -> int:
        """Send a request and return its number; `answered` is called once, later, unless the request is cancelled.

        With None for the timeout it waits for the answer while the link lasts.
        """
        number = self._next_number()
        event = _event(number, choice)
        self._last = number
        self._pending[number] = PendingRequest(node_id, answered)
        if not self._links.is_up(node_id):
            self._timers.at(self._now.ms, lambda: self._fail(number, StatusCategory.NOT_CONNECTED, "no link"))
            return number
        self._links.send(node_id, event)
        if timeout_ms is not None:
            self._timers.at(self._now.ms + timeout_ms, lambda: self._fail(number, StatusCategory.TIMEOUT, "no answer"))
        return number

    def _next_number(self) -> int:
        number = self._last % NUMBER_MAX + 1
        while number in self._pending:
            number = number % NUMBER_MAX + 1
        return number

    def respond(self, node_id: int, request: ControlMessage, choice: Choice) -> None:
        assert request.r_id is not None
        self._links.send(node_id, _event(request.r_id, choice))

    def advise(self, node_id: int, choice: Choice) -> None:
        self._links.send(node_id, _event(None, choice))

    def received(self, node_id: int, message: ControlMessage) -> bool:
        """Handle an answer; return False if it is none, or answers no pending request to this node.

        Both sides number their requests: a request may have the number of one that is pending here.
        """
        pending = self._pending.get(message.r_id) if message.r_id is not None and _is_answer(message) else None
        if pending is None or pending.node_id != node_id:
            return False
        assert message.r_id is not None
        del self._pending[message.r_id]
        pending.answered(message.choice)
        return True

    def cancel(self, number: int) -> None:
        self._pending.pop(number, None)

    def node_down(self, node_id: int) -> None:
        lost = [number for number, pending in self._pending.items() if pending.node_id == node_id]
        for number in lost:
            self._fail(number, StatusCategory.NOT_CONNECTED, "the link was lost")

    def _fail(self, number: int, category: StatusCategory, text: str) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.answered(Status(category=category, code=int(category), message=text))


def _is_answer(message: ControlMessage) -> bool:
    choice: Choice = message.choice
    while isinstance(choice, (ClusterMessage, ClusterStateFSMMessage, PartitionMessage)):
        choice = choice.choice
    return isinstance(choice, ANSWERS)


def _event(number: int | None, choice: Choice) -> bytes:
    return build_schema_event(ber.encode(ControlMessage(r_id=number, choice=choice)))  # type: ignore[arg-type]
