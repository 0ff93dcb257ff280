"""Controllers in memory: their journals, the connections between them, and peers that ask them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.config.node import CONTROLLER_LOCKED, CONTROLLER_READERS
from broker.rocketmq.controller.links import controller_link
from broker.rocketmq.controller.options import ControllerOptions
from broker.rocketmq.controller.service import ControllerService, ControllerWorld
from broker.rocketmq.remoting.broker_calls import BrokerCalls
from broker.rocketmq.remoting.peers import KnownPeers
from broker.rocketmq.remoting.session import Service, Session
from broker.rocketmq.settings import Settings
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame, next_frame
from tests.broker.rocketmq.raft.files import MemoryFile

NAME, CLUSTER = "broker-c", "cluster"
SETTINGS = {
    "enableElectUncleanMaster": "false",
    "notifyBrokerRoleChanged": "true",
    "scanNotActiveBrokerInterval": "5000",
    "scanInactiveMasterInterval": "5000",
}


def decode(data: bytes) -> list[Frame]:
    """The frames that are in bytes."""
    frames, at, view = [], 0, memoryview(data)
    while (found := next_frame(view, at, len(view))) is not None:
        frame, at = found
        frames.append(frame._replace(body=bytes(frame.body)))
    assert at == len(data)
    return frames


class Peer:
    """A connection to a controller, from a host."""

    def __init__(self, rig: Rig, member: Member, host: str) -> None:
        self._rig = rig
        self._opaque = 0
        self._answers: dict[int, Frame] = {}
        rig.sessions += 1
        self.session = Session(
            rig.sessions, Host(host, 40_000), member.service, lambda session: None, lambda: rig.now_ms
        )

    def ask(self, code: int, body: bytes = b"", flag: int = 0, **fields: Any) -> int:
        self._opaque += 1
        told = {name: str(value) for name, value in fields.items()}
        frame = Frame(code, self._opaque, flag, None, told, body, version=493)
        self.session.receive(memoryview(encode_frame(frame)))
        return self._opaque

    def answer(self, opaque: int) -> Frame | None:
        for frame in decode(bytes(self.session.take_output())):
            self._answers[frame.opaque] = frame
        return self._answers.pop(opaque, None)

    def call(self, code: int, body: bytes = b"", **fields: Any) -> Frame:
        opaque = self.ask(code, body, **fields)
        answer = self.answer(opaque)
        for _ in range(50):
            if answer is not None:
                break
            self._rig.pass_time(20)
            answer = self.answer(opaque)
        assert answer is not None
        return answer

    def close(self) -> None:
        self.session.end()


class Member:
    """A controller of a rig, and what it keeps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file = MemoryFile()
        self.kept: dict[str, str] = {}
        self.service: ControllerService
        self.is_up = False
        # Sessions that it has opened to others, with where each ends.
        self.opened: list[tuple[Session, Session | None]] = []
        self.told: list[tuple[str, Frame]] = []


class Rig:
    """Some controllers, n0 and on, whose disks survive them; requests to brokers are gathered in `told`."""

    def __init__(
        self, size: int = 1, options: Mapping[str, Any] | None = None, secrets: Mapping[str, bytes] | None = None
    ) -> None:
        self.draw = random.Random(7)
        self.now_ms = 1_000_000
        self.sessions = 0
        self.options = dict(options or {})
        self.addresses = {f"n{number}": f"10.0.1.{number}:9878" for number in range(size)}
        self.members = {name: Member(name) for name in self.addresses}
        self.tables = AccessTables(b"", b"", lambda data: None, lambda data: None)
        self.access = AccessOptions()
        self.seal: Callable[[Frame], Frame] = lambda frame: frame
        # The secret that each controller has.
        self.secrets = dict(secrets or {})
        for name in self.members:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a controller, with what it has kept."""
        member = self.members[name]
        options = ControllerOptions(peers=self.addresses, self_id=name, **self.options)

        def dial(address: str, connected: Callable[[str], Session], failed: Callable[[str], None]) -> None:
            other = next((each for each, where in self.addresses.items() if where == address), None)
            if other is not None and not self.members[other].is_up:
                failed("Connection refused")
                return
            here = connected(address)
            there = None
            if other is not None:
                self.sessions += 1
                service = self.members[other].service
                own = self.addresses[name].partition(":")[0]
                there = Session(self.sessions, Host(own, 1), service, lambda _: None, lambda: self.now_ms)
            member.opened.append((here, there))

        def open_session(address: str, service: Service) -> Session:
            self.sessions += 1
            host, _, port = address.rpartition(":")
            return Session(self.sessions, Host(host, int(port)), service, lambda _: None, lambda: self.now_ms)

        member.opened = []
        member.service = ControllerService(
            options,
            member.file,
            Settings(SETTINGS, CONTROLLER_READERS, member.kept.update, CONTROLLER_LOCKED, SETTINGS | member.kept),
            Guard(self.access, self.tables, CLUSTER),
            {
                each: controller_link(where, dial, open_session, *self._proof(name))
                for each, where in self.addresses.items()
                if each != name
            },
            BrokerCalls(dial, open_session),
            self._world(name),
        )
        member.is_up = True

    def _proof(self, name: str) -> tuple[Any, ...]:
        secret = self.secrets.get(name)
        return () if secret is None else (name, secret)

    def _world(self, name: str) -> ControllerWorld:
        world = ControllerWorld(lambda frame: self.seal(frame), self.draw.randrange, lambda: self.now_ms)
        secret = self.secrets.get(name)
        return world if secret is None else world._replace(peers=KnownPeers(secret=secret, port=9878))

    def kill(self, name: str) -> None:
        """End a controller: its connections are closed."""
        killed = self.members[name]
        killed.is_up = False
        for member in self.members.values():
            for here, there in list(member.opened):
                is_its = there is not None and there._service is killed.service
                if member is killed or is_its:
                    member.opened.remove((here, there))
                    if member is not killed:
                        here.end()
                    elif there is not None and any(there._service is each.service for each in self.up()):
                        there.end()

    def up(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_up]

    def pass_time(self, ms: int) -> None:
        """Let time pass, in steps of 20 ms, with all that is sent meanwhile."""
        for _ in range(max(1, ms // 20)):
            self.now_ms += 20
            for member in self.up():
                member.service.tick()
            for _ in range(4):
                self.carry()

    def carry(self) -> None:
        """Carry what is under way to where it goes."""
        for member in self.up():
            for here, there in list(member.opened):
                sent = bytes(here.take_output())
                if here.finished:
                    member.opened.remove((here, there))
                    here.end()
                elif there is None:
                    member.told += [(str(here.host), frame) for frame in decode(sent)]
                elif sent:
                    there.receive(memoryview(sent))
                    here.receive(memoryview(bytes(there.take_output())))

    def leader(self) -> Member:
        """The controller that leads; time passes until there is one."""
        for _ in range(500):
            for member in self.up():
                if member.service.raft.is_sure(self.now_ms):
                    return member
            self.pass_time(20)
        raise AssertionError("nobody leads")

    def peer(self, name: str | None = None, host: str = "10.0.1.0") -> Peer:
        """A connection to a controller, the leader unless another one is named, from the host of the first one."""
        return Peer(self, self.leader() if name is None else self.members[name], host)


class FakeBroker:
    """A broker that comes to all controllers as Apache's do; `peers` are its connections."""

    def __init__(self, rig: Rig, number: int, name: str = NAME) -> None:
        self.rig = rig
        self.number = number
        self.name = name
        self.address = f"10.0.0.{number}:10911"
        self.connect()

    def connect(self) -> None:
        host = self.address.partition(":")[0]
        self.peers = {member.name: Peer(self.rig, member, host) for member in self.rig.up()}

    @property
    def leader(self) -> Peer:
        return self.peers[self.rig.leader().name]

    def apply(self) -> Frame:
        fields: dict[str, Any] = {"clusterName": CLUSTER, "brokerName": self.name}
        found = self.leader.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, **fields).ext_fields or {}
        assert found["nextBrokerId"] == str(self.number)
        code = f"{self.address};{self.number}"
        return self.leader.call(
            RequestCode.CONTROLLER_APPLY_BROKER_ID, appliedBrokerId=self.number, registerCheckCode=code, **fields
        )

    def register(self) -> Frame:
        return self.leader.call(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            clusterName=CLUSTER,
            brokerName=self.name,
            brokerId=self.number,
            brokerAddress=self.address,
        )

    def beat(self, epoch: int = 0, offset: int = 0, timeout_ms: int = 10_000) -> None:
        for peer in self.peers.values():
            peer.ask(
                RequestCode.BROKER_HEARTBEAT,
                flag=FrameFlag.ONE_WAY,
                clusterName=CLUSTER,
                brokerName=self.name,
                brokerAddr=self.address,
                brokerId=self.number,
                epoch=epoch,
                maxOffset=offset,
                heartbeatTimeoutMills=timeout_ms,
            )

    def elect(self, designated: bool = False) -> Frame:
        return self.leader.call(
            RequestCode.CONTROLLER_ELECT_MASTER,
            clusterName=CLUSTER,
            brokerName=self.name,
            brokerId=self.number,
            designateElect=str(designated).lower(),
        )

    def alter(self, members: list[int], master_epoch: int, epoch: int) -> Frame:
        body = f'{{"syncStateSet":{members},"syncStateSetEpoch":{epoch}}}'.encode()
        fields: dict[str, Any] = {"brokerName": self.name, "masterBrokerId": self.number, "masterEpoch": master_epoch}
        return self.leader.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, body, **fields)

    def come(self) -> None:
        """Come as a new broker, and ask to be elected if there is no master."""
        assert self.apply().code == 0
        assert self.register().code == 0
        self.beat()

    def die(self) -> None:
        """Close all connections."""
        for peer in self.peers.values():
            peer.close()
