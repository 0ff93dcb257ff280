"""All faults that `scripts/mutate` plants, by name."""

from __future__ import annotations

from tests.simulator.mutants.agreement import AGREEMENT
from tests.simulator.mutants.bridge import BRIDGE
from tests.simulator.mutants.controllers import CONTROLLERS
from tests.simulator.mutants.copies import COPIES
from tests.simulator.mutants.groups import GROUPS
from tests.simulator.mutants.messages import MESSAGES
from tests.simulator.mutants.rocketmq import ROCKETMQ

__all__ = ["MUTANTS"]

_ALL = (*AGREEMENT, *COPIES, *MESSAGES, *ROCKETMQ, *CONTROLLERS, *GROUPS, *BRIDGE)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
