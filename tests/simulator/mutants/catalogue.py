"""All faults that `scripts/mutate` plants, by name."""

from __future__ import annotations

from tests.simulator.mutants.agreement import AGREEMENT
from tests.simulator.mutants.bridge import BRIDGE
from tests.simulator.mutants.controllers import CONTROLLERS
from tests.simulator.mutants.copies import COPIES
from tests.simulator.mutants.groups import GROUPS
from tests.simulator.mutants.messages import MESSAGES
from tests.simulator.mutants.relays import RELAYS
from tests.simulator.mutants.rocketmq import ROCKETMQ
from tests.simulator.mutants.rocketmq_consuming import ROCKETMQ_CONSUMING

__all__ = ["MUTANTS"]

_ALL = (
    *AGREEMENT,
    *COPIES,
    *MESSAGES,
    *RELAYS,
    *ROCKETMQ,
    *ROCKETMQ_CONSUMING,
    *CONTROLLERS,
    *GROUPS,
    *BRIDGE,
)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
