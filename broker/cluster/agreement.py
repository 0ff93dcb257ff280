"""What the nodes of a cluster must be configured alike, as each tells the others when they meet.

It goes into the features of a node's identity, in a field of its own; the reference skips fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["disagreement", "to_features"]

FIELD = "CLUSTER_DEFINITION"

# Ends a field, begins its values, ends a value: not to be in one.
_SEPARATORS = str.maketrans(";:,", "|~+")


def to_features(definition: Mapping[str, object]) -> str:
    """The field: `definition` by the names that the configuration has for its parts."""
    return f"{FIELD}:" + ",".join(f"{name}={value}".translate(_SEPARATORS) for name, value in definition.items())


def disagreement(own: str, theirs: str) -> str | None:
    """What is configured otherwise at a node with the features `theirs`; None for a node that tells nothing."""
    ours = _definition(own)
    for name, value in _definition(theirs).items():
        if name in ours and ours[name] != value:
            return f"{name} is {value} there and {ours[name]} here"
    return None


def _definition(features: str) -> dict[str, str]:
    for field in features.split(";"):
        name, _, values = field.partition(":")
        if name == FIELD:
            pairs = (value.partition("=") for value in values.split(","))
            return {name: value for name, _, value in pairs}
    return {}
