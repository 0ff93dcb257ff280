# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A node without partitions, ledger and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from broker.bmq.core.ledger import Ledger
from broker.bmq.node.node import Basis, Node
from broker.bmq.node.role import Role
from broker.bmq.queue.domains import DomainInUse
from broker.common.files import StoreFile

__all__ = ["ProxyNode"]


class ProxyNode(Node):
    """A proxy's node. `resolve_domain` finds the cluster of a domain, which alone knows the rest of it.

    `domains` has only the domains of its queues: clients may ask for any number of others.
    """

    def __init__(self, basis: Basis, make_role: Callable[[Node], Role]) -> None:
        ledger = Ledger(_NoDirectory(), 0, basis.now, lambda prefix: prefix)
        super().__init__(basis, ledger, {}, make_role)

    def domain(self, name: str) -> DomainInUse | None:
        known = self.domains.get(name)
        if known is not None:
            return known
        config = self.resolve_domain(name)
        return None if config is None else DomainInUse(config)


class _NoDirectory:
    """The folder of a store that does not exist."""

    path = ""

    def names(self) -> Iterable[str]:
        return ()

    def open(self, name: str, size: int) -> StoreFile:
        raise OSError("a proxy keeps no files")

    def remove(self, name: str) -> None:
        raise OSError("a proxy keeps no files")

    def archive(self, name: str) -> None:
        raise OSError("a proxy keeps no files")

    def put_away(self, files: Sequence[tuple[StoreFile, int]], failed: Callable[[Exception], None]) -> None:
        raise OSError("a proxy keeps no files")

    def set_aside(self, name: str) -> str:
        raise OSError("a proxy keeps no files")

    def flush(self) -> None:
        """Flush nothing: a proxy keeps no files."""
