"""A store that a node is writing: `bmqctl journal validate` finds no errors in it, only tails that are not finished."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeProcess
from tests.rigs.official import Client, confirm, queue_name

CHECKS = 12
TAILS = {"data-tail", "qlist-tail", "torn-tail", "ledger-tail", "ledger-ahead", "ledger-lacks"}


def test_a_store_under_load_has_no_errors(tmp_path: Path) -> None:
    done = threading.Event()
    counts: dict[str, int] = {}
    records: list[int] = []
    with NodeProcess(tmp_path / "store") as node, Client(node.uri) as client:

        def work() -> None:
            uri, fanout = queue_name(), queue_name("bmq.test.persistent.fanout")
            client.open(uri, read=True, write=True)
            client.open(fanout, write=True)
            while not done.is_set():
                client.post_all(uri, [bytes(size * 37 % 3000 + 1) for size in range(50)])
                client.post_all(fanout, [b"for all"] * 50)
                confirm(client.of(uri)[-40:])

        worker = threading.Thread(target=work)
        worker.start()
        try:
            while len(records) < CHECKS or records[-1] < 500:
                report = json.loads(
                    CliRunner().invoke(app, ["journal", "validate", "--json", str(node.data_dir)]).stdout
                )
                assert report["errors"] == 0, report["faults"]
                counts |= report["counts"]
                records.append(report["records"])
        finally:
            done.set()
            worker.join()
    assert set(counts) <= TAILS
    assert records == sorted(records)
    assert records[0] < records[-1]
    result = CliRunner().invoke(app, ["journal", "validate", "--strict", str(tmp_path / "store")])
    assert result.exit_code == 0, result.output
