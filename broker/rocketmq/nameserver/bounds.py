"""The bounds of what a nameserver keeps, by properties that the original does not have."""

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
    """The bounds. Administrators change them while the nameserver runs."""

    # The keys and namespaces of the table of values, their bytes, and the bytes of one value with its key.
    kv_entries_max: int = 10_000
    kv_bytes_max: int = 4 << 20
    kv_value_bytes_max: int = 64 << 10
    # The brokers that are registered, the topics of one registration, and the topics of all brokers together.
    brokers_max: int = 3_000
    registration_topics_max: int = 8_000
    routes_max: int = 500_000
