"""Commands on domains and their queues (source: mqba::DomainManager, mqbblp::Domain)."""

from __future__ import annotations

from broker.admin.environment import Context, Failed
from broker.admin.json_form import dumped
from broker.admin.queues import domain_meter, queue_internals, queue_uri
from broker.admin.results import DomainInfo, QueueInternalsResult, Success
from broker.admin.storage import domain_storages
from broker.core.node import Domain
from broker.core.queue import Queue

__all__ = ["clear_cache", "domain_infos", "internals"]


def find_domain(context: Context, name: str) -> Domain:
    """A domain, read from its file if it is not in use; `Failed` if there is none."""
    try:
        domain = context.node.domain(name)
    except ValueError as error:
        raise Failed(str(error)) from None
    if domain is None:
        raise Failed(f"Domain '{name}' doesn't exist")
    return domain


def domain_infos(context: Context, name: str) -> DomainInfo:
    """A domain's configuration, how full it is, its queues in use, and those that hold messages."""
    domain = find_domain(context, name)
    config = context.environment.domain_config(domain.config.name)
    active = sorted(uri for uri in context.node.active if context.node.queues[uri].config is domain.config)
    return DomainInfo(
        name=domain.config.name,
        config_json=dumped(config, pretty=True, indent=2),
        cluster_name=context.cluster_name,
        capacity_meter=domain_meter(domain),
        queue_uris=tuple(active),
        storage_content=domain_storages(context, domain.config.name),
    )


def internals(context: Context, domain_name: str, queue_name: str) -> QueueInternalsResult:
    """The internals of a queue in use."""
    return queue_internals(context, active_queue(context, domain_name, queue_name))


def active_queue(context: Context, domain_name: str, queue_name: str) -> Queue:
    """A queue that was opened since the node started; `Failed` if there is none."""
    domain = find_domain(context, domain_name)
    uri = queue_uri(domain, queue_name)
    if uri not in context.node.active:
        raise Failed(f"Queue '{queue_name}' was not found on domain '{domain.config.name}'")
    return context.node.queues[uri]


def clear_cache(context: Context, name: str | None) -> Success:
    """Forget what was read of a domain, or of all."""
    if not context.environment.forget_domain(name):
        raise Failed(f"Domain '{name}' doesn't exist")
    return Success()
