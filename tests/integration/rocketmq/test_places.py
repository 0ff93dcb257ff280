"""A RocketMQ node whose store is not where, or not what, it was: it goes on with it, or changes nothing."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeFailed, RocketProcess
from formats.rocketmq.files.property_text import read_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.remoting import Remote

SIZES = "mappedFileSizeCommitLog=8192\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\nmaxIndexNum=200\n"
MESSAGES = 60


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RocketProcess]:
    """A stopped node whose store has messages in several files, and a group's progress."""
    config = tmp_path / "broker.conf"
    config.write_text(SIZES)
    with RocketProcess(tmp_path / "store", config_file=config, grpc_port=0) as made:
        with Remote(made.port) as remote:
            for number in range(MESSAGES):
                assert remote.send_message("kept", b"%d".ljust(300) % number).code == ResponseCode.SUCCESS
            assert remote.commit("kept", 0, 40).code == ResponseCode.SUCCESS
        assert made.stop() == 0
        yield made


def configure(node: RocketProcess, text: str) -> None:
    assert node.config_file is not None
    node.config_file.write_text(text)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def check_kept(node: RocketProcess) -> None:
    node.start()
    assert f", messages: {MESSAGES}, " in node.ready_line
    with Remote(node.port) as remote:
        answer = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="group", topic="kept", queueId=0)
        assert answer.ext_fields == {"offset": "40"}


def check_refused(node: RocketProcess, code: int, *texts: str) -> None:
    """Start the node, and look whether it ends, says why, and has changed nothing; as does `config validate`."""
    before = contents(node.data_dir.parent)
    with pytest.raises(NodeFailed) as refused:
        node.start()
    assert refused.value.exit_code == code
    assert contents(node.data_dir.parent) == before
    told = refused.value.output.strip().splitlines()
    assert len(told) == 1
    assert all(text in told[0] for text in texts)
    assert node.config_file is not None
    text = node.config_file.read_text()
    node.config_file.write_text(f"{text}storePathRootDir={node.data_dir}\n")
    result = CliRunner().invoke(app, ["config", "validate", str(node.config_file)])
    assert result.exit_code == 1
    assert all(text in result.stdout for text in texts)
    node.config_file.write_text(text)


def test_log_on_another_disk(node: RocketProcess, tmp_path: Path) -> None:
    log = tmp_path / "disk2" / "log"
    log.parent.mkdir()
    (node.data_dir / "commitlog").rename(log)
    check_refused(node, 1, "there is no commit log, but", "set storePathCommitLog to where the log is")
    configure(node, f"{SIZES}storePathCommitLog={log}\n")
    check_kept(node)
    with Remote(node.port) as remote:
        shown = read_properties(bytes(remote.call(RequestCode.GET_BROKER_CONFIG).body).decode())
        assert shown["storePathCommitLog"] == str(log)
        assert remote.send_message("kept", b"more").code == ResponseCode.SUCCESS
    node.stop(signal.SIGKILL)
    node.start()
    assert f", messages: {MESSAGES + 1}, " in node.ready_line
    with pytest.raises(NodeFailed) as refused, RocketProcess(tmp_path / "other", config_file=node.config_file):
        pass
    assert (refused.value.exit_code, f"{log}: in use by another broker" in refused.value.output) == (2, True)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_log_that_is_missing(node: RocketProcess, how: signal.Signals) -> None:
    node.start()
    node.stop(how)
    log = node.data_dir / "commitlog"
    kept = {path.name: path.read_bytes() for path in log.iterdir()}
    names = sorted(kept)
    for missing, texts in (
        (names, ["there is no commit log"]),
        (names[1:2], [names[2], "does not follow the file before it"]),
        (names[-1:], ["its files end here, but all before offset"]),
    ):
        for name in missing:
            (log / name).unlink()
        check_refused(node, 1, *texts, "from a replica or a backup")
        for name in missing:
            (log / name).write_bytes(kept[name])
    check_kept(node)


@pytest.mark.parametrize("line", ["enableDLegerCommitLog=true", "storeType=defaultRocksDB"])
def test_store_of_another_kind(node: RocketProcess, line: str) -> None:
    configure(node, f"{SIZES}{line}\n")
    check_refused(node, 2, line, "which is not kept here")
    configure(node, SIZES)
    database = node.data_dir / "config" / "consumerOffsets"
    database.mkdir()
    for name in ("CURRENT", "MANIFEST-000004", "000012.sst"):
        (database / name).touch()
    check_refused(node, 2, f"{database}: is a database of RocksDB")
    shutil.rmtree(database)
    check_kept(node)


def test_empty_database_of_the_original(node: RocketProcess) -> None:
    database = node.data_dir / "rocksdbstore"
    database.mkdir()
    for name in ("CURRENT", "MANIFEST-000005", "IDENTITY", "LOCK", "LOG", "OPTIONS-000009", "000004.log"):
        (database / name).write_bytes(b"" if name in ("LOCK", "000004.log") else b"x")
    check_kept(node)
    node.close()
    (database / "000004.log").write_bytes(b"x")
    check_refused(node, 2, f"{database}: is a database of RocksDB")


def test_sizes_are_those_of_the_files(node: RocketProcess) -> None:
    configure(node, "flushDiskType=ASYNC_FLUSH\n")
    check_kept(node)
    assert "mappedFileSizeCommitLog=1073741824 differs from the files of the store; 8192 is used" in node.log
    with Remote(node.port) as remote:
        shown = read_properties(bytes(remote.call(RequestCode.GET_BROKER_CONFIG).body).decode())
    sizes = dict(line.split("=") for line in SIZES.split())
    assert {name: shown[name] for name in sizes} == sizes


def test_a_change_keeps_the_file_as_java_reads_it(node: RocketProcess) -> None:
    assert node.config_file is not None
    text = f"{SIZES}# gr\xfc\xdfe\nbroker\\\n  Name = Z\\u00fcrich\nfileReservedTime : \\\n\t48\n"
    node.config_file.write_bytes(text.encode("latin-1"))
    check_kept(node)
    assert "broker: Zürich" in node.ready_line
    with Remote(node.port) as remote:
        changed = remote.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=24\ntimerMaxDelaySec=60")
        assert changed.code == ResponseCode.SUCCESS
    assert node.stop() == 0
    expected = text.replace("fileReservedTime : \\\n\t48", "fileReservedTime=24") + "timerMaxDelaySec=60\n"
    assert node.config_file.read_bytes().decode("latin-1") == expected
