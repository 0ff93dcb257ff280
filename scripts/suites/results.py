"""The last results of a suite's cases, and the report of a new run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Results", "failed_before", "last_results", "tell"]

Results = dict[str, str]


def last_results(name: str, home: Path) -> Results:
    kept = home / f"{name}.json"
    results: Results = json.loads(kept.read_text()) if kept.exists() else {}
    return results


def failed_before(name: str, home: Path) -> list[str]:
    return [case for case, was in last_results(name, home).items() if was == "failed"]


def tell(name: str, found: Results, reasons: Mapping[str, str], home: Path) -> None:
    """Print the failures, the sums and the changes since the last run of each case; keep the results."""
    before = last_results(name, home)
    for case in sorted(reasons):
        print(f"FAILED {case}\n       {reasons[case]}")
    changed = {case: outcome for case, outcome in sorted(found.items()) if before.get(case, outcome) != outcome}
    for outcome in ("passed", "failed", "skipped"):
        for case in (case for case, now in changed.items() if now == outcome):
            print(f"now {outcome} (was {before[case]}): {case}")
    counts = Counter(found.values())
    print(f"{name}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", end="")
    gained = sum(outcome == "passed" for outcome in changed.values())
    lost = sum(before[case] == "passed" for case in changed)
    known = sum(case in before for case in found)
    print(f"; of {known} that ran before, {gained} more pass and {lost} no longer pass")
    after = before | found
    if len(after) > len(found):
        total = Counter(after.values())
        print(f"{name}, each case's last run: {total['passed']} of {len(after)} passed, {total['failed']} failed")
    (home / f"{name}.json").write_text(json.dumps(after, indent=0, sort_keys=True))
