"""A small piece of scripts/soak: the leader dies under load, and nothing that was acked is lost or out of order."""

from __future__ import annotations

from pathlib import Path

from scripts.endurance.blazingmq import Soak

MESSAGES = 4_000
RATE = 1_000.0


def test_nothing_acked_is_lost_when_the_leader_dies(tmp_path: Path) -> None:
    soak = Soak(
        tmp_path,
        count=3,
        seed=1,
        messages=MESSAGES,
        rate=RATE,
        faults_max=1,
        kinds=("kill -9 of the leader",),
        say=lambda text: None,
    )
    report = soak.run()
    assert report.faults == ["kill -9 of the leader"]
    assert report.account.acked >= MESSAGES
    assert report.clean, str(report)
