"""A process may ask for other turns, and is as it was when it asks for none."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from broker.shell.host.calls import LONG_SLICE_NS

if sys.platform == "linux":
    from broker.shell.host.linux import LinuxHost

    def own_slice_ns() -> int:
        """Read the slice from the kernel."""
        for line in Path("/proc/self/sched").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "se.slice":
                return int(value)
        return 0  # a kernel that has none, or does not tell

    def test_turns_are_as_long_as_was_asked_for() -> None:
        host = LinuxHost()
        usual_ns, nice = own_slice_ns(), os.nice(0)
        policy = os.sched_getscheduler(0)
        is_normal = policy == os.SCHED_OTHER
        kernel = tuple(map(int, platform.release().split(".")[:2]))
        wanted_ns = LONG_SLICE_NS if kernel >= (6, 12) and usual_ns and is_normal else usual_ns
        assert host.set_slice(LONG_SLICE_NS) == is_normal
        try:
            assert own_slice_ns() == wanted_ns
        finally:
            assert host.set_slice(0) == is_normal
        assert own_slice_ns() == usual_ns
        assert (os.nice(0), os.sched_getscheduler(0)) == (nice, policy)

    def test_a_machine_whose_system_calls_are_unknown_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
        usual_ns = own_slice_ns()
        monkeypatch.setattr(platform, "machine", lambda: "abacus")
        assert not LinuxHost().set_slice(LONG_SLICE_NS)
        assert own_slice_ns() == usual_ns
