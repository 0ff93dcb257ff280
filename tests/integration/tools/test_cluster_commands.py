"""`bmqctl start cluster`, and what `bmqctl cluster` says of one that runs."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.common.ports import free_port, free_ports
from bmqctl.systems.node_process import PID_NAME
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.console_pages import Pages
from tests.rigs.official import Client, queue_name
from tests.waiting import WAIT_S, eventually

MAIN = "from bmqctl.app import main; main()"


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, arguments)
    return found.exit_code, found.output


def test_one_command_starts_a_cluster_and_ends_it(tmp_path: Path) -> None:
    port = free_ports(8)
    asked = ("cluster", "explain", "-b", f"tcp://127.0.0.1:{port}")
    command = [sys.executable, "-c", MAIN, "start", "cluster", "-n", "3", "--dir", str(tmp_path)]
    command += ["--metrics-port", str(port + 4), "--port", str(port)]
    for _ in range(2):  # the second time it goes on with what is there
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                places = ", ".join(f"127.0.0.1:{number}" for number in range(port, port + 3))
                assert ready == f"bmqctl: cluster of 3 ready on {places}\n"
                uri = queue_name("bmq.test.persistent.priority.sc")
                with Client(f"tcp://127.0.0.1:{port + 1}") as client:
                    client.open(uri, write=True)
                    assert len(client.post_all(uri, [b"a", b"b"])) == 2
                eventually(lambda: run(*asked)[0] == 0)
                assert run(*asked) == (0, "No problems, according to 3 of 3 nodes.\n")
                for number in range(port + 4, port + 7):
                    with urllib.request.urlopen(f"http://127.0.0.1:{number}/readyz", timeout=WAIT_S) as page:
                        assert page.status == 200
                process.send_signal(signal.SIGINT)
                assert process.wait(WAIT_S) == 0
            finally:
                process.kill()
    domains = [json.loads(file.read_bytes()) for file in tmp_path.glob("node*/domains/*.json")]
    stored = [
        each["definition"]["parameters"]["consistency"]
        for each in domains
        if "fileBacked" in each["definition"]["parameters"]["storage"]["config"]
    ]
    assert len(stored) >= 12
    assert all(each == {"strong": {}} for each in stored)
    again = [*command[:-1], str(port + 1)]
    refused = subprocess.run(again, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert refused.returncode == 2
    assert "start it with the number of nodes, host and port that it has" in refused.stderr


def https(authority: trustme.CA, folder: Path) -> list[str]:
    """Return options by which a console has a certificate of an authority."""
    certificate, key = folder / "console.pem", folder / "console.key"
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    return ["--console-certificate", str(certificate), "--console-key", str(key)]


def test_a_node_of_it_that_dies_is_told_of(tmp_path: Path) -> None:
    port, console_port = free_ports(3), free_port()
    authority = trustme.CA()
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    command = [sys.executable, "-c", MAIN, "start", "cluster", "--dir", str(tmp_path), "--port", str(port)]
    command += ["--console-port", str(console_port), *https(authority, tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            os.kill(int((tmp_path / "node2" / "storage" / PID_NAME).read_text()), signal.SIGKILL)
            line = process.stderr.readline()
            assert line.startswith("bmqctl: node2 was killed by SIGKILL; to start it again: bmqctl start node ")
            # Its console shows the others, also without the first one.
            pages = Pages(console_port, trusted)
            pages.begin()
            assert [(each.name, each.secure) for each in pages.cookies] == [
                (f"__Host-bmqctl_console_{console_port}", True)
            ]
            assert [each["is_well"] for each in pages.look()["map"]["nodes"]] == [True, False, True]
            os.kill(int((tmp_path / "node1" / "storage" / PID_NAME).read_text()), signal.SIGKILL)
            assert [each["is_well"] for each in pages.look()["map"]["nodes"]][:2] == [False, False]
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 1
            assert pages.is_over()
        finally:
            process.kill()


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "2"),
        ("-n", "8"),
        ("--port", "0"),
        ("--metrics-port", "65534"),
        ("--port", "30000", "--metrics-port", "30002"),
        ("--metrics-host", "127.0.0.1"),
    ],
)
def test_options_that_make_no_cluster_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, _ = run("start", "cluster", "--dir", str(tmp_path / "new"), *arguments)
    assert code == 2
    assert not (tmp_path / "new").exists()


def test_status_and_explanation_of_a_cluster_that_is_not_well(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        cluster.wait_available()
        leader = cluster.leader()
        gone, asked = (number for number in cluster.nodes if number != leader)
        broker = cluster.nodes[asked].uri
        # That each takes part is not yet known to all.
        eventually(lambda: run("cluster", "explain", "-b", broker)[0] == 0)
        code, text = run("cluster", "status", "-b", broker)
        assert code == 0
        assert f"Leader    node {leader}, term 1" in text
        assert "Healthy   yes" in text
        assert text.count("AVAILABLE") == 3
        assert text.count(f"node {leader}   1      yes") == 4
        assert text.count(f"node {gone} (0)") == 4

        cluster.kill(gone)
        cluster.nodes[asked].wait_for(f"node {gone} has disconnected")
        code, text = run("cluster", "status", "-b", broker)
        assert code == 1
        assert "Healthy   no" in text
        assert "UNREACHABLE" in text
        code, text = run("cluster", "explain", "-b", broker)
        assert code == 1
        assert f"node {gone} cannot be asked" in text
        code, text = run("cluster", "status", "--json", "-b", broker)
        assert code == 1
        nodes = {node["nodeId"]: node for node in json.loads(text)["nodes"]}
        assert "error" in nodes[gone]
        assert nodes[asked]["isHealthy"] is False
        code, text = run("cluster", "status", "--output", "csv", "-b", broker)
        rows = list(csv.DictReader(io.StringIO(text)))
        assert (code, [row["status"] for row in rows if row["node"] == str(gone)]) == (1, ["UNREACHABLE"])
        primaries = {row["partition"]: row["node"] for row in rows if row["role"] == "primary"}
        assert primaries == {str(number): str(leader) for number in range(4)}
        code, text = run("cluster", "explain", "--output", "json", "-b", broker)
        # The leader may have noticed as well, and is named first if its number is lower.
        problems = [each["problem"] for each in json.loads(text)]
        assert code == 1
        assert any(problem.startswith(f"node {gone} cannot be asked") for problem in problems)
        assert any(problem.startswith(f"node {gone} is not connected") for problem in nodes[asked]["problems"])

        cluster.kill(leader)
        cluster.nodes[asked].wait_for("is waiting")
        code, text = run("cluster", "explain", "-b", broker)
        assert code == 1
        assert "there is no leader: 1 of 3 nodes are connected, 2 are needed" in text


def test_where_there_is_no_broker() -> None:
    code, text = run("cluster", "status", "-b", f"tcp://127.0.0.1:{free_ports(1)}")
    assert code == 2
    assert "no broker at" in text


def test_a_quorum_that_nobody_meets_keeps_a_node_from_leading(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        cluster.wait_available()
        leader = cluster.leader()
        cluster.nodes[leader].wait_for(f"new leader: [node{leader}, {leader}], leader status: ACTIVE")
        barred, free = (number for number in cluster.nodes if number != leader)
        code, text = run(
            "admin", "-b", cluster.nodes[barred].uri, "CLUSTERS CLUSTER local STATE ELECTOR SET QUORUM 100"
        )
        assert (code, text) == (0, "Quorum set to 100 from 2\n")
        cluster.kill(leader)
        assert cluster.leader() == free
        code, text = run("admin", "-b", cluster.nodes[barred].uri, "CLUSTERS CLUSTER local STATUS")
        assert f"Leader Node           : [node{free}, {free}]" in text
        assert "Self State            : FOLLOWER" in text


def test_an_operator_sets_the_replication_quorum(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        cluster.wait_available()
        command = "CLUSTERS CLUSTER local STORAGE REPLICATION"
        leader = cluster.nodes[cluster.leader()]
        assert run("admin", "-b", leader.uri, f"{command} GET QUORUM") == (0, "Quorum = 2\n")
        assert run("admin", "-b", leader.uri, f"{command} SET QUORUM 1") == (0, "Quorum set to 1 from 2\n")
        leader.wait_for("1 of 3 copies, less than a majority")
        assert run("admin", "-b", leader.uri, f"{command} GET QUORUM") == (0, "Quorum = 1\n")
