"""The tool as a process of its own, and a node of ours."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import NodeProcess
from tests.rigs.config_files import spoil, write_config
from tests.waiting import WAIT_S

TOOL = [sys.executable, "-c", "from bmqctl.app import main; main()", "tool"]
DOMAIN = "bmq://bmq.test.persistent.priority"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node")) as node:
        yield node


def run(*options: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TOOL, *options], input=typed, capture_output=True, text=True, timeout=WAIT_S, check=False)


def spawn(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TOOL, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """The first line that matches; the test's own time limit bounds the wait."""
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"it ended without a line with {pattern}")


def test_commands_come_from_standard_input(node: NodeProcess) -> None:
    uri = f"{DOMAIN}/typed"
    typed = f'start\nopen uri="{uri}" flags="write"\npost uri="{uri}" payload=["x"]\n\nclose uri="{uri}"\nstop\n'
    ended = run("-b", node.uri, "-d", r'--logFormat="%c~@~%s~@~%m\n"', typed=typed)
    assert (ended.returncode, ended.stderr) == (0, "")
    for expected in ("start(5.0) => SUCCESS (0)", "openQueueSync() => SUCCESS", "post() => SUCCESS (0)"):
        assert f"BMQTOOL.INTERACTIVE~@~INFO~@~<-- session.{expected}" in ended.stdout
    assert re.search(r"<--.*closeQueue.*\(0\)", ended.stdout)
    assert "Goodbye." in ended.stdout
    assert ended.stdout.startswith(f'[ mode = "cli" broker = "{node.uri}" ')
    # A prompt stands before each line, as the reference has it.
    assert ended.stdout.count("> ") >= 7


def test_bytes_that_are_no_text_go_out_as_they_came(node: NodeProcess, tmp_path: Path) -> None:
    uri = f"{DOMAIN}/bytes".encode()
    typed = b'start\nopen uri="%s" flags="read,write"\npost uri="%s" payload=["\xff\xc3\xa9","\\ud800"]\nsing \xff\n'
    log = tmp_path / "log"
    ended = subprocess.run(
        [*TOOL, "-b", node.uri, "-d", "--log", str(log)],
        input=typed % (uri, uri), capture_output=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"post() => SUCCESS" in ended.stdout
    assert rb"\xff" in ended.stdout


def test_a_session_outlives_the_node(tmp_path: Path) -> None:
    uri = f"{DOMAIN}/outliving"
    with NodeProcess(tmp_path) as node, spawn("-b", node.uri, "-d") as tool:
        assert tool.stdin is not None

        def send(line: str) -> None:
            assert tool.stdin is not None
            print(line, file=tool.stdin, flush=True)

        send("start")
        send(f'open uri="{uri}" flags="read,write,ack"')
        read_until(tool, "<--.*openQueue")
        send(f'post uri="{uri}" payload=["before"]')
        read_until(tool, "PUSH #0")
        node.kill()
        read_until(tool, "EVENT received:.*CONNECTION_LOST")
        send(f'post uri="{uri}" payload=["between"]')
        read_until(tool, r"<--.*post.*\(0\)")
        node.start()
        read_until(tool, "RECONNECTED")
        read_until(tool, "QUEUE_REOPEN_RESULT")
        read_until(tool, "EVENT received:.*STATE_RESTORED")
        assert "SUCCESS" in read_until(tool, "ACK #0")
        send("list")
        assert "2 messages" in read_until(tool, "Unconfirmed message listing")
        send(f'confirm uri="{uri}" guid="*"')
        for _ in range(2):
            read_until(tool, r"<--.*confirmMessage.*\(0\)")
        send("quit")
        assert tool.wait(WAIT_S) == 0
        tool.communicate()


def test_a_producer_and_a_consumer_run_by_themselves(node: NodeProcess, tmp_path: Path) -> None:
    uri = f"{DOMAIN}/automatic"
    options = ["-b", node.uri, "--mode", "auto", "--queueuri", uri]
    properties = '[{"name": "p1", "value": "s1", "type": "E_STRING"}]'
    consumed, produced = tmp_path / "consumer.log", tmp_path / "producer.log"
    with spawn(*options, "-f", "read", "-c", "--log", str(consumed), "--maxunconfirmed", "100:100000") as consumer:
        ended = run(
            *options, "--queueflags", "write,ack", "--eventscount", "50", "--postinterval", "2", "--messagepattern",
            "msg", f"--messageProperties={properties}", "--log", str(produced),
        )  # fmt: skip
        assert ended.returncode == 0
        assert "All posted messages have been acknowledged" in ended.stdout
        assert "Final stats: produced 50 messages" in ended.stdout
        read_until(consumer, r"consumed \|.*\| \s*(\d+) \|")
        consumer.send_signal(signal.SIGINT)
        out, err = consumer.communicate(timeout=WAIT_S)
    assert consumer.returncode == 0
    assert "Please send a signal 4 more times" in err
    assert "Final stats: consumed 50 messages" in out
    puts = re.findall(rf" PUT {re.escape(uri)}\|\[ autoValue = \d+ \]\|(.+)\|msg(\d+)", produced.read_text())
    acks = re.findall(rf" ACK {re.escape(uri)}\|\[ autoValue = \d+ \]\|(.+)\|(-?\d+)\|", produced.read_text())
    pushes = re.findall(rf" PUSH {re.escape(uri)}\|(.+)\|msg(\d+)", consumed.read_text())
    confirms = re.findall(rf" CONFIRM {re.escape(uri)}\|(.+)\|", consumed.read_text())
    assert [int(number) for _, number in puts] == list(range(50))
    assert acks == [(guid, "0") for guid, _ in puts]
    assert pushes == puts
    assert confirms == [guid for guid, _ in puts]


def test_a_node_that_is_killed_loses_nothing_of_a_producer(tmp_path: Path) -> None:
    uri = f"{DOMAIN}/killed"
    produced, consumed = tmp_path / "producer.log", tmp_path / "consumer.log"
    with NodeProcess(tmp_path / "node") as node:
        options = ["-b", node.uri, "--mode", "auto", "-q", uri]
        with (
            spawn(*options, "-f", "read", "-c", "--log", str(consumed)) as consumer,
            spawn(
                *options, "-f", "write,ack", "--eventscount", "300", "-i", "10", "--messagepattern", "msg", "--log",
                str(produced),
            ) as producer,
        ):  # fmt: skip
            read_until(consumer, r"consumed \|.*\| \s*([1-9]\d*) \|")
            node.kill()
            read_until(consumer, "CONNECTION_LOST")
            node.start()
            read_until(consumer, "STATE_RESTORED")
            out, _ = producer.communicate(timeout=WAIT_S)
            puts = re.findall(rf" PUT {re.escape(uri)}\|\[ autoValue = \d+ \]\|(.+)\|msg(\d+)", produced.read_text())
            pushed: set[str] = set()
            while len(pushed) < len(puts):
                read_until(consumer, r"consumed \|")  # a line every second
                pushed = set(re.findall(rf" PUSH {re.escape(uri)}\|(.+)\|msg\d+", consumed.read_text()))
            consumer.send_signal(signal.SIGTERM)
            consumer.communicate(timeout=WAIT_S)
    assert producer.returncode == 0
    assert "All posted messages have been acknowledged" in out
    acks = re.findall(rf" ACK {re.escape(uri)}\|\[ autoValue = \d+ \]\|(.+)\|(-?\d+)\|", produced.read_text())
    assert [int(number) for _, number in puts] == list(range(300))
    assert sorted(acks) == sorted((guid, "0") for guid, _ in puts)
    assert pushed == {guid for guid, _ in puts}


def test_latencies_are_measured_and_reported(node: NodeProcess, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    ended = run(
        "-b", node.uri, "--mode", "auto", "-q", f"{DOMAIN}/latency", "-f", "read,write,ack", "-c", "-l", "hires",
        "--latency-report", str(report), "--eventscount", "20", "-i", "5", "-e", "2", "-m", "100",
    )  # fmt: skip
    assert ended.returncode == 0
    assert "Latency Report: " in ended.stdout
    assert "~ latency { " in ended.stdout
    content = json.loads(report.read_text())
    assert content["origin"] == "end2end"
    assert 0 < content["min"] <= content["median"] <= content["max"]


def test_a_consumer_ends_when_nothing_comes_any_more(node: NodeProcess) -> None:
    uri = f"{DOMAIN}/grace"
    typed = f'start\nopen uri="{uri}" flags="write"\npost uri="{uri}" payload=["x","y"]\n'
    assert run("-b", node.uri, typed=typed).returncode == 0
    ended = run("-b", node.uri, "--mode", "auto", "-q", uri, "-f", "read", "-c", "--shutdownGrace", "1", "-v", "error")
    assert ended.returncode == 0
    assert "Final stats: consumed 2 messages" in ended.stdout


def test_a_system_is_checked(node: NodeProcess) -> None:
    options = ["--mode", "syschk", "-b", node.uri]
    assert run(*options).returncode == 0
    assert run(*options, "-q", f"{DOMAIN}/checked").returncode == 0
    refused = run(*options, "-q", "bmq://no.such.domain/q")
    assert refused.returncode == 256 - 1
    assert "Error while opening queue" in refused.stdout


def test_refused_connection_is_reported() -> None:
    broker = f"tcp://127.0.0.1:{free_port()}"
    ended = run("--mode", "syschk", "-b", broker, "--timeout", "1")
    assert ended.returncode == 256 - 2
    assert "Failed to start a session: [rc: -2]" in ended.stdout
    ended = run("--mode", "auto", "-q", f"{DOMAIN}/q", "-f", "read", "-b", broker, "--timeout", "1")
    assert ended.returncode == 1
    assert "Unable to start session [rc: -2 - TIMEOUT]" in ended.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--mode", "manual"], "mode must be one of"),
        (["-b", "nowhere"], "'nowhere' is not the address"),
        (["--subscriptions", "[1"], "--subscriptions is not JSON"),
        (["--messageProperties", "[1]"], "'messageProperties' must be an object"),
        (["--messagepattern", "m", "-m", "5"], "exclude each other"),
        (["--profile", "/nonexistent"], "cannot read the profile"),
        (["--mode", "auto", "-q", "bmq://d/q", "-f", "read,wrong"], "Invalid flag(s) 'wrong'"),
        (["--log", "/nonexistent/log"], "/nonexistent/log"),
    ],
)
def test_options_that_cannot_be(options: list[str], why: str) -> None:
    ended = run(*options)
    assert ended.returncode == 2
    assert ended.stderr.startswith("bmqctl tool: ")
    assert ended.stderr.count("\n") == 1
    assert why in ended.stderr


def test_help_may_be_asked_for_in_short() -> None:
    ended = run("-h")
    assert ended.returncode == 0
    assert "--messageProperties" in ended.stdout


def test_options_and_profile_go_together(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(run("-b", "tcp://x:1", "-m", "7", "--autoPubSubModulo", "3", "--dumpprofile").stdout)
    ended = run("--profile", str(profile), "-m", "8", "-d", "--dumpprofile")
    content = json.loads(ended.stdout)
    assert (content["broker"], content["msgSize"], content["autoPubSubModulo"], content["dumpMsg"]) == (
        "tcp://x:1",
        8,
        3,
        True,
    )


def test_credentials_are_wanted(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config")
    users = {"name": "BasicAuthenticator", "settings": [{"key": "ann", "value": {"stringVal": "secret"}}]}
    wanted = {"authenticators": [users], "anonymousCredential": {"disallow": {}}}
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=wanted)
    with NodeProcess(tmp_path / "data", config_dir=config) as node:
        options = ["--mode", "syschk", "-b", node.uri, "--timeout", "1"]
        assert run(*options).returncode == 256 - 2
        assert run(*options, "--authnMechanism", "BASIC", "--authnData", "ann:wrong").returncode == 256 - 2
        assert run(*options, "--authnMechanism", "BASIC", "--authnData", "ann:secret").returncode == 0
