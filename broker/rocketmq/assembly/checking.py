"""Faults of a configuration that only a start would find: in addresses, ports, accounts and certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from broker.rocketmq.assembly.group import check_group, place_of
from broker.rocketmq.assembly.ports import node_ports
from broker.rocketmq.assembly.store_check import check_store
from broker.rocketmq.assembly.tls import make_tls
from broker.rocketmq.config.controller import with_controller
from broker.rocketmq.config.files import check_access
from broker.rocketmq.config.node import PropertyError, RocketConfig
from broker.rocketmq.store.errors import StoreFileDamaged
from broker.shell.process.os_errors import os_error_line

__all__ = ["faults_at_start", "notes_at_start"]


def faults_at_start(config: RocketConfig) -> Iterator[PropertyError]:
    """Yield the faults that would end a node of this configuration on this host; nothing is changed."""
    needs: list[Callable[[], object]] = [
        lambda: config.broker_options,
        lambda: [place_of(name, "nameserver (namesrvAddr)") for name in config.nameservers],
        lambda: check_group(config),
        lambda: with_controller(config, None),
        lambda: check_access(config),
        lambda: make_tls(config.tls),
        lambda: check_store(config),
    ]
    for need in needs:
        try:
            need()
        except PropertyError as fault:
            yield from (fault, *fault.others)
        except StoreFileDamaged as damage:
            yield PropertyError(damage.problem, damage.remedy)
        except OSError as error:
            yield PropertyError(os_error_line(error))
    yield from _ports_taken_twice(config)


def notes_at_start(config: RocketConfig) -> list[str]:
    """Return how a node would differ from this configuration, because of its store."""
    try:
        return check_store(config)[1]
    except (PropertyError, StoreFileDamaged, OSError):
        return []


def _ports_taken_twice(config: RocketConfig) -> Iterator[PropertyError]:
    for (first, port), (second, other) in combinations(_ports(config), 2):
        if port == other:
            yield PropertyError(f"{first} and {second} are both {port}", "choose another port for one of them")


def _ports(config: RocketConfig) -> Iterator[tuple[str, int]]:
    for port in node_ports(config):
        yield port.setting, port.number
    if config.grpc_port:
        yield "grpcServerPort", config.grpc_port
    if config.remoting_port:
        yield "remotingListenPort", config.remoting_port
    if config.exports_metrics and config.metrics_host == config.bind_address:
        yield "metricsPromExporterPort", config.metrics_port
