"""A broker on a store that `bmqctl journal repair` has made of a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmqctl.stores.rocketmq.check.check import check_log_store
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.repair.repair import repair_log_store
from bmqctl.testing import RocketProcess, rocketmq_node
from formats.rocketmq.remoting.codes import ResponseCode
from tests.broker.rocketmq.answers import records_of
from tests.rigs.remoting import Remote

__all__ = ["rocketmq_node"]


def damage(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        data = file.read(size)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in data))


@pytest.mark.parametrize("is_killed", [False, True])
def test_broker_serves_all_that_was_sound(rocketmq_node: RocketProcess, tmp_path: Path, is_killed: bool) -> None:
    node = rocketmq_node
    with Remote(node.port) as remote:
        for number in range(10):
            assert remote.send_message("kept", b"%d" % number).code == ResponseCode.SUCCESS
    if is_killed:
        node.kill()
    else:
        assert node.stop() == 0
    (log,) = open_store(node.data_dir).log
    begins = [at for chunk in LogScan([log]).chunks() for at in chunk.records.offsets.tolist()]
    damage(log.path, begins[4] + 88, 1)
    damage(log.path, begins[6] + 10, 60)
    report = repair_log_store(node.data_dir, tmp_path / "out", None, lambda what, done, total: None)
    assert [(note.what, note.number) for note in report.left_out] == [("body", 4), ("bytes", None), ("message", 6)]
    assert (report.errors, report.warnings) == (0, 0)
    with RocketProcess(tmp_path / "out") as other:
        assert ", messages: 10, " in other.ready_line
        with Remote(other.port) as remote:
            expected = [b"" if number in (4, 6) else b"%d" % number for number in range(10)]
            assert [bytes(each.body) for each in records_of(remote.answer(remote.pull("kept", 0)))] == expected
            assert (remote.send_message("kept", b"more").ext_fields or {})["queueOffset"] == "10"
        assert other.stop() == 0
        assert "Traceback" not in other.output
    assert check_log_store(tmp_path / "out", 0, lambda done, total: None).counts == {}
