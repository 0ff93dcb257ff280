"""`bmqctl start rocketmq -n 3`, and what `bmqctl cluster` says of such a group, also when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bmqctl.common.ports import free_port, free_ports
from bmqctl.systems.node_process import HOST
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import duration_of_ms, make
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.integration.rocketmq_groups.group_rig import MAIN, NODES, OFFSETS, PORTS_OF_GROUP, Group, run
from tests.rigs.console_pages import Pages
from tests.rigs.grpc_calls import Caller, connect
from tests.rigs.grpc_topics import make_topics
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    found = Group(tmp_path / "group")
    try:
        yield found
    finally:
        found.close()


def node_at(address: str, group: Group) -> int:
    return next(number for number in range(1, NODES + 1) if address == f"{HOST}:{group.port(number)}")


def test_one_command_starts_several_groups_of_one_cluster(group: Group) -> None:
    group.first, group.options = free_ports(PORTS_OF_GROUP + 10 * NODES), ["--groups", "2"]
    assert group.start()[0].startswith(f"bmqctl: rocketmq 2 groups of 3 ready [masters: {HOST}:")
    asked = ("--nameserver", group.nameservers)
    found = "No problems, according to 6 nameservers, 3 controllers and 6 brokers.\n"
    eventually(lambda: run("cluster", "explain", *asked) == (0, found))
    code, text = run("topic", "create", "orders", *asked, "--output", "jsonl")
    assert code == 0
    assert {"broker-a", "broker-b"} <= {word.strip('",:') for word in text.split()}


def test_one_command_starts_a_group_that_goes_on_without_one_and_starts_again(group: Group) -> None:
    console_port = free_port()
    group.options = ["--console-port", str(console_port)]
    lines = group.start()
    assert lines[0].startswith(f"bmqctl: rocketmq group of 3 ready [master: {HOST}:")
    assert lines[0].endswith(f", data: {group.folder}]")
    assert lines[1].split() == ["nameservers", group.nameservers]
    assert [line.split()[0] for line in lines[2:]] == ["controllers", "brokers", "gRPC", "remoting"]
    asked = ("--nameserver", group.nameservers)
    assert run("cluster", "explain", *asked) == (
        0,
        "No problems, according to 3 nameservers, 3 controllers and 3 brokers.\n",
    )
    code, text = run("cluster", "status", *asked)
    assert code == 0
    assert "Healthy      yes" in text
    assert "In sync      3 of 3, set 3, 2 needed" in text

    # The master goes together with the controller that leads, if these are on one node: the worst case.
    before = group.view()
    leader = int(before["leader"].rpartition(":")[2]) - OFFSETS["--controller-port"] + OFFSETS["--port"]
    (own,) = [each["brokerId"] for each in before["names"][0]["brokers"] if each["address"] == f"{HOST}:{leader}"]
    with Remote(leader - OFFSETS["--port"] + OFFSETS["--controller-port"]) as remote:
        # The new master has the message, and nobody has told it of the topic yet, which the first sender makes.
        group.send_soon(b"first")
        answer = remote.call(
            RequestCode.CONTROLLER_ELECT_MASTER,
            clusterName="DefaultCluster",
            brokerName="broker-a",
            brokerId=str(own),
            designateElect="true",
        )
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    eventually(lambda: run("cluster", "explain", *asked)[0] == 0, state=lambda: run("cluster", "explain", *asked))
    killed = node_at(f"{HOST}:{leader}", group)
    os.kill(group.pid(killed), signal.SIGKILL)
    group.send_soon(b"second")

    assert group.process is not None
    assert group.process.stderr is not None
    line = group.process.stderr.readline()
    assert line.startswith(
        f"bmqctl: node{killed} was killed by SIGKILL; to start it again: bmqctl start rocketmq --config "
    )
    eventually(lambda: len(group.view()["problems"]) == 3, state=group.view)
    view = group.view()
    (name,) = view["names"]
    texts = [each["text"] for each in view["problems"]]
    assert f"nameserver {HOST}:{group.first + 10 * (killed - 1)} cannot be asked: Connection refused" in texts
    assert f"controller {before['leader']} cannot be asked: Connection refused" in texts
    # Its console shows the others.
    pages = Pages(console_port)
    pages.begin()
    nodes = pages.look()["map"]["nodes"]
    assert {"controller", "nameserver"} <= {each["role"] for each in nodes if not each["is_well"]}
    group.options = []
    who = f"broker {own} at {HOST}:{leader} of broker-a"
    assert f"{who} is registered with the controller and not alive" in texts
    assert view["leader"] not in (None, before["leader"])
    assert name["masterEpoch"] > before["names"][0]["masterEpoch"]
    assert [each["isAlive"] for each in name["brokers"] if each["brokerId"] == own] == [False]
    assert sum(each["isInSync"] for each in name["brokers"]) == 2
    code, text = run("cluster", "explain", *asked)
    assert code == 1
    assert "cleanBrokerMetadata" in text
    # Controllers tell as much where no nameserver is named, once they know the name.
    asked_controller = ("--controller", str(view["leader"]), "--broker-name", "broker-a")
    gone = f"{own}   {HOST}:{leader}  slave   GONE"
    eventually(lambda: gone in run("cluster", "status", *asked_controller)[1], state=group.view)
    assert run("cluster", "status", *asked_controller)[0] == 1

    again = line.partition("start it again: bmqctl ")[2].split()
    with subprocess.Popen([sys.executable, "-c", MAIN, *again], stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: group.view()["isHealthy"], state=group.view)
        finally:
            process.terminate()
            process.wait(WAIT_S)
    assert group.stop() == 1  # one was killed
    group.close()

    lines = group.start()
    assert lines[0].startswith("bmqctl: rocketmq group of 3 ready ")
    with Remote(group.port(node_at(group.view()["names"][0]["masterAddress"], group))) as remote:
        # Readers see what the slaves have confirmed, which they do again after a start.
        eventually(lambda: max_offset(remote) >= 2, state=lambda: (max_offset(remote), group.view()))
    assert group.stop() == 0


def max_offset(remote: Remote) -> int:
    answer = remote.call(RequestCode.GET_MAX_OFFSET, topic="topic", queueId="0")
    assert answer.ext_fields is not None
    return int(answer.ext_fields["offset"])


def grpc_send(port: int, body: str) -> int:
    """Send a message by gRPC; return the code of the answer."""
    message = make("Message", body=body.encode(), topic=make("Resource", name="Normal"))
    message.system_properties.message_id = f"ID-{body}"
    message.system_properties.message_type = message.system_properties.body_encoding = 1
    with closing(connect(port)) as sock:
        (answer,) = Caller(sock, f"sender-{port}").call("SendMessage", make("SendMessageRequest", messages=[message]))
    return int(answer.status.code)


def grpc_receive(port: int) -> list[bytes]:
    """Receive and acknowledge what there is, by gRPC."""
    request = make("ReceiveMessageRequest", batch_size=32)
    request.group.name, request.message_queue.topic.name = "consumers", "Normal"
    request.filter_expression.type, request.filter_expression.expression = 1, "*"
    request.long_polling_timeout.CopyFrom(duration_of_ms(5_000))
    request.invisible_duration.CopyFrom(duration_of_ms(60_000))
    with closing(connect(port)) as sock:
        caller = Caller(sock, f"receiver-{port}")
        found = [each.message for each in caller.call("ReceiveMessage", request) if each.HasField("message")]
        for each in found:
            done = make("AckMessageRequest")
            done.group.name, done.topic.name = "consumers", "Normal"
            done.entries.add(message_id="", receipt_handle=each.system_properties.receipt_handle)
            assert caller.call("AckMessage", done)[0].status.code == Code.OK
    return [bytes(each.body) for each in found]


def test_grpc_clients_are_served_by_every_node_whoever_is_master(group: Group) -> None:
    group.start()
    master = node_at(group.view()["names"][0]["masterAddress"], group)
    make_topics(group.port(master))
    ports = {number: group.port(number) + OFFSETS["--grpc-port"] - OFFSETS["--port"] for number in range(1, NODES + 1)}
    for number, port in ports.items():
        eventually(lambda number=number, port=port: grpc_send(port, f"before-{number}") == Code.OK)  # type: ignore[misc]
    os.kill(group.pid(master), signal.SIGKILL)
    del ports[master]
    for number, port in ports.items():
        eventually(lambda number=number, port=port: grpc_send(port, f"after-{number}") == Code.OK)  # type: ignore[misc]
    wanted = {f"before-{number}".encode() for number in range(1, NODES + 1)}
    wanted |= {f"after-{number}".encode() for number in ports}
    received: set[bytes] = set()

    def has_all() -> bool:
        for port in ports.values():
            received.update(grpc_receive(port))
        return received >= wanted

    eventually(has_all, state=lambda: received)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-n", "2"), "greater than or equal to"),
        (("-n", "127.0.0.1:9876"), "valid integer"),
        (("-n", "3", "--role", "slave"), "--role is for one node; with --nodes leave it out"),
        (("-n", "3", "--nameserver", "10.0.0.1:9876"), "--nameserver is for one node"),
        (("-n", "3", "--host", "0.0.0.0"), "set the address of this host"),
    ],
)
def test_options_that_make_no_group_are_refused(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    code, text = run("start", "rocketmq", "--store", str(tmp_path / "new"), *arguments)
    assert code == 2
    assert told in " ".join(text.split())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--nameserver", f"{HOST}:1"), f"nobody answers at {HOST}:1: Connection refused"),
        (("--controller", "nonsense"), "--controller nonsense: expected HOST:PORT"),
        (("--rocketmq", "--authn-data", "walter"), "--authn-data: expected KEY:SECRET"),
        (("--rocketmq", "--authn-mechanism", "BASIC"), "--authn-mechanism is for BlazingMQ"),
    ],
)
def test_impossible_status_request_is_reported(arguments: tuple[str, ...], told: str) -> None:
    code, text = run("cluster", "status", *arguments)
    assert code == 2
    assert told in text
