"""What the nodes of a cluster must be configured alike, as each tells the others when they meet.

It goes into the features of a node's identity, in a field of its own; the reference skips fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["disagreement", "to_features"]

FIELD = "CLUSTER_DEFINITION"

# Ends a field, begins its values, ends a value: not to be in one.
_SEPARATORS = str.maketrans(";:,", "|~+")

# Nodes that differ in these would damage each other's shards, or elect without each other. Of others, a node of an
# older release may tell nothing.
_ALWAYS_TOLD = (
    "nodes",
    "partitionConfig.numPartitions",
    "partitionConfig.maxDataFileSize",
    "partitionConfig.maxJournalFileSize",
    "partitionConfig.maxQlistFileSize",
)


def to_features(definition: Mapping[str, object]) -> str:
    """The field: `definition` by the names that the configuration has for its parts."""
    return f"{FIELD}:" + ",".join(f"{name}={value}".translate(_SEPARATORS) for name, value in definition.items())


def disagreement(own: str, theirs: str) -> str | None:
    """Name the settings that differ at a node with the features `theirs`.

    A node of the reference has features, and tells nothing of its configuration: that is None, as if all were alike.
    """
    ours, told = _definition(own), _definition(theirs)
    if not ours:
        return None
    if not theirs:
        return "it tells no features"
    if told is None:
        return None
    for name in _ALWAYS_TOLD:
        if name in ours and name not in told:
            return f"it tells nothing of {name}"
    for name, value in told.items():
        if name in ours and ours[name] != value:
            return f"{name} is {value} there and {ours[name]} here"
    return None


def _definition(features: str) -> dict[str, str] | None:
    """Read the settings that features tell of; None where they tell nothing."""
    for field in features.split(";"):
        name, _, values = field.partition(":")
        if name == FIELD:
            pairs = (value.partition("=") for value in values.split(","))
            return {name: value for name, _, value in pairs}
    return None
