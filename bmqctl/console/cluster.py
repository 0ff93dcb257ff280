"""The clusters that a console shows, of either system, as one person sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from bmqctl.systems.watching.model import Sample

__all__ = ["Cluster", "ClusterFault", "Connector", "Login", "LoginNeeded", "Plan", "Seen", "Words"]


class ClusterFault(Exception):
    """A question that a cluster does not answer, or an action that it refuses; one line for people."""


class LoginNeeded(ClusterFault):
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


class Plan(NamedTuple):
    """An action that a person has to confirm: its title, what will happen, and the label of the button that does it."""

    title: str
    text: str
    label: str


# What a question or an action is about, by names: texts that a browser has sent.
Words = Mapping[str, str]


class Cluster(Protocol):
    """A cluster, asked as one person. All methods block, and raise `ClusterFault` if it does not answer, or refuses."""

    def look(self) -> Seen:
        """Ask all nodes for their state and counters."""

    def ask(self, question: str, words: Words) -> dict[str, Any]:
        """Answer a question about a part of it: what there is depends on the system."""

    def plan(self, action: str, words: Words) -> Plan:
        """Say what an action would do now; nothing is changed."""

    def act(self, action: str, words: Words) -> str:
        """Carry out an action; return what was done."""

    def close(self) -> None:
        """Close what is open."""


# Makes a cluster for a person, or for nobody in particular.
Connector = Callable[[Login | None], Cluster]
