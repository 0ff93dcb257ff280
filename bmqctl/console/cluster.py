"""The interface between the console and clusters of either system, as one person sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from bmqctl.systems.watching.model import Sample

__all__ = ["Cluster", "ClusterFault", "Connector", "Login", "LoginNeeded", "Plan", "Seen", "Words"]


class ClusterFault(Exception):
    """A question without an answer, or a refused action; one line for people."""


class LoginNeeded(ClusterFault):
    """The cluster refuses these credentials: a login is needed, or the user lacks the permission."""


class Login(NamedTuple):
    """The name and the password, or for RocketMQ the access key and its secret, of a person."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"


class Seen(NamedTuple):
    """A look at a cluster: its map, ready for JSON, and a sample of its counters."""

    map: dict[str, Any]
    sample: Sample


class Plan(NamedTuple):
    """An action for a person to confirm: its title, its effects, and the label of its button."""

    title: str
    text: str
    label: str


# The named subjects of a question or an action; their texts come from a browser.
Words = Mapping[str, str]


class Cluster(Protocol):
    """A cluster, asked as one person. All methods block, and raise `ClusterFault` for no answer or a refusal."""

    def look(self) -> Seen:
        """Ask all nodes for their state and counters."""

    def ask(self, question: str, words: Words) -> dict[str, Any]:
        """Answer a question about a part of the cluster; the questions depend on the system."""

    def plan(self, action: str, words: Words) -> Plan:
        """The present effects of an action, without carrying it out."""

    def act(self, action: str, words: Words) -> str:
        """Carry out an action; return a report."""

    def close(self) -> None:
        """Close its connections."""


Connector = Callable[[Login | None], Cluster]
