"""The reference's configuration files, read as they are, and a built-in configuration for a first run."""

from __future__ import annotations

from broker.bmq.config.default import UNNAMED, built_in_config, default_config, proxy_config
from broker.bmq.config.errors import ConfigError
from broker.bmq.config.load import load_broker_config, reload_clusters
from broker.bmq.config.node import Changes, NodeConfig, ResolvedDomain

__all__ = [
    "UNNAMED",
    "Changes",
    "ConfigError",
    "NodeConfig",
    "ResolvedDomain",
    "built_in_config",
    "default_config",
    "load_broker_config",
    "proxy_config",
    "reload_clusters",
]
