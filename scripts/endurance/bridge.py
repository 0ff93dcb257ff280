"""The runner of scripts/soak-bridge: bridges both ways under load while they and their ends are killed and cut off.

One process carries a queue of BlazingMQ to a topic of RocketMQ, and another topic to another queue. The order of the
faults depends on the seed alone; their exact times depend on the machine. Both bridges must recover after each fault.
In the end every acknowledged message has arrived, in order except for repeats, and the totals of each stopped bridge
add up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from bmqctl.client.remoting.client import Client
from bmqctl.common.children import COMMAND
from bmqctl.systems.node_process import HOST, NodeFailed
from scripts.bench.rocketmq import HOME, SOURCE
from scripts.endurance.bridge_ends import DOMAIN, Broken, End, make_blazingmq, make_rocketmq
from scripts.endurance.bridge_load import (
    FAULTS,
    Number,
    Producing,
    account_faults,
    faults_of,
    post,
    read_queue,
    read_topic,
    send,
)
from scripts.suites.rocketmq import Unfit, build

__all__ = ["KINDS", "Soak"]

QUEUES: Final = 2
BRIDGES: Final = ("there", "back")
# Ranges of the time between two faults, and of a fault's length.
QUIET_S: Final = (0.5, 3.0)
LENGTH_S: Final = (0.2, 6.0)
# Limit for recovery after a fault, and for the last messages to arrive, on a busy machine.
HEAL_S: Final = 240.0


class BridgeProcess:
    """The process with both bridges."""

    def __init__(self, folder: Path, blazingmq: End, rocketmq: End) -> None:
        self._told = folder / "bridge.err"
        self._told.touch()
        topic = f"rocketmq://{HOST}:{rocketmq.relays[0].port}"
        config = folder / "bridges.toml"
        config.write_text(
            f'[[bridge]]\nname = "there"\nfrom = "{queue("out")}"\nto = "{topic}/there"\n\n'
            f'[[bridge]]\nname = "back"\nfrom = "{topic}/back?group=soak-bridge"\nto = "{queue("in")}"\n'
        )
        broker = f"tcp://{HOST}:{blazingmq.relays[0].port}"
        self._words = ["--config", str(config), "--broker", broker, "--json", "--report", "0.2"]
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with self._told.open("a") as told:
            self._process = subprocess.Popen(
                [*COMMAND, "bridge", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )

    def end(self, how: signal.Signals) -> list[dict[str, Any]]:
        """Send a signal; return the totals that it printed, none after a kill."""
        assert self._process is not None
        self._process.send_signal(how)
        output, _ = self._process.communicate(timeout=HEAL_S)
        self._process = None
        if how is signal.SIGKILL:
            return []
        accounts: list[dict[str, Any]] = json.loads(output)["bridges"] if output else []
        return accounts

    def close(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)

    def told_size(self) -> int:
        return self._told.stat().st_size

    def carried(self, since: int) -> dict[str, int]:
        """The messages that each bridge delivered since its first report after offset `since` of the output."""
        if self._process is not None and self._process.poll() is not None:
            raise Broken(f"the bridge has ended with {self._process.returncode}: {self._told.read_text()[-500:]}")
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        with self._told.open() as told:
            told.seek(since)
            for line in told:
                if line.startswith("{") and line.endswith("\n"):
                    facts = json.loads(line)
                    first.setdefault(facts["bridge"], facts["delivered"])
                    last[facts["bridge"]] = facts["delivered"]
        return {name: last[name] - first[name] for name in last}

    @property
    def has_raised(self) -> bool:
        """True if its output has an exception."""
        return "Traceback" in self._told.read_text()


def queue(name: str) -> str:
    return f"bmq://{DOMAIN}/{name}"


class Soak:
    """A run in `folder` with faults by `seed`, until enough messages are acknowledged each way."""

    def __init__(
        self,
        folder: Path,
        ends: dict[str, End],
        seed: int,
        messages: int,
        rate: float,
        kinds: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self.random = random.Random(seed)
        self.struck: list[str] = []
        self.bridge = BridgeProcess(folder, ends["blazingmq"], ends["rocketmq"])
        self.ends = ends
        self.faults: list[str] = []
        self._messages = messages
        self._rate = rate
        self._kinds = kinds or tuple(KINDS)
        self._say = say

    async def run(self) -> list[str]:
        """Run it; return the faults found. Raises `Broken`."""
        ports = {name: end.port for name, end in self.ends.items()}
        await _make_topics(ports["rocketmq"])
        there, back = Producing(self._rate), Producing(self._rate)
        self.bridge.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, ports["blazingmq"], queue("out"), there)
            nursery.start_soon(send, ports["rocketmq"], "back", QUEUES, back)
            await self._wait_carried(0)
            while min(len(there.acked), len(back.acked)) < self._messages:
                await trio.sleep(self.random.uniform(*QUIET_S))
                kind = self.random.choice(self._kinds)
                self._say(f"{len(there.acked):>9,} there, {len(back.acked):>9,} back acknowledged  {kind}")
                self.struck.append(kind)
                await KINDS[kind](self)
                await self._wait_carried(self.bridge.told_size())
            there.enough.set()
            back.enough.set()
        found_there = await self._read(there.acked, partial(read_topic, ports["rocketmq"], "there"))
        found_back = await self._read(back.acked, partial(read_queue, ports["blazingmq"], queue("in")))
        await self.end_bridge(signal.SIGTERM)
        for name, producing, found in (("there", there, found_there), ("back", back, found_back)):
            self.faults += [f"{name}: {fault}" for fault in faults_of(producing.acked, found)]
            self._say(
                f"{name}: {len(producing.acked):,} acknowledged, {producing.refused} refused, {len(found):,} arrived, "
                f"{len(found) - len(set(found)):,} of them repeats"
            )
        if self.bridge.has_raised:
            self.faults.append("there is an exception in what the bridge said")
        return self.faults

    async def end_bridge(self, how: signal.Signals) -> None:
        """End the bridge; its totals must add up, unless it was killed."""
        accounts = await trio.to_thread.run_sync(self.bridge.end, how)
        if how is not signal.SIGKILL and len(accounts) != len(BRIDGES):
            self.faults.append(f"a bridge that was stopped printed {len(accounts)} accounts")
        for account in accounts:
            self.faults += account_faults(account)

    async def _wait_carried(self, since: int) -> None:
        until = trio.current_time() + HEAL_S
        while not all(self.bridge.carried(since).get(name) for name in BRIDGES):
            if trio.current_time() > until:
                raise Broken(f"the bridges do not carry within {HEAL_S:.0f} s: {self.bridge.carried(since)}")
            await trio.sleep(0.1)

    async def _read(self, acked: set[Number], read: Callable[[], Awaitable[list[Number]]]) -> list[Number]:
        """Read a destination until everything has arrived, or no more arrives."""
        until = trio.current_time() + HEAL_S
        while True:
            found: list[Number] = []
            try:
                found = await read()
            except FAULTS as fault:
                self._say(f"cannot be read: {fault}")
            if acked.issubset(found) or trio.current_time() > until:
                return found
            await trio.sleep(1)

    # -- faults

    async def lengthen(self) -> None:
        await trio.sleep(self.random.uniform(*LENGTH_S))

    async def down(self, names: tuple[str, ...], *, is_stop: bool = False) -> None:
        """End nodes, and with "bridge" the bridges, and start them again later."""
        for name in names:
            if name == "bridge":
                await self.end_bridge(signal.SIGTERM if is_stop else signal.SIGKILL)
            else:
                end = self.ends[name]
                await trio.to_thread.run_sync(end.stop if is_stop else end.kill)
        await self.lengthen()
        for name in names:
            await trio.to_thread.run_sync(self.bridge.start if name == "bridge" else self.ends[name].start)

    async def freeze(self, name: str) -> None:
        """Suspend a node, or the bridges, for a while."""
        pids = [self.bridge.pid] if name == "bridge" else list(self.ends[name].pids())
        await self._freeze(pids)

    async def silence(self, name: str) -> None:
        """Let no bytes through to a node for a while; its connections stay open."""
        await self._freeze([pid for relay in self.ends[name].relays for pid in relay.pids])

    async def _freeze(self, pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await self.lengthen()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    async def cut(self, name: str) -> None:
        """Cut the connections to a node, and refuse others for a while."""
        for relay in self.ends[name].relays:
            relay.kill()
        await self.lengthen()
        for relay in self.ends[name].relays:
            await trio.to_thread.run_sync(relay.start)


KINDS: Final[dict[str, Callable[[Soak], Awaitable[None]]]] = {
    "kill -9 of the bridge": lambda soak: soak.down(("bridge",)),
    "kill -9 of the BlazingMQ node": lambda soak: soak.down(("blazingmq",)),
    "kill -9 of the RocketMQ node": lambda soak: soak.down(("rocketmq",)),
    "kill -9 of the bridge and the BlazingMQ node": lambda soak: soak.down(("bridge", "blazingmq")),
    "kill -9 of the bridge and the RocketMQ node": lambda soak: soak.down(("rocketmq", "bridge")),
    "kill -9 of all": lambda soak: soak.down(("blazingmq", "rocketmq", "bridge")),
    "stop of the bridge": lambda soak: soak.down(("bridge",), is_stop=True),
    "stop of the BlazingMQ node": lambda soak: soak.down(("blazingmq",), is_stop=True),
    "stop of the RocketMQ node": lambda soak: soak.down(("rocketmq",), is_stop=True),
    "SIGSTOP of the bridge": lambda soak: soak.freeze("bridge"),
    "SIGSTOP of the BlazingMQ node": lambda soak: soak.freeze("blazingmq"),
    "SIGSTOP of the RocketMQ node": lambda soak: soak.freeze("rocketmq"),
    "BlazingMQ node cut off": lambda soak: soak.cut("blazingmq"),
    "RocketMQ node cut off": lambda soak: soak.cut("rocketmq"),
    "silence before the BlazingMQ node": lambda soak: soak.silence("blazingmq"),
    "silence before the RocketMQ node": lambda soak: soak.silence("rocketmq"),
}


@contextmanager
def running(folder: Path, reference: Path | None, class_path: str | None) -> Iterator[dict[str, End]]:
    ends = {
        "blazingmq": make_blazingmq(folder / "bmq", reference),
        "rocketmq": make_rocketmq(folder / "rmq", class_path),
    }
    with ExitStack() as stack:
        for end in ends.values():
            for relay in end.relays:
                stack.callback(relay.kill)
                relay.start()
            end.start()
            stack.callback(_end, end)
        yield ends


def _end(end: End) -> None:
    if end.pids():
        end.send(signal.SIGCONT)
        end.kill()


def main() -> None:
    """Run one soak; exit with code 1 if something was lost or out of order, or a bridge did not recover."""
    parser = argparse.ArgumentParser(description="Bridges both ways under load and faults.")
    parser.add_argument(
        "--messages", type=int, default=50_000, help="acknowledged each way after which it ends (%(default)s)"
    )
    parser.add_argument("--rate", type=float, default=2_000.0, help="messages/s of each producer (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the order of the faults (by default a new one)")
    parser.add_argument("--faults", nargs="+", choices=tuple(KINDS), default=(), help="only these faults")
    parser.add_argument(
        "--reference", type=Path, help="folder with the reference's bmqbrkr.tsk, to run instead of ours"
    )
    parser.add_argument("--apache", action="store_true", help="run Apache's RocketMQ broker instead of ours")
    parser.add_argument("--keep", type=Path, help="directory for the nodes' files and logs, which then stay")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    try:
        class_path = build(HOME, SOURCE) if arguments.apache else None
    except Unfit as fault:
        parser.error(str(fault))
    print(f"soak-bridge: seed {seed}, {arguments.messages:,} messages each way", flush=True)
    began = time.monotonic()
    with ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmqctl-soak-")))
        folder.mkdir(parents=True, exist_ok=True)
        struck: list[str] = []
        try:
            ends = stack.enter_context(running(folder, arguments.reference, class_path))
            soak = Soak(
                folder,
                ends,
                seed,
                arguments.messages,
                arguments.rate,
                tuple(arguments.faults),
                lambda text: print(f"{time.monotonic() - began:7.1f} s {text}", flush=True),
            )
            struck = soak.struck
            stack.callback(soak.bridge.close)
            faults = _run(soak)
        except (Broken, NodeFailed) as fault:
            sys.exit(f"soak-bridge: seed {seed}: {fault}; after {dict(Counter(struck))}")
    for text in faults:
        print(f"soak-bridge: {text}")
    verdict = "failed" if faults else "nothing lost, in order, the accounts add up"
    print(f"soak-bridge: seed {seed}: {len(struck)} faults in {time.monotonic() - began:.0f} s: {verdict}")
    sys.exit(bool(faults))


async def _make_topics(port: int) -> None:
    until = trio.current_time() + HEAL_S
    while True:
        try:
            async with Client.connect(HOST, port) as client:
                await client.create_topic("there", 1)
                await client.create_topic("back", QUEUES)
            return
        except FAULTS as fault:
            if trio.current_time() > until:
                raise Broken(f"the topics cannot be made: {fault}") from None
        await trio.sleep(1)


def _run(soak: Soak) -> list[str]:
    try:
        return trio.run(soak.run)
    except* (Broken, NodeFailed) as group:
        fault: BaseException = group
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        raise Broken(str(fault)) from None


if __name__ == "__main__":
    main()
