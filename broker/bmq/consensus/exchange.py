"""The requests and responses of the cluster state machine, in their three envelopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.bmq.links.requests import Requests
from formats.bmq.control.messages import (
    ClusterMessage,
    ClusterStateFSMMessage,
    ControlMessage,
    FollowerClusterStateRequest,
    FollowerClusterStateResponse,
    FollowerLSNRequest,
    FollowerLSNResponse,
    PrimaryStatusAdvisory,
    RegistrationRequest,
    RegistrationResponse,
    Status,
    StatusCategory,
)

__all__ = ["Exchange", "Response"]

REQUEST_TIMEOUT_MS: Final = 10_000

Request = FollowerLSNRequest | FollowerClusterStateRequest | RegistrationRequest
Response = FollowerLSNResponse | FollowerClusterStateResponse | RegistrationResponse


class Exchange:
    """Requests and responses of this node's state machine; its requests can be cancelled together."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._asked: list[int] = []

    def ask(self, node_id: int, request: Request, answered: Callable[[object], None]) -> None:
        """Send a request; `answered` gets the unwrapped response, or the status that came instead."""
        message = ClusterMessage(choice=ClusterStateFSMMessage(choice=request))
        number = self._requests.send(node_id, message, lambda choice: answered(_opened(choice)), REQUEST_TIMEOUT_MS)
        self._asked.append(number)

    def advise(self, node_id: int, choice: PrimaryStatusAdvisory) -> None:
        self._requests.advise(node_id, ClusterMessage(choice=choice))

    def cancel(self) -> None:
        for number in self._asked:
            self._requests.cancel(number)
        self._asked.clear()

    def respond(self, node_id: int, request: ControlMessage, response: Response) -> None:
        message = ClusterMessage(choice=ClusterStateFSMMessage(choice=response))
        self._requests.respond(node_id, request, message)

    def refuse(self, node_id: int, request: ControlMessage, code: int, text: str) -> None:
        status = Status(category=StatusCategory.REFUSED, code=code, message=text)
        self._requests.respond(node_id, request, status)


def _opened(choice: object) -> object:
    if isinstance(choice, ClusterMessage) and isinstance(choice.choice, ClusterStateFSMMessage):
        return choice.choice.choice
    return choice
