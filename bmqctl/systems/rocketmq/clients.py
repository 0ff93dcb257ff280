"""The clients that are connected to masters, as producers or in consumer groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import trio

from bmqctl.clients.rocketmq.link import AccessKeys, RemotingLink
from bmqctl.systems.administration import ConnectedClient
from bmqctl.systems.definitions.rocketmq import Master
from bmqctl.systems.rocketmq.status.asker import Asker, body_of
from bmqctl.systems.rocketmq.status.asking import Secret
from formats.rocketmq.remoting.bodies.inspection import CONSUMER_CONNECTION, PRODUCER_TABLE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.headers.administration import GetConsumerConnectionListRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.versions import version_name

__all__ = ["clients_of", "members_of"]


def clients_of(masters: Sequence[Master], timeout_s: float, secret: Secret | None) -> list[ConnectedClient]:
    """Return all producers and the consumers of all groups. Raises `NobodyAnswers`."""

    async def clients(link: RemotingLink, master: Master) -> list[ConnectedClient]:
        groups = master.definitions.tables["groups"]
        return [*await _producers(link, master, timeout_s), *await _consumers(link, master, groups, timeout_s)]

    return trio.run(_at_each, masters, clients, timeout_s, secret)


def members_of(masters: Sequence[Master], group: str, timeout_s: float, secret: Secret | None) -> list[ConnectedClient]:
    """Return the consumers of a group. Raises `NobodyAnswers`."""

    async def members(link: RemotingLink, master: Master) -> list[ConnectedClient]:
        return await _consumers(link, master, (group,), timeout_s)

    return trio.run(_at_each, masters, members, timeout_s, secret)


async def _at_each(
    masters: Sequence[Master],
    ask_for: Callable[[RemotingLink, Master], Awaitable[list[ConnectedClient]]],
    timeout_s: float,
    secret: Secret | None,
) -> list[ConnectedClient]:
    ask = Asker(timeout_s, None if secret is None else AccessKeys(*secret))
    found: list[ConnectedClient] = []
    for master in masters:

        async def ask_master(link: RemotingLink, master: Master = master) -> list[ConnectedClient]:
            return await ask_for(link, master)

        found += await ask.over(master.address, ask_master)
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
