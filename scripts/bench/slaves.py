"""The case `slaves` of scripts/benchmark-rocketmq: a slave with an empty store that follows a master with a full one.

Both are our processes on this machine, first as a configured master and slave, then with a controller, whose stream has
epochs. A client sends to the master throughout; its sends are timed before the slave starts and while it catches up.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, ControllerProcess, RocketProcess
from formats.rocketmq.remoting.bodies.replication import HA_RUNTIME, HaRuntime
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from scripts.bench.figures import MIB, Figure
from tests.rigs.remoting import Remote

__all__ = ["measure_catch_up"]

WANTED_MIB_PER_S: Final = 150.0
BEGIN_S: Final = 60.0
CATCH_UP_S: Final = 600.0
ALONE_S: Final = 5.0
POLL_S: Final = 0.02
SENDS_PER_S: Final = 200
TOPIC: Final = "sends"


class CaughtUp(NamedTuple):
    """The bytes copied by a slave that catches up, and the milliseconds of sends before and during that time."""

    size: int
    seconds: float
    alone_ms: list[float]
    beside_ms: list[float]
    master_s: float
    slave_s: float


class Sends:
    """Sends to a broker one after the other, at a rate, until closed. `taken` has the milliseconds of each."""

    def __init__(self, port: int, body: bytes) -> None:
        self.taken: list[float] = []
        self.fault = ""
        self._port, self._body = port, body
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Remote(self._port) as remote:
                due = time.monotonic()
                while not self._ended.wait(max(0.0, due - time.monotonic())):
                    begin = time.monotonic()
                    answer = remote.send_message(TOPIC, self._body)
                    if answer.code != ResponseCode.SUCCESS:
                        raise RuntimeError(f"a send is answered with {answer.code}, {answer.remark}")
                    self.taken.append((time.monotonic() - begin) * 1e3)
                    due = max(due + 1 / SENDS_PER_S, begin)
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Stop sending. Raises SystemExit if a send has failed."""
        self._ended.set()
        self._thread.join()
        if self.fault:
            raise SystemExit(f"benchmark-rocketmq: {self.fault}")


@contextmanager
def _pair(folder: Path, *, is_controlled: bool) -> Iterator[tuple[RocketProcess, RocketProcess]]:
    """Start a master over the store in `folder`; its slave is not started."""
    with ExitStack() as stack:
        if is_controlled:
            controller = stack.enter_context(ControllerProcess(folder / "controller"))
            text = f"enableControllerMode=true\ncontrollerAddr={HOST}:{controller.port}\n"
            processes = [_broker(folder, name, text, [], is_serving=True) for name in ("master", "slave")]
        else:
            master = _broker(folder, "master", "", ["--role", "async-master"], is_serving=True)
            options = ["--role", "slave", "--broker-id", "1", "--nameserver", master.nameserver]
            processes = [master, _broker(folder, "slave", "", options, is_serving=False)]
        stack.callback(processes[1].close)
        yield stack.enter_context(processes[0]), processes[1]


def _broker(folder: Path, name: str, text: str, options: list[str], *, is_serving: bool) -> RocketProcess:
    config = folder / f"{name}.conf"
    config.write_text(text + (f"haListenPort={free_port()}\n" if is_serving else ""))
    return RocketProcess(folder / name, config_file=config, options=options, timeout_s=600)


def _status(node: RocketProcess) -> HaRuntime:
    with Remote(node.port) as remote:
        return HA_RUNTIME.read(remote.call(RequestCode.GET_BROKER_HA_STATUS).body)


def _wait(what: str, limit_s: float, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit(f"benchmark-rocketmq: {what}: not within {limit_s:.0f} s")
        time.sleep(POLL_S)


def _catch_up(folder: Path, body: bytes, *, is_controlled: bool) -> CaughtUp:
    def acknowledged() -> int:
        return max((each.slave_ack_offset for each in _status(master).ha_connection_info), default=-1)

    with _pair(folder, is_controlled=is_controlled) as (master, slave):
        _wait("there is a master", BEGIN_S, lambda: _status(master).master)
        sends = Sends(master.port, body)
        try:
            time.sleep(ALONE_S)
            slave.start()
            _wait("the slave connects", BEGIN_S, lambda: acknowledged() >= 0 or bool(sends.fault))
            first, begin, sent = acknowledged(), time.monotonic(), len(sends.taken)
            spent = master.cpu_s(), slave.cpu_s()
            end = _status(master).master_commit_log_max_offset
            _wait("the slave catches up", CATCH_UP_S, lambda: acknowledged() >= end or bool(sends.fault))
            seconds = time.monotonic() - begin
            alone, beside = sends.taken[:sent], sends.taken[sent:]
            spent = master.cpu_s() - spent[0], slave.cpu_s() - spent[1]
        finally:
            sends.close()
        return CaughtUp(end - first, seconds, alone, beside, *spent)


def _p99(samples: list[float]) -> float:
    return sorted(samples)[len(samples) * 99 // 100] if samples else 0.0


def measure_catch_up(fill: Callable[[Path, int, int], None], size: int, body_sizes: list[int]) -> list[Figure]:
    """Measure catching up with about `size` bytes of messages, for each size of bodies; `fill` makes the stores."""
    figures: list[Figure] = []
    for body_bytes in body_sizes:
        for is_controlled in (False, True):
            with tempfile.TemporaryDirectory(prefix="bmqctl-rocketmq-") as directory:
                folder = Path(directory)
                # A record has 150 bytes besides its body.
                fill(folder / "master", size // (body_bytes + 150), body_bytes)
                found = _catch_up(folder, bytes(body_bytes), is_controlled=is_controlled)
            rate, name = found.size / MIB / found.seconds, "epochs" if is_controlled else "plain"
            wanted = f">= {WANTED_MIB_PER_S:.0f}" if body_bytes >= 1024 else ""
            reached = rate >= WANTED_MIB_PER_S if wanted else None
            per = 1e3 / (found.size / MIB)
            figures += [
                Figure(
                    f"{name}: bodies of {body_bytes} bytes, {found.size / MIB:.0f} MiB", rate, "MiB/s", wanted, reached
                ),
                Figure("  processor time of the slave", found.slave_s * per, "ms/MiB"),
                Figure("  of the master", found.master_s * per, "ms/MiB"),
                Figure("  p99 of sends to the master, before", _p99(found.alone_ms), "ms"),
                Figure("  meanwhile", _p99(found.beside_ms), "ms"),
            ]
    return figures
