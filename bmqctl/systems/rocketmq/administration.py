"""A cluster of RocketMQ, as it is administered: its masters one by one, and its nameservers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import trio

from bmqctl.clients.rocketmq.link import AccessKeys
from bmqctl.systems.administration import ConnectedClient, DefinitionHolder, Move, Seek
from bmqctl.systems.definitions.model import KINDS, ROCKETMQ, Change
from bmqctl.systems.definitions.rocketmq import Master, apply_changes, forget_topics, masters_of
from bmqctl.systems.rocketmq.clients import clients_of, members_of
from bmqctl.systems.rocketmq.cluster import places_of, secret_of
from bmqctl.systems.rocketmq.electing import step_down
from bmqctl.systems.rocketmq.seeking import plan_seek, seek
from bmqctl.systems.rocketmq.status.group import GroupUnknown, NobodyAnswers
from bmqctl.systems.system import ClusterOptions, Unanswered

__all__ = ["RocketMQAdministration"]


class RocketMQAdministration:
    """The masters of a cluster, or those of some names of brokers. Raises `CannotBegin` for what is no address."""

    def __init__(self, options: ClusterOptions) -> None:
        self._secret = secret_of(options.data)
        self._keys = None if self._secret is None else AccessKeys(*self._secret)
        self._places = places_of(None, options.nameservers, options.controllers)
        self._names = options.broker_names
        self._timeout_s = options.timeout_s

    def places(self, kinds: Sequence[str]) -> list[DefinitionHolder]:
        found = self._masters(kinds)
        return [DefinitionHolder(each.name, each.definitions, partial(self._apply, each)) for each in found]

    def forget_topics(self, names: Sequence[str]) -> None:
        # Brokers that were not named may still have the topic.
        if not self._names:
            with _unanswered():
                forget_topics(self._places, names, self._timeout_s, self._secret)

    def clients(self) -> list[ConnectedClient]:
        with _unanswered():
            return clients_of(self._masters(), self._timeout_s, self._secret)

    def members(self, group: str) -> list[ConnectedClient]:
        with _unanswered():
            return members_of(self._masters(), group, self._timeout_s, self._secret)

    def plan_seek(self, wanted: Seek) -> list[Move]:
        with _unanswered():
            return trio.run(plan_seek, self._places.nameservers, wanted, self._timeout_s, self._keys)

    def seek(self, wanted: Seek) -> None:
        with _unanswered():
            trio.run(seek, self._places.nameservers, wanted, self._timeout_s, self._keys)

    def step_down(self, name: str, wanted: int | None) -> str:
        with _unanswered():
            return trio.run(step_down, self._places, name, wanted, self._timeout_s, self._secret)

    def _masters(self, kinds: Sequence[str] = KINDS[ROCKETMQ]) -> list[Master]:
        with _unanswered():
            found = masters_of(self._places, self._timeout_s, self._secret, kinds)
        known = {each.name for each in found}
        for name in self._names or ():
            if name not in known:
                raise Unanswered(f"--broker-name {name}: there are {', '.join(sorted(known))}")
        return [each for each in found if each.name in (self._names or known)]

    def _apply(self, master: Master, changes: Sequence[Change]) -> None:
        with _unanswered():
            apply_changes(master, changes, self._timeout_s, self._secret)


@contextmanager
def _unanswered() -> Iterator[None]:
    try:
        yield
    except (NobodyAnswers, GroupUnknown) as fault:
        raise Unanswered(str(fault)) from None
