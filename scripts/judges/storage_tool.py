"""The storage tool for the reference's suite, which compares the printed journals of two nodes.

    bmqstoragetool.tsk --bmqctl PROGRAM --journal-file FILE (--details | --summary) [--print-mode json-pretty]

`--details` prints the records, with times under the names that the suite excludes from the comparison; `--summary`
counts them by type.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

# The fields of a record's time: in seconds, and formatted for people.
TIMES = {"timestamp": "Epoch", "time": "Timestamp"}


def main(words: Sequence[str] | None = None) -> int:
    """Run the program; return 0 if the journal is sound, else the exit code of `bmqctl journal dump`."""
    parser = argparse.ArgumentParser(prog="bmqstoragetool.tsk", description="Print a journal for a comparison.")
    parser.add_argument("--bmqctl", required=True, metavar="PROGRAM", help="ours")
    parser.add_argument("--journal-file", type=Path, required=True, metavar="FILE", help="whose records to print")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--details", action="store_true", help="all of each record")
    how.add_argument("--summary", action="store_true", help="how many there are of each type")
    parser.add_argument("--print-mode", choices=["json-pretty"], default="json-pretty", help="JSON in any case")
    options = parser.parse_args(words)
    dump = [options.bmqctl, "journal", "dump", "--output", "json-line", str(options.journal_file)]
    done = subprocess.run(dump, stdout=subprocess.PIPE, text=True, check=False)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    if options.details:
        told: object = {"Records": [{TIMES.get(name, name): record[name] for name in record} for record in records]}
    else:
        told = {"Total": len(records), "ByType": Counter(record.get("type", "") for record in records)}
    print(json.dumps(told, indent=2))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
