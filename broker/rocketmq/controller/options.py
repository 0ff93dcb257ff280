"""The options of a controller (source: ControllerConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from formats.rocketmq.hosts import split_address

__all__ = ["FIRST_ID", "ControllerOptions", "read_peers", "write_peers"]

# The id of a single controller.
FIRST_ID: Final = "n0"
CONTROLLERS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """A controller of a group. `peers` are all addresses, HOST:PORT, by id; `self_id` is its own."""

    group: str = "group1"
    peers: dict[str, str] = field(default_factory=dict)
    self_id: str = ""
    unclean: bool = False
    notifies: bool = True
    scan_silent_ms: int = 5_000
    scan_masters_ms: int = 5_000

    @property
    def address(self) -> str:
        return self.peers[self.self_id]

    @property
    def peer_text(self) -> str:
        return "".join(f"{name}:{address};" for name, address in self.peers.items())


def read_peers(text: str) -> dict[str, str]:
    """Read the addresses of controllers by id: ID-HOST:PORT, separated by semicolons. Raises `ValueError`."""
    found: dict[str, str] = {}
    for word in (part.strip() for part in text.split(";") if part.strip()):
        name, _, address = word.partition("-")
        if not name.isalnum() or split_address(address) is None or name in found or address in found.values():
            raise ValueError(f"has '{word}', which is not like {FIRST_ID}-127.0.0.1:9878, or is there twice")
        found[name] = address
    if not 0 < len(found) <= CONTROLLERS_MAX:
        raise ValueError(f"does not have between 1 and {CONTROLLERS_MAX} controllers")
    return found


def write_peers(peers: Mapping[str, str]) -> str:
    return ";".join(f"{name}-{address}" for name, address in peers.items())
