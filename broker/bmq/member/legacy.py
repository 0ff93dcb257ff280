"""The reference's older workflow, in which leaders and replicas make other requests: all are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.bmq.core.alarms import alarm
from broker.bmq.core.cluster_errors import ClusterError
from broker.bmq.links.requests import Requests
from formats.bmq.control.messages import ControlMessage, Status, StatusCategory

__all__ = ["LegacyWorkflow"]

log: Final = logging.getLogger("broker.cluster")

REMEDY: Final = 'set "isCSLModeEnabled" and "isFSMWorkflow" in the clusterAttributes of all nodes'


class LegacyWorkflow:
    """The refusal of these requests, with one alarm for each link."""

    def __init__(self, requests: Requests, describe: Callable[[int], str]) -> None:
        self._requests = requests
        self._describe = describe
        self._reported: set[int] = set()

    def node_down(self, node_id: int) -> None:
        self._reported.discard(node_id)

    def refuse(self, node_id: int, message: ControlMessage, query: str) -> None:
        if node_id not in self._reported:
            self._reported.add(node_id)
            alarm(log, "CLUSTER", f"{self._describe(node_id)} speaks the legacy workflow ({query}): {REMEDY}.")
        if message.r_id is not None:
            text = "the legacy workflow is not supported"
            status = Status(category=StatusCategory.NOT_SUPPORTED, code=ClusterError.UNKNOWN, message=text)
            self._requests.respond(node_id, message, status)
