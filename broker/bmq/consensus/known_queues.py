"""Changes of queues by commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.bmq.core.ledger import Advisory, ClusterState
from formats.bmq.control.messages import LeaderAdvisory, PartitionPrimaryAdvisory, QueueInfo, QueueUpdateAdvisory

__all__ = ["KnownQueues", "QueueChange"]


class QueueChange(NamedTuple):
    """The changes of queues by a commit; `updated` are those with other apps, in their new form."""

    assigned: tuple[QueueInfo, ...] = ()
    unassigned: tuple[QueueInfo, ...] = ()
    updated: tuple[QueueInfo, ...] = ()


class KnownQueues:
    """The queues of the last state, at first those of the ledger's file, which clients may open."""

    def __init__(self, known: Mapping[str, QueueInfo]) -> None:
        self._known = dict(known)

    def change(self, advisory: Advisory, state: ClusterState) -> QueueChange:
        assigned, unassigned, updated = [], [], []
        for uri in self._uris(advisory, state):
            old, new = self._known.pop(uri, None), state.queues.get(uri)
            if new is not None:
                self._known[uri] = new
            if old is not None and (new is None or new.key != old.key):
                unassigned.append(old)
            if new is not None and (old is None or new.key != old.key):
                assigned.append(new)
            elif new is not None and new != old:
                updated.append(new)
        return QueueChange(tuple(assigned), tuple(unassigned), tuple(updated))

    def _uris(self, advisory: Advisory, state: ClusterState) -> Iterable[str]:
        match advisory:
            case PartitionPrimaryAdvisory():
                return ()
            case LeaderAdvisory():
                return {**self._known, **state.queues}
            case QueueUpdateAdvisory():
                return [update.uri for update in advisory.queue_updates]
            case _:
                return [info.uri for info in advisory.queues]
