"""The configurations and arguments of the manifests for Kubernetes, with real nodes: each has a loopback address."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio

from bmqctl.client import Queue, connect
from bmqctl.common.ports import free_port, free_rocketmq_port
from bmqctl.systems.node_process import NodeProcess
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from scripts.releases.kubernetes_manifests import FOLDER, Pod, build, pods, write_files
from tests.rigs.remoting import Remote
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux listens on all of 127.0.0.0/8")


URI = "bmq://orders/new"


class PodProcess(NodeProcess):
    """A process of a pod, as on a host of its own."""

    def __init__(self, pod: Pod, address: str, hosts: Path, data_dir: Path) -> None:
        command = (sys.executable, "-m", "tests.rigs.mapped_host", pod.name, address, str(hosts))
        super().__init__(data_dir, command=command)
        self.pod = pod
        self.own_address = address

    def is_ready(self) -> bool:
        """Ask as the readiness probe does."""
        port = self.pod.arguments[self.pod.arguments.index("--metrics-port") + 1]
        try:
            with urlopen(f"http://{self.own_address}:{port}/readyz", timeout=WAIT_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _words(self) -> list[str]:
        return list(self.pod.arguments)


def given_ports() -> dict[int, int]:
    """Return a free port in place of each in the manifests; those of a RocketMQ broker are related."""
    broker = free_rocketmq_port()
    ports = {port: free_port() for port in (30114, 9100, 9876, 9878, 8080, 8081, 5557)}
    return {**ports, 10911: broker, 10912: broker + 1}


def with_ports(manifests: list[dict[str, Any]], ports: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return manifests with other ports, in their files, too."""
    known = re.compile(rf"(?<!\d)({'|'.join(map(str, ports))})(?!\d)")
    found: list[dict[str, Any]] = json.loads(known.sub(lambda port: str(ports[int(port[1])]), json.dumps(manifests)))
    return found


class Pods:
    """The pods of a kustomization. Each has an address of its own."""

    def __init__(self, kustomization: str, folder: Path) -> None:
        self.ports = given_ports()
        self._manifests = with_ports(build(FOLDER / kustomization), self.ports)
        (self._count,) = (each["spec"]["replicas"] for each in self._manifests if each["kind"] == "StatefulSet")
        self._folder = folder
        self._hosts = folder / "hosts.json"
        self._next = 0
        self._addresses = [self._new_address() for _ in range(self._count)]
        self.running: dict[int, PodProcess] = {}

    def _new_address(self) -> str:
        """Return one that no other process of these tests has."""
        self._next += 1
        return f"127.{1 + os.getpid() % 254}.{os.getpid() // 254 % 254}.{self._next}"

    def start(self, number: int) -> PodProcess:
        made = pods(self._manifests, self._addresses)
        hosts = {pod.host: address for pod, address in zip(made, self._addresses, strict=True)}
        new = self._hosts.with_suffix(".new")
        new.write_text(json.dumps(hosts))
        new.replace(self._hosts)
        root = self._folder / made[number].name
        (root / "var").mkdir(parents=True, exist_ok=True)
        process = PodProcess(write_files(made[number], root), self._addresses[number], self._hosts, root)
        self.running[number] = process
        process.start()
        return process

    def kill(self, number: int) -> None:
        """Kill a pod; its successor has another address."""
        self.running.pop(number).kill()
        self._addresses[number] = self._new_address()

    def are_ready(self) -> bool:
        return all(each.is_ready() for each in self.running.values())

    def close(self) -> None:
        while self.running:
            self.running.popitem()[1].close()


@contextmanager
def started(kustomization: str, folder: Path) -> Iterator[Pods]:
    found = Pods(kustomization, folder)
    try:
        for number in range(len(found._addresses)):
            found.start(number)
        eventually(found.are_ready, state=lambda: [each.output[-2000:] for each in found.running.values()])
        yield found
    finally:
        found.close()


@pytest.mark.trio
async def test_one_blazingmq_node(tmp_path: Path) -> None:
    with started("blazingmq/base", tmp_path) as found:
        async with connect(f"tcp://{found.running[0].own_address}:{found.ports[30114]}") as session:
            await exchange(await session.open(URI, read=True, write=True), b"1")


@pytest.mark.trio
async def test_three_blazingmq_nodes_of_which_one_is_killed(tmp_path: Path) -> None:
    with started("blazingmq/cluster", tmp_path) as found:
        async with connect(f"tcp://{found.running[1].own_address}:{found.ports[30114]}") as session:
            queue = await session.open(URI, read=True, write=True)
            await exchange(queue, b"1")
            found.kill(0)
            await exchange(queue, b"2")
            eventually(found.are_ready)
            found.start(0)
            eventually(found.are_ready)
            await exchange(queue, b"3")


async def exchange(queue: Queue, payload: bytes) -> None:
    """Post, and get what was posted."""
    with trio.fail_after(WAIT_S):
        ack = await queue.post(payload)
        assert ack.status.name == "SUCCESS"
        async for message in queue:
            async with message:
                assert message.payload == payload
            break


def send_soon(found: Pods, body: bytes) -> None:
    """Send to whichever broker takes it."""

    def send(address: str) -> bool:
        try:
            with Remote(found.ports[10911], host=address) as remote:
                return remote.send_message("topic", body).code == ResponseCode.SUCCESS
        except (OSError, EOFError):
            return False

    eventually(lambda: any(send(each.own_address) for each in found.running.values()))


def wait_for_two_in_sync(found: Pods) -> None:
    """Wait until the controllers know of two brokers in sync.

    A master takes messages as soon as it has proposed the second, as the original does. Killed before its proposal is
    answered, it leaves nobody who may be elected.
    """

    def in_sync(address: str) -> int:
        try:
            with Remote(found.ports[9878], host=address) as remote:
                answer = remote.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b'["broker-a"]')
        except (OSError, EOFError):
            return 0
        if answer.code != ResponseCode.SUCCESS:
            return 0
        replicas = BROKER_REPLICAS.read(answer.body).replicas_info_table.get("broker-a", Replicas())
        return len(replicas.in_sync_replicas)

    eventually(lambda: any(in_sync(each.own_address) >= 2 for each in found.running.values()))


def test_one_rocketmq_node(tmp_path: Path) -> None:
    with started("rocketmq/base", tmp_path) as found:
        send_soon(found, b"1")


def test_three_rocketmq_nodes_of_which_each_is_killed_in_turn(tmp_path: Path) -> None:
    with started("rocketmq/cluster", tmp_path) as found:
        send_soon(found, b"1")
        wait_for_two_in_sync(found)
        for number in range(3):
            found.kill(number)
            # Two of three have to be in sync: the one that was killed before has come back for good.
            send_soon(found, b"2")
            wait_for_two_in_sync(found)
            found.start(number)
            eventually(found.are_ready)
