"""Worlds in which events of several messages are taken at once go as if each message were taken by itself."""

from __future__ import annotations

import pytest

from broker.bmq.session.stored_events import StoredEvents
from tests.simulator import run
from tests.simulator.machines import disk


@pytest.mark.parametrize(("nodes", "least"), [(1, 100), (3, 20)])
def test_whole_events_change_no_world(
    nodes: int, least: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(disk, "DISK_CHUNK", 1 << 12)
    arguments = ["--seeds", "0..5", "--nodes", str(nodes), "--jobs", "1"]
    puts, taken = StoredEvents.puts, []

    def count(*given: object) -> bool:
        if done := puts(*given):  # type: ignore[arg-type]
            taken.append(done)
        return done

    monkeypatch.setattr(StoredEvents, "puts", count)
    assert run.main(arguments) == 0
    whole = capsys.readouterr().out
    monkeypatch.setattr(StoredEvents, "puts", lambda *given: False)
    monkeypatch.setattr(StoredEvents, "confirms", lambda *given: False)
    assert run.main(arguments) == 0
    assert whole.rpartition("digest ")[2] == capsys.readouterr().out.rpartition("digest ")[2]
    assert len(taken) >= least
