"""A process may ask for other turns, and is as it was when it asks for none."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from broker.shell.scheduling import LONG_SLICE_NS, set_slice


def own_slice_ns() -> int:
    """Read the slice from the kernel."""
    for line in Path("/proc/self/sched").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "se.slice":
            return int(value)
    return 0  # a kernel that has none, or does not tell


def test_turns_are_as_long_as_was_asked_for() -> None:
    usual_ns, nice = own_slice_ns(), os.nice(0)
    kernel = tuple(map(int, platform.release().split(".")[:2]))
    wanted_ns = LONG_SLICE_NS if kernel >= (6, 12) and usual_ns else usual_ns
    assert set_slice(LONG_SLICE_NS)
    try:
        assert own_slice_ns() == wanted_ns
    finally:
        assert set_slice(0)
    assert own_slice_ns() == usual_ns
    assert (os.nice(0), os.sched_getscheduler(0)) == (nice, os.SCHED_OTHER)


def test_a_machine_whose_system_calls_are_unknown_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    usual_ns = own_slice_ns()
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    assert not set_slice(LONG_SLICE_NS)
    assert own_slice_ns() == usual_ns
