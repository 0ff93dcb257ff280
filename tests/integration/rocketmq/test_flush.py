"""SYNC_FLUSH of a RocketMQ node: it waits for the disk, and not for ever."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from bmqctl.testing import RocketProcess
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.rigs.remoting import Remote

# While the file is there, the disk does not complete a flush; tracers are not on every machine.
HANGING = """
import os, time
from broker.shell.host.calls import HOST
real = HOST.flush_data
def flush(fd):
    while os.path.exists(os.environ["HANGS"]):
        time.sleep(0.01)
    real(fd)
HOST.flush_data = flush
from bmqctl.app import main
main()
"""
TIMEOUT_MS = 1_500


def test_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = tmp_path / "hangs"
    monkeypatch.setenv("HANGS", str(hangs))
    config = tmp_path / "broker.conf"
    config.write_text(f"flushDiskType=SYNC_FLUSH\nsyncFlushTimeout={TIMEOUT_MS}\n")
    node = RocketProcess(tmp_path / "store", config_file=config, command=(sys.executable, "-c", HANGING))
    with node, Remote(node.port) as remote, Remote(node.nameserver_port) as nameserver:
        assert remote.send_message("kept", b"0", properties="UNIQ_KEY\x01A\x02").code == ResponseCode.SUCCESS
        hangs.touch()
        began = time.monotonic()
        asked = [remote.ask(RequestCode.GET_MAX_OFFSET, topic="kept", queueId=0)]
        late = remote.send_message("kept", b"1", properties="UNIQ_KEY\x01B\x02")
        took_s = time.monotonic() - began
        assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
        # It is stored, and the answer says where, as with success.
        assert late.ext_fields is not None
        assert (late.ext_fields["queueOffset"], late.ext_fields["transactionId"]) == ("1", "B")
        assert took_s >= TIMEOUT_MS / 1000
        # The node is not silent meanwhile.
        assert remote.answer(asked[0]).code == ResponseCode.SUCCESS
        assert nameserver.call(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
        assert "FLUSH_DISK_TIMEOUT" in node.wait_for("takes more than 1500 ms")
        hangs.unlink()
        node.wait_for("the disk completes flushes again")
        assert remote.send_message("kept", b"2", properties="UNIQ_KEY\x01C\x02").code == ResponseCode.SUCCESS
        assert [bytes(each.body) for each in records_of(remote.answer(remote.pull("kept")))] == [b"0", b"1", b"2"]
        assert node.stop() == 0


def test_no_time_at_all(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("flushDiskType=SYNC_FLUSH\nsyncFlushTimeout=0\n")
    with RocketProcess(tmp_path / "store", config_file=config) as node, Remote(node.port) as remote:
        answer = remote.send_message("kept", b"0", properties="UNIQ_KEY\x01A\x02")
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert [bytes(each.body) for each in records_of(remote.answer(remote.pull("kept")))] == [b"0"]
