"""The case `our-controllers` of scripts/mixed-rocketmq: Apache's brokers of one name under our controllers.

Three brokers register with the leader of three controllers, and one becomes master. The master is killed, another takes
over, and the old one comes back as a slave. The leader of the controllers is killed, then all of them, and they
continue where they were. Apache's `mqadmin` asks and changes what it can. In the end every acknowledged message is
there, and the logs of all brokers are the same byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, ControllerProcess, RocketProcess
from formats.rocketmq.remoting.bodies.controllers import BROKER_REPLICAS, Replicas
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers import replicating as headers
from formats.rocketmq.remoting.headers.codec import read_header
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.mixtures.rocketmq_turns import Differs
from scripts.suites.mqadmin import Place, run_commands
from scripts.suites.mqadmin_cases import CONTROLLER_CASES, CONTROLLER_LAST_CASES, Case
from tests.rigs.remoting import Remote

__all__ = ["NAME", "TOPIC", "Controlled"]

NAME: Final = "broker-c"
CLUSTER: Final = "HaCluster"
TOPIC: Final = "controlled"
QUEUES: Final = 4
WAIT_S: Final = 120.0
SETTLE_S: Final = 15.0
# Its output does not matter: on a busy machine the first command of a Java process exceeds its limit of 3 s.
WARMING: Final = Case("the first command", "getControllerMetaData -a {controller}", (), "(?!)")


class Controlled:
    """Our three controllers and the Apache brokers that they lead; `properties` apply to each broker."""

    def __init__(self, class_path: str, folder: Path, properties: str, heap: tuple[str, ...]) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        (folder / "nameserver.conf").write_text(f"brokerClusterName={CLUSTER}\nbrokerName=nameserver-only\n")
        self.nameserver = RocketProcess(folder / "nameserver", config_file=folder / "nameserver.conf")
        ports = [free_port() for _ in range(3)]
        self.peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
        self.controllers = [
            ControllerProcess(folder / f"n{number}", self_id=f"n{number}", peers=self.peers, port=port)
            for number, port in enumerate(ports)
        ]
        addresses = ";".join(controller.address for controller in self.controllers)
        own = (
            f"brokerClusterName={CLUSTER}\nbrokerName={NAME}\nbrokerId=-1\nbrokerRole=SLAVE\n"
            f"enableControllerMode=true\ncontrollerAddr={addresses}\nallAckInSyncStateSet=true\ninSyncReplicas=2\n"
            "minInSyncReplicas=1\nhaHousekeepingInterval=10000\nhaMaxTimeSlaveNotCatchup=6000\n"
            "checkSyncStateSetPeriod=2000\nsyncBrokerMetadataPeriod=3000\nsyncControllerMetadataPeriod=3000\n"
        )
        self.brokers: list[ReferenceProcess] = []
        for number in range(1, 4):
            self.brokers.append(
                ReferenceProcess(
                    class_path, folder / f"broker-{number}", properties + own, heap, self.nameserver.nameserver
                )
            )
        self.sent: list[bytes] = []
        self._is_up: set[int] = set()

    # -- processes

    def start(self) -> None:
        """Start everything. The brokers get the ids 1, 2 and 3 in this order."""
        self.nameserver.start()
        for controller in self.controllers:
            controller.start()
        for number in range(1, 4):
            self.start_broker(number)
            self.wait(f"broker {number} registers", partial(self._is_known, number))

    def close(self) -> None:
        for number in sorted(self._is_up):
            self.brokers[number - 1].close()
        for controller in self.controllers:
            controller.close()
        self.nameserver.close()

    def kill_broker(self, broker_id: int) -> None:
        self._is_up.discard(broker_id)
        self.brokers[broker_id - 1].kill()

    def start_broker(self, broker_id: int) -> None:
        self.brokers[broker_id - 1].start()
        self._is_up.add(broker_id)

    def store(self, broker_id: int) -> Path:
        return self._folder / f"broker-{broker_id}" / "store"

    # -- questions

    def leader(self) -> ControllerProcess:
        """Find the leader that all running controllers name. Raises `OSError` or `Differs` while there is none."""
        told = set()
        for controller in self.controllers:
            if controller.is_running:
                with Remote(controller.port) as remote:
                    answer = remote.call(RequestCode.CONTROLLER_GET_METADATA_INFO)
                told.add(read_header(headers.GetControllerMetadataResponse, answer.ext_fields).controller_leader_id)
        if len(told) != 1 or None in told:
            raise Differs(f"the controllers tell of different leaders: {told}")
        return next(controller for controller in self.controllers if controller.self_id in told)

    def replicas(self) -> Replicas:
        """Ask the leader for all brokers. Raises `OSError` or `Differs` while there is none."""
        with Remote(self.leader().port) as remote:
            answer = remote.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, f'["{NAME}"]'.encode())
        if answer.code:
            raise Differs(f"the leader answers {answer.code}, {answer.remark}")
        return BROKER_REPLICAS.read(answer.body).replicas_info_table.get(NAME, Replicas())

    def _is_known(self, broker_id: int) -> bool:
        found = self.replicas()
        return any(each.broker_id == broker_id for each in (*found.in_sync_replicas, *found.not_in_sync_replicas))

    def wait(self, what: str, is_so: Callable[[], bool]) -> float:
        """Wait until a condition holds; return the seconds. Raises `Differs`."""
        begin = time.monotonic()
        while True:
            try:
                if is_so():
                    return time.monotonic() - begin
                found = "it is not so"
            except (OSError, EOFError, Differs) as error:
                found = str(error)
            if time.monotonic() - begin > WAIT_S:
                raise Differs(f"{what}: not within {WAIT_S:.0f} s ({found})")
            time.sleep(0.05)

    def settle(self) -> None:
        """Bring all brokers in sync after an election by hand; restart slow ones.

        Apache's slaves ask the nameserver for the address of the master's log, may get that of the old master, which
        has not registered as a slave yet, and stay with it.
        """
        self.wait_in_sync(2)
        time.sleep(SETTLE_S)
        for each in self.replicas().not_in_sync_replicas:
            self.kill_broker(each.broker_id)
            self.start_broker(each.broker_id)
        self.wait_in_sync(3)

    def wait_in_sync(self, count: int) -> float:
        """Wait until `count` brokers are in sync; return the seconds."""

        def are_in_sync() -> bool:
            # A controller that has just started needs heartbeats first.
            return [each.alive for each in self.replicas().in_sync_replicas] == [True] * count

        return self.wait(f"{count} brokers are in sync", are_in_sync)

    # -- messages

    def send(self, count: int) -> float:
        """Send messages to the master, and wait until each is acknowledged; return the seconds until the first one
        was.
        """
        begin = time.monotonic()
        first_s = 0.0
        for number in range(count):
            body = b"%d of " % len(self.sent) + bytes(200 + number)
            self.wait("a message is acknowledged", partial(self._is_acknowledged, body, len(self.sent) % QUEUES))
            self.sent.append(body)
            first_s = first_s or time.monotonic() - begin
        return first_s

    def _is_acknowledged(self, body: bytes, queue_id: int) -> bool:
        master = self.replicas().master_broker_id
        if master is None:
            return False
        with Remote(self.brokers[master - 1].port) as remote:
            return remote.send_message(TOPIC, body, queue_id).code == 0

    # -- mqadmin

    def administer(self, class_path: str, cases: tuple[Case, ...], log: Path, victim: int = 0) -> None:
        """Run commands of `mqadmin`. Raises `Differs` if one does not print the expected text."""
        leader, epoch = self.leader(), self.replicas().master_epoch
        known = {
            "controller": leader.address,
            "leader": leader.self_id,
            "epoch": str(epoch),
            "victim": str(victim),
            "controllers": ";".join(controller.address for controller in self.controllers),
        }
        place = Place(self.nameserver.nameserver, f"{HOST}:{self.brokers[0].port}", CLUSTER, NAME)
        outcomes = run_commands(class_path, place, (WARMING, *cases), self._folder, log, known)
        if outcomes.reasons:
            raise Differs(f"mqadmin: {outcomes.reasons}; see {log}")


def play(group: Controlled, admin_path: str, log: Path, say: Callable[[str], None]) -> None:
    """Run the whole case but its end. Raises `Differs`."""
    group.start()
    first = group.replicas()
    _expect((first.master_broker_id, first.master_epoch), (1, 1), "the master and its epoch")
    say(f"3 brokers are in sync {group.wait_in_sync(3):.1f} s after the last has registered")
    group.send(50)
    group.kill_broker(1)
    taken_s = group.send(1)
    second = group.replicas()
    _expect(second.master_epoch, 2, "the epoch of the second master")
    say(f"master killed: broker {second.master_broker_id} acknowledges the first message after {taken_s:.1f} s")
    group.send(20)
    group.start_broker(1)
    group.wait_in_sync(3)
    _expect(group.replicas().master_broker_id, second.master_broker_id, "the master after the old one is back")
    say("the old master is back in sync, as a slave")
    group.administer(admin_path, CONTROLLER_CASES, log)
    group.settle()
    before = group.replicas()
    say(f"mqadmin: {len(CONTROLLER_CASES)} commands")
    leader = group.leader()
    leader.kill()
    elected_s = group.wait("there is another leader", lambda: group.leader() is not leader)
    say(f"leader {leader.self_id} of the controllers killed: there is another one after {elected_s:.1f} s")
    leader.start()
    for controller in group.controllers:
        controller.kill()
    for controller in group.controllers:
        controller.start()
    group.wait_in_sync(3)
    after = group.replicas()
    _expect(after[:4], before[:4], "master and epochs after all controllers were killed")
    group.send(20)
    assert before.master_broker_id is not None
    group.kill_broker(before.master_broker_id)
    taken_s = group.send(1)
    third = group.replicas()
    _expect(third.master_epoch, before.master_epoch + 1, "the epoch of the next master")
    say(f"all controllers killed and back, then the master: the next message after {taken_s:.1f} s")
    group.start_broker(before.master_broker_id)
    group.wait_in_sync(3)
    group.send(20)


def last(group: Controlled, admin_path: str, log: Path) -> list[int]:
    """Remove a killed slave, as the last step; return the other brokers. Raises `Differs`."""
    victim = 3 if group.replicas().master_broker_id != 3 else 2
    group.kill_broker(victim)
    group.wait_in_sync(2)
    group.administer(admin_path, CONTROLLER_LAST_CASES, log, victim)
    return [number for number in (1, 2, 3) if number != victim]


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Differs(f"{what}: {found} instead of {wanted}")
