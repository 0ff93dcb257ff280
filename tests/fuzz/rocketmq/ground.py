"""The processes of a round, the well-behaved clients beside them, and the judges of both.

A find is a process that ends or does not start again, a fault in its log, a step of its loop that takes the processor
for too long, memory or disk beyond a bound, a file outside its store, pages that do not answer, a broker that its
nameserver forgets, and a client that suffers a loss or a wait.
"""

from __future__ import annotations

import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import NamedTuple

from bmqctl.common.children import COMMAND
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import ROCKETMQ_LOG_NAME, NodeFailed, NodeProcess, RocketProcess, RocketProxyProcess
from scripts.bench.watched_loop import Step, read_steps
from scripts.endurance.rocketmq_group import Group, Unhealed
from tests.fuzz.judging import MARKS, Find, Watch
from tests.fuzz.rocketmq.clients import Called, Client, Plain, Popped, Prepared, Suffered, Timed
from tests.fuzz.rocketmq.probe import Probe
from tests.fuzz.rocketmq.values import OUTSIDE
from tests.rigs.machine_speed import slowness

__all__ = ["SHAPES", "STEP_MS", "Ground", "LongStep", "Running", "ground"]

# The processor time of one step of a loop, and of one that serves many connections at once.
STEP_MS = 50.0
FLOOD_STEP_MS = 250.0
RSS_BYTES_MAX = 700 << 20
# The disk of a store, beside the log's share for each byte sent.
STORE_BYTES_MAX = 768 << 20
STORE_FACTOR = 4
# The longest wait of a client on a busy machine; longer where the broker takes some seconds.
BOUND_S = 20.0
LONG_BOUND_S = 30.0
# Patient clients are served again after this time.
RECOVERY_S = 60.0
WARM_S = 60.0
# A failing process writes its log and ends in this time.
END_S = 1.0
SHAPES = ("node", "group", "proxy")

_MARKS = (*MARKS, b"PANIC", b"Inconsistent")
_PROPERTIES = {
    "mappedFileSizeCommitLog": 64 << 20,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
}
# Strangers have the addresses of a group's nodes here: only a secret distinguishes nodes from them.
_GROUP_PROPERTIES = {
    **_PROPERTIES,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "peerSecretKey": "the secret of a group that is fuzzed",
}
_BLOCK = 512
_ELSEWHERE = Path("/tmp", OUTSIDE)


class LongStep(Find):
    """A step that took too long."""

    goes_on = True

    def __init__(self, text: str, step: Step) -> None:
        super().__init__(text)
        self.step = step


class Running:
    """A process with a loop that is watched."""

    def __init__(self, process: NodeProcess, folder: Path, name: str) -> None:
        self.process = process
        self.name = name
        self.steps = folder / f"{name}.steps"
        process.command = (sys.executable, "-m", "scripts.bench.watched_loop", str(self.steps), str(STEP_MS))
        self._seen = 0
        self._ready_ns = 0

    def watch(self) -> Watch:
        return Watch(self.process, self.process.data_dir / ROCKETMQ_LOG_NAME, _MARKS)

    def warm(self) -> None:
        """Judge no step up to now: the first of each kind imports modules."""
        self._ready_ns = time.monotonic_ns()

    def judge(self, limit_ms: float) -> None:
        """Raise `LongStep` if a step that ended since the last call ran for longer than the limit.

        The limit is that of the machine for which it was chosen, multiplied by the `slowness` of this one.
        """
        steps = read_steps(self.steps)
        new, self._seen = steps[self._seen :], len(steps)
        for step in new:
            if (
                step.start_ns >= self._ready_ns
                and step.ran > limit_ms
                and step.ran > (here_ms := limit_ms * slowness())
            ):
                took = (
                    f"ran for {step.ran:.0f} ms in one step, which took {step.took:.0f} ms (limit here {here_ms:.0f})"
                )
                raise LongStep(f"{self.name} {took}; slow calls: {step.calls[:5]}", step)

    def judge_memory(self) -> None:
        try:
            size = self.process.rss_bytes()
        except (OSError, AssertionError):
            return
        if size > RSS_BYTES_MAX:
            raise Find(f"{self.name} has {size >> 20} MiB of memory, more than {RSS_BYTES_MAX >> 20}")


class Ground:
    """The processes, ports, clients and judges of a round; actions name the keys of `ports`."""

    def __init__(self, folder: Path, shape: str) -> None:
        self.folder = folder
        self.shape = shape
        self.running: list[Running] = []
        self.watches: list[Watch] = []
        self.ports: dict[str, list[int]] = {}
        self.clients: list[Client] = []
        self.plain: Plain | None = None
        self.probe: Probe | None = None
        self.group: Group | None = None
        self.stores: list[Path] = []
        self.helpers: list[Popen[bytes]] = []

    # -- the beginning

    def start_node(self, stack: ExitStack, proxy: bool, console: bool) -> None:
        config = self.folder / "broker.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in _PROPERTIES.items()))
        pages = free_port()
        # Deep in our own folders: files that leave the store are still found.
        store = self.folder / "a" / "b" / "c" / "store"
        node = RocketProcess(store, config_file=config, options=("--metrics-port", str(pages)))
        self.running.append(Running(node, self.folder, "node"))
        self.stores.append(store)
        stack.enter_context(node)
        self.ports = {
            "broker": [node.port, node.remoting_port],
            "nameserver": [node.nameserver_port],
            "grpc": [node.grpc_port],
            "pages": [pages],
        }
        self._clients([node.port], grpc_port=node.grpc_port)
        self.probe = Probe([node.port], [pages], node.nameserver_port)
        if proxy:
            front = RocketProxyProcess(self.folder / "proxy", [node.nameserver])
            self.running.append(Running(front, self.folder, "proxy"))
            stack.enter_context(front)
            self.ports = {"proxy": [front.remoting_port], "grpc": [front.port], "broker": [node.port]}
            self.clients.append(Called([node.port], front.port, BOUND_S))
        if console:
            port = free_port()
            words = ("console", "--port", str(port), "--nameserver", node.nameserver)
            # Without the watched loop: it is another program's.
            self.helpers.append(Popen([*COMMAND, *words], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL))
            self.ports["console"] = [port]
            stack.callback(self._end_helpers)

    def start_group(self, stack: ExitStack) -> None:
        group = self.group = Group(self.folder, None, _GROUP_PROPERTIES)
        stack.callback(group.close)
        pages = [free_port() for _ in group.nodes]
        for number, node in group.nodes.items():
            node.options = (*node.options, "--metrics-port", str(pages[number - 1]))
            self.running.append(Running(node, self.folder, f"node{number}"))
            self.stores.append(node.data_dir)
        try:
            group.start()
        except (Unhealed, NodeFailed) as error:
            raise Find(f"the group does not start: {error}") from error
        nodes = list(group.nodes.values())
        self.ports = {
            "broker": [node.port for node in nodes],
            "nameserver": [node.nameserver_port for node in nodes],
            "controller": [group.controller_port(number) for number in group.nodes],
            "ha": [group.ha_port(number) for number in group.nodes],
            "pages": pages,
        }
        self._clients(self.ports["broker"], patient=True)
        self.probe = Probe(self.ports["broker"], pages, None)

    def _clients(self, ports: Sequence[int], grpc_port: int = 0, *, patient: bool = False) -> None:
        self.plain = Plain(ports, BOUND_S, patient=patient)
        kinds = (Timed, Popped, Prepared)
        self.clients = [self.plain, *(kind(ports, LONG_BOUND_S, patient=patient) for kind in kinds)]
        if grpc_port:
            self.clients.append(Called(ports, grpc_port, BOUND_S))

    def begin(self) -> None:
        self.watches = [each.watch() for each in self.running]
        for client in self.clients:
            client.begin()
        if self.probe is not None:
            self.probe.begin()

    def warm(self) -> None:
        """Wait for a turn of the quick clients, and judge no earlier step: late imports are done."""
        self._settle([client for client in self.clients if client.bound_s == BOUND_S])
        for each in self.running:
            each.warm()

    def settle(self) -> None:
        """Wait until each client has taken a turn: stored messages have had their effect."""
        self._settle(self.clients)

    def _settle(self, clients: Sequence[Client]) -> None:
        before = [client.done for client in clients]
        until = time.monotonic() + WARM_S
        while any(client.done == count for client, count in zip(clients, before, strict=True)):
            for watch in self.watches:
                watch.judge()
            self._judge_clients()
            if time.monotonic() > until:
                told = {type(client).__name__: client.done for client in clients}
                raise Find(f"clients are not served within {WARM_S:.0f} s: {told}")
            time.sleep(0.05)

    def end(self) -> None:
        self.abandon()
        if self.probe is not None:
            self.probe.join()
        for client in self.clients:
            client.join()

    def abandon(self) -> None:
        """Have clients end without their results."""
        if self.probe is not None:
            self.probe.end()
        for client in self.clients:
            client.end()

    def _end_helpers(self) -> None:
        for helper in self.helpers:
            helper.terminate()
            helper.wait()

    # -- the judges

    def judge(self, *, is_flood: bool = False) -> None:
        """Raise `Find` for any violation."""
        for watch in self.watches:
            watch.judge()
        for each in self.running:
            each.judge(FLOOD_STEP_MS if is_flood else STEP_MS)
            each.judge_memory()
        for helper in self.helpers:
            if helper.poll() is not None:
                raise Find(f"the console has ended with {helper.returncode}")
        try:
            self._judge_clients()
        except Find:
            # Clients notice the end of a process first.
            time.sleep(END_S)
            for watch in self.watches:
                watch.judge()
            raise

    def _judge_clients(self) -> None:
        for client in self.clients:
            name = type(client).__name__
            if client.faults:
                raise Find(f"a well-behaved client, {name}: {'; '.join(client.faults[:3])}")
            if client.patient and time.monotonic() - client.done_s > RECOVERY_S + client.bound_s:
                raise Find(f"a well-behaved client, {name}, has not been served for {RECOVERY_S:.0f} s")
        if self.probe is not None and self.probe.faults:
            faults, self.probe.faults = self.probe.faults, []
            raise Find(f"the probe: {'; '.join(faults[:3])}")

    def judge_files(self, sent: int) -> None:
        """Raise `Find` if a store is too large for the bytes sent, or if there is a file outside of it."""
        places = [*self.stores, *(each.process.data_dir for each in self.running)]
        for found in files_outside(self.folder, places):
            # A change of the configuration keeps the old file.
            if found.suffix != ".steps" and not found.name.startswith("broker.conf"):
                raise Find(f"{found} is outside the store")
        if _ELSEWHERE.exists():
            shutil.rmtree(_ELSEWHERE)
            raise Find(f"{_ELSEWHERE} was made")
        for store in self.stores:
            size = disk_bytes(store)
            if size > STORE_BYTES_MAX + STORE_FACTOR * sent:
                raise Find(f"{store.name} takes {size >> 20} MiB of disk, and {sent >> 20} MiB were sent")

    # -- ends and new beginnings

    def restart(self, how: signal.Signals) -> None:
        """End a process and start it again; clients must then find all acknowledged messages, and be served."""
        self.end()
        self.judge()
        if self.group is not None:
            self._fail_over(how)
        else:
            for each in self.running:
                _start_again(each.process, how)
        self._check_stored()
        self.begin()
        self.warm()

    def _fail_over(self, how: signal.Signals) -> None:
        """End the master: another must take messages before it is back."""
        assert self.group is not None
        assert self.plain is not None
        try:
            node = self.group.nodes[self.group.master()]
            code = node.stop(how)
            if how == signal.SIGTERM and code:
                raise Find(f"the master stopped with {code}:\n{node.output[-4_000:]}")
            before = self.plain.done
            self.plain.begin()
            until = time.monotonic() + RECOVERY_S
            while self.plain.done == before:
                if time.monotonic() > until:
                    raise Find(f"no broker takes messages {RECOVERY_S:.0f} s after the master has ended")
                time.sleep(0.1)
            self.plain.end()
            self.plain.join()
            node.start()
            self.group.wait_healed()
        except (Unhealed, NodeFailed) as failure:
            raise Find(f"the group does not recover: {failure}") from failure

    def _check_stored(self) -> None:
        assert self.plain is not None
        port = self.plain.ports[0]
        if self.group is not None:
            port = self.group.nodes[self.group.master()].port
        try:
            self.plain.check(port)
        except (Suffered, OSError, EOFError) as error:
            raise Find(f"after a restart: {error}") from error


def _start_again(process: NodeProcess, how: signal.Signals) -> None:
    try:
        code = process.stop(how)
        if how == signal.SIGTERM and code:
            raise Find(f"the process at port {process.port} stopped with {code}:\n{process.output[-4_000:]}")
        process.start()
    except NodeFailed as failure:
        raise Find(f"the process at port {process.port} does not start again: {failure}") from failure


def files_outside(folder: Path, places: Sequence[Path]) -> Iterator[Path]:
    """Yield the files and empty folders below a folder that are in none of these places."""
    for found in folder.rglob("*"):
        inside = any(place == found or place in found.parents for place in places)
        if not inside and (found.is_file() or not any(found in place.parents for place in places)):
            yield found


def disk_bytes(folder: Path) -> int:
    """The size of a folder's files on the disk."""
    total = 0
    for found in folder.rglob("*"):
        try:
            total += found.lstat().st_blocks * _BLOCK
        except FileNotFoundError:
            continue
    return total


class Signature(NamedTuple):
    """A text shared by finds of one cause."""

    text: str

    @classmethod
    def of(cls, text: str) -> Signature:
        """Take the exception and the innermost places of a traceback, or else the words without numbers."""
        raised = re.findall(r"^(\w+(?:\.\w+)*(?:Error|Exception|Inconsistent)\b)", text, re.MULTILINE)
        places = re.findall(r'File "[^"]*?((?:broker|formats)/[^"]+)", line (\d+)', text)
        if raised and places:
            return cls(f"{raised[0]} {places[-1][0]}:{places[-1][1]}")
        return cls(re.sub(r"[0-9]+|'[^']*'|/tmp/\S*", "#", text.split("\n")[0])[:100])


@contextmanager
def ground(shape: str, folder: Path, *, console: bool = False) -> Iterator[Ground]:
    """Start processes and clients for one round. Raises `Find` if they do not start."""
    with ExitStack() as stack:
        here = Ground(folder, shape)
        if shape == "group":
            here.start_group(stack)
        else:
            here.start_node(stack, proxy=shape == "proxy", console=console)
        try:
            here.begin()
            here.settle()
            here.warm()
            yield here
        except BaseException:
            here.abandon()
            raise
        here.end()
