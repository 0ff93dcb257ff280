"""The nodes of scripts/soak-rocketmq: three processes, each a nameserver, a controller and a broker of one name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from bmqctl.common.children import COMMAND
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, RocketProcess
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.bodies.replication import EPOCH_CACHE, EpochCache
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from scripts.judges.network_namespaces import Network
from tests.rigs.remoting import Remote

__all__ = ["NAME", "NUMBERS", "Group", "Unhealed"]

NAME: Final = "broker-a"
NUMBERS: Final = (1, 2, 3)
LOG_FILE_BYTES: Final = 64 << 20
HEAL_S: Final = 120.0
# A frozen or cut-off node exceeds this time for an answer.
ANSWER_S: Final = 1.0
T = TypeVar("T")


class Unhealed(Exception):
    """The group does not recover; the text names the fault."""


class Group:
    """Three nodes in `folder`, each known by its number, in separate namespaces if there is a network."""

    def __init__(self, folder: Path, network: Network | None, properties: Mapping[str, Any]) -> None:
        self.network = network
        self._ports = {number: [free_port() for _ in range(4)] for number in NUMBERS}
        self.nodes: dict[int, RocketProcess] = {}
        text = "".join(f"{name}={value}\n" for name, value in {**self._common(), **properties}.items())
        for number in NUMBERS:
            place = folder / f"node{number}"
            place.mkdir(parents=True)
            config = place / "broker.conf"
            *_, ha_port = self._ports[number]
            config.write_text(f"{text}controllerDLegerSelfId=n{number}\nhaListenPort={ha_port}\n")
            self.nodes[number] = self._process(number, place / "store", config)

    def _common(self) -> dict[str, Any]:
        controllers = {number: f"{self.host(number)}:{ports[2]}" for number, ports in self._ports.items()}
        return {
            "brokerClusterName": "Soak",
            "brokerName": NAME,
            "mappedFileSizeCommitLog": LOG_FILE_BYTES,
            "enableControllerMode": "true",
            "enableControllerInNamesrv": "true",
            "controllerAddr": ";".join(controllers.values()),
            "controllerDLegerPeers": ";".join(f"n{number}-{address}" for number, address in controllers.items()),
            "allAckInSyncStateSet": "true",
            "inSyncReplicas": 2,
            "minInSyncReplicas": 2,
        }

    def _process(self, number: int, store: Path, config: Path) -> RocketProcess:
        port, nameserver_port, _, _ = self._ports[number]
        options = ["--address", self.host(number)]
        for other in NUMBERS:
            if other != number:
                options += ["--nameserver", f"{self.host(other)}:{self._ports[other][1]}"]
        command: tuple[str, ...] = COMMAND
        if self.network is not None:
            options += ["--host", self.host(number)]
            command = (*self.network.command(number), *COMMAND)
        node = RocketProcess(
            store,
            config_file=config,
            port=port,
            nameserver_port=nameserver_port,
            grpc_port=0,
            timeout_s=HEAL_S,
            command=command,
            options=options,
        )
        node.remoting_port = 0
        return node

    def host(self, number: int) -> str:
        return HOST if self.network is None else self.network.address(number)

    def controller_port(self, number: int) -> int:
        return self._ports[number][2]

    def ha_port(self, number: int) -> int:
        return self._ports[number][3]

    @property
    def nameservers(self) -> str:
        return ";".join(f"{self.host(number)}:{ports[1]}" for number, ports in self._ports.items())

    # -- processes

    def start(self) -> None:
        if self.network is not None:
            self.network.build()
        for node in self.nodes.values():
            node.start()
        self.wait_healed()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                os.kill(node.pid, signal.SIGCONT)
            node.close()
        if self.network is not None:
            self.network.remove()

    def freeze(self, number: int) -> None:
        os.kill(self.nodes[number].pid, signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        os.kill(self.nodes[number].pid, signal.SIGCONT)

    # -- questions

    def _ask_controller(self, number: int, code: RequestCode, body: bytes = b"") -> Frame:
        with Remote(self._ports[number][2], host=self.host(number), timeout_s=ANSWER_S) as remote:
            return remote.call(code, body)

    def _ask(self, number: int, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
        with Remote(self._ports[number][0], host=self.host(number), timeout_s=ANSWER_S) as remote:
            return remote.call(code, body, **fields)

    def _told(self) -> Iterator[tuple[int, Replicas]]:
        for number in NUMBERS:
            with suppress(OSError, EOFError, FormatError):
                answer = self._ask_controller(
                    number, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, f'["{NAME}"]'.encode()
                )
                if answer.code == ResponseCode.SUCCESS:
                    yield number, BROKER_REPLICAS.read(answer.body).replicas_info_table.get(NAME, Replicas())

    def leader(self) -> int:
        return self._wait("a controller leads", lambda: next((number for number, _ in self._told()), None))

    def master(self) -> int:
        def found() -> int | None:
            addresses = {f"{self.host(number)}:{ports[0]}": number for number, ports in self._ports.items()}
            return next((addresses.get(told.master_address or "") for _, told in self._told()), None)

        return self._wait("there is a master", found)

    def wait_healed(self) -> None:
        """Wait until all brokers are in sync and known to be alive."""

        def is_so() -> bool | None:
            told = next((told for _, told in self._told()), Replicas())
            return [each.alive for each in told.in_sync_replicas] == [True] * len(NUMBERS) or None

        self._wait("all are in sync", is_so)

    def _wait(self, what: str, find: Callable[[], T | None]) -> T:
        until = time.monotonic() + HEAL_S
        while (found := find()) is None:
            if time.monotonic() > until:
                raise Unhealed(f"{what}: not within {HEAL_S:.0f} s; {list(self._told())}")
            time.sleep(0.1)
        return found

    def epochs(self, number: int) -> EpochCache:
        """Ask a broker for its epochs and the end of its log."""
        return EPOCH_CACHE.read(self._ask(number, RequestCode.GET_BROKER_EPOCH_CACHE).body)

    def wait_same(self) -> EpochCache:
        """Wait until all brokers have logs of the same length and epochs; return those."""

        def found() -> EpochCache | None:
            told = [self.epochs(number) for number in NUMBERS]
            is_same = len({(str(each.epoch_list), each.max_offset) for each in told}) == 1
            return told[0] if is_same else None

        return self._wait("all logs are as long", found)

    def make_topic(self, topic: str, queues: int) -> None:
        """Make a topic, and wait until all brokers know it."""
        answer = self._ask(
            self.master(),
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        if answer.code != ResponseCode.SUCCESS:
            raise Unhealed(f"the topic is not made: {answer.code}, {answer.remark}")

        def is_known(number: int) -> bool:
            told = TOPIC_CONFIGS.read(self._ask(number, RequestCode.GET_ALL_TOPIC_CONFIG).body)
            return topic in told.topic_config_table

        self._wait("all brokers know the topic", lambda: all(map(is_known, NUMBERS)) or None)
