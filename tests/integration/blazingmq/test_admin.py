"""Administration of a node that runs: over TCP, by the control pipe, and with `bmqctl admin`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bmqctl.client.admin import AdminClient, AdminLost
from bmqctl.stores.blazingmq.read.check import check_path
from bmqctl.testing import NodeProcess, free_port
from formats.bmq.control import jsonc
from formats.bmq.control.messages import AdminCommand, AdminCommandResponse, ControlMessage
from formats.bmq.wire.event import EncodingType, EventType, build_schema_event
from tests.rigs.config_files import spoil, write_config
from tests.rigs.raw import WRITE, Raw, open_request
from tests.waiting import WAIT_S, eventually

QUEUE = "bmq://bmq.test.mmap.priority/admin"
NODES = ("myClusters", 0, "nodes")
MODE = ("definition", "parameters", "mode")


@pytest.fixture(scope="module", autouse=True)
def queue(node: NodeProcess) -> None:
    with Raw(node) as raw:
        raw.send(open_request(QUEUE, 0, WRITE))
        raw.control()


def bmqctl(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from bmqctl.app import main; main()", "admin", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def test_over_tcp(node: NodeProcess) -> None:
    with AdminClient("127.0.0.1", node.port) as admin:
        assert "This process responds to the following CMD subcommands:" in admin.send("help")
        assert "Unable to decode command" in admin.send("invalid cmd")
        dump = json.loads(admin.send("brokerconfig dump"))
        assert dump["networkInterfaces"]["tcpInterface"]["port"] == node.port
        assert QUEUE in admin.send("CLUSTERS CLUSTER local STATUS")
        assert "Handle Parameters" in admin.send("DOMAINS DOMAIN bmq.test.mmap.priority QUEUE admin INTERNALS")
        config = json.loads(admin.send("ENCODING JSON_PRETTY DOMAINS DOMAIN bmq.test.mmap.priority INFOS"))
        assert json.loads(config["domainInfo"]["configJson"])["name"] == "bmq.test.mmap.priority"
    assert "Received command 'help' [source: " in node.log
    assert "Send response message" in node.log


def test_a_long_answer_and_many_commands_at_once(node: NodeProcess) -> None:
    with Raw(node, identified=False) as raw:
        raw.send(
            build_schema_event(
                b'{"clientIdentity":{"protocolVersion":999999,"clientType":"E_TCPADMIN","guidInfo":{}}}',
                EventType.CONTROL,
                EncodingType.JSON,
            )
        )
        kind, _ = raw.event()
        assert kind is EventType.CONTROL
        requests = [ControlMessage(r_id=number, choice=AdminCommand(command="HELP")) for number in range(200)]
        raw.send(
            b"".join(
                build_schema_event(jsonc.encode(request), EventType.CONTROL, EncodingType.JSON) for request in requests
            )
        )
        for number in range(200):
            kind, body = raw.event()
            answer = jsonc.decode(ControlMessage, body)
            assert answer.r_id == number
            assert isinstance(answer.choice, AdminCommandResponse)
            assert answer.choice.text.startswith("This process")


def test_by_the_control_pipe(node: NodeProcess) -> None:
    def send(line: str) -> None:
        fd = os.open(node.data_dir / "bmqbrkr.ctl", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, f"{line}\n".encode())
        os.close(fd)

    send("CMD CLUSTERS LIST")
    node.wait_for("Received command 'CLUSTERS LIST' [source: MTRAP]")
    node.wait_for("Command 'CMD CLUSTERS LIST' processed successfully in ")
    node.wait_for("The following clusters are active:")
    send("CMD CLUSTERS CLUSTER local STORAGE PARTITION 77 SUMMARY")
    node.wait_for("Error processing command [rc: -2] Too high partitionId value: '77'")
    send("cmd nonsense")
    node.wait_for("Error processing command [rc: -31] Unable to decode command (rc: -1, error: ")


def test_rollover_by_the_control_pipe(bmq_node: NodeProcess) -> None:
    before = {file.name for file in bmq_node.data_dir.glob("*.bmq_journal")}
    with AdminClient("127.0.0.1", bmq_node.port) as admin:
        assert admin.send("CLUSTERS CLUSTER local STORAGE PARTITION 0 ROLLOVER") == "SUCCESS"
    bmq_node.wait_for("ROLLOVER COMPLETE")
    # A thread puts the old files away.
    eventually(lambda: not before & {file.name for file in bmq_node.data_dir.glob("*.bmq_journal")})
    bmq_node.restart()


def test_the_command_prints_answers(node: NodeProcess) -> None:
    found = bmqctl("--broker", node.uri, "CLUSTERS", "LIST")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("The following clusters are active:\n    [LOCAL ] local:\n")
    found = bmqctl("-b", node.uri, "ENCODING JSON_COMPACT CLUSTERS CLUSTER nowhere STATUS")
    assert found.returncode == 1
    assert json.loads(found.stdout)["error"]["message"] == "cluster 'nowhere' not found !"
    found = bmqctl("-b", node.uri, "NONSENSE")
    assert found.returncode == 1
    assert found.stdout.startswith("Unable to decode command")


def test_the_command_reads_lines(node: NodeProcess) -> None:
    found = bmqctl("-b", node.uri, stdin="CLUSTERS LIST\n\nENCODING JSON_COMPACT CLUSTERS LIST\n")
    assert found.returncode == 0
    assert json.loads(found.stdout.splitlines()[-1])["clusterList"]["clusters"][0]["name"] == "local"


def test_the_command_without_a_broker() -> None:
    for broker, reason in (
        (f"tcp://127.0.0.1:{free_port()}", "no broker at 127.0.0.1:"),
        ("http://x:1", "expected tcp://HOST:PORT"),
        ("tcp://x:999999", "expected tcp://HOST:PORT"),
    ):
        found = bmqctl("--broker", broker, "HELP")
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr.count("\n") == 1
        assert reason in found.stderr


def test_broker_that_answers_with_garbage_or_not_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        with pytest.raises(AdminLost, match="did not answer in time"):
            AdminClient(host, port, 0.2)
        server.settimeout(WAIT_S)
        peer, _ = server.accept()
        peer.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        client = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from bmqctl.app import main; main()",
                "admin",
                "-b",
                f"tcp://127.0.0.1:{server.getsockname()[1]}",
                "HELP",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            _, errors = client.communicate(timeout=WAIT_S)
        assert client.returncode == 2
        assert "not a valid event" in errors


def test_a_domain_s_file_is_read_again_and_a_domain_removed(tmp_path: Path) -> None:
    config, port = write_config(tmp_path / "etc"), free_port()
    file = config / "domains" / "shop.prices.json"
    spoil(config, "clusters.json", *NODES, 0, "transport", "tcp", "endpoint", value=f"tcp://localhost:{port}")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", "tcpInterface", "port", value=port)
    with NodeProcess(tmp_path / "store", config_dir=config, port=port) as node, AdminClient("localhost", port) as admin:
        with Raw(node) as raw:
            raw.send(open_request("bmq://shop.prices/q", 0, WRITE))
            raw.control()
            internals = "DOMAINS DOMAIN shop.prices QUEUE q INTERNALS"
            assert "left : [appKey" in admin.send(internals)
            spoil(config, "domains/shop.prices.json", *MODE, "fanout", "appIDs", value=["middle", "right"])
            assert "left : [appKey" in admin.send(internals)
            assert admin.send("DOMAINS RECONFIGURE shop.prices") == "SUCCESS"
            assert "left : [appKey" not in admin.send(internals)
            assert "middle : [appKey" in admin.send(internals)
            good = file.read_text()
            file.write_text("{")
            assert "is not JSON" in admin.send("DOMAINS RECONFIGURE shop.prices")
            file.write_text(good)
            assert "queues opened or opening" in admin.send("DOMAINS REMOVE shop.prices")
        node.wait_for("session ends: the peer closed the connection")
        assert admin.send("DOMAINS REMOVE shop.prices").startswith("Purged 0 message(s)")
        file.unlink()
        assert admin.send("DOMAINS REMOVE shop.prices FINALIZE") == "SUCCESS"
        assert admin.send("DOMAINS REMOVE shop.prices") == "Domain 'shop.prices' doesn't exist"
        node.restart()
    report = check_path(tmp_path / "store", 10, lambda done, total: None)
    assert not report.errors, report.faults


def test_garbage_commands(node: NodeProcess) -> None:
    with AdminClient("127.0.0.1", node.port) as admin:
        for command in (
            "",
            " ",
            "{",
            '{"a":' * 100_000,
            '{"stat":{"getTunable":"\ud800"}}'.encode("utf-8", "surrogatepass").decode("latin-1"),
            '{"domains":{"domain":{"name":"\\ud800","command":{"info":{}}}}}',
            "DOMAINS DOMAIN ../../etc/passwd INFOS",
            "DOMAINS DOMAIN " + "x" * 1_000_000 + " INFOS",
            "DOMAINS DOMAIN bmq.test.mmap.priority QUEUE a\x00b PURGE *",
        ):
            assert len(admin.send(command)) > 10
        assert admin.send("HELP")
    assert "Traceback" not in node.output
