from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.rocketmq.assembly.disks import disk_used


@pytest.mark.parametrize(
    ("free", "available", "used"),
    [(1000, 1000, 0.0), (0, 0, 1.0), (600, 400, 0.5), (600, 100, 0.8), (999, 999, 0.01)],
)
def test_the_share_of_root_is_neither_used_nor_free(
    free: int, available: int, used: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_blocks=1000, f_bfree=free, f_bavail=available)
    monkeypatch.setattr(os, "statvfs", lambda folder: disk)
    assert disk_used(Path("store")) == used
