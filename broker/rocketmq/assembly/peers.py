"""The part of the composition root about the recognition of other nodes."""

from __future__ import annotations

from broker.common.addresses import Addresses
from broker.rocketmq.access.guard import Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.config.node import RocketConfig
from broker.rocketmq.nameserver.admission import NameserverAdmission
from broker.rocketmq.nameserver.routes import Routes
from broker.rocketmq.remoting.administrators import Administrators
from broker.rocketmq.remoting.peers import KnownPeers

__all__ = ["controller_peers", "controller_secret", "make_admission", "peers_at"]


def peers_at(config: RocketConfig, addresses: Addresses, port: int) -> KnownPeers:
    return KnownPeers(addresses, config.peer_secret, port, checks_address=config.checks_peer_address)


def controller_secret(config: RocketConfig) -> bytes | None:
    """Return the secret of the controllers: that of all nodes, otherwise the one with which they sign."""
    if config.peer_secret is not None or config.inner_credentials is None:
        return config.peer_secret
    return (config.inner_credentials.password or "").encode()


def controller_peers(config: RocketConfig, addresses: Addresses) -> KnownPeers:
    return KnownPeers(
        addresses,
        controller_secret(config),
        config.controller_port or 0,
        checks_address=config.checks_peer_address,
        all_prove=config.peer_secret is not None,
    )


def make_admission(
    config: RocketConfig, routes: Routes, peers: KnownPeers, guard: Guard, tables: AccessTables
) -> NameserverAdmission:
    administrators = Administrators(config.administrators, lambda: guard.authenticates)
    if config.inner_credentials is None:
        return NameserverAdmission(routes, peers, administrators)
    return NameserverAdmission(routes, peers, administrators, tables.is_signed_by_super)
