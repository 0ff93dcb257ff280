"""Metrics of a controller for Prometheus, by the original's names and labels (source: ControllerMetricsManager)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.common.exposition import Series, label_text, metric_pieces
from broker.rocketmq.controller.options import ControllerOptions
from broker.rocketmq.controller.service import ControllerService
from broker.rocketmq.raft.raft import Role

__all__ = ["controller_pieces"]

# A controller that asks whether it would be elected is no candidate yet, and follows nobody.
_ROLES: Final = {Role.ASKING: 0, Role.CANDIDATE: 1, Role.FOLLOWER: 2, Role.LEADER: 3}


def controller_pieces(options: ControllerOptions, service: ControllerService) -> Iterator[bytes]:
    common = {"address": options.address, "group": options.group, "peer_id": options.self_id}
    yield from metric_pieces("role", (Series((label_text(common),), (_ROLES[service.raft.role],)),))
    live = Counter(key.name for key in service.live())
    groups = service.groups.by_name
    labels = [
        label_text({**common, "cluster": groups[name].cluster if name in groups else "", "broker_set": name})
        for name in live
    ]
    yield from metric_pieces("active_broker_num", (Series(labels, live.values()),))
