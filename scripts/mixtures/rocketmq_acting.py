"""A master and a slave of two makes, ours and Apache's, of which the slave acts as master while the master is gone.

The master is killed. Its nameserver, of the other make, sends clients to the slave, where a group continues to read and
commits its offset. The master comes back, and gets the group's offset from the slave. Then both acknowledge messages
again, and both logs are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import RocketProcess
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from scripts.judges.rocketmq_controller import ControllerProcess
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.mixtures.rocketmq_turns import Differs
from tests.broker.rocketmq.answers import records_of
from tests.rigs.remoting import Remote

__all__ = ["ACTING", "run_acting"]

TOPIC: Final = "acting"
QUEUE: Final = 0
FILE_BYTES: Final = 1 << 18
WAIT_S: Final = 120.0
MASTER, SLAVE = 0, 1
# The slave's make, by case.
ACTING: Final = {"acting-our-slave": "ours", "acting-their-slave": "Apache's"}
_HEAP: Final = ("-Xms256m", "-Xmx256m", "-Xmn128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_NAMESERVER: Final = "supportActingMaster=true\nnotifyMinBrokerIdChanged=true\n"


class Broker(Protocol):
    """A broker process of either make."""

    port: int

    def start(self) -> object: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Nameserver(Protocol):
    """A nameserver process of either make."""

    @property
    def nameserver(self) -> str: ...
    def start(self) -> object: ...
    def close(self) -> None: ...


class Pair(NamedTuple):
    """A nameserver, a master and a slave, and the stores of these two."""

    nameserver: Nameserver
    brokers: tuple[Broker, Broker]
    stores: tuple[Path, Path]

    def ask(self, number: int) -> Remote:
        return Remote(self.brokers[number].port)

    def brokers_of(self, topic: str) -> tuple[dict[int, int], int]:
        """Return the ports of the brokers in the route of a topic, by id, and its permissions."""
        with Remote(int(self.nameserver.nameserver.rpartition(":")[2])) as remote:
            answer = remote.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code != ResponseCode.SUCCESS:
            return {}, 0
        route = TOPIC_ROUTE.read(answer.body)
        brokers = next(each.broker_addrs for each in route.broker_datas if each.broker_name == "broker-a")
        permission = next(each.perm for each in route.queue_datas if each.broker_name == "broker-a")
        return {each: int(address.rpartition(":")[2]) for each, address in brokers.items()}, permission


def _properties(number: int) -> str:
    settings: dict[str, str | int] = {
        "mappedFileSizeCommitLog": FILE_BYTES,
        "maxHashSlotNum": 500,
        "maxIndexNum": 2000,
        "slaveReadEnable": "true",
        "enableSlaveActingMaster": "true",
        "totalReplicas": 2,
        "inSyncReplicas": 2,
        "slaveTimeout": 3000,
        "brokerRole": "SLAVE" if number == SLAVE else "SYNC_MASTER",
        "brokerId": number,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _make(name: str, class_path: str, folder: Path) -> Pair:
    """Make the processes. The nameserver is of the slave's make, as it has to send clients to the slave."""
    is_ours = ACTING[name] == "ours"
    folder.mkdir(parents=True)
    nameserver: Nameserver
    if is_ours:
        nameserver = ControllerProcess(class_path, folder / "nameserver")
    else:
        config = folder / "nameserver.conf"
        config.write_text(f"brokerName=elsewhere\n{_NAMESERVER}")
        nameserver = RocketProcess(folder / "nameserver", config_file=config)
    nameserver.start()
    if is_ours:
        with Remote(int(nameserver.nameserver.rpartition(":")[2])) as remote:
            remote.call(RequestCode.UPDATE_NAMESRV_CONFIG, _NAMESERVER.encode())
    made: list[Broker] = []
    for number in (MASTER, SLAVE):
        place = folder / str(number)
        if (number == SLAVE) == is_ours:
            place.mkdir()
            config = place / "broker.conf"
            ha_port = "" if number == SLAVE else f"haListenPort={free_port()}\n"
            config.write_text(f"brokerName=broker-a\n{_properties(number)}{ha_port}")
            made.append(
                RocketProcess(place / "store", config_file=config, options=["--nameserver", nameserver.nameserver])
            )
        else:
            made.append(ReferenceProcess(class_path, place, _properties(number), _HEAP, nameserver.nameserver))
    return Pair(nameserver, (made[0], made[1]), (folder / "0" / "store", folder / "1" / "store"))


def _wait(what: str, is_so: Callable[[], bool]) -> float:
    begin = time.monotonic()
    while True:
        try:
            if is_so():
                return time.monotonic() - begin
        except (OSError, EOFError):
            pass
        if time.monotonic() - begin > WAIT_S:
            raise Differs(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(0.1)


def _send(pair: Pair, numbers: range) -> None:
    with pair.ask(MASTER) as remote:
        codes = [remote.send_message(TOPIC, b"%d" % number, QUEUE).code for number in numbers]
    if any(codes):
        raise Differs(f"the master answers {sorted(set(codes))}")


def _read(pair: Pair, number: int, offset: int) -> list[int]:
    with pair.ask(number) as remote:
        found: list[int] = []
        while bodies := [
            int(bytes(each.body)) for each in records_of(remote.answer(remote.pull(TOPIC, offset + len(found), QUEUE)))
        ]:
            found += bodies
        return found


def _offset(pair: Pair, number: int) -> int:
    with pair.ask(number) as remote:
        answer = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="group", topic=TOPIC, queueId=QUEUE)
    return int((answer.ext_fields or {}).get("offset", -1))


def _commit(pair: Pair, number: int, offset: int) -> None:
    with pair.ask(number) as remote:
        remote.commit(TOPIC, QUEUE, offset)


def _takes(pair: Pair) -> bool:
    with pair.ask(MASTER) as remote:
        return remote.send_message("probe", b"probe").code == ResponseCode.SUCCESS


def run_acting(name: str, class_path: str, folder: Path, messages: int) -> None:
    """Run one case. Raises `Differs`."""
    pair = _make(name, class_path, folder)
    master, slave = pair.brokers
    try:
        master.start()
        slave.start()
        ports = {MASTER: master.port, SLAVE: slave.port}
        # Too few are in sync before both know each other.
        _wait("both are in sync", lambda: _takes(pair))
        _send(pair, range(messages))
        _commit(pair, MASTER, messages // 4)
        _wait("the slave knows the offset", lambda: _offset(pair, SLAVE) == messages // 4)
        _wait("the slave has all", lambda: len(_read(pair, SLAVE, 0)) == messages)
        _wait("both are found", lambda: pair.brokers_of(TOPIC) == (ports, 6))
        master.kill()
        acting_s = _wait("the slave acts as master", lambda: pair.brokers_of(TOPIC) == ({MASTER: slave.port}, 4))
        if _read(pair, SLAVE, messages // 4) != list(range(messages // 4, messages)):
            raise Differs("the acting master serves other messages")
        _commit(pair, SLAVE, messages // 2)
        # The version of the offsets rises when the file is written.
        time.sleep(6)
        master.start()
        back_s = _wait("the master is back", lambda: pair.brokers_of(TOPIC) == (ports, 6))
        if _offset(pair, MASTER) != messages // 2:
            raise Differs(f"the master has offset {_offset(pair, MASTER)} instead of {messages // 2}")
        _wait("both are in sync again", lambda: _takes(pair))
        _send(pair, range(messages, 2 * messages))
        _wait("the slave has all again", lambda: len(_read(pair, SLAVE, 0)) == 2 * messages)
    finally:
        for broker in (slave, master):
            broker.close()
        pair.nameserver.close()
    logs = [b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())) for store in pair.stores]
    ends = [len(log.rstrip(b"\0")) for log in logs]
    if logs[0][: ends[0]] != logs[1][: ends[0]] or ends[0] != ends[1]:
        raise Differs(f"the logs differ; they have {ends} bytes")
    print(
        f"{name}: clients were sent to the slave after {acting_s:.1f} s, and back {back_s:.1f} s after the master's "
        f"start; {2 * messages} messages, {ends[0]} bytes are the same",
        flush=True,
    )
