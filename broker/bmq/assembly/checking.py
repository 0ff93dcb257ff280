"""Faults of a configuration that otherwise only a start finds: certificates, authenticators, credentials, store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from broker.bmq.assembly.authenticators import make_authentications
from broker.bmq.assembly.authorizers import make_authorizations
from broker.bmq.assembly.certificates import make_context, make_dialing_context
from broker.bmq.assembly.credentials import make_credential_provider
from broker.bmq.assembly.domains import Domains
from broker.bmq.assembly.partition_count import partitions_in, too_few_partitions
from broker.bmq.config import ConfigError, NodeConfig

__all__ = ["difference", "fault_of_domain", "fault_of_store", "faults_at_start", "useless_domains"]

_PARAMETERS = "$.definition.parameters"


def faults_at_start(config: NodeConfig, file: str) -> Iterator[ConfigError]:
    """Yield the faults for which a broker with this configuration would not start on this host; changes nothing."""
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
    found = fault_of_store(config)
    if found is not None:
        yield found


def fault_of_domain(config: NodeConfig, name: str) -> ConfigError | None:
    """Return the fault for which this broker cannot read a domain; None if it can."""
    try:
        if config.resolve_domain(name) is not None and not config.is_proxy:
            Domains(config).resolve(name)
    except ConfigError as fault:
        return fault
    except ValueError as error:
        return ConfigError(_file_of(config, name), f"{_PARAMETERS}.subscriptions", str(error), "correct them")
    return None


def useless_domains(config: NodeConfig) -> Iterator[ConfigError]:
    """Yield the readable domains in which no queue can be opened at this node."""
    domains = Domains(config)
    for name in () if config.is_proxy else config.domains.names():
        try:
            made = domains.resolve(name)
        except ValueError:
            continue
        if made is not None and made.name == name and made.incompatible:
            reason, _, remedy = made.incompatible.partition(": ")
            reason = f"no queue can be opened: {reason}"
            yield ConfigError(_file_of(config, name), f"{_PARAMETERS}.storage.config", reason, remedy)


def _file_of(config: NodeConfig, name: str) -> str:
    found = config.domains.read(name)
    return name if found is None else found[0]


def fault_of_store(config: NodeConfig) -> ConfigError | None:
    """Return the conflict of a configuration with its store, or None."""
    if config.cluster is None:
        return None
    return too_few_partitions(config, partitions_in(Path(config.cluster.partition_config.location)))


def difference(config: NodeConfig, other: NodeConfig) -> str | None:
    """Return the settings for which two nodes of one cluster would refuse each other, or None."""
    # The links of members are only needed for this.
    from broker.bmq.assembly.membership import cluster_features
    from broker.bmq.links.agreement import disagreement

    if config.cluster is None or other.cluster is None or config.cluster.name != other.cluster.name:
        return None
    return disagreement(cluster_features(config.cluster), cluster_features(other.cluster))
