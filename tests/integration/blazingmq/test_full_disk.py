"""Full disks: posts are refused, no acknowledged message is lost, reading goes on, and freed space is used again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import blazingmq
import pytest
from blazingmq import AckStatus
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeProcess
from tests.rigs.config_files import spoil, write_config
from tests.rigs.official import Client, Connect, confirm, queue_name
from tests.waiting import eventually

MIB = 1 << 20
DISK = 24 * MIB
BALLAST = 6 * MIB
PAYLOAD = 20_000


class Disk(Protocol):
    """A small disk with a node's files on it."""

    node: NodeProcess

    def exhaust(self) -> None:
        """Let there be no room at all."""
        ...

    def enlarge(self) -> None:
        """Let there be more room than there was at first."""
        ...


class Mounted:
    """A file system of its own in memory, part of it taken by another's file."""

    def __init__(self, mount: Path) -> None:
        self.ballast = mount / "ballast"
        self.ballast.write_bytes(bytes(BALLAST))
        self.node = NodeProcess(mount / "store")

    def exhaust(self) -> None:
        with suppress(OSError), self.ballast.open("ab", 0) as file:
            while True:
                file.write(bytes(4096))

    def enlarge(self) -> None:
        self.ballast.unlink()


class Quota:
    """A disk of any size that a node is made to believe full."""

    def __init__(self, folder: Path) -> None:
        self.quota = folder / "quota"
        self.quota.write_text(str(DISK - BALLAST))
        program = (sys.executable, "-m", "tests.rigs.limited_disk", str(self.quota), str(folder / "store"))
        self.node = NodeProcess(folder / "store", command=program)

    def exhaust(self) -> None:
        self.quota.write_text("0")

    def enlarge(self) -> None:
        self.quota.write_text(str(DISK))


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    options = ["-o", f"size={DISK}", "-t", "tmpfs", "tmpfs"]
    subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def may_mount(folder: Path) -> bool:
    try:
        with mounted(folder):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@pytest.fixture(params=["what there is", "quota"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A disk that can be filled: a small file system where one can be mounted, or a node with a quota."""
    if request.param == "quota" or not may_mount(tmp_path):
        limited = Quota(tmp_path)
        with limited.node:
            yield limited
        return
    with mounted(tmp_path) as mount:
        small = Mounted(mount)
        with small.node:
            yield small


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (PAYLOAD // 4)


def fill(client: Client, uri: str, first: int = 0) -> list[blazingmq.Ack]:
    """Post until the disk is full; return the acknowledgments of the accepted messages."""
    taken: list[blazingmq.Ack] = []
    while True:
        start = first + len(taken)
        acks = client.post_all(uri, map(payload, range(start, start + 50)))
        good = [ack for ack in acks if ack.status is AckStatus.SUCCESS]
        taken += good
        if len(good) < len(acks):
            assert {ack.status for ack in acks[len(good) :]} == {AckStatus.STORAGE_FAILURE}
            return taken


def test_a_full_disk(disk: Disk, connect: Connect) -> None:
    node = disk.node
    producer, consumer = connect(node), connect(node)
    uri = queue_name()
    producer.open(uri, write=True)
    consumer.barrier()  # makes its queue while there is room for one
    taken = fill(producer, uri)
    assert 100 < len(taken) < DISK // PAYLOAD
    node.wait_for("the disk is full")
    disk.exhaust()
    assert node.log.count("failed Ack") < 20
    # Reading and confirming go on.
    consumer.open(uri, read=True, max_unconfirmed_bytes=1 << 30)
    delivered = consumer.wait_for_messages(len(taken))
    assert [message.guid for message, _ in delivered] == [ack.guid for ack in taken]
    assert consumer.payloads() == list(map(payload, range(len(taken))))
    confirm(delivered[::2])
    consumer.barrier()
    # It is full still after a crash, and has all that it had.
    consumer.stop()
    producer.stop()
    node.restart(signal.SIGKILL)
    producer, consumer = connect(node), connect(node)
    producer.open(uri, write=True)
    consumer.open(uri, read=True, max_unconfirmed_bytes=1 << 30)
    again = consumer.wait_for_messages(len(taken) // 2)
    assert [message.guid for message, _ in again] == [ack.guid for ack in taken[1::2]]
    # More room, and it takes more.
    disk.enlarge()
    more = fill(producer, uri, len(taken))
    assert len(more) > 50
    consumer.wait_for_messages(len(taken) // 2 + len(more))
    consumer.barrier()
    assert [message.guid for message, _ in consumer.delivered[len(taken) // 2 :]] == [ack.guid for ack in more]
    assert node.stop() == 0
    assert "Traceback" not in node.output
    result = CliRunner().invoke(app, ["journal", "validate", str(node.data_dir)])
    assert result.exit_code == 0, result.output


def test_a_full_partition(tmp_path: Path, connect: Connect) -> None:
    """A partition takes as much as its files may hold, on a disk with room: confirmed messages make way for others."""
    config = write_config(tmp_path / "etc")
    spoil(config, "clusters.json", "myClusters", 0, "partitionConfig", "maxDataFileSize", value=2 * MIB)
    spoil(config, "clusters.json", "myClusters", 0, "partitionConfig", "numPartitions", value=1)
    with NodeProcess(tmp_path / "store", config_dir=config) as node:
        client = connect(node)
        uri = "bmq://shop.prices/p"
        client.open(uri, write=True)
        taken = fill(client, uri)
        assert 90 < len(taken) <= 2 * MIB // PAYLOAD
        # All apps but one confirm all: every message still has a reader.
        for name in ("left", "right"):
            client.open(f"{uri}?id={name}", read=True)
            client.wait_for_messages(len(taken), f"{uri}?id={name}")
        confirm(client.of(f"{uri}?id=left"))
        client.barrier()
        more = fill(client, uri, len(taken))
        assert more == []
        # Half of them are done with: what is left moves to new files, and there is room for about as many again.
        confirm(client.of(f"{uri}?id=right")[::2])
        # (A partition that was full looks for room once a second.)
        eventually(lambda: client.post_all(uri, [payload(0)])[0].status is AckStatus.SUCCESS, step_s=0.05)
        more = [client.acks[-1][1], *fill(client, uri)]
        assert len(taken) // 2 - 10 <= len(more) <= len(taken) // 2 + 10
        assert len(list(node.data_dir.glob("*.bmq_data"))) == 1
        assert len(list(node.data_dir.glob("archive/*.bmq_data"))) == 1
        client.stop()
        node.restart(signal.SIGKILL)
        again = connect(node)
        again.open(f"{uri}?id=right", read=True)
        again.wait_for_messages(len(taken) // 2 + len(more))
        again.barrier()
        kept = [ack.guid for ack in (*taken[1::2], *more)]
        assert [message.guid for message, _ in again.delivered] == kept
        assert node.stop() == 0
        result = CliRunner().invoke(app, ["journal", "validate", str(node.data_dir)])
        assert result.exit_code == 0, result.output


def test_a_disk_that_is_too_small_to_start(tmp_path: Path) -> None:
    limited = Quota(tmp_path)
    limited.quota.write_text("0")
    with pytest.raises(Exception, match="No space left on device") as failed:
        limited.node.start()
    assert "Traceback" not in str(failed.value)
    limited.enlarge()
    with limited.node:
        pass
