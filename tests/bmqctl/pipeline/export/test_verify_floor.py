"""Journals that a broker cuts or takes away while an export is verified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bmqctl.pipeline.export.verify import _floor
from bmqctl.pipeline.source.stores import StoreError
from tests.bmqctl.pipeline.written import WrittenStore
from tests.waiting import WAIT_S

# The journal is cut between the reading of its header and that of its first sync point.
CUT_WHILE_READ = """
import os, sys
from bmqctl.pipeline.export import verify

path, found = sys.argv[1], verify.open_file
def open_and_cut(*arguments):
    opened = found(*arguments)
    os.truncate(path, 0)
    return opened
verify.open_file = open_and_cut
try:
    verify._floor([path])
except verify.StoreError as error:
    print(error)
"""


def written(folder: Path) -> Path:
    store = WrittenStore()
    store.sync_point()
    store.finish_rollover()
    store.save(folder)
    return next(folder.glob("*.bmq_journal"))


def test_a_journal_begins_at_the_sync_point_that_ended_its_rollover(tmp_path: Path) -> None:
    assert _floor([str(written(tmp_path))]) == (1, 2)


def test_a_journal_that_is_cut_while_it_is_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    journal = written(tmp_path)
    # A process of its own, since a fault here is the end of one.
    cut = subprocess.run(
        [sys.executable, "-c", CUT_WHILE_READ, str(journal)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (cut.returncode, cut.stderr) == (0, "")
    assert cut.stdout.startswith(f"{journal}: truncated while it was read, or damaged: no sync point at offset ")


def test_a_journal_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="journal: No such file or directory; the store has changed"):
        _floor([str(tmp_path / "bmq_0.20270115_080000.bmq_journal")])
