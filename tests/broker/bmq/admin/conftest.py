"""An administered node in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from broker.bmq.admin.answers.results import ClusterInfo, ClusterNode
from broker.bmq.admin.environment import CommandContext, Environment
from broker.bmq.admin.service import Admin
from broker.bmq.core.config import DomainConfig
from tests.broker.bmq.rig import ACK, DOMAINS, LIMITS, WRITE, Client, Rig, guid, start

__all__ = ["Administered", "administered", "node", "start_with"]

BROKER_CONFIG = {"brokerInstanceName": "rig", "networkInterfaces": {"tcpInterface": {"port": 30114}}}


@dataclass
class Administered:
    """A rig and its administration."""

    rig: Rig
    admin: Admin
    context: CommandContext

    def ask(self, command: str, status: int = 0) -> str:
        """The answer to a command, which has that status."""
        found, text = self.admin.run(command, "test")
        assert found == status, text
        return text

    def json(self, command: str, status: int = 0) -> Any:
        """The answer to a command as JSON."""
        return json.loads(self.ask(f"ENCODING JSON_COMPACT {command}", status))

    def producer(self, uri: str, sizes: Iterable[int] = ()) -> Client:
        """A client that posts a message of each size, GUIDs from 0 on."""
        client = self.rig.connect()
        client.open(1, uri, WRITE | ACK)
        for number, size in enumerate(sizes):
            client.post(1, guid(number), b"x" * size)
        return client

    def configure(self, name: str, **changes: Any) -> None:
        """Change what a domain's file says."""
        self.rig.domains[name] = replace(self.rig.domains[name], **changes)

    def restart(self) -> Administered:
        return administered(self.rig.restart())


def administered(rig: Rig) -> Administered:
    """The administration of a node."""

    known = set(rig.domains)

    def forget(name: str | None) -> bool:
        if name is None:
            known.clear()
        found = name in known or name is None
        known.discard(name or "")
        return found

    cluster = ClusterInfo("local", "local", (ClusterNode("host", 0, "UNSPECIFIED"),))
    environment = Environment(BROKER_CONFIG, (cluster,), "host", "/store", forget)
    context = CommandContext(rig.node, environment)
    return Administered(rig, Admin(context), context)


@pytest.fixture
def node() -> Administered:
    return start_with()


def start_with(*domains: DomainConfig, num_partitions: int = 1) -> Administered:
    """A node with these domains, or the rig's; their configurations are shown by name and mode."""
    shown = [
        replace(config, shown={"name": config.name, "mode": {config.mode.value: {}}})
        for config in domains or DOMAINS.values()
    ]
    known = {config.name: config for config in shown}
    return administered(start(domains=known, limits=LIMITS, num_partitions=num_partitions))
