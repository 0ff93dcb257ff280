"""The judge of what stopped nodes leave, with its exceptions."""

from __future__ import annotations

import pytest

from broker.bmq.store.removals import hashes_of
from tests.broker.bmq.rig import guid
from tests.simulator.judges.invariants import Violation
from tests.simulator.judges.leftovers import Left, check_left
from tests.simulator.test_judgement import URI, records

KNOWS = Left(frozenset(), frozenset(hashes_of(guid(1)).tolist()))
KNOWS_NOTHING = Left(frozenset(), frozenset())
KEEPS = Left(frozenset({("key", guid(1).hex(), ())}), frozenset())


def test_each_node_knows_what_was_removed_lately() -> None:
    found = records(1)
    found.posts[guid(1)].acked = True
    found.clock.us = 1_000_000
    found.confirm_sent(URI, "__default", guid(1))
    check_left(found, {"n0": KNOWS, "n1": KNOWS})
    with pytest.raises(Violation, match=r"n1 does not know any longer that number 1 of p0 .* was removed"):
        check_left(found, {"n0": KNOWS, "n1": KNOWS_NOTHING})
    with pytest.raises(Violation, match="n1 and n0 keep different messages"):
        check_left(found, {"n0": KEEPS, "n1": KNOWS})
    check_left(found, {"n0": KEEPS, "n1": KEEPS})
    found.clock.us += 241_000_000
    check_left(found, {"n0": KNOWS_NOTHING, "n1": KNOWS_NOTHING})


@pytest.mark.parametrize("why", ["refused", "short", "without power"])
def test_nodes_may_have_reason_not_to_know(why: str) -> None:
    found = records(1)
    found.posts[guid(1)].acked = True
    found.clock.us = 1_000_000
    found.confirm_sent(URI, "__default", guid(1))
    if why == "refused":
        found.refused(guid(1))
    elif why == "short":
        found.runs_short()
        found.is_short = False
    else:
        found.forgets += 1
    check_left(found, {"n0": KNOWS_NOTHING})
