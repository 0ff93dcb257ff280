"""Faults of a configuration that only a start would find: in certificates, authenticators and credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.assembly.authorizers import make_authorizations
from broker.bmq.assembly.certificates import make_context, make_dialing_context
from broker.bmq.assembly.credentials import make_credential_provider
from broker.bmq.config import ConfigError, NodeConfig

__all__ = ["faults_at_start"]


def faults_at_start(config: NodeConfig, file: str) -> Iterator[ConfigError]:
    """Yield what a broker of this configuration, of `file`, would end with on this host; nothing is changed."""
    app = config.broker.app_config
    clusters = (*config.clusters.my_clusters, *config.clusters.proxy_clusters)
    needs: list[Callable[[], object]] = [
        lambda: make_authentications(app.authentication, file),
        lambda: make_authorizations(app.authorization, file),
        lambda: make_credential_provider(app.authentication, file),
    ]
    tls = app.tls_config
    if tls is not None and any(each.tls for each in config.listeners):
        needs.append(lambda: make_context(tls, file))
    elif tls is not None and any(node.tls for cluster in clusters for node in cluster.nodes):
        needs.append(lambda: make_dialing_context(tls, file))
    for need in needs:
        try:
            need()
        except ConfigError as fault:
            yield fault
