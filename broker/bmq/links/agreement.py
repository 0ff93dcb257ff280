# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""Check that the nodes of a cluster agree on their configuration, by their identities.

The settings are in the features of a node's identity, in a field of their own; the reference skips unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["disagreement", "to_features"]

FIELD: Final = "CLUSTER_DEFINITION"

# Separators of fields and values, which must not occur in values.
_SEPARATORS: Final = str.maketrans(";:,", "|~+")

# Nodes that differ in these would damage each other's partitions, or elect separately. Nodes of older releases may lack
# the other settings.
_ALWAYS_TOLD: Final = (
    "nodes",
    "partitionConfig.numPartitions",
    "partitionConfig.maxDataFileSize",
    "partitionConfig.maxJournalFileSize",
    "partitionConfig.maxQlistFileSize",
)


def to_features(definition: Mapping[str, object]) -> str:
    return f"{FIELD}:" + ",".join(f"{name}={value}".translate(_SEPARATORS) for name, value in definition.items())


def disagreement(own: str, theirs: str) -> str | None:
    """Return the settings that differ at a node with the features `theirs`, or None.

    A node of the reference has features without its configuration: that is None, as if all were equal.
    """
    ours, told = _definition(own), _definition(theirs)
    if not ours:
        return None
    if not theirs:
        return "it reports no features"
    if told is None:
        return None
    for name in _ALWAYS_TOLD:
        if name in ours and name not in told:
            return f"it does not report {name}"
    for name, value in told.items():
        if name in ours and ours[name] != value:
            return f"{name} is {value} there and {ours[name]} here"
    return None


def _definition(features: str) -> dict[str, str] | None:
    """Read the settings in features; None if there are none."""
    for field in features.split(";"):
        name, _, values = field.partition(":")
        if name == FIELD:
            pairs = [value.partition("=") for value in values.split(",")]
            return {name: value for name, _, value in pairs}
    return None
