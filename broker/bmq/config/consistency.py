"""Domains that are eventually consistent only because their files do not say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.bmq.config.errors import ConfigError
from broker.bmq.config.node import NodeConfig

__all__ = ["DefinedDomain", "eventual_by_default"]


class DefinedDomain(NamedTuple):
    """A domain and the file that defines it."""

    name: str
    file: str


def eventual_by_default(config: NodeConfig) -> Iterator[DefinedDomain]:
    """Yield the domains of a cluster of several nodes whose messages are stored, and whose consistency is not given.

    They are eventual, as in the reference: the loss of one node can lose acknowledged messages. Invalid files are
    skipped.
    """
    if config.cluster is None or len(config.cluster.nodes) < 2:
        return
    for name in config.domains.names():
        try:
            found = config.domains.read(name)
        except ConfigError:
            continue
        if found is None or found[1].definition is None:
            continue
        parameters = found[1].definition.parameters
        if parameters.storage.config.file_backed is not None and "consistency" not in parameters.model_fields_set:
            yield DefinedDomain(name, found[0])
