"""A store of the reference, damaged, repaired, and served by our node: the official client gets all that was sound."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blazingmq import AckStatus
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeProcess
from formats.bmq.disk.journal import MessageRecord
from formats.bmq.stores.recover import iter_journal
from tests.golden.archives import only, truth, unpack_store
from tests.rigs.official import Connect, confirm

ZLIB = "bmq://bmq.test.persistent.priority/orders-zlib-1"
PRICES = "bmq://bmq.test.persistent.fanout/prices-1"
ORDERS = "bmq://bmq.test.persistent.priority/orders-1"
HEADER_SIZE = 40


def outstanding(uri: str, app_id: str = "__default") -> list[dict[str, Any]]:
    return [each for each in truth("single") if each["queue"] == uri and app_id not in each["confirmed_by"]]


def change(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, set[str]]:
    """The store, damaged in all its files, and the GUIDs of the messages that this cost."""
    store = unpack_store("single-clean", tmp_path)
    journal, data, qlist = (only(store, f".bmq_{kind}") for kind in ("journal", "data", "qlist"))
    places = {
        record.guid.hex(): (offset, record)
        for offset, record in iter_journal(journal.read_bytes())
        if isinstance(record, MessageRecord)
    }
    zlib, prices = outstanding(ZLIB), outstanding(PRICES, "baz")
    # A payload, a record, and the magic of another, which can be restored.
    rotten, zeroed, marked = zlib[5]["guid"], prices[7]["guid"], prices[30]["guid"]
    at = places[rotten][1].message_offset_dwords * 8 + 20
    change(data, at, bytes([data.read_bytes()[at] ^ 1]))
    change(journal, places[zeroed][0], bytes(60))
    change(journal, places[marked][0] + 58, b"\xff")
    # The name of a queue, which the ledger has, the header of DATA, and an unfinished record at the end.
    change(qlist, qlist.read_bytes().index(b"orders-zlib"), b"0")
    change(data, 0, bytes(HEADER_SIZE))
    with journal.open("ab") as file:
        file.write(b"\x10unfinished")
    return store, {rotten, zeroed}


@pytest.fixture
def node(damaged: tuple[Path, set[str]], tmp_path: Path) -> Iterator[NodeProcess]:
    """A node on what was repaired."""
    store, lost = damaged
    assert CliRunner().invoke(app, ["journal", "validate", str(store)]).exit_code == 1
    result = CliRunner().invoke(app, ["journal", "repair", str(store), "--out", str(tmp_path / "out"), "--json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["errors"]) == (1, 0)
    left_out = [note for note in report["partitions"][0]["left_out"] if note["what"] == "MESSAGE"]
    # The zeroed record says nothing any more.
    assert {note["guid"].lower() for note in left_out} < lost
    with NodeProcess(tmp_path / "out") as running:
        yield running


def test_sound_messages_of_a_repaired_store_are_served(
    node: NodeProcess, damaged: tuple[Path, set[str]], connect: Connect
) -> None:
    _, lost = damaged
    client = connect(node)
    expected = {f"{PRICES}?id={each}": outstanding(PRICES, each) for each in ("foo", "bar", "baz")}
    expected |= {ORDERS: [], ZLIB: outstanding(ZLIB)}
    expected = {uri: [each for each in posted if each["guid"] not in lost] for uri, posted in expected.items()}
    assert [len(posted) for posted in expected.values()] == [0, 40, 79, 0, 39]
    for uri in expected:
        client.open(uri, read=True)
    client.wait_for_messages(sum(map(len, expected.values())))
    client.barrier()
    for uri, posted in expected.items():
        came = [(message.guid.hex(), hashlib.sha256(message.data).hexdigest()) for message, _ in client.of(uri)]
        assert came == [(each["guid"], each["sha256"]) for each in posted], uri


def test_work_goes_on_after_a_repair(node: NodeProcess, connect: Connect) -> None:
    """Confirm some, post some, stop: the store is sound, and what was confirmed stays gone."""
    client = connect(node)
    client.open(ZLIB, read=True, write=True)
    left = client.wait_for_messages(39)
    confirm(left[:30])
    assert {ack.status for ack in client.post_all(ZLIB, [b"new"] * 3)} == {AckStatus.SUCCESS}
    client.barrier()
    client.stop()
    assert node.stop() == 0
    result = CliRunner().invoke(app, ["journal", "validate", str(node.data_dir)])
    assert result.exit_code == 0, result.output
    node.start()
    again = connect(node)
    again.open(ZLIB, read=True)
    again.wait_for_messages(12)
    again.barrier()
    assert [message.guid for message, _ in again.delivered][:9] == [message.guid for message, _ in left[30:]]
    assert [message.data for message, _ in again.delivered[9:]] == [b"new"] * 3
