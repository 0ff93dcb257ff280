"""Groups of three brokers under Apache's controller, whose masters are killed and come back.

The master takes messages, which all brokers in sync must have. It is killed; another broker is elected and takes more.
The old one comes back as a slave. Then the controller is stopped, the slaves are killed, and the master takes messages
that no other broker has: once it has restarted and the controller is back, it has to drop them. In the end all commit
logs are the same byte for byte, and have every acknowledged message.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, RocketProcess
from formats.rocketmq.files.names import offset_of_name
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.remoting.bodies.replication import EPOCH_CACHE, EpochCache
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from scripts.judges.rocketmq_controller import CLUSTER, NAME, ControllerProcess, Group
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.mixtures.rocketmq_turns import Differs
from scripts.suites.mqadmin import Place, run_commands
from scripts.suites.mqadmin_cases import MEMBER_CASES
from tests.rigs.remoting import Remote

__all__ = ["GROUPS", "Unsettled", "run_controlled"]

GROUPS: Final = {"controlled-ours": "ooo", "controlled-mixed": "oto", "controlled-theirs": "tot"}
FILE_BYTES: Final = 1 << 18
TOPIC: Final = "controlled"
QUEUES: Final = 4
WAIT_S: Final = 120.0
SETTLE_S: Final = 20.0
APACHE: Final = "Apache's"
_HEAP: Final = ("-Xms256m", "-Xmx256m", "-Xmn128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Unsettled(Differs):
    """A group shows a wrong result; the text says which."""


class Broker(Protocol):
    """A broker process of either make."""

    port: int

    def start(self) -> object: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Member(NamedTuple):
    """A broker, its make and its store."""

    broker: Broker
    make: str
    store: Path

    @property
    def address(self) -> str:
        return f"{HOST}:{self.broker.port}"


def _properties(controller: ControllerProcess) -> str:
    settings: dict[str, str | int] = {
        "mappedFileSizeCommitLog": FILE_BYTES,
        "maxHashSlotNum": 500,
        "maxIndexNum": 2000,
        "slaveReadEnable": "true",
        "enableControllerMode": "true",
        "controllerAddr": controller.address,
        "allAckInSyncStateSet": "true",
        "inSyncReplicas": 2,
        "brokerId": -1,
        "brokerRole": "SLAVE",
        "haMaxTimeSlaveNotCatchup": 6000,
        "checkSyncStateSetPeriod": 2000,
        "syncBrokerMetadataPeriod": 3000,
        "syncControllerMetadataPeriod": 3000,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _make(kind: str, class_path: str, folder: Path, controller: ControllerProcess) -> Member:
    folder.mkdir(parents=True)
    if kind == "t":
        theirs = ReferenceProcess(class_path, folder, _properties(controller), _HEAP, controller.nameserver)
        return Member(theirs, APACHE, folder / "store")
    config = folder / "broker.conf"
    config.write_text(f"{_properties(controller)}haListenPort={free_port()}\n")
    ours = RocketProcess(folder / "store", config_file=config, options=["--nameserver", controller.nameserver])
    return Member(ours, "ours", folder / "store")


class Controlled:
    """A running group. `sent` has the bodies of messages, by whether they were acknowledged."""

    def __init__(self, controller: ControllerProcess, members: list[Member], seed: int) -> None:
        self.controller = controller
        self.members = members
        self.sent: dict[bytes, bool] = {}
        self._random = random.Random(seed)

    def wait(self, what: str, is_so: Callable[[Group], bool]) -> Group:
        """Wait until the controller's report meets a condition; return it."""
        begin = time.monotonic()
        while True:
            group = self.controller.group()
            if is_so(group):
                return group
            if time.monotonic() - begin > WAIT_S:
                raise Unsettled(f"{what}: not within {WAIT_S:.0f} s, {group}")
            time.sleep(0.1)

    def wait_in_sync(self, count: int) -> Group:
        return self.wait(f"{count} brokers are in sync", lambda group: len(group.members) == count)

    def settle(self) -> None:
        """Wait until all are in sync; restart Apache's brokers that take too long.

        They ask the nameserver for the address of the master's log, may get that of the old master, which has not
        registered as a slave yet, and stay with it.
        """
        begin = time.monotonic()
        count = len(self.members)
        while time.monotonic() - begin < SETTLE_S and len(self.controller.group().members) < count:
            time.sleep(0.1)
        group = self.controller.group()
        for member in self.members:
            if member.make == APACHE and _identity(member) not in group.members:
                member.broker.kill()
                member.broker.start()
        self.wait_in_sync(count)

    def master(self, group: Group | None = None) -> Member:
        address = (group or self.controller.group()).address
        for member in self.members:
            if member.address == address:
                return member
        raise Unsettled(f"the master is at {address}")

    def send(self, member: Member, count: int) -> list[int]:
        """Send messages of many sizes; return the codes of the answers."""
        codes = []
        with Remote(member.broker.port) as remote:
            for _ in range(count):
                number = len(self.sent)
                size = self._random.choice((0, 100, 1000, 5000, 60_000 if number % 50 == 0 else 10))
                body = b"%d " % number + self._random.randbytes(size)
                self.sent[body] = False
                code = remote.send_message(TOPIC, body, number % QUEUES, f"KEYS\x01k{number}\x02TAGS\x01t\x02").code
                self.sent[body] = code == ResponseCode.SUCCESS
                codes.append(code)
        return codes

    def send_all(self, count: int) -> None:
        """Send messages to the master, which must acknowledge each."""
        member = self.master()
        codes = self.send(member, count)
        if any(codes):
            raise Unsettled(f"{member.make} master answers {sorted(set(codes))}")

    def send_soon(self) -> float:
        """Send to the current master until a message is acknowledged; return the seconds that took."""
        begin = time.monotonic()
        while time.monotonic() - begin < WAIT_S:
            group = self.controller.group()
            try:
                if group.address is not None and not any(self.send(self.master(group), 1)):
                    return time.monotonic() - begin
            except (OSError, EOFError, AssertionError):
                pass
            time.sleep(0.05)
        raise Unsettled(f"no message is acknowledged within {WAIT_S:.0f} s")

    def epochs(self, member: Member) -> EpochCache:
        with Remote(member.broker.port) as remote:
            return EPOCH_CACHE.read(remote.call(RequestCode.GET_BROKER_EPOCH_CACHE).body)

    def wait_same(self) -> None:
        """Wait until all have the same log and the same epochs."""
        begin = time.monotonic()
        while True:
            told = [self.epochs(member) for member in self.members]
            if len({(str(each.epoch_list), each.max_offset) for each in told}) == 1:
                return
            if time.monotonic() - begin > WAIT_S:
                raise Unsettled(f"the epochs stay different: {told}")
            time.sleep(0.2)


def _log(store: Path, end: int) -> bytes:
    """Read a commit log up to its end, after which Apache's broker leaves truncated records."""
    paths = sorted((store / "commitlog").iterdir())
    if not paths or offset_of_name(paths[0].name) != 0:
        raise Unsettled(f"{store}: the log does not begin at 0")
    return b"".join(path.read_bytes() for path in paths)[:end]


def _bodies(member: Member) -> set[bytes]:
    found: set[bytes] = set()
    with Remote(member.broker.port) as remote:
        for queue_id in range(QUEUES):
            offset = 0
            while (answer := remote.answer(remote.pull(TOPIC, offset, queue_id))).code == ResponseCode.SUCCESS:
                assert answer.ext_fields is not None
                offset = int(answer.ext_fields["nextBeginOffset"])
                found.update(_bodies_of(bytes(answer.body)))
    return found


def _bodies_of(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        record = decode_record(data, at)
        assert isinstance(record, Record)
        yield bytes(record.body)
        at += int.from_bytes(data[at : at + 4], "big")


def _elect(cell: Controlled, wanted: Member) -> Member:
    """Elect a broker by hand, unless it is master, and wait until all are in sync with it."""
    count = len(cell.members)
    if cell.master(cell.wait_in_sync(count)) is not wanted:
        broker_id = _identity(wanted)
        cell.controller.elect(broker_id)
        cell.wait(f"broker {broker_id} is master", lambda group: group.master == broker_id)
        cell.send_soon()
        cell.settle()
    return wanted


def _fail_over(cell: Controlled, messages: int, master: Member) -> str:
    """Kill a master, and let it come back; return a line for the report."""
    cell.send_all(messages)
    master.broker.kill()
    pause_s = cell.send_soon()
    cell.wait_in_sync(len(cell.members) - 1)
    cell.send_all(messages // 4)
    master.broker.start()
    cell.wait_in_sync(len(cell.members))
    cell.send_all(messages // 4)
    return f"{master.make} master was killed, {pause_s:.2f} s without one"


def _identity(member: Member) -> int:
    found = re.fullmatch(r"[^#]*#[^#]*#(\d+)", (member.store / "brokerIdentity").read_text().strip())
    if found is None:
        raise Unsettled(f"{member.store}: no brokerIdentity")
    return int(found[1])


def _diverge(cell: Controlled, master: Member) -> str:
    """Have a master write messages that no other broker has, and then become a slave; return a line for the report."""
    slaves = [member for member in cell.members if member is not master]
    cell.controller.pause()
    try:
        for member in slaves:
            member.broker.kill()
        before = set(cell.sent)
        codes = cell.send(master, 3)
        master.broker.kill()
    finally:
        cell.controller.resume()
    told = f"{master.make} master dropped what only it had"
    if not all(codes):
        if master.make != APACHE:
            raise Unsettled(f"{master.make} master acknowledges without its slaves: {codes}")
        told += f", of which it had acknowledged {codes.count(0)} messages"
        cell.sent.update(dict.fromkeys(set(cell.sent) - before, False))
    for member in slaves:
        member.broker.start()
    cell.send_soon()
    master.broker.start()
    cell.settle()
    return told


def _administer(cell: Controlled, class_path: str, folder: Path) -> None:
    """Have `mqadmin` ask about the group, and elect another master. Raises `Unsettled`."""
    group = cell.controller.group()
    master = cell.master(group)
    slave = next(member for member in cell.members if member is not master)
    known = {
        "controller": cell.controller.address,
        "epoch": str(group.epoch),
        "slave": slave.address,
        "id": str(_identity(slave)),
    }
    place = Place(cell.controller.nameserver, master.address, CLUSTER, NAME)
    outcomes = run_commands(class_path, place, MEMBER_CASES, folder, folder / "mqadmin.log", known)
    if outcomes.reasons:
        raise Unsettled(f"mqadmin: {outcomes.reasons}; see {folder / 'mqadmin.log'}")


def run_controlled(name: str, class_path: str, admin_class_path: str, folder: Path, messages: int, seed: int) -> None:
    """Run one case. Raises `Unsettled`."""
    controller = ControllerProcess(class_path, folder / "controller")
    members = [_make(kind, class_path, folder / f"{at}-{kind}", controller) for at, kind in enumerate(GROUPS[name])]
    cell = Controlled(controller, members, seed)
    try:
        controller.start()
        for member in members:
            member.broker.start()
        cell.wait_in_sync(len(members))
        # For Apache's brokers, an epoch without records is a different one.
        cell.send_all(1)
        told = []
        for member in {member.make: member for member in members}.values():
            told.append(_fail_over(cell, messages, _elect(cell, member)))
            told.append(_diverge(cell, _elect(cell, member)))
        cell.send_all(messages // 4)
        _administer(cell, admin_class_path, folder)
        cell.send_soon()
        cell.settle()
        cell.wait_same()
        had = _bodies(cell.master())
        lost = [body for body, is_acknowledged in cell.sent.items() if is_acknowledged and body not in had]
        if lost:
            raise Unsettled(f"{len(lost)} acknowledged messages are lost, the first is {lost[0][:20]!r}")
        epochs = cell.epochs(cell.master())
    finally:
        for member in members:
            member.broker.close()
        controller.close()
    logs = [_log(member.store, epochs.max_offset) for member in members]
    if len(set(logs)) != 1:
        raise Unsettled(f"the logs differ, or have less than {epochs.max_offset} bytes: {[len(each) for each in logs]}")
    print(
        f"{name}: {'; '.join(told)}; {len(cell.sent)} messages, none lost that was acknowledged; {len(logs[0])} bytes "
        f"of {len(epochs.epoch_list)} epochs are the same {len(logs)} times",
        flush=True,
    )
