"""Checks that the configured security lets this broker and the brokers that it needs connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.bmq.config.broker_schema import AppConfig
from broker.bmq.config.cluster_schema import ClusterDefinition, ClusterProxyDefinition
from broker.bmq.config.errors import ConfigError, shown
from broker.bmq.config.node import NodeConfig, this_node

__all__ = ["ClusterPlace", "needs_proof", "refuse_unreachable"]


class ClusterPlace(NamedTuple):
    """A cluster that this broker is in or is a proxy to, and its place in the configuration."""

    cluster: ClusterDefinition | ClusterProxyDefinition
    file: str
    json_path: str


def needs_proof(app: AppConfig, *, tls: bool) -> bool:
    """Return True if nodes authenticate to each other; `tls` is True if they listen for TLS.

    They do if each has credentials, if anonymous peers are refused, or if connecting peers are asked for a certificate.
    """
    authentication = app.authentication
    anonymous = authentication.anonymous_credential
    return (
        authentication.credential_provider is not None
        or (anonymous is not None and anonymous.disallow is not None)
        or (tls and app.tls_config is not None and app.tls_config.asks_for_certificates)
    )


def refuse_unreachable(config: NodeConfig, places: Sequence[ClusterPlace], broker_file: str) -> None:
    """Raise `ConfigError` if this broker could not connect with another node of its cluster, or with one upstream."""
    app = config.broker.app_config
    for place in places:
        is_member = isinstance(place.cluster, ClusterDefinition)
        if is_member and len(place.cluster.nodes) == 1:
            continue
        for index, node in enumerate(place.cluster.nodes):
            if node.tls and app.tls_config is None:
                raise ConfigError(
                    place.file,
                    f"{place.json_path}.nodes[{index}].transport.tcp.tls",
                    "requires TLS, but this broker trusts no certificate authority",
                    'name one, and a certificate, in "tlsConfig" of "appConfig"',
                )
        if is_member:
            _check_member(config, place, broker_file)


def _check_member(config: NodeConfig, place: ClusterPlace, broker_file: str) -> None:
    assert isinstance(place.cluster, ClusterDefinition)
    me = this_node(place.cluster, config, place.file, f"{place.json_path}.nodes")
    listens = any(listener.tls for listener in config.listeners if listener.port == me.port)
    if me.tls != listens:
        raise ConfigError(
            place.file,
            f"{place.json_path}.nodes[{place.cluster.nodes.index(me)}].transport.tcp.tls",
            f"is {str(me.tls).lower()}, and this node's listener on port {me.port} "
            f"{'speaks' if listens else 'does not speak'} TLS: the other nodes could not reach it",
            f"set it to {str(listens).lower()} in the files of all nodes, or change the listener",
        )
    if needs_proof(config.broker.app_config, tls=me.tls):
        _check_names(place)
    authentication = config.broker.app_config.authentication
    anonymous = authentication.anonymous_credential
    if anonymous is not None and anonymous.disallow is not None and authentication.credential_provider is None:
        raise ConfigError(
            broker_file,
            "$.appConfig.authentication.anonymousCredential.disallow",
            "requires credentials, but this node has none for the other nodes of its cluster",
            'configure a "credentialProvider", too',
        )


def _check_names(place: ClusterPlace) -> None:
    names = [node.name for node in place.cluster.nodes]
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            raise ConfigError(
                place.file,
                f"{place.json_path}.nodes[{index}].name",
                "is empty" if not name else f"is {shown(name)}, as another node's is",
                "give each node a unique name: it proves its identity by that name",
            )
