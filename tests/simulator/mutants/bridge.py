"""Faults in the decisions of the bridge between both systems."""

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["BRIDGE"]

_FLOW = "bmqctl.carrying.bridge.flow"
_DESTINATION = "bmqctl.carrying.bridge.rocketmq_destination"

BRIDGE = (
    Mutant(
        "bridge-settles-one-more",
        "bridge",
        "The first message of a batch that has to be sent again is settled with those before it.",
        _FLOW,
        (("                return at, at\n", "                return at + 1, at\n"),),
    ),
    Mutant(
        "bridge-again-behind",
        "bridge",
        "Messages that have to be sent again go behind those that wait.",
        _FLOW,
        (("line.waiting.extendleft(reversed(items))", "line.waiting.extend(items)"),),
    ),
    Mutant(
        "bridge-refusal-is-taken",
        "bridge",
        "A batch that the target cannot store now counts as taken.",
        _DESTINATION,
        (
            (
                "answer)))\n            bridge.answered(send.lane, send.batch, [AGAIN] * count)",
                "answer)))\n            bridge.answered(send.lane, send.batch, [TAKEN] * count)",
            ),
        ),
    ),
)
