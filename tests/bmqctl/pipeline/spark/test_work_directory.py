"""Temporary directories of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bmqctl.pipeline.spark.work_directory import work_directory

PREFIX = "bmqctl-test-"
HOLDER = f"""
import sys
from bmqctl.pipeline.spark.work_directory import work_directory
with work_directory({PREFIX!r}) as path:
    (path / "file").touch()
    print(path, flush=True)
    sys.stdin.read()
"""


def test_the_next_removes_what_a_killed_process_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / f"{PREFIX}of-somebody-else"
    other.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    old = tmp_path / f"{PREFIX}old"
    old.mkdir()
    os.utime(old, (0, 0))
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        held = Path(holder.stdout.readline().strip())
        assert held.parent == tmp_path
        with work_directory(PREFIX) as ours:
            assert (held / "file").exists()
    finally:
        holder.kill()
        holder.communicate()
    assert not ours.exists()
    assert (held / "file").exists()
    with work_directory(PREFIX):
        assert not held.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}link", f"{PREFIX}of-somebody-else"]
