"""The only module that chooses a system: by the URI of a queue or a topic, or the options that name a cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bmqctl.carrying.bridge.ends import DEFAULT_GROUP, BadBridge

if TYPE_CHECKING:
    from pathlib import Path

    from bmqctl.systems.administration import ClusterAdministration, DefinitionHolder
    from bmqctl.systems.definitions.model import Definitions
    from bmqctl.systems.end import End
    from bmqctl.systems.system import Cluster, ClusterOptions

__all__ = [
    "checked_definitions",
    "open_administration",
    "open_broker",
    "open_cluster",
    "open_clusters",
    "open_end",
    "open_folder",
]


def open_end(text: str, broker: str, group: str = DEFAULT_GROUP, *, may_lack_topic: bool = False) -> End:
    """Parse `bmq://DOMAIN/QUEUE[?id=APP]` or `rocketmq://HOST:PORT/TOPIC[?...]`. Raises `BadBridge`.

    `broker` is the address of a queue's broker, `group` the group of a topic without one.
    """
    if text.startswith("bmq://"):
        from bmqctl.systems.blazingmq.end import QueueEnd

        return QueueEnd.parse(text, broker)
    if text.startswith("rocketmq://"):
        from bmqctl.systems.rocketmq.end import TopicEnd

        return TopicEnd.parse(text, may_lack_topic=may_lack_topic, group=group)
    raise BadBridge(f"{text}: expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC")


def open_broker(host: str, port: int) -> End:
    """The place of all queues at a BlazingMQ broker, to which a replay posts each message as its own."""
    from bmqctl.systems.blazingmq.end import QueueEnd

    return QueueEnd(host, port, "")


def open_cluster(options: ClusterOptions) -> Cluster:
    """The cluster that options name, by default BlazingMQ's on this host. Raises `CannotBegin`."""
    if options.names_rocketmq:
        from bmqctl.systems.rocketmq.cluster import RocketMQCluster

        return RocketMQCluster(options)
    from bmqctl.systems.blazingmq.cluster import BlazingMQCluster

    return BlazingMQCluster(options)


def open_clusters(options: ClusterOptions) -> list[Cluster]:
    """The clusters that options name, at most one of each system. Raises `CannotBegin`."""
    found = []
    if options.broker:
        found.append(open_cluster(replace(options, is_rocketmq=False, nameservers=None, controllers=None)))
    if options.names_rocketmq:
        found.append(open_cluster(replace(options, broker=None)))
    return found


def open_administration(options: ClusterOptions) -> ClusterAdministration:
    """The administration of a cluster, by default RocketMQ's on this host. Raises `CannotBegin`."""
    if options.broker and not options.names_rocketmq:
        from bmqctl.systems.blazingmq.administration import BlazingMQAdministration

        return BlazingMQAdministration()
    from bmqctl.systems.rocketmq.administration import RocketMQAdministration

    return RocketMQAdministration(options)


def open_folder(config: Path) -> DefinitionHolder:
    """The folder of a BlazingMQ broker's configuration. Raises `BadDefinitions`."""
    from bmqctl.systems.administration import DefinitionHolder
    from bmqctl.systems.definitions.blazingmq import read_domains, write_domains

    return DefinitionHolder(str(config), read_domains(config), partial(write_domains, config))


def checked_definitions(wanted: Definitions) -> Definitions:
    """Return definitions with their defaults, as their system reads them. Raises `BadDefinitions`."""
    from bmqctl.systems.definitions.model import ROCKETMQ

    if wanted.system == ROCKETMQ:
        from bmqctl.systems.definitions.rocketmq import checked

        return checked(wanted)
    from bmqctl.systems.definitions.blazingmq import checked as checked_domains

    return checked_domains(wanted)
