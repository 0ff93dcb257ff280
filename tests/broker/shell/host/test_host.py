"""Each way to make the calls that differ between systems does what the others rely on."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from broker.shell.connections.certificates import make_self_signed
from broker.shell.host.calls import HOST, READABLE, WRITABLE, Host, Poller
from broker.shell.host.descriptors import descriptors_in_use
from broker.shell.host.portable import PortableHost
from tests.waiting import WAIT_S, eventually

if sys.platform == "linux":
    from broker.shell.host.linux import LinuxHost

    HOSTS: list[Host] = [LinuxHost(), PortableHost()]
else:
    HOSTS = [PortableHost()]

MIB = 1 << 20


@pytest.fixture(params=HOSTS, ids=lambda host: host.name)
def host(request: pytest.FixtureRequest) -> Host:
    found: Host = request.param
    return found


@pytest.fixture
def poller(host: Host) -> Iterator[Poller]:
    made = host.poller()
    yield made
    made.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def is_readable(poller: Poller) -> None:
    """Wait as the loop does."""
    poller.arm()
    with trio.fail_after(WAIT_S):
        await trio.lowlevel.wait_readable(poller.fileno())


def test_poller_reports_readiness_while_it_lasts(poller: Poller, ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    poller.register(ours.fileno(), READABLE)
    assert poller.poll(0) == []
    theirs.send(b"data")
    assert poller.poll(WAIT_S) == [(ours.fileno(), READABLE)]
    assert poller.poll(0) == [(ours.fileno(), READABLE)]
    poller.modify(ours.fileno(), READABLE | WRITABLE)
    assert poller.poll(0) == [(ours.fileno(), READABLE | WRITABLE)]
    poller.modify(ours.fileno(), 0)
    assert poller.poll(0) == []
    poller.unregister(ours.fileno())
    with pytest.raises(FileNotFoundError):
        poller.modify(ours.fileno(), READABLE)
    with pytest.raises(FileNotFoundError):
        poller.unregister(ours.fileno())


def test_no_descriptor_is_watched_twice(poller: Poller, ends: tuple[socket.socket, socket.socket]) -> None:
    poller.register(ends[0].fileno(), READABLE)
    with pytest.raises(FileExistsError):
        poller.register(ends[0].fileno(), WRITABLE)


def test_end_of_a_peer_is_told(poller: Poller, ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    poller.register(ours.fileno(), READABLE)
    theirs.close()
    ((fd, mask),) = poller.poll(WAIT_S)
    assert fd == ours.fileno()
    assert mask & ~WRITABLE


@pytest.mark.trio
async def test_task_waits_for_all_of_them(poller: Poller, ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    poller.register(ours.fileno(), READABLE)
    for number in range(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(is_readable, poller)
            await trio.testing.wait_all_tasks_blocked()
            theirs.send(b"data")
        assert poller.poll(0) == [(ours.fileno(), READABLE)], number
        assert ours.recv(10) == b"data"
        assert poller.poll(0) == []


@pytest.mark.trio
async def test_task_that_waits_learns_of_changes(poller: Poller, ends: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = ends
    # First what was not watched at all, then what was watched for something else.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(is_readable, poller)
        await trio.testing.wait_all_tasks_blocked()
        poller.register(ours.fileno(), WRITABLE)
    assert poller.poll(0) == [(ours.fileno(), WRITABLE)]
    poller.modify(ours.fileno(), READABLE)
    assert poller.poll(0) == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(is_readable, poller)
        await trio.testing.wait_all_tasks_blocked()
        poller.modify(ours.fileno(), WRITABLE)
    assert poller.poll(0) == [(ours.fileno(), WRITABLE)]


@pytest.mark.trio
async def test_descriptor_that_is_closed_while_a_task_waits(poller: Poller) -> None:
    ours, theirs = socket.socketpair()
    others, ends = socket.socketpair()
    with theirs, others, ends:
        poller.register(ours.fileno(), READABLE)
        poller.register(others.fileno(), READABLE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(is_readable, poller)
            await trio.testing.wait_all_tasks_blocked()
            poller.unregister(ours.fileno())
            ours.close()
            ends.send(b"data")
        assert poller.poll(WAIT_S) == [(others.fileno(), READABLE)]


@pytest.mark.trio
async def test_poller_in_use_after_a_wait_was_cancelled(
    poller: Poller, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    poller.register(ours.fileno(), READABLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(is_readable, poller)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert poller.poll(0) == []
    theirs.send(b"data")
    assert poller.poll(WAIT_S) == [(ours.fileno(), READABLE)]
    await is_readable(poller)


def test_closed_poller_leaves_nothing_behind(host: Host, ends: tuple[socket.socket, socket.socket]) -> None:
    threads, files = threading.active_count(), descriptors_in_use()
    poller = host.poller()
    poller.register(ends[0].fileno(), READABLE)
    poller.arm()
    poller.close()
    assert (threading.active_count(), descriptors_in_use()) == (threads, files)


def test_wakener_is_readable_until_it_is_cleared(host: Host) -> None:
    wakener, poller = host.wakener(), host.poller()
    poller.register(wakener.fileno(), READABLE)
    for times in (1, 3, 100_000):
        assert poller.poll(0) == []
        for _ in range(times):
            wakener.set()
        assert poller.poll(0) == [(wakener.fileno(), READABLE)]
        wakener.clear()
    assert poller.poll(0) == []
    with pytest.raises(BlockingIOError):
        wakener.clear()
    thread = threading.Thread(target=wakener.set)
    thread.start()
    assert poller.poll(WAIT_S)
    thread.join()
    poller.close()
    wakener.close()


def test_disk_is_allocated_and_content_stays(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.truncate(fd, 8 * MIB)
        os.pwrite(fd, b"x" * 10_000, 3 * MIB + 17)
        before = path.read_bytes()
        taken = path.stat().st_blocks
        host.allocate(fd, MIB + 5, 4 * MIB)
        assert path.read_bytes() == before
        assert path.stat().st_blocks * 512 >= 4 * MIB > taken * 512
        mapped = mmap.mmap(fd, 8 * MIB)
        host.map_ahead(mapped, MIB, MIB)
        mapped[MIB : MIB + 4] = b"data"
        host.flush_data(fd)
        host.flush(fd)
        mapped.close()
        assert os.pread(fd, 4, MIB) == b"data"
        # Space already on disk costs no more.
        taken = path.stat().st_blocks
        host.allocate(fd, MIB + 5, 4 * MIB)
        assert path.stat().st_blocks == taken
    finally:
        os.close(fd)


def test_failed_allocation_is_an_error(host: Host, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            host.allocate(fd, MIB, 2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        os.close(fd)


def test_portable_way_takes_no_part_of_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails in its midst would keep the room that it took; nothing gives it back."""
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    real = os.statvfs(tmp_path)
    fields = list(real)
    fields[4] = MIB // real.f_frsize  # f_bavail
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(fields))
    try:
        with pytest.raises(OSError, match="No space left"):
            PortableHost().allocate(fd, 0, 2 * MIB)
        assert path.stat().st_blocks == 0
        PortableHost().allocate(fd, 0, MIB)
    finally:
        os.close(fd)


def test_certificate_is_taken(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = make_self_signed("host", int(time.time()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    host.load_certificate(context, made.certificate + made.key)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ssl.SSLError):
        host.load_certificate(context, made.certificate)


def test_memory_of_this_process(host: Host) -> None:
    virtual, resident = host.memory()
    assert virtual >= resident > MIB


@pytest.mark.trio
async def test_alarm_comes_in_time(host: Host) -> None:
    alarm = host.alarm()
    if alarm is None:
        pytest.skip("trio's own sleep stands in for it")
    due_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 300_000
    alarm.set(due_ns)
    with trio.fail_after(WAIT_S):
        await trio.lowlevel.wait_readable(alarm.fileno())
    assert time.clock_gettime_ns(time.CLOCK_MONOTONIC) >= due_ns
    alarm.clear()
    alarm.close()


@pytest.mark.process
@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps here")
def test_usage_of_another_process(host: Host) -> None:
    work = "import select, sys\nx = bytearray(64 << 20)\nprint(flush=True)\n"
    work += "while not select.select([sys.stdin], [], [], 0)[0]: pass"
    command = [sys.executable, "-c", work]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        # The system may count in seconds, and gives a process of many its turn late.
        eventually(lambda: host.cpu_s(process.pid) > 0)
        assert host.anonymous_memory(process.pid) > 64 * MIB
        if host.name != "portable" or shutil.which("lsof"):
            assert host.open_files(process.pid) == 3
        process.stdin.write(b"\n")
        process.stdin.close()
    with pytest.raises(OSError):  # noqa: PT011 - of several kinds
        host.cpu_s(process.pid)


@pytest.mark.process
def test_choice_by_the_environment() -> None:
    code = "from broker.shell.host.calls import HOST; print(HOST.name)"
    found = {
        value: subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "BMQCTL_PORTABLE": value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for value in ("0", "1")
    }
    assert found == {"0": HOSTS[0].name, "1": "portable"}


def test_this_process_has_the_way_it_was_told() -> None:
    forced = os.environ.get("BMQCTL_PORTABLE", "0") not in ("", "0")
    assert HOST.name == ("portable" if forced else HOSTS[0].name)
