"""The control pipe of a node that runs, and where it and the pid file are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bmqctl.testing import NodeFailed, NodeProcess, free_port
from tests.rigs.config_files import spoil, write_config
from tests.waiting import WAIT_S


def send(node: NodeProcess, line: str) -> None:
    fd = os.open(node.data_dir / "bmqbrkr.ctl", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def test_exit_stops_as_a_signal_does(bmq_node: NodeProcess) -> None:
    send(bmq_node, "exit")
    bmq_node.wait_for("stopping on EXIT from the control pipe")
    bmq_node.wait_for("BMQbrkr stopped")
    assert bmq_node.wait() == 0
    assert not (bmq_node.data_dir / "bmqbrkr.ctl").exists()
    assert not bmq_node.pid_file.exists()


def test_severities_change_while_it_runs(bmq_node: NodeProcess) -> None:
    send(bmq_node, "LOG VERB ERROR")
    send(bmq_node, "LOG VERB INFO")
    bmq_node.wait_for("Command 'LOG VERB INFO' successfully processed:")
    assert "Command 'LOG VERB ERROR'" not in bmq_node.output
    send(bmq_node, "LOG CATEGORY broker.ses* warn")
    bmq_node.wait_for("1 categories are now WARN")
    send(bmq_node, "LOG INFO")
    bmq_node.wait_for("broker.session: WARN")
    send(bmq_node, "LOG VERB LOUD")
    bmq_node.wait_for("Error processing command 'LOG VERB LOUD' [rc: -1]:")
    send(bmq_node, "LOG CONSOLE OFF")
    send(bmq_node, "BOGUS")
    send(bmq_node, "LOG CONSOLE INFO")
    bmq_node.wait_for("Command 'LOG CONSOLE INFO' successfully processed:")
    assert "Unknown command 'BOGUS'" in bmq_node.log
    assert "Unknown command 'BOGUS'" not in bmq_node.output


def test_help_names_the_verbs(bmq_node: NodeProcess) -> None:
    send(bmq_node, "HELP")
    bmq_node.wait_for("    LOG <command> ")
    send(bmq_node, "LOG HELP")
    bmq_node.wait_for("    CONSOLE SEVERITY ")


def test_node_whose_pipe_another_reads_does_not_start(bmq_node: NodeProcess, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "bmqbrkr.ctl").symlink_to(bmq_node.data_dir / "bmqbrkr.ctl")
    with pytest.raises(NodeFailed) as failure:
        NodeProcess(other).start()
    assert failure.value.exit_code == 2
    assert "is in the way of the control pipe" in failure.value.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose every place is below `tmp_path`, on a free port."""
    folder = write_config(tmp_path / "etc")
    port = free_port()
    spoil(folder, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", "tcpInterface", "port", value=port)
    endpoint = ("myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint")
    spoil(folder, "clusters.json", *endpoint, value=f"tcp://localhost:{port}")
    partitions = ("myClusters", 0, "partitionConfig")
    spoil(folder, "clusters.json", *partitions, "location", value=str(tmp_path / "store"))
    spoil(folder, "clusters.json", *partitions, "archiveLocation", value=str(tmp_path / "store" / "archive"))
    log_file = str(tmp_path / "logs" / "logs.%T.%p")
    spoil(folder, "bmqbrkrcfg.json", "taskConfig", "logController", "fileName", value=log_file)
    return folder


@pytest.mark.parametrize("by_variable", [False, True])
def test_with_a_configuration_all_is_where_the_reference_has_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    if by_variable:
        monkeypatch.setenv("BMQ_PREFIX", str(run))
    words = [sys.executable, "-c", "from bmqctl.app import main; main()", "start", "node", str(config)]
    where = tmp_path if by_variable else run
    with subprocess.Popen(words, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("bmqctl: node ready on ")
            assert (run / "bmqbrkr.pid").read_text() == f"{process.pid}\n"
            (run / "bmqbrkr.ctl").write_text("EXIT\n")
            _, console = process.communicate(timeout=WAIT_S)
            assert process.returncode == 0
        finally:
            process.kill()
    assert not list(run.iterdir())
    # consoleFormat and fileName are those of the configuration; logfileFormat is not set there.
    moment = r"\d\d[A-Z]{3}\d{4}_\d\d:\d\d:\d\d\.\d{3}"
    assert re.search(rf"(?m)^{moment} \(\d+\) INFO app\.py:\d+ BMQbrkr started successfully$", console)
    (log_file,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(rf"logs\.\d{{8}}_\d{{6}}\.{process.pid}", log_file.name)
    assert "INFO broker BMQbrkr started successfully\n" in log_file.read_text()
