"""The driver that `spark-submit` runs: takes a job from one file, and leaves its result in another."""

from __future__ import annotations

import sys

from bmqctl.pipeline.spark.launch import run_submitted


def _say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    run_submitted(sys.argv[1], sys.argv[2], _say)
