from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.judges.storage_tool import main
from tests.broker.bmq.rig import ACK, WRITE, guid, start

BMQCTL = str(Path(sys.executable).with_name("bmqctl"))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with one message."""
    rig = start()
    client = rig.connect()
    client.open(1, "bmq://priority/q", WRITE | ACK)
    client.post(1, guid(1), b"x")
    rig.stop()
    for name, file in rig.directory.files.items():
        (tmp_path / name).write_bytes(bytes(file.data))
    (found,) = tmp_path.glob("*.bmq_journal")
    return found


def test_a_journal_is_printed_for_a_comparison(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bmqctl", BMQCTL, "--journal-file", str(journal), "--print-mode=json-pretty"]
    assert main([*words, "--details"]) == 0
    records = json.loads(capsys.readouterr().out)["Records"]
    (message,) = [record for record in records if record["type"] == "MESSAGE"]
    assert message["guid"] == guid(1).hex().upper()
    assert {"Timestamp", "Epoch"} <= set(message)
    assert not {"timestamp", "time"} & set(message)
    assert main([*words, "--summary"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["Total"] == len(records)
    assert counted["ByType"]["MESSAGE"] == 1


def test_a_journal_that_is_damaged_is_told(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal.write_bytes(b"\0" * 100)
    assert main(["--bmqctl", BMQCTL, "--journal-file", str(journal), "--details"]) != 0
    assert json.loads(capsys.readouterr().out) == {"Records": []}
