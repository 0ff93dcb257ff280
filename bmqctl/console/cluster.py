"""The clusters that a console shows, of either system, as one person sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from bmqctl.watching.model import Sample

__all__ = ["Cluster", "ClusterFault", "Connector", "Login", "NotAdmitted", "Seen"]


class ClusterFault(Exception):
    """A question that a cluster does not answer, or an action that it refuses; one line for people."""


class NotAdmitted(ClusterFault):
    """The cluster refuses whoever asks: somebody has to log in, or may not do this."""


class Login(NamedTuple):
    """The name and the password, or for RocketMQ the access key and its secret, that a person has given."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"


class Seen(NamedTuple):
    """A look at a cluster: its map, ready for JSON, and a sample of its counters."""

    map: dict[str, Any]
    sample: Sample


class Cluster(Protocol):
    """A cluster, asked as one person. All methods block, and raise `ClusterFault` if there is no answer."""

    def look(self) -> Seen:
        """Ask all nodes for their state and counters."""

    def detail(self, name: str) -> dict[str, Any]:
        """Return what there is to say of a queue or a topic beside its counters."""

    def domain(self, name: str) -> dict[str, Any]:
        """Return the configuration of a domain, and how full it is."""

    def close(self) -> None:
        """Close what is open."""


# Makes a cluster for a person, or for nobody in particular.
Connector = Callable[[Login | None], Cluster]
