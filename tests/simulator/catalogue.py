"""All faults that `scripts/mutate` plants, by name."""

from __future__ import annotations

from tests.simulator.mutants_agreement import AGREEMENT
from tests.simulator.mutants_bridge import BRIDGE
from tests.simulator.mutants_controllers import CONTROLLERS
from tests.simulator.mutants_copies import COPIES
from tests.simulator.mutants_groups import GROUPS
from tests.simulator.mutants_messages import MESSAGES
from tests.simulator.mutants_rocketmq import ROCKETMQ

__all__ = ["MUTANTS"]

_ALL = (*AGREEMENT, *COPIES, *MESSAGES, *ROCKETMQ, *CONTROLLERS, *GROUPS, *BRIDGE)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
