"""The bounds of a nameserver's tables, which the original lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BOUNDS", "NameserverBounds"]

# The bound that each property sets.
BOUNDS: Final = {
    "kvConfigMaxNum": "kv_entries_max",
    "kvConfigMaxBytes": "kv_bytes_max",
    "kvConfigValueMaxBytes": "kv_value_bytes_max",
    "registeredBrokerMaxNum": "brokers_max",
    "registerBrokerTopicMaxNum": "registration_topics_max",
    "registeredTopicMaxNum": "routes_max",
}


@dataclass(slots=True)
class NameserverBounds:
    """The bounds, which administrators may change at run time."""

    # Of the values: the number of keys and namespaces, the size of all, and the size of one value with its key.
    kv_entries_max: int = 10_000
    kv_bytes_max: int = 4 << 20
    kv_value_bytes_max: int = 64 << 10
    # The number of registered brokers, of the topics of one registration, and of the topics of all brokers.
    brokers_max: int = 3_000
    registration_topics_max: int = 8_000
    routes_max: int = 500_000
