"""Descriptors: the limit is raised, connections beyond what it allows are refused, and the store has what it needs."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.bmq.assembly.opening import open_ledger, open_partitions
from broker.bmq.core.messages import Full
from broker.bmq.store.partition_files import PartitionFiles
from broker.common.clock import Now
from broker.shell.files.mapped_files import DataDirectory, MappedFile
from broker.shell.host.descriptors import (
    DESCRIPTORS_PER_FILE,
    FILES_PER_PARTITION,
    MAPPINGS_PER_FILE,
    RESERVE,
    connections_max,
    descriptors_in_use,
    mapped_files_max,
    mappings_max,
    raise_limit,
)
from formats.bmq.control.messages import OpenQueue, OpenQueueResponse
from tests.broker.bmq.queue.posting import ROOMY
from tests.broker.bmq.rig import WRITE, guid, handle, identity, put_event, start
from tests.broker.shell.loop.served import Served, serve


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
        assert raise_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert raise_limit() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_descriptors_for_the_store_and_for_peers() -> None:
    kept = 20 + RESERVE + 4 * FILES_PER_PARTITION + 2 * 3
    assert connections_max(10_000, 1024, 20, 4, 3) == 1024 - kept
    assert connections_max(100, 1024, 20, 4, 3) == 100
    assert connections_max(0, 1024, 20, 4, 3) == 1024 - kept
    assert connections_max(10_000, 16, 20, 4, 3) == 1
    assert connections_max(10_000, -1, 20, 4, 3) == 10_000


def test_a_limit_that_is_less_than_the_configured_one_is_said(caplog: pytest.LogCaptureFixture) -> None:
    connections_max(10_000, 1024, 20, 4, 3)
    assert "raise it (ulimit -n, LimitNOFILE)" in caplog.text
    caplog.clear()
    connections_max(100, 1024, 20, 4, 3)
    assert not caplog.text


def test_descriptors_in_use_are_counted() -> None:
    before = descriptors_in_use()
    reading, writing = os.pipe()
    assert descriptors_in_use() == before + 2
    os.close(reading)
    os.close(writing)


def test_connections_beyond_the_limit_are_closed_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "broker.server")

    async def test(served: Served) -> None:
        first, second = await served.client(), await served.client()
        for _ in range(3):
            assert await (await served.connect()).is_closed()
        for peer in (first, second):
            opened = await peer.ask(OpenQueue(handle_parameters=handle(1, "bmq://priority/q", WRITE)))
            assert isinstance(opened, OpenQueueResponse)
        # A closed connection makes room for another.
        first.close()
        while len(served.node.sessions) > 1:
            await second.ask(OpenQueue(handle_parameters=handle(2, "bmq://priority/q", WRITE)))
        await served.client()

    serve(start(), test, connections_max=2)
    # Others may have something to say: the clock of the rig is not this machine's.
    told = [record.getMessage() for record in caplog.records if record.name == "broker.server"]
    (line,) = {text.split(": ", 1)[1] for text in told}
    assert line.startswith("2 connections are open, and no more are allowed (maxConnections")


@contextmanager
def no_descriptors() -> Iterator[None]:
    """The process has as many descriptors open as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    limit = highest + 1
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def test_a_store_without_descriptors_is_as_on_a_full_disk(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "store", tmp_path / "archive")
    now = Now(1_795_237_864, 1_000)
    stamps = iter(range(100))

    def make_timestamp(prefix: str) -> str:
        directory.names()
        return f"20261122_{next(stamps):06}"

    opened = open_partitions(directory, 1, 0, ROOMY, now, make_timestamp)
    ledger = open_ledger(directory, 64 << 10, now, make_timestamp, opened)
    partition, _ = opened[0]
    partition.activate(1)
    with no_descriptors():
        with pytest.raises(Full, match="partition 0: no "):
            partition.roll_over()
        with pytest.raises(Full, match="no room for the cluster-state ledger"):
            ledger._start_file()
        directory.flush()
        partition.append_queue("bmq://priority/q", b"12345", [])
    names = directory.names()
    partition.roll_over()
    assert directory.names() != names
    partition.files.close()
    ledger.close()
    directory.close()


def test_files_that_were_opened_before_one_could_not_be_are_gone(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "store", tmp_path / "archive")
    before = directory.names()
    reading, writing = os.pipe()
    with no_descriptors():
        os.close(reading)
        os.close(writing)
        # Two of three can be opened.
        assert PartitionFiles.create(directory, 0, "20261122_000000", ROOMY) is None
    assert directory.names() == before
    directory.close()


def test_a_node_without_descriptors_goes_on_for_those_who_are_there() -> None:
    async def test(served: Served) -> None:
        peer = await served.client()
        opened = await peer.ask(OpenQueue(handle_parameters=handle(1, "bmq://priority/q", WRITE)))
        assert isinstance(opened, OpenQueueResponse)
        stranger = await served.connect()
        with no_descriptors():
            for number in range(5):
                await peer.send(put_event(1, guid(number), b"payload"))
                await peer.event()
        assert len(served.node.queues["bmq://priority/q"].messages) == 5
        await stranger.say_who(identity())

    serve(start(), test)


def test_mapped_files_leave_descriptors_to_connections() -> None:
    # Enough for both: what connections do not need, though no more mappings than there are.
    assert mapped_files_max(30_000, 10_000, 65_530) == (30_000 - RESERVE - 10_000) // 2
    assert mapped_files_max(1 << 20, 10_000, 65_530) == mapped_files_max(-1, 10_000, 65_530) == (65_530 - 4096) // 3
    # Not enough: one half.
    assert mapped_files_max(1024, 10_000, 65_530) == (1024 - RESERVE) // 4
    assert mapped_files_max(16, 10_000, 65_530) == 1


def test_mapped_files_take_what_is_counted_for_them(tmp_path: Path) -> None:
    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())

    before, mapped = descriptors_in_use(), mappings()
    files = [MappedFile(tmp_path / str(number), 64 << 20) for number in range(20)]
    for file in files:
        file.reserve(1 << 20)
    assert descriptors_in_use() - before == 20 * DESCRIPTORS_PER_FILE
    # The allocator may map memory meanwhile: fewer than one more for each file would show.
    assert mappings() - mapped < 20 * MAPPINGS_PER_FILE + 20
    for file in files:
        file.close()
    assert mappings_max() >= mappings()
