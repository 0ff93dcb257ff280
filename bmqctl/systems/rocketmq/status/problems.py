"""Problems of a RocketMQ cluster, each with its remedy, decided from its view alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bmqctl.systems.rocketmq.status.view import Broker, Name, View

__all__ = ["Problem", "problems_of"]


class Problem(NamedTuple):
    """A sentence about a problem, and one about the remedy."""

    text: str
    remedy: str


def problems_of(view: View) -> list[Problem]:
    return [*_of_nameservers(view), *_of_controllers(view), *(each for name in view.names for each in _of(name, view))]


def _of_nameservers(view: View) -> Iterator[Problem]:
    for each in view.nameservers:
        if each.error is not None:
            yield Problem(
                f"nameserver {each.address} cannot be asked: {each.error}",
                "start it again; clients use the others meanwhile",
            )


def _of_controllers(view: View) -> Iterator[Problem]:
    heard = [each for each in view.controllers if each.error is None]
    for each in view.controllers:
        if each.error is not None:
            yield Problem(
                f"controller {each.address} cannot be asked: {each.error}",
                "start it again: the others agree without it while they are a majority",
            )
    if not view.controllers:
        return
    number = max((len(each.peers) for each in heard), default=len(view.controllers))
    majority = number // 2 + 1
    leaders = [each.address for each in heard if each.is_leader]
    if not leaders and len(heard) < majority:
        yield Problem(
            f"the controllers have no quorum: {len(heard)} of {number} answer, {majority} are needed; no master is "
            "elected",
            "start controllers until a majority runs",
        )
    elif not leaders:
        yield Problem(
            f"no controller leads, though {len(heard)} of {number} answer; no master is elected",
            "ask again in a few seconds; if it stays so, look into the controllers' logs, and see that they reach each "
            "other",
        )
    elif len(leaders) > 1:
        yield Problem(
            f"more than one controller says that it leads: {', '.join(leaders)}",
            "ask again in a few seconds; if it stays so, they are of two groups: give all of them the same "
            "controllerDLegerPeers",
        )
    if view.refusal is not None:
        yield Problem(view.refusal, "see that the user who asks may ask it (--authn-data)")
    if len({frozenset(each.peers) for each in heard}) > 1:
        yield Problem(
            "controllers name different members of their group: "
            + "; ".join(f"{each.address} names {', '.join(each.peers) or 'none'}" for each in heard),
            "stop all of them, and start them with the same controllerDLegerPeers",
        )


def _of(name: Name, view: View) -> Iterator[Problem]:
    yield from _of_master(name, view)
    for broker in name.brokers:
        yield from _of_broker(name, broker, view.leader)
    if not name.has_controller:
        yield from _of_configured(name, view)


def _of_master(name: Name, view: View) -> Iterator[Problem]:
    master = name.master
    if master is None:
        yield Problem(f"{name.name} has no master: nobody takes messages", _how_to_get_a_master(name))
        return
    if master.is_alive is False:
        yield Problem(
            f"the master of {name.name}, {_told(master)}, is not alive, and no other one is elected yet",
            _how_to_get_a_master(name),
        )
    elif master.acts_as_master is False:
        yield Problem(
            f"{_told(master)} of {name.name} is to be master, and does not act as one yet",
            "ask again in a few seconds; one that was killed as master waits up to 20 s for another to be elected",
        )
    if name.has_controller:
        in_sync = sum(1 for each in name.brokers if each.is_in_sync)
        if in_sync < name.least:
            yield Problem(
                f"{name.name} has {in_sync} brokers in sync, fewer than minInSyncReplicas={name.least}: senders are "
                "refused",
                "start the brokers that are gone, or have the master take fewer: mqadmin updateBrokerConfig -b "
                f"{master.address} -k minInSyncReplicas -v {max(1, in_sync)}",
            )
        for nameserver in view.nameservers:
            told = nameserver.masters.get(name.name)
            if nameserver.error is None and told != master.address:
                yield Problem(
                    f"nameserver {nameserver.address} says that the master of {name.name} is {told or 'nobody'}, and "
                    f"the controller says {master.address}",
                    f"ask again in a few seconds; if it stays so, name {nameserver.address} in namesrvAddr of the "
                    "broker",
                )


def _how_to_get_a_master(name: Name) -> str:
    if not name.has_controller:
        return "start the broker with brokerRole=ASYNC_MASTER or SYNC_MASTER"
    members = [_told(each) for each in name.brokers if each.is_in_sync]
    if not members:
        return "start its brokers"
    return (
        f"start a broker that was in sync: {', '.join(members)}; if all of these are lost for good, and what only they "
        "have may be lost, too, set enableElectUncleanMaster=true at the controllers for a while"
    )


def _of_broker(name: Name, broker: Broker, leader: str | None) -> Iterator[Problem]:
    who = f"{_told(broker)} of {name.name}"
    if broker.is_alive is False and not broker.is_master:
        yield Problem(
            f"{who} is registered with the controller and not alive",
            f"start it again; if it is gone for good: mqadmin cleanBrokerMetadata -a {leader} "
            f"-bn {name.name} -b {broker.broker_id} -c {name.cluster or 'CLUSTER'}",
        )
    elif broker.error is not None and broker.is_alive is not False:
        yield Problem(
            f"{who} cannot be asked: {broker.error}", "see that its address can be reached from here, and that it runs"
        )
    elif broker.is_alive and broker.is_in_sync is False:
        yield Problem(
            f"{who} is not in sync{_by(broker)}: it cannot be elected",
            "it joins by itself once it has everything; if it does not, look into its log and the master's",
        )
    if broker.behind is not None and broker.behind > name.gap_max:
        yield Problem(
            f"{who} is far behind{_by(broker)}, more than haMaxGapNotInSync={name.gap_max}",
            "see that its disk and its network keep up with the master's",
        )
    if broker.disk_alarm:
        yield Problem(
            f"the disk of {who} is full: it is going to remove {broker.disk_alarm}",
            "make room on the disk, consume them, or delete the group if nobody needs it; they are removed when the "
            "alarm has stood for cleanFileForciblyInterval milliseconds",
        )
    if name.has_controller and broker.is_alive is None:
        yield Problem(
            f"{who} is known to nameservers, and the controller does not know it",
            "start it with "
            + ("a controllerAddr that names these controllers" if broker.wants_controller else _CONTROLLED),
        )


_CONTROLLED = "enableControllerMode=true and controllerAddr, as the others of its name"


def _of_configured(name: Name, view: View) -> Iterator[Problem]:
    wanting = [each for each in name.brokers if each.wants_controller]
    if wanting:
        yield Problem(
            f"{name.name} waits for a controller: {', '.join(each.address for each in wanting)}",
            "see that controllers of controllerAddr run, and that one of them leads",
        )
    elif len(name.brokers) > 1:
        yield Problem(
            f"{name.name} has a master and slaves by configuration: if the master is gone, nobody replaces it",
            f"run controllers, and its brokers with {_CONTROLLED.partition(', as')[0]}",
        )
    master = name.master
    if master is not None and master.role == "SYNC_MASTER" and name.slaves_in_sync is not None:
        copies = 1 + name.slaves_in_sync
        if copies < name.least and not wanting:
            yield Problem(
                f"{name.name} has {copies} brokers that keep up, fewer than inSyncReplicas={name.least}: senders are "
                "answered FLUSH_SLAVE_TIMEOUT",
                "start the slaves that are gone",
            )


def _told(broker: Broker) -> str:
    number = "" if broker.broker_id is None else f" {broker.broker_id}"
    return f"broker{number} at {broker.address}"


def _by(broker: Broker) -> str:
    return "" if broker.behind is None else f", {broker.behind:,} bytes behind its master"
