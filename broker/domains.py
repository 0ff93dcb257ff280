"""Domains as the core and administration need them: read from their files when they are asked for."""

from __future__ import annotations

from typing import Any

from broker.config import NodeConfig
from broker.config.dump import to_json
from broker.core.config import DomainConfig, Mode

__all__ = ["Domains"]


class Domains:
    """Reads domains, and remembers each as it was when it was last read."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._names: set[str] = set()
        self._parameters: dict[str, dict[str, Any]] = {}

    def resolve(self, name: str) -> DomainConfig | None:
        """See `broker.core.node.DomainResolver`."""
        found = self._config.resolve_domain(name)
        if found is None:
            return None
        self._names |= {name, found.name}
        self._parameters[found.name] = to_json(found.parameters)
        parameters = found.parameters
        storage = parameters.storage
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
            deduplication_time_ms=parameters.deduplication_time_ms,
        )

    def parameters(self, name: str) -> dict[str, Any] | None:
        """A definition's parameters as the reference writes them in JSON, as they were last read."""
        return self._parameters.get(name)

    def forget(self, name: str | None) -> bool:
        """Drop the resolution of one name, or of all (None); False if that name is not remembered.

        A file is read whenever it is needed: nothing else has to be dropped.
        """
        if name is None:
            self._names.clear()
            return True
        known = name in self._names
        self._names.discard(name)
        return known
