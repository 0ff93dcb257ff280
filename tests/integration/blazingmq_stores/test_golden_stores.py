"""Stores that the reference broker wrote, served by our node: the official client gets what is outstanding."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blazingmq import AckStatus, Message
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeProcess
from tests.golden.archives import storage_records, truth, unpack_store
from tests.rigs.official import Connect, confirm

ORDERS = "bmq://bmq.test.persistent.priority/orders-1"
ZLIB = "bmq://bmq.test.persistent.priority/orders-zlib-1"
LATE = "bmq://bmq.test.persistent.priority/late-1"
PRICES = "bmq://bmq.test.persistent.fanout/prices-1"
APPS = ("foo", "bar", "baz")


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(unpack_store(request.param, tmp_path)) as running:
        yield running


def outstanding(uri: str, app: str = "__default") -> list[dict[str, Any]]:
    """Return the messages posted to a queue that `app` did not confirm, in order."""
    return [posted for posted in truth("single") if posted["queue"] == uri and app not in posted["confirmed_by"]]


def shown(message: Message) -> dict[str, Any]:
    """A message that came, as the truth file has it."""
    properties = {
        name: value.hex() if isinstance(value, bytes) else value for name, value in message.properties.items()
    }
    return {
        "guid": message.guid.hex(),
        "size": len(message.data),
        "sha256": hashlib.sha256(message.data).hexdigest(),
        "properties": properties,
    }


def expected(uri: str, app: str = "__default") -> list[dict[str, Any]]:
    return [
        {name: posted[name] for name in ("guid", "size", "sha256", "properties")} for posted in outstanding(uri, app)
    ]


@pytest.mark.parametrize("golden", ["single-crash"], indirect=True)
def test_after_a_crash_of_the_reference(golden: NodeProcess, connect: Connect) -> None:
    client = connect(golden)
    uris = {ORDERS: expected(ORDERS), ZLIB: expected(ZLIB)}
    uris |= {f"{PRICES}?id={each}": expected(PRICES, each) for each in APPS}
    assert [len(messages) for messages in uris.values()] == [60, 40, 0, 40, 80]
    for uri in uris:
        client.open(uri, read=True)
    client.wait_for_messages(sum(map(len, uris.values())))
    client.barrier()
    for uri, wanted in uris.items():
        assert [shown(message) for message, _ in client.of(uri)] == wanted


@pytest.mark.parametrize("golden", ["single-clean"], indirect=True)
def test_after_a_clean_stop_of_the_reference(golden: NodeProcess, connect: Connect) -> None:
    client = connect(golden)
    # In its second run the 60 of `orders-1` were confirmed, and 7 posted to a queue that the truth file came before.
    uris = {ORDERS: [], ZLIB: expected(ZLIB)} | {f"{PRICES}?id={each}": expected(PRICES, each) for each in APPS}
    for uri in (*uris, LATE):
        client.open(uri, read=True)
    client.wait_for_messages(7 + sum(map(len, uris.values())))
    client.barrier()
    for uri, wanted in uris.items():
        assert [shown(message) for message, _ in client.of(uri)] == wanted
    records = [record for record in storage_records("single-clean") if record["RecordType"] == "MESSAGE"]
    late = [message.guid.hex().upper() for message, _ in client.of(LATE)]
    assert late == [record["GUID"] for record in records][-7:]


@pytest.mark.parametrize("golden", ["single-crash", "single-clean"], indirect=True)
def test_work_goes_on_where_the_reference_left_off(golden: NodeProcess, connect: Connect) -> None:
    """Confirm half of what it left, post more, stop and start: the store is one, though two programs wrote it."""
    client = connect(golden)
    client.open(ZLIB, read=True, write=True)
    left = client.wait_for_messages(40)
    confirm(left[:20])
    acks = client.post_all(ZLIB, [b"new"] * 3)
    assert {ack.status for ack in acks} == {AckStatus.SUCCESS}
    client.barrier()
    client.stop()
    assert golden.stop() == 0
    result = CliRunner().invoke(app, ["journal", "validate", str(golden.data_dir)])
    assert result.exit_code == 0, result.output
    golden.start()
    again = connect(golden)
    again.open(ZLIB, read=True)
    again.wait_for_messages(23)
    again.barrier()
    kept = [shown(message) for message, _ in left[20:]]
    assert [shown(message) for message, _ in again.delivered][:20] == kept
    assert [(message.guid, message.data) for message, _ in again.delivered[20:]] == [(ack.guid, b"new") for ack in acks]
