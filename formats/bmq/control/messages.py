"""The messages of events, and their parts.

| event | message |
| --- | --- |
| CONTROL, first one each way | `NegotiationMessage` |
| CONTROL | `ControlMessage` |
| AUTHENTICATION | `AuthenticationMessage` |
| ELECTOR | `ElectorMessage` |
| CLUSTER_STATE | records of the cluster state ledger, each around a `ClusterMessage` |

Source: the reference's schema `bmqp_ctrlmsg.xsd`.
"""

from __future__ import annotations

from typing import Annotated

from formats.bmq.control import messages_cluster, messages_session
from formats.bmq.control.messages_cluster import *  # noqa: F403
from formats.bmq.control.messages_cluster import ClusterMessage
from formats.bmq.control.messages_session import *  # noqa: F403
from formats.bmq.control.messages_session import (
    AdminCommand,
    AdminCommandResponse,
    CloseQueue,
    CloseQueueResponse,
    ConfigureQueueStream,
    ConfigureQueueStreamResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    Disconnect,
    DisconnectResponse,
    OpenQueue,
    OpenQueueResponse,
    Status,
)
from formats.bmq.control.schema import Int, ULong, alternatives, sequence

__all__ = [
    *messages_cluster.__all__,
    *messages_session.__all__,
    "ControlMessage",
    "ElectionProposal",
    "ElectionResponse",
    "ElectorMessage",
    "ElectorNodeStatus",
    "HeartbeatResponse",
    "LeaderHeartbeat",
    "LeadershipCessionNotification",
    "ScoutingRequest",
    "ScoutingResponse",
]


@sequence
class ControlMessage:
    """A request, its response (under the request's `r_id`), or an advisory (without one)."""

    r_id: Int | None = None
    # Tags 3 to 6 belonged to removed alternatives.
    choice: Annotated[
        Status
        | Disconnect
        | DisconnectResponse
        | AdminCommand
        | AdminCommandResponse
        | ClusterMessage
        | OpenQueue
        | OpenQueueResponse
        | CloseQueue
        | CloseQueueResponse
        | ConfigureQueueStream
        | ConfigureQueueStreamResponse
        | ConfigureStream
        | ConfigureStreamResponse,
        alternatives(0, 1, 2, *range(7, 18)),
    ]


# Elector


@sequence
class ElectionProposal:
    """A candidate's request for votes in the message's term."""


@sequence
class ElectionResponse:
    """A vote for the candidate."""


@sequence
class LeaderHeartbeat:
    """A sign of life from the leader of the message's term."""


@sequence
class ElectorNodeStatus:
    is_available: bool


@sequence
class HeartbeatResponse:
    """The sender follows another leader, or a newer term, than the heartbeat's."""


@sequence
class ScoutingRequest:
    """A node's question before its proposal: would the receiver vote for it in the message's term?"""


@sequence
class ScoutingResponse:
    will_vote: bool


@sequence
class LeadershipCessionNotification:
    """The leader's resignation."""


@sequence
class ElectorMessage:
    term: ULong
    choice: Annotated[
        ElectionProposal
        | ElectionResponse
        | LeaderHeartbeat
        | ElectorNodeStatus
        | HeartbeatResponse
        | ScoutingRequest
        | ScoutingResponse
        | LeadershipCessionNotification,
        alternatives(),
    ]
