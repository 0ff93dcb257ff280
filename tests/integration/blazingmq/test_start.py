"""Start and stop: the ready line, the pid file, the log, signals, and what a node refuses to start with."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import blazingmq
import pytest
from blazingmq.session_events import StateRestored
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.testing import NodeFailed, NodeProcess, free_port
from tests.rigs.config_files import PORT, spoil, write_config
from tests.rigs.official import Connect, queue_name

EXTENSIONS = {".bmq_data", ".bmq_journal", ".bmq_qlist", ".bmq_csl"}


def store_files(folder: Path) -> dict[str, int]:
    """The store's files by extension, with their sizes in bytes."""
    return {path.suffix: path.stat().st_size for path in folder.iterdir() if path.name.startswith("bmq_")}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_start_and_stop(bmq_node: NodeProcess, connect: Connect, how: signal.Signals) -> None:
    assert re.fullmatch(
        rf"bmqctl: node ready on 127\.0\.0\.1:{bmq_node.port} \[cluster: local, queues: 0, messages: 0, "
        rf"pid: {bmq_node.pid}\]",
        bmq_node.ready_line,
    )
    assert bmq_node.pid_file.read_text() == f"{bmq_node.pid}\n"
    assert bmq_node.log.count("BMQbrkr started successfully") == 1
    assert bmq_node.log.count("Cluster (local) is available") == 1
    client = connect(bmq_node)
    uri = queue_name()
    client.open(uri, write=True)
    client.post_all(uri, [b"kept"] * 1000)
    client.stop()
    running = store_files(bmq_node.data_dir)
    assert min(running.values()) >= 8 << 20
    assert bmq_node.stop(how) == 0
    assert not bmq_node.pid_file.exists()
    assert "Traceback" not in bmq_node.output
    stopped = store_files(bmq_node.data_dir)
    assert stopped.keys() == running.keys() == EXTENSIONS
    # Cut to what is written: a journal record has 60 bytes, and a payload of 4 takes 24 with its header and padding.
    assert 60_000 < stopped[".bmq_journal"] < 62_000
    assert 20_000 < stopped[".bmq_data"] < 30_000
    assert stopped[".bmq_qlist"] < 1000
    assert stopped[".bmq_csl"] < 1000
    result = CliRunner().invoke(app, ["journal", "validate", str(bmq_node.data_dir)])
    assert result.exit_code == 0, result.output
    bmq_node.start()
    assert "queues: 1, messages: 1000, " in bmq_node.ready_line
    client = connect(bmq_node)
    client.open(uri, read=True)
    client.wait_for_messages(1000)
    client.barrier()
    assert client.payloads() == [b"kept"] * 1000


def test_it_stops_while_clients_are_at_work(bmq_node: NodeProcess, connect: Connect) -> None:
    client, uri = connect(bmq_node), queue_name()
    client.open(uri, read=True, write=True)
    acks = client.post_all(uri, [b"x" * 100_000] * 100)
    assert bmq_node.stop() == 0
    assert "Traceback" not in bmq_node.output
    bmq_node.start()
    # The client comes back by itself, and gets again what it did not confirm.
    client.wait_for_event(StateRestored)
    delivered = client.wait_for_messages(200)[100:]
    assert [message.guid for message, _ in delivered] == [ack.guid for ack in acks]


def test_many_starts_leave_one_set_of_files(bmq_node: NodeProcess) -> None:
    first = sorted(path.name for path in bmq_node.data_dir.iterdir())
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        bmq_node.restart(how)
    assert sorted(path.name for path in bmq_node.data_dir.iterdir()) == first


def refused(node: NodeProcess) -> str:
    """Return the error of a node that must not start, which is its only line."""
    try:
        with pytest.raises(NodeFailed) as failed:
            node.start()
    finally:
        node.close()
    assert failed.value.exit_code == 2, failed.value.output
    (line,) = [line for line in failed.value.output.splitlines() if line.startswith("bmqctl: ") or " INFO " not in line]
    return line


def test_a_port_in_use(bmq_node: NodeProcess, tmp_path: Path) -> None:
    other = NodeProcess(tmp_path / "other", port=bmq_node.port)
    assert refused(other) == (
        f"bmqctl: 127.0.0.1:{bmq_node.port}: Address already in use; "
        "stop the program that uses it, or choose another --port"
    )
    assert not list(tmp_path.glob("other/*.bmq_*"))


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    # 192.0.2.0/24 is for documentation: no machine has it.
    result = CliRunner().invoke(app, ["start", "node", "--host", "192.0.2.1", "--data-dir", str(tmp_path / "store")])
    assert result.exit_code == 2
    expected = "192.0.2.1:30114: Cannot assign requested address; give --host an address of this machine\n"
    assert result.stderr == f"bmqctl: {expected}"


def test_a_folder_in_use(bmq_node: NodeProcess, connect: Connect) -> None:
    client = connect(bmq_node)
    uri = queue_name()
    client.open(uri, read=True, write=True)
    before = store_files(bmq_node.data_dir)
    second = NodeProcess(bmq_node.data_dir)
    assert refused(second) == (
        f"bmqctl: {bmq_node.data_dir}: in use by another node (pid {bmq_node.pid}); stop it, or name another folder"
    )
    # The one that has it notices nothing.
    assert store_files(bmq_node.data_dir) == before
    assert bmq_node.pid_file.read_text() == f"{bmq_node.pid}\n"
    client.post_all(uri, [b"undisturbed"])
    client.wait_for_messages(1)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(NodeProcess(tmp_path / "file" / "store")) == (
        f"bmqctl: {tmp_path / 'file' / 'store'}: Not a directory; name another folder"
    )


# -- a directory of configuration files, as the reference has it


@pytest.fixture
def config_dir(tmp_path: Path) -> Path:
    return write_config(tmp_path / "etc")


def test_a_directory_of_the_references_files(config_dir: Path, tmp_path: Path, connect: Connect) -> None:
    with NodeProcess(tmp_path / "store", config_dir=config_dir) as node:
        assert "[cluster: mine, " in node.ready_line
        assert len(list(node.data_dir.glob("*.bmq_journal"))) == 3
        assert {path.stat().st_size for path in node.data_dir.glob("*.bmq_data")} == {16 << 20}
        client = connect(node)
        for name in ("shop.orders", "shop.old"):
            client.open(f"bmq://{name}/x-{name}", read=True, write=True)
            client.post_all(f"bmq://{name}/x-{name}", [name.encode()])
        client.open("bmq://shop.prices/p", write=True)
        client.open("bmq://shop.prices/p?id=right", read=True)
        client.post_all("bmq://shop.prices/p", [b"price"])
        client.wait_for_messages(3)
        # Three queues, three partitions, one each.
        assert len(set(re.findall(r"created \[key: \w+, partition: (\d)\]", node.log))) == 3
        # The limit of ten messages is the domain's and the queue's; one each of its two queues holds already. As in
        # the reference, the message that goes beyond it is the last that is taken.
        acks = client.post_all("bmq://shop.orders/x-shop.orders", [b"more"] * 10)
        assert [ack.status.name for ack in acks] == ["SUCCESS"] * 9 + ["LIMIT_MESSAGES"]
        assert node.stop() == 0
        result = CliRunner().invoke(app, ["journal", "validate", str(node.data_dir)])
        assert result.exit_code == 0, result.output
        node.start()
        assert "queues: 3, messages: 12, " in node.ready_line


NODES = "$.myClusters[0].nodes"

FAULTS: dict[str, tuple[str, list[str | int], Any, str]] = {
    "type": (
        "bmqbrkrcfg.json",
        ["appConfig", "networkInterfaces", "tcpInterface", "port"],
        "the usual",
        "$.appConfig.networkInterfaces.tcpInterface.port: is 'the usual', not an integer; write an integer",
    ),
    "missing": (
        "clusters.json",
        ["myClusters", 0, "partitionConfig", "location"],
        None,
        "$.myClusters[0].partitionConfig.location: is missing; add it",
    ),
    "endpoint": (
        "clusters.json",
        ["myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint"],
        "localhost:30114",
        f"{NODES}[0].transport.tcp.endpoint: ",
    ),
    "not this host": (
        "clusters.json",
        ["myClusters", 0, "nodes", 0, "transport", "tcp", "endpoint"],
        "tcp://localhost:4",
        f"{NODES}: no node of cluster 'mine' has an endpoint on this host with port {PORT}; add this node, ",
    ),
    "tls": (
        "bmqbrkrcfg.json",
        ["appConfig", "networkInterfaces", "tcpInterface", "listeners"],
        [{"name": "a", "address": "127.0.0.1", "port": PORT, "tls": True}],
        "$.appConfig.networkInterfaces.tcpInterface.listeners[0].tls: requires TLS, but there is no certificate; ",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_configuration(config_dir: Path, tmp_path: Path, fault: str) -> None:
    file, path, value, expected = FAULTS[fault]
    spoil(config_dir, file, *path, value=value)
    line = refused(NodeProcess(tmp_path / "store", config_dir=config_dir))
    assert line.startswith(f"{config_dir / file}: {expected}")
    assert re.search(r"; \w", line), "no remedy"
    assert not (tmp_path / "store").exists()


def test_a_configuration_that_is_not_json(config_dir: Path, tmp_path: Path) -> None:
    (config_dir / "clusters.json").write_text('{\n  "myClusters": [,]\n}')
    line = refused(NodeProcess(tmp_path / "store", config_dir=config_dir))
    assert line.startswith(f"{config_dir / 'clusters.json'}: line 2, column 18: is not JSON: ")


def test_a_faulty_domain_refuses_its_queues_only(config_dir: Path, tmp_path: Path, connect: Connect) -> None:
    spoil(config_dir, "domains/shop.prices.json", "definition", "parameters", "mode", value={"fanout": {"appIDs": "x"}})
    with NodeProcess(tmp_path / "store", config_dir=config_dir, port=free_port()) as node:
        client = connect(node)
        with pytest.raises(blazingmq.Error, match=r"Failed to open bmq://shop\.prices/p queue: UNKNOWN"):
            client.open("bmq://shop.prices/p", write=True)
        client.open("bmq://shop.orders/o", write=True)
        assert "$.definition.parameters.mode.fanout.appIDs: is 'x', not an array; " in node.log
