"""`kill -9` under load: what was acknowledged is there, what was confirmed is gone, and clients find their way back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from typer.testing import CliRunner

from bmqctl.app import app as command
from bmqctl.testing import NodeProcess
from tests.rigs.load import SETTLE_EVERY, Record, number_of
from tests.rigs.official import Connect, queue_name

ROOT = Path(__file__).parents[3]
ROUNDS = 3
ACKS_PER_ROUND = 1500


@contextmanager
def load(node: NodeProcess, uri: str, path: Path, first: int, *consumers: str) -> Iterator[tuple[Record, Popen[bytes]]]:
    """The load and what it writes down, until the end of the block."""
    command = [sys.executable, "-m", "tests.rigs.load", node.uri, uri, str(path), str(first), *consumers]
    with path.with_suffix(".stderr").open("w") as stderr, Record(path) as record:
        process = Popen(command, cwd=ROOT, stdin=PIPE, stdout=DEVNULL, stderr=stderr)
        try:
            yield record, process
        finally:
            process.kill()
            process.communicate()
            record.read()


class Known:
    """The bounds of one app's redelivery, by the records of all rounds: the least and the most that may come back."""

    def __init__(self) -> None:
        self.posted: set[int] = set()
        self.acked: set[int] = set()
        self.confirmed: set[int] = set()
        self.settled: set[int] = set()

    def learn(self, record: Record, app: str) -> None:
        self.posted |= set(record.posted)
        self.acked |= {number for number, status in record.acked.items() if status == "SUCCESS"}
        self.confirmed |= set(record.confirmed[app])
        self.settled |= set(record.confirmed[app][: record.settled[app]])

    def check(self, came: list[int]) -> None:
        assert came == sorted(set(came)), "out of order, or twice"
        assert set(came) <= self.posted, "never posted"
        assert not self.acked - self.confirmed - set(came), "acknowledged, and lost"
        assert not set(came) & self.settled, "confirmed, and back again"
        # From here on it is known which confirms the dead node had read, and which messages it had.
        self.settled |= self.confirmed - set(came)
        self.confirmed &= self.settled
        self.acked |= set(came)


@pytest.mark.parametrize(
    ("domain", "consumers"),
    [
        ("bmq.test.persistent.priority", ["-:3"]),
        ("bmq.test.persistent.fanout", ["foo:0", "bar:2", "baz:1"]),
    ],
)
def test_acknowledged_stays_and_confirmed_goes(
    bmq_node: NodeProcess, connect: Connect, tmp_path: Path, domain: str, consumers: list[str]
) -> None:
    uri = queue_name(domain)
    known = {consumer.split(":")[0]: Known() for consumer in consumers}
    first = 1
    for number in range(ROUNDS):
        path = tmp_path / f"record-{number}"
        with load(bmq_node, uri, path, first, *consumers) as (record, _):
            record.wait(lambda record: len(record.acked) >= ACKS_PER_ROUND and bool(record.settled))
            bmq_node.kill()
            record.wait(lambda record: record.events.count("ConnectionLost") == 1 + len(consumers))
        first = max(record.posted) + 1
        result = CliRunner().invoke(command, ["journal", "validate", str(bmq_node.data_dir)])
        assert result.exit_code == 0, result.output
        bmq_node.start()
        for app, facts in known.items():
            facts.learn(record, app)
            with_app = connect(bmq_node)
            name = uri if app == "-" else f"{uri}?id={app}"
            with_app.open(name, read=True, max_unconfirmed_messages=1 << 30, max_unconfirmed_bytes=1 << 30)
            with_app.barrier()
            facts.check([number_of(data) for data in with_app.payloads(name)])
            with_app.stop()
        assert all(facts.settled for app, facts in known.items() if app != "baz")


def test_clients_find_their_way_back_and_nothing_is_lost(
    bmq_node: NodeProcess, connect: Connect, tmp_path: Path
) -> None:
    uri = queue_name()
    with load(bmq_node, uri, tmp_path / "record", 1, "-:0") as (record, process):
        for turn in range(1, ROUNDS + 1):
            acked = len(record.acked)
            record.wait(lambda record, acked=acked: len(record.acked) > acked + ACKS_PER_ROUND)  # type: ignore[misc]
            bmq_node.kill()
            record.wait(lambda record, turn=turn: record.events.count("ConnectionLost") == 2 * turn)  # type: ignore[misc]
            bmq_node.start()
            record.wait(lambda record, turn=turn: record.events.count("StateRestored") == 2 * turn)  # type: ignore[misc]
        assert process.stdin is not None
        process.stdin.close()
        record.wait(lambda record: "Done" in record.events)
        record.wait(lambda record: set(record.posted) <= set(record.confirmed["-"]))
        record.wait(lambda record: len(record.confirmed["-"]) - record.settled["-"] < SETTLE_EVERY)
    assert record.acked == dict.fromkeys(record.posted, "SUCCESS")
    assert set(record.delivered["-"]) == set(record.posted)
    client = connect(bmq_node)
    client.open(uri, read=True)
    client.barrier()
    assert client.payloads(uri) == []
