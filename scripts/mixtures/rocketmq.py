"""The runner of scripts/mixed-rocketmq: brokers of two makes, ours and Apache's, on one store or as master and slave.

A SYNC_MASTER with inSyncReplicas=2 takes messages, each acknowledged by its slave, too. The slave is killed in the
middle, and messages are sent while it is down. In the end both commit logs must be the same byte for byte, and both
brokers must serve the same queues. Groups with a controller are in `rocketmq_controlled`.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import RocketProcess
from formats.rocketmq.files.names import offset_of_name
from formats.rocketmq.files.record import decode_record
from formats.rocketmq.remoting.bodies.replication import HA_RUNTIME
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIGS
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from scripts.bench.grpc import SOURCE as PROXY_SOURCE
from scripts.bench.rocketmq import HOME, SOURCE
from scripts.judges.rocketmq_reference import ReferenceProcess
from scripts.mixtures.rocketmq_acting import ACTING, run_acting
from scripts.mixtures.rocketmq_controlled import GROUPS, run_controlled
from scripts.mixtures.rocketmq_controller import Controlled, last, play
from scripts.mixtures.rocketmq_keys import compare_proxies
from scripts.mixtures.rocketmq_repaired import REPAIRED, run_repaired
from scripts.mixtures.rocketmq_turns import Differs, Turns
from scripts.suites.rocketmq import Unfit, build
from tests.rigs.remoting import Remote

FILE_BYTES: Final = 1 << 18
TOPIC: Final = "mixed"
QUEUES: Final = 4
ROUNDS: Final = 8
WAIT_S: Final = 90.0
# A small broker: three of them may share the machine.
_HEAP: Final = ("-Xms512m", "-Xmx512m", "-Xmn256m", "-XX:+UseG1GC")


CONTROLLERS: Final = "our-controllers"
KEYS: Final = "keys"
# The home of the judge of scripts/conformance, which has mqadmin.
ADMIN_HOME: Final = HOME.parent / "conformance" / "rocketmq"
PROXY_HOME: Final = HOME.with_name("rocketmq-proxy")


class Broken(Differs):
    """A group of brokers shows a wrong result; the text says which."""


class Broker(Protocol):
    """A broker process of either make."""

    port: int

    @property
    def nameserver(self) -> str: ...
    def start(self) -> object: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Member(NamedTuple):
    """A broker and its store."""

    broker: Broker
    store: Path


def _properties(**more: str | int) -> dict[str, str | int]:
    sizes: dict[str, str | int] = {"mappedFileSizeCommitLog": FILE_BYTES, "maxHashSlotNum": 500, "maxIndexNum": 2000}
    return {**sizes, "slaveReadEnable": "true", "autoCreateTopicEnable": "true", **more}


def _text(properties: dict[str, str | int]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _ours(folder: Path, properties: dict[str, str | int], options: Iterable[str] = ()) -> Member:
    folder.mkdir(parents=True)
    config, store = folder / "broker.conf", folder / "store"
    config.write_text(_text(properties))
    return Member(RocketProcess(store, config_file=config, options=list(options)), store)


def _theirs(class_path: str, folder: Path, properties: dict[str, str | int], nameserver: str | None = None) -> Member:
    return Member(ReferenceProcess(class_path, folder, _text(properties), _HEAP, nameserver), folder / "store")


MASTER: Final[dict[str, str | int]] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 3000}
SLAVE: Final[dict[str, str | int]] = {"brokerRole": "SLAVE", "brokerId": 1}


def their_slave(class_path: str, folder: Path) -> tuple[Member, Callable[[str], Member]]:
    """Make our master, and a function that makes Apache's slave of it."""
    master = _ours(folder / "master", _properties(**MASTER, haListenPort=free_port()))
    return master, lambda nameserver: _theirs(class_path, folder / "slave", _properties(**SLAVE), nameserver)


def our_slave(class_path: str, folder: Path) -> tuple[Member, Callable[[str], Member]]:
    """Make Apache's master, and a function that makes our slave of it."""
    master = _theirs(class_path, folder / "master", _properties(**MASTER))
    return master, lambda nameserver: _ours(folder / "slave", _properties(**SLAVE), ["--nameserver", nameserver])


CASES: Final = {"their-slave": their_slave, "our-slave": our_slave}


def _wait(what: str, is_so: Callable[[], bool]) -> float:
    begin = time.monotonic()
    while not is_so():
        if time.monotonic() - begin > WAIT_S:
            raise Broken(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - begin


def _in_sync(master: Member) -> bool:
    with Remote(master.broker.port) as remote:
        told = HA_RUNTIME.read(remote.call(RequestCode.GET_BROKER_HA_STATUS).body)
    return len(told.ha_connection_info) == 1 and told.ha_connection_info[0].diff == 0


def _send(master: Member, numbers: Iterable[int], draw: random.Random) -> Counter[int]:
    """Send messages of many sizes, with a few large ones; count the answers by code."""
    codes: Counter[int] = Counter()
    with Remote(master.broker.port) as remote:
        for number in numbers:
            size = draw.choice((0, 100, 1000, 5000, 60_000 if number % 50 == 0 else 10))
            body = b"%d " % number + draw.randbytes(size)
            properties = f"KEYS\x01k{number}\x02TAGS\x01t{number % 3}\x02"
            codes[remote.send_message(TOPIC, body, number % QUEUES, properties).code] += 1
    return codes


def _log(store: Path) -> bytes:
    """Read a commit log up to the end of its last record."""
    paths = sorted((store / "commitlog").iterdir())
    begins = [offset_of_name(path.name) for path in paths]
    if not begins or begins[0] != 0:
        raise Broken(f"{store}: the log does not begin at 0")
    data = b"".join(path.read_bytes() for path in paths)
    return data.rstrip(b"\0")


def _records(data: bytes) -> int:
    """Count the records of a log, blank ones included; it must be whole."""
    at = count = 0
    padded = data + bytes(FILE_BYTES)
    while at < len(data):
        if decode_record(padded, at) is None:
            raise Broken(f"no record at offset {at}")
        at += int.from_bytes(padded[at : at + 4], "big")
        count += 1
    return count


def _served(member: Member) -> list[list[bytes]]:
    """Read all messages of all queues from a broker, as a consumer does."""
    found: list[list[bytes]] = []
    with Remote(member.broker.port) as remote:
        for queue_id in range(QUEUES):
            records: list[bytes] = []
            offset = 0
            while (answer := remote.answer(remote.pull(TOPIC, offset, queue_id))).code == ResponseCode.SUCCESS:
                assert answer.ext_fields is not None
                offset = int(answer.ext_fields["nextBeginOffset"])
                records.append(bytes(answer.body))
            found.append([b"".join(records)])
    return found


def _has_topic(member: Member) -> bool:
    with Remote(member.broker.port) as remote:
        body = remote.call(RequestCode.GET_ALL_TOPIC_CONFIG).body
    return TOPIC in TOPIC_CONFIGS.read(body).topic_config_table


def run(name: str, class_path: str, folder: Path, messages: int, seed: int) -> None:
    """Run one case. Raises `Broken`."""
    draw = random.Random(seed)
    master, make_slave = CASES[name](class_path, folder)
    started = []
    try:
        master.broker.start()
        started.append(master)
        # Without a slave, senders get an error, and the messages are kept.
        alone = _send(master, range(10), draw)
        slave = make_slave(master.broker.nameserver)
        slave.broker.start()
        started.append(slave)
        joined_s = _wait("the slave joins", lambda: _in_sync(master))
        together = _send(master, range(10, messages), draw)
        slave.broker.kill()
        away = _send(master, range(messages, messages + 3), draw)
        slave.broker.start()
        _wait("the slave comes back", lambda: _in_sync(master))
        again = _send(master, range(messages + 3, messages + 50), draw)
        _wait("the slave has all", lambda: _in_sync(master))
        expected = (ResponseCode.FLUSH_SLAVE_TIMEOUT, 0, ResponseCode.FLUSH_SLAVE_TIMEOUT, 0)
        for codes, code in zip((alone, together, away, again), expected, strict=True):
            if set(codes) != {code}:
                raise Broken(f"answers {dict(codes)} instead of {int(code)} only")
        _wait("the slave knows the topic", lambda: _has_topic(slave))
        if _served(master) != _served(slave):
            raise Broken("master and slave serve different messages")
    finally:
        for member in reversed(started):
            member.broker.close()
    logs = [_log(member.store) for member in (master, slave)]
    if logs[0] != logs[1]:
        at = next((at for at, pair in enumerate(zip(*logs, strict=False)) if pair[0] != pair[1]), min(map(len, logs)))
        raise Broken(f"the logs have {len(logs[0])} and {len(logs[1])} bytes, and differ from offset {at} on")
    print(
        f"{name}: {messages + 50} messages, {len(logs[0])} bytes in {_records(logs[0])} records are the same; the "
        f"slave had joined after {joined_s:.1f} s",
        flush=True,
    )


def take_turns(class_path: str, folder: Path, messages: int, seed: int) -> None:
    """Let our node and Apache's broker serve one store in turns. Raises `Differs`."""
    ours = _ours(folder, _properties(brokerName="broker-a"))
    theirs = _theirs(class_path, folder, _properties())
    turns = Turns({"ours": ours.broker, "Apache's": theirs.broker}, seed)
    turns.run(ROUNDS, messages // ROUNDS, lambda line: print(f"turns: {line}", flush=True))


def lead_theirs(class_path: str, admin_path: str, folder: Path) -> None:
    """Let our controllers lead Apache's brokers. Raises `Differs`."""

    def say(line: str) -> None:
        print(f"{CONTROLLERS}: {line}", flush=True)

    log = folder.with_suffix(".mqadmin.log")
    group = Controlled(class_path, folder, _text(_properties()), _HEAP)
    try:
        play(group, admin_path, log, say)
        left = last(group, admin_path, log)
    finally:
        group.close()
    logs = [_log(group.store(number)) for number in left]
    if logs[0] != logs[1]:
        raise Broken(f"the logs differ: {[len(data) for data in logs]} bytes")
    missing = [number for number, body in enumerate(group.sent) if body not in logs[0]]
    if missing:
        raise Broken(f"acknowledged, and not there: {missing}")
    say(f"{len(group.sent)} acknowledged messages are there; {len(logs[0])} bytes of both logs are the same")


def main() -> None:
    parser = argparse.ArgumentParser(description="Our RocketMQ brokers and proxies and Apache's.")
    parser.add_argument("--messages", type=int, default=1000, help="sent while both run (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes and bodies (%(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep stores and logs here")
    names = [*CASES, "turns", *REPAIRED, CONTROLLERS, *GROUPS, *ACTING, KEYS]
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"all, or of: {', '.join(names)}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.cases if name not in names]:
        parser.error(f"no such case: {', '.join(unknown)}")
    try:
        class_path = build(HOME, SOURCE)
    except Unfit as fault:
        parser.error(str(fault))
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    failed = False
    for name in arguments.cases or names:
        with tempfile.TemporaryDirectory(prefix="mixed-rocketmq-") as folder:
            kept = Path(folder) if arguments.keep is None else arguments.keep
            try:
                if name == CONTROLLERS:
                    lead_theirs(class_path, build(ADMIN_HOME), kept / name)
                elif name == KEYS:
                    compare_proxies(class_path, build(PROXY_HOME, PROXY_SOURCE), kept / name)
                elif name == "turns":
                    take_turns(class_path, kept / name, arguments.messages, arguments.seed)
                elif name in REPAIRED:
                    makers = {
                        "ours": lambda folder: _ours(folder, _properties(brokerName="broker-a")),
                        "theirs": lambda folder: _theirs(class_path, folder, _properties()),
                    }
                    run_repaired(name, makers, kept / name, arguments.messages, arguments.seed)
                elif name in ACTING:
                    run_acting(name, class_path, kept / name, arguments.messages // 10)
                elif name in GROUPS:
                    paths = (class_path, build(ADMIN_HOME))
                    run_controlled(name, *paths, kept / name, arguments.messages // 4, arguments.seed)
                else:
                    run(name, class_path, kept / name, arguments.messages, arguments.seed)
            except Differs as fault:
                failed = True
                print(f"{name}: {fault}", flush=True)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
