"""The runner of scripts/soak-rocketmq: three RocketMQ nodes under load while they are killed, stopped, frozen, cut off.

Each node is a nameserver, a controller and a broker; a message is acknowledged when all brokers in sync, at least two,
have it. Apache's Java client sends and consumes. The order of the faults depends on the seed alone; their exact times
depend on the machine. In the end every acknowledged message is in the log and was given to a consumer, each queue is in
order, and the three stores are the same.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bmqctl.systems.node_process import NodeFailed
from scripts.endurance.rocketmq_checks import (
    Ack,
    Lines,
    check_deliveries,
    check_log,
    check_stores,
    longest_gap_s,
    read_ack,
)
from scripts.endurance.rocketmq_group import NAME, NUMBERS, Group, Unhealed
from scripts.judges.network_namespaces import Network, why_not
from scripts.suites.rocketmq import Unfit, build

__all__ = ["CUTS", "FAULTS", "Soak"]

SOURCE: Final = Path(__file__).parents[1] / "judges" / "rocketmq_steady"
HOME: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bmqctl" / "rocketmq-steady"
TOPIC: Final = "soak"
QUEUES: Final = 4
THREADS: Final = 8
BODY_BYTES: Final = 512
# Ranges of the time between two faults, and of a fault's length.
QUIET_S: Final = (0.5, 3.0)
DOWN_S: Final = (0.1, 4.0)
FROZEN_S: Final = (0.2, 8.0)
CUT_S: Final = (0.5, 8.0)
ACK_S: Final = 60.0
CONSUMED_S: Final = 180.0
# Shorter than by default: a frozen master is noticed in a second or two.
PROPERTIES: Final = {
    "brokerHeartbeatInterval": 300,
    "controllerHeartBeatTimeoutMills": 1500,
    "scanNotActiveBrokerInterval": 300,
    "scanInactiveMasterInterval": 300,
    "haMaxTimeSlaveNotCatchup": 1500,
    "checkSyncStateSetPeriod": 300,
    "slaveTimeout": 1000,
    "syncControllerMetadataPeriod": 1000,
    "syncBrokerMetadataPeriod": 1000,
}


class Struck(NamedTuple):
    """A fault, its time, and that of the group's recovery, in seconds since the epoch."""

    kind: str
    begin_s: float
    end_s: float


class Client:
    """The Java program: producers and consumers; `acks` and `got` are the lines that it has written."""

    def __init__(self, class_path: str, nameservers: str, folder: Path, rate: float) -> None:
        folder.mkdir(parents=True)
        words = ["java", "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        words += [f"-Drocketmq.client.logRoot={folder}", "-cp", class_path, "Steady", nameservers, NAME, TOPIC]
        settings = (QUEUES, THREADS, BODY_BYTES, rate, folder)
        # The client's output is long and unread: a pipe would fill.
        with (folder / "output").open("w") as output:
            self._process = subprocess.Popen(
                [*words, *map(str, settings)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._output, self._acks, self._got = (Lines(folder / name) for name in ("output", "acks", "got"))
        self.acks: list[Ack] = []
        self.got: list[str] = []

    def read(self) -> int:
        """Read new lines; return the number of acknowledged messages."""
        if self._process.poll() is not None:
            raise Unhealed(f"the client has ended: {self._told()[-1:]}")
        self.acks += map(read_ack, self._acks.new())
        self.got += self._got.new()
        return len(self.acks)

    def _told(self) -> list[str]:
        words = "steady "
        return [line.removeprefix(words) for line in self._output.new() if line.startswith(words)]

    def end_sending(self) -> list[str]:
        """Stop sending; return how often each attempt failed."""
        assert self._process.stdin is not None
        self._process.stdin.write("enough\n")
        self._process.stdin.flush()
        told: list[str] = []
        while "ended" not in told:
            self.read()
            told += self._told()
            time.sleep(0.05)
        return [line.removeprefix("failed ") for line in told if line.startswith("failed ")]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Soak:
    """A run in `folder` with faults by `seed`, until enough messages are acknowledged."""

    def __init__(
        self,
        class_path: str,
        folder: Path,
        seed: int,
        messages: int,
        rate: float,
        kinds: tuple[str, ...],
        *,
        is_isolated: bool,
        say: Callable[[str], None],
    ) -> None:
        self.random = random.Random(seed)
        self.struck: list[Struck] = []
        self._class_path, self._folder = class_path, folder
        self._messages, self._rate = messages, rate
        self._known = FAULTS | CUTS if is_isolated else FAULTS
        self._kinds = kinds or tuple(self._known)
        self._say = say
        network = Network("rmq-soak", "10.199.78", NUMBERS) if is_isolated else None
        self.group = Group(folder, network, PROPERTIES)

    def run(self) -> list[str]:
        """Run it; return the faults found. Raises `Unhealed`."""
        began = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self.group.close)
            self.group.start()
            self.group.make_topic(TOPIC, QUEUES)
            client = Client(self._class_path, self.group.nameservers, self._folder / "client", self._rate)
            stack.callback(client.close)
            self._wait_acks(client, 0)
            self._strike_until_enough(client)
            failed = client.end_sending()
            took_s = time.monotonic() - began
            self._wait_consumed(client)
            end = self.group.wait_same().max_offset
            master = self.group.master()
        stores = [node.data_dir for node in self.group.nodes.values()]
        faults = check_log(self.group.nodes[master].data_dir, end, TOPIC, client.acks)
        faults += check_stores(stores, end, TOPIC)
        faults += check_deliveries(client.acks, client.got, QUEUES)
        for node in self.group.nodes.values():
            if "Traceback" in node.log:
                faults.append(f"{node.data_dir}: an exception in the log")
        self._tell(client, failed, took_s, end)
        return faults

    def _wait_acks(self, client: Client, had: int) -> None:
        until = time.monotonic() + ACK_S
        while client.read() <= had:
            if time.monotonic() > until:
                raise Unhealed(f"no message is acknowledged within {ACK_S:.0f} s, though all brokers are in sync")
            time.sleep(0.05)

    def _strike_until_enough(self, client: Client) -> None:
        while client.read() < self._messages:
            time.sleep(self.random.uniform(*QUIET_S))
            kind = self.random.choice(self._kinds)
            self._say(f"{client.read():>10,} acknowledged  {kind}")
            begin_s = time.time()
            self._known[kind](self)
            self.group.wait_healed()
            end_s = time.time()
            self._wait_acks(client, client.read())
            self.struck.append(Struck(kind, begin_s, end_s))

    def _wait_consumed(self, client: Client) -> None:
        """Wait until consumers have as many messages as were acknowledged, or give up: the final check reports
        losses.
        """
        wanted = {ack.sent for ack in client.acks}
        until = time.monotonic() + CONSUMED_S
        seen = 0
        while wanted and time.monotonic() < until:
            client.read()
            for line in client.got[seen:]:
                if not line.startswith("bad"):
                    thread, number, attempt, _ = map(int, line.split())
                    wanted.discard((thread, number, attempt))
            seen = len(client.got)
            time.sleep(0.2)

    def _tell(self, client: Client, failed: list[str], took_s: float, end: int) -> None:
        gaps: dict[str, list[float]] = defaultdict(list)
        for each in self.struck:
            gaps[each.kind].append(longest_gap_s(client.acks, each.begin_s, each.end_s))
        self._say(
            f"{len(client.acks):,} acknowledged in {took_s:.0f} s, {len(client.got):,} deliveries, {len(self.struck)} "
            f"faults, {end:,} bytes of log; attempts that failed: {'; '.join(failed) or 'none'}"
        )
        print(f"{'longest time without an acknowledgment, s':<52} {'n':>4} {'p50':>6} {'max':>6}")
        for kind, found in sorted(gaps.items()):
            print(f"{kind:<52} {len(found):>4} {median(found):>6.2f} {max(found):>6.2f}")

    # -- faults

    def _down(self, numbers: list[int], end: Callable[[int], object]) -> None:
        for number in numbers:
            end(number)
        time.sleep(self.random.uniform(*DOWN_S))
        for number in numbers:
            self.group.nodes[number].start()

    def kill(self, numbers: list[int]) -> None:
        self._down(numbers, lambda number: self.group.nodes[number].kill())

    def stop(self, numbers: list[int]) -> None:
        self._down(numbers, lambda number: self.group.nodes[number].stop())

    def freeze(self, numbers: list[int]) -> None:
        for number in numbers:
            self.group.freeze(number)
        time.sleep(self.random.uniform(*FROZEN_S))
        for number in numbers:
            self.group.thaw(number)

    def cut(self, numbers: list[int], *, from_clients: bool, is_one_way: bool = False) -> None:
        """Block all traffic between these nodes and the others for a while; one way: only to the others."""
        network = self.group.network
        assert network is not None
        others = [number for number in NUMBERS if number not in numbers]
        pairs = [(number, other) for number in numbers for other in others]
        if not is_one_way:
            pairs += [(other, number) for number, other in pairs]
        if from_clients:
            pairs += [(number, network.HOST) for number in numbers]
        network.cut(pairs)
        time.sleep(self.random.uniform(*CUT_S))
        network.mend()

    @property
    def master(self) -> list[int]:
        return [self.group.master()]

    @property
    def slave(self) -> list[int]:
        master = self.group.master()
        return [self.random.choice([number for number in NUMBERS if number != master])]

    @property
    def leader(self) -> list[int]:
        return [self.group.leader()]


FAULTS: Final[dict[str, Callable[[Soak], None]]] = {
    "kill -9 of the master": lambda soak: soak.kill(soak.master),
    "kill -9 of a slave": lambda soak: soak.kill(soak.slave),
    "kill -9 of the controllers' leader": lambda soak: soak.kill(soak.leader),
    "kill -9 of all": lambda soak: soak.kill(list(NUMBERS)),
    "stop of the master": lambda soak: soak.stop(soak.master),
    "stop of a slave": lambda soak: soak.stop(soak.slave),
    "SIGSTOP of the master": lambda soak: soak.freeze(soak.master),
    "SIGSTOP of a slave": lambda soak: soak.freeze(soak.slave),
    "SIGSTOP of the controllers' leader": lambda soak: soak.freeze(soak.leader),
}

# Only for nodes with separate networks.
CUTS: Final[dict[str, Callable[[Soak], None]]] = {
    "master cut off from the others": lambda soak: soak.cut(soak.master, from_clients=False),
    "master cut off from everybody": lambda soak: soak.cut(soak.master, from_clients=True),
    "master unheard by the others": lambda soak: soak.cut(soak.master, from_clients=False, is_one_way=True),
    "slave cut off from the others": lambda soak: soak.cut(soak.slave, from_clients=False),
    "controllers' leader cut off from everybody": lambda soak: soak.cut(soak.leader, from_clients=True),
}


def main() -> None:
    """Run one soak; exit with code 1 if something was lost or differs, or the group did not recover."""
    parser = argparse.ArgumentParser(description="Three RocketMQ nodes under load and faults.")
    parser.add_argument(
        "--messages", type=int, default=500_000, help="acknowledged messages after which it ends (%(default)s)"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="messages/s of all producers; 0: as fast as possible")
    parser.add_argument("--seed", type=int, default=None, help="seed of the order of the faults (by default a new one)")
    parser.add_argument("--faults", nargs="+", choices=(*FAULTS, *CUTS), default=(), help="only these faults")
    parser.add_argument("--keep", type=Path, help="directory for the nodes' files and logs, which then stay")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    absent = why_not()
    if absent is not None:
        print(f"soak-rocketmq: nobody is cut off, as network namespaces are unavailable: {absent}")
        if set(arguments.faults) & set(CUTS):
            parser.error("these faults need network namespaces")
    try:
        class_path = build(HOME, SOURCE)
    except Unfit as fault:
        parser.error(str(fault))
    print(f"soak-rocketmq: seed {seed}, {arguments.messages:,} messages", flush=True)
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmqctl-soak-")))
        began = time.monotonic()
        soak = Soak(
            class_path,
            folder,
            seed,
            arguments.messages,
            arguments.rate,
            tuple(arguments.faults),
            is_isolated=absent is None,
            say=lambda text: print(f"{time.monotonic() - began:7.1f} s {text}", flush=True),
        )
        try:
            faults = soak.run()
        except (Unhealed, NodeFailed) as fault:
            sys.exit(f"soak-rocketmq: seed {seed}: {fault}; after {dict(Counter(each.kind for each in soak.struck))}")
    for text in faults:
        print(f"soak-rocketmq: {text}")
    print(f"soak-rocketmq: seed {seed}: {'failed' if faults else 'nothing lost, in order, all stores the same'}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
