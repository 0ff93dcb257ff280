"""Bits that rot on the disk of one of three real nodes: nothing is lost, and the node ends with what others have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import blazingmq
import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeProcess
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.official import Client, confirm, queue_name
from tests.waiting import WAIT_S

STRONG = "bmq.test.persistent.priority.sc"
SUCCESS = blazingmq.AckStatus.SUCCESS
MARK = b"a payload that is easily found"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path) as processes:
        processes.wait_available()
        yield processes


def payloads(first: int, count: int) -> list[bytes]:
    return [b"%06d %s" % (number, MARK) for number in range(first, first + count)]


def post(node: NodeProcess, uri: str, wanted: list[bytes]) -> None:
    with Client(node.uri, barrier_domain=STRONG) as client:
        client.open(uri, write=True)
        assert {ack.status for ack in client.post_all(uri, wanted)} == {SUCCESS}


def content(path: Path) -> bytes:
    """Return what was written of a file; the rest, most of a gigabyte, is room that was set aside."""
    with path.open("rb") as file:
        end = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        file.seek(0)
        return file.read(end)


def in_use(folder: Path) -> Path:
    """The journal of the partition that has most messages."""
    data = max(folder.glob("bmq_*.bmq_data"), key=lambda path: content(path).count(MARK))
    return data.with_suffix(".bmq_journal")


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes((byte ^ 0x10,)))


def rot(folder: Path, kind: str) -> Path:
    """Flip a bit in a file at rest; which."""
    journal = in_use(folder)
    if kind == "csl":
        (path,) = folder.glob("bmq_csl_*.bmq_csl")
        flip(path, 8 + 40)
        return path
    path = journal.with_suffix(f".bmq_{kind}")
    data = content(path)
    offset = {"journal": 44 + 60 + 57, "data": data.find(MARK), "qlist": data.find(b"bmq://") + 8}[kind]
    flip(path, offset)
    return path


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, words)))
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", ["journal", "data", "qlist", "csl"])
def test_a_file_that_rots_while_its_node_is_down_is_healed(
    cluster: ClusterProcesses, kind: str, tmp_path: Path
) -> None:
    leader = cluster.leader()
    victim, other = (number for number in cluster.nodes if number != leader)
    uri = queue_name(STRONG)
    post(cluster.nodes[other], uri, payloads(0, 60))
    assert cluster.stop(victim) == 0
    folder = cluster.nodes[victim].data_dir
    path = rot(folder, kind)
    evidence = content(path)
    node = cluster.start(victim)
    node.wait_for("ALARM [RECOVERY]")
    node.wait_for("is available")
    assert content(folder / "damaged" / path.name)[: len(evidence)] == evidence
    assert list(folder.glob("*.damaged")) == []
    post(cluster.nodes[victim], uri, payloads(60, 20))
    # The healed node and one of the others are a majority that has it all.
    cluster.kill(leader)
    with Client(cluster.nodes[victim].uri, barrier_domain=STRONG) as client:
        client.open(uri, read=True)
        client.wait_for_messages(80, uri, timeout_s=WAIT_S)
        assert client.payloads(uri) == payloads(0, 80)
        confirm(client.of(uri)[:30])
        client.barrier()
    assert cluster.stop(victim) == 0
    assert cluster.stop(other) == 0
    for number in (victim, other):
        code, output = run("journal", "validate", cluster.nodes[number].data_dir)
        assert code == 0, output
    # The two do not contradict each other: stopped one after the other, one may have more.
    code, output = run("journal", "diff", cluster.nodes[victim].data_dir, cluster.nodes[other].data_dir)
    assert code in (0, 1), output
    assert "diverge" not in output.lower(), output


def test_a_payload_that_rots_under_a_running_primary_is_fetched_from_a_replica(cluster: ClusterProcesses) -> None:
    leader = cluster.leader()
    node = cluster.nodes[leader]
    uri = queue_name(STRONG)
    wanted = payloads(0, 50)
    post(node, uri, wanted)
    data = in_use(node.data_dir).with_suffix(".bmq_data")
    for number in (7, 30):
        flip(data, content(data).find(wanted[number]) + 9)
    with Client(node.uri, barrier_domain=STRONG) as client:
        client.open(uri, read=True)
        client.wait_for_messages(50, uri)
        assert client.payloads(uri) == wanted
    node.wait_for("ALARM [STORAGE]")
    assert content(data).count(MARK) == 50
    cluster.kill(leader)
    code, output = run("journal", "validate", node.data_dir)
    assert code == 0, output


def test_a_payload_that_rots_under_a_running_replica_is_healed(cluster: ClusterProcesses) -> None:
    leader = cluster.leader()
    victim = next(number for number in cluster.nodes if number != leader)
    node = cluster.nodes[victim]
    uri = queue_name(STRONG)
    wanted = payloads(0, 50)
    post(node, uri, wanted)
    data = in_use(node.data_dir).with_suffix(".bmq_data")
    flip(data, content(data).find(wanted[7]) + 9)
    with Client(node.uri, barrier_domain=STRONG) as client:
        client.open(uri, read=True)
        client.wait(lambda: set(client.payloads(uri)) == set(wanted), timeout_s=WAIT_S)
        assert sorted(set(client.payloads(uri))) == wanted
        confirm(client.of(uri))
        client.barrier()
    node.wait_for("ALARM [STORAGE]")
    assert (node.data_dir / "damaged" / data.name).exists()
    assert cluster.stop(victim) == 0
    code, output = run("journal", "validate", node.data_dir)
    assert code == 0, output


def test_a_node_alone_refuses_what_a_cluster_left_unhealed(cluster: ClusterProcesses) -> None:
    """The others are away: the damaged node waits, and serves nothing that it may have lost a part of."""
    leader = cluster.leader()
    uri = queue_name(STRONG)
    post(cluster.nodes[leader], uri, payloads(0, 20))
    for number in list(cluster.nodes):
        assert cluster.stop(number) == 0
    rot(cluster.nodes[leader].data_dir, "data")
    node = cluster.start(leader)
    node.wait_for("ALARM [RECOVERY]")
    notes = list(node.data_dir.glob("*.damaged"))
    assert len(notes) == 1
    cluster.kill(leader)
    assert list(node.data_dir.glob("*.damaged")) == notes
    # Nothing of it is lost: what was set aside is what it had.
    assert content(in_use(node.data_dir / "damaged").with_suffix(".bmq_data")).count(MARK) == 19
    for number in cluster.nodes:
        cluster.start(number)
    cluster.nodes[leader].wait_for("is available")
    with Client(cluster.nodes[leader].uri, barrier_domain=STRONG) as client:
        client.open(uri, read=True)
        client.wait_for_messages(20, uri)
        assert client.payloads(uri) == payloads(0, 20)
