"""Domains for the core and administration, read from their files on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker.bmq.config import NodeConfig
from broker.bmq.config.domain_schema import Domain, ExpressionVersion
from broker.bmq.config.dump import to_json
from broker.bmq.core.config import DomainConfig, Mode
from formats.bmq.codes import RDA_COUNTER_MAX
from formats.bmq.expressions import ExpressionError, compile_expression

__all__ = ["Domains", "ProxyDomains"]


class Domains:
    """Reads domains, and caches the names that it has resolved."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._is_clustered = config.cluster is not None and len(config.cluster.nodes) > 1
        self._names: set[str] = set()

    def resolve(self, name: str) -> DomainConfig | None:
        """See `broker.bmq.node.node.DomainResolver`."""
        found = self._config.resolve_domain(name)
        if found is None:
            return None
        self._names |= {name, found.name}
        parameters = found.parameters
        storage, attempts = parameters.storage, parameters.max_delivery_attempts
        fanout = parameters.mode.fanout
        mode = Mode.FANOUT if fanout else Mode.BROADCAST if parameters.mode.broadcast else Mode.PRIORITY
        return DomainConfig(
            name=found.name,
            mode=mode,
            app_ids=fanout.app_ids if fanout else (),
            persistent=storage.config.file_backed is not None,
            queue_messages_max=storage.queue_limits.messages,
            queue_bytes_max=storage.queue_limits.bytes,
            domain_messages_max=storage.domain_limits.messages,
            domain_bytes_max=storage.domain_limits.bytes,
            queue_messages_ratio=storage.queue_limits.messages_watermark_ratio,
            queue_bytes_ratio=storage.queue_limits.bytes_watermark_ratio,
            domain_messages_ratio=storage.domain_limits.messages_watermark_ratio,
            domain_bytes_ratio=storage.domain_limits.bytes_watermark_ratio,
            deduplication_time_ms=parameters.deduplication_time_ms,
            subscriptions=_subscriptions(parameters),
            message_ttl_s=parameters.message_ttl,
            # A number of attempts too large to be counted means unlimited.
            delivery_attempts_max=attempts if attempts <= RDA_COUNTER_MAX else 0,
            idle_time_max_ms=parameters.max_idle_time * 1000,
            consumers_max=parameters.max_consumers,
            producers_max=parameters.max_producers,
            queues_max=parameters.max_queues,
            strong=parameters.consistency.strong is not None,
            incompatible=_incompatible(parameters, self._is_clustered),
            shown=to_json(parameters),
        )

    def forget(self, name: str | None) -> bool:
        """Drop the resolution of one name, or of all (None); return False if there was none.

        Nothing else is cached: a file is read whenever needed.
        """
        return _forget(self._names, name)


class ProxyDomains:
    """Finds the cluster of a domain for a proxy, which knows nothing else about it.

    The proxy's files name it, as for the reference's proxies. Without such files, a proxy to one cluster assigns every
    domain to that. For a name that is not in `clusters` it calls `learn`, which adds it if the files now have it, and
    raises ValueError if they are faulty.
    """

    def __init__(self, config: NodeConfig, clusters: Collection[str], learn: Callable[[str], None]) -> None:
        self._config = config
        self._clusters = clusters
        self._learn = learn
        self._names: set[str] = set()

    def resolve(self, name: str) -> DomainConfig | None:
        """Raises ValueError for a domain of a cluster that this proxy does not know."""
        found = self._config.resolve_domain(name)
        if found is None:
            if len(self._clusters) != 1 or self._config.domains.names():
                return None
            (only,) = self._clusters
            return DomainConfig(name, Mode.PRIORITY, cluster=only)
        if found.cluster not in self._clusters:
            self._learn(found.cluster)
        if found.cluster not in self._clusters:
            raise ValueError(f"domain '{found.name}' is in cluster '{found.cluster}', which this broker does not know")
        self._names |= {name, found.name}
        return DomainConfig(found.name, Mode.PRIORITY, cluster=found.cluster, shown=to_json(found.parameters))

    def forget(self, name: str | None) -> bool:
        return _forget(self._names, name)


def _forget(names: set[str], name: str | None) -> bool:
    if name is None:
        names.clear()
        return True
    known = name in names
    names.discard(name)
    return known


def _incompatible(parameters: Domain, is_clustered: bool) -> str:
    """Return the reason why the mode and the storage of a domain are incompatible; empty if they are not.

    Broadcast queues are in memory, and in a cluster of several nodes only they: a replica of the reference ends its
    process when it hears of any other queue in memory (source: mqbs::StorageUtil, mqbblp::QueueState).
    """
    in_memory, broadcast = parameters.storage.config.in_memory is not None, parameters.mode.broadcast is not None
    if in_memory == broadcast or (in_memory and not is_clustered):
        return ""
    mode = "broadcast" if broadcast else "fanout" if parameters.mode.fanout is not None else "priority"
    found = f"incompatible queue mode ({mode}) and storage type ({'inMemory' if in_memory else 'fileBacked'})"
    if broadcast:
        return f"{found}: set inMemory for a broadcast domain"
    return f"{found}: set fileBacked: in a cluster of several nodes only broadcast domains can be in memory"


def _subscriptions(parameters: Domain) -> tuple[tuple[str, str], ...]:
    """Return app ids and expressions. Raises ValueError if one does not compile, or there are too many."""
    found = []
    for subscription in parameters.subscriptions:
        expression = subscription.expression
        if expression.version is ExpressionVersion.UNDEFINED or not expression.text:
            continue
        try:
            compile_expression(expression.text)
        except ExpressionError as error:
            message = (
                f"Expression validation failed: [ expression: {expression.text}, rc: {error.code}, reason: {error} ]"
            )
            raise ValueError(message) from None
        found.append((subscription.app_id, expression.text))
    if len(parameters.subscriptions) > 1 and parameters.mode.fanout is None:
        raise ValueError("Cannot have more than 1 application subscription")
    return tuple(found)
