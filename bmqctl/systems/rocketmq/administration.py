"""Administration of a RocketMQ cluster: its masters one by one, and its nameservers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import trio

from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.administration import ConnectedClient, DefinitionHolder, Move, Seek
from bmqctl.systems.definitions.model import KINDS, ROCKETMQ, Change
from bmqctl.systems.definitions.rocketmq import Master, apply_changes, forget_topics, masters_of
from bmqctl.systems.rocketmq.cluster import places_of
from bmqctl.systems.rocketmq.seeking import plan_seek, seek
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, asker_of, body_of
from bmqctl.systems.rocketmq.status.asking import Places, hear
from bmqctl.systems.rocketmq.status.group import GroupUnknown
from bmqctl.systems.rocketmq.status.view import Broker, view_of
from bmqctl.systems.system import ClusterOptions, Unanswered
from formats.rocketmq.remoting.bodies.inspection import CONSUMER_CONNECTION, PRODUCER_TABLE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.administration import GetConsumerConnectionListRequest
from formats.rocketmq.remoting.headers.codec import read_header, write_header
from formats.rocketmq.remoting.headers.replicating import ElectMasterRequest, ElectMasterResponse
from formats.rocketmq.remoting.versions import version_name

__all__ = ["RocketMQAdministration"]


def clients_of(masters: Sequence[Master], asker: Asker) -> list[ConnectedClient]:
    """All producers, and the consumers of all groups. Raises `NobodyAnswers`."""

    async def clients(link: RemotingLink, master: Master) -> list[ConnectedClient]:
        groups = master.definitions.tables["groups"]
        return [
            *await _producers(link, master, asker.timeout_s),
            *await _consumers(link, master, groups, asker.timeout_s),
        ]

    return trio.run(_at_each, masters, clients, asker)


def members_of(masters: Sequence[Master], group: str, asker: Asker) -> list[ConnectedClient]:
    """The consumers of a group. Raises `NobodyAnswers`."""

    async def members(link: RemotingLink, master: Master) -> list[ConnectedClient]:
        return await _consumers(link, master, (group,), asker.timeout_s)

    return trio.run(_at_each, masters, members, asker)


async def _at_each(
    masters: Sequence[Master],
    ask_for: Callable[[RemotingLink, Master], Awaitable[list[ConnectedClient]]],
    asker: Asker,
) -> list[ConnectedClient]:
    found: list[ConnectedClient] = []
    for master in masters:

        async def ask_master(link: RemotingLink, master: Master = master) -> list[ConnectedClient]:
            return await ask_for(link, master)

        found += await asker.over(master.address, ask_master)
    return sorted(found)


async def _consumers(
    link: RemotingLink, master: Master, groups: Iterable[str], timeout_s: float
) -> list[ConnectedClient]:
    found = []
    for group in groups:
        fields = write_header(GetConsumerConnectionListRequest(group))
        answer = await link.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, fields, timeout_s)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            continue
        told = CONSUMER_CONNECTION.read(body_of(answer, f"the consumers of {group}"))
        subscriptions = ", ".join(
            f"{topic} {each.sub_string}" for topic, each in sorted(told.subscription_table.items())
        )
        found += [
            ConnectedClient(
                master.name,
                "consumer",
                group,
                each.client_id,
                each.client_address,
                each.language,
                version_name(each.version),
                subscriptions,
            )
            for each in told.connection_set
        ]
    return found


async def _producers(link: RemotingLink, master: Master, timeout_s: float) -> list[ConnectedClient]:
    answer = await link.call(RequestCode.GET_ALL_PRODUCER_INFO, {}, timeout_s)
    table = PRODUCER_TABLE.read(body_of(answer, "the producers")).data
    return [
        ConnectedClient(
            master.name,
            "producer",
            group,
            each.client_id,
            each.remote_ip.removeprefix("/"),
            each.language,
            version_name(each.version),
        )
        for group, members in table.items()
        for each in members
    ]


async def step_down(places: Places, name: str, wanted: int | None, asker: Asker) -> str:
    """Have a broker in sync become a name's master, the one with an id or the one that lacks least.

    Returns its address. Raises `NobodyAnswers`, also if there is no such broker, or the controller refuses.
    """
    view = view_of(await hear(places, asker))
    found = next((each for each in view.names if each.name == name), None)
    if found is None:
        raise NobodyAnswers(
            f"{name}: no such brokers; there are {', '.join(each.name for each in view.names) or 'none'}"
        )
    if view.leader is None or not found.has_controller:
        raise NobodyAnswers(f"{name}: no controller leads that knows these brokers, and only controllers elect masters")
    chosen = _chosen(name, found.brokers, wanted)
    header = ElectMasterRequest(
        found.cluster, name, chosen, designate_elect=True, invoked_ms=time.time_ns() // 1_000_000
    )

    async def elect(link: RemotingLink) -> str:
        answer = await link.call(RequestCode.CONTROLLER_ELECT_MASTER, write_header(header), asker.timeout_s)
        body_of(answer, f"broker {chosen} as the master of {name}")
        return read_header(ElectMasterResponse, answer.ext_fields).master_address or ""

    return await asker.over(view.leader, elect)


def _chosen(name: str, brokers: Sequence[Broker], wanted: int | None) -> int:
    fit = {
        each.broker_id: each
        for each in brokers
        if each.broker_id is not None and not each.is_master and each.is_in_sync and each.error is None
    }
    if wanted is not None and wanted not in fit:
        raise NobodyAnswers(
            f"{name}: broker {wanted} is no slave in sync; there are {', '.join(map(str, fit)) or 'none'}"
        )
    if not fit:
        raise NobodyAnswers(f"{name}: no slave is in sync, which could become the master")
    return wanted if wanted is not None else min(fit, key=lambda each: (fit[each].behind or 0, each))


class RocketMQAdministration:
    """The masters of a cluster, or of some names of brokers. Raises `CannotBegin` for an invalid address."""

    def __init__(self, options: ClusterOptions) -> None:
        self._asker = asker_of(options.reach)
        self._places = places_of(None, options.nameservers, options.controllers)
        self._names = options.broker_names

    def places(self, kinds: Sequence[str]) -> list[DefinitionHolder]:
        found = self._masters(kinds)
        return [DefinitionHolder(each.name, each.definitions, partial(self._apply, each)) for each in found]

    def forget_topics(self, names: Sequence[str]) -> None:
        # Other brokers may still have the topic.
        if not self._names:
            with _unanswered():
                forget_topics(self._places, names, self._asker)

    def clients(self) -> list[ConnectedClient]:
        with _unanswered():
            return clients_of(self._masters(), self._asker)

    def members(self, group: str) -> list[ConnectedClient]:
        with _unanswered():
            return members_of(self._masters(), group, self._asker)

    def plan_seek(self, wanted: Seek) -> list[Move]:
        with _unanswered():
            return trio.run(plan_seek, self._places.nameservers, wanted, self._asker)

    def seek(self, wanted: Seek) -> None:
        with _unanswered():
            trio.run(seek, self._places.nameservers, wanted, self._asker)

    def step_down(self, name: str, wanted: int | None) -> str:
        with _unanswered():
            return trio.run(step_down, self._places, name, wanted, self._asker)

    def _masters(self, kinds: Sequence[str] = KINDS[ROCKETMQ]) -> list[Master]:
        with _unanswered():
            found = masters_of(self._places, self._asker, kinds)
        known = {each.name for each in found}
        for name in self._names or ():
            if name not in known:
                raise Unanswered(f"--broker-name {name}: there are {', '.join(sorted(known))}")
        return [each for each in found if each.name in (self._names or known)]

    def _apply(self, master: Master, changes: Sequence[Change]) -> None:
        with _unanswered():
            apply_changes(master, changes, self._asker)


@contextmanager
def _unanswered() -> Iterator[None]:
    try:
        yield
    except (NobodyAnswers, GroupUnknown) as fault:
        raise Unanswered(str(fault)) from None
