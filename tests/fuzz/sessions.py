"""Sessions that do not behave, against real brokers: `python -m tests.fuzz.sessions [--seconds N] [--kind K]...`.

Each round starts brokers in their own processes: a node, a node behind a proxy, or a cluster of three. Sessions of one
kind follow each other: they begin properly, and then send what no peer should (see `session_kinds`). Meanwhile
well-behaved clients post and read. A find is a process that ends, a fault of the broker in its log, and a client that
suffers a loss or a wait. A client beside members that lie may lose its broker, as they may lead the cluster or be
primary; but when they are gone, it must be served again.

Exit codes: 0 nothing was found, 1 something was, and what led to it is printed; 2 usage.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bmqctl.systems.node_process import LOG_NAME, NodeFailed, NodeProcess, ProxyProcess
from tests.fuzz.judging import LOG_SHOWN, Find, Watch
from tests.fuzz.produced import EVENT_NAMES, names_of, print_missing
from tests.fuzz.session_events import shown
from tests.fuzz.session_kinds import KINDS, Teller
from tests.fuzz.session_peer import Honest, Lost
from tests.rigs.cluster_processes import ClusterProcesses

__all__ = ["Ground", "fuzz"]

ROUND_S = 60.0
# The longest wait of a client on a busy machine.
BOUND_S = 20.0
# The time in which a cluster agrees again after members have lied.
RECOVERY_S = 60.0
QUIET_EVERY = 12
EVENTS_SHOWN = 40
HEARD_MAX = 300
LIAR = 1
SHAPES = ("node", "proxy", "cluster")


class Ground(NamedTuple):
    """The brokers of a round, the addresses for sessions, and `honest` clients beside them."""

    watches: Sequence[Watch]
    ports: Sequence[int]
    honest: Sequence[Honest]
    heard: deque[bytes]  # events of brokers to a member that lies

    def judge(self) -> None:
        """Raise `Find` for any violation."""
        for watch in self.watches:
            watch.judge()
        for client in self.honest:
            if client.faults:
                raise Find(f"a well-behaved client of port {client.port}, {client.uri}: {'; '.join(client.faults[:5])}")


@contextmanager
def ground(kind: str, shape: str, folder: Path) -> Iterator[Ground]:
    with ExitStack() as stack:
        brokers: list[NodeProcess] = []
        patient = kind == "member"
        if patient:
            # The liar has no process.
            cluster = ClusterProcesses(folder)
            stack.callback(cluster.close)
            brokers += [cluster.start(number) for number in cluster.nodes if number != LIAR]
            cluster.wait_available()
        elif shape == "cluster":
            cluster = stack.enter_context(ClusterProcesses(folder))
            brokers += cluster.nodes.values()
            cluster.wait_available()
        else:
            brokers.append(stack.enter_context(NodeProcess(folder / "node")))
            if shape == "proxy":
                proxy = stack.enter_context(ProxyProcess(folder / "proxy", [brokers[0].address]))
                proxy.wait_available()
                brokers.append(proxy)
        entries = brokers[1:] if shape == "proxy" and not patient else brokers
        honest = [
            Honest(broker.port, domain, bound_s=BOUND_S, app=app, patient=patient)
            for broker, (domain, app) in zip(
                (entries[0], entries[-1]),
                (("bmq.test.mmap.priority", ""), ("bmq.test.mmap.fanout", "foo")),
                strict=True,
            )
        ]
        try:
            for client in honest:
                client.start()
            yield Ground(
                [Watch(broker, broker.data_dir / LOG_NAME) for broker in brokers],
                [broker.port for broker in entries],
                honest,
                deque(maxlen=HEARD_MAX),
            )
        finally:
            for client in honest:
                client.stop()


def fuzz(
    kind: str,
    seed: int,
    until: float,
    sessions: int,
    shapes: Sequence[str] = SHAPES,
    produced: set[str] | None = None,
) -> tuple[int, int, str]:
    """Run sessions of one kind until a time or a number; return their number, their events, and the finds.

    The names in the events sent are added to `produced`.
    """
    told = number = 0
    for shape in itertools.cycle(shapes):
        with tempfile.TemporaryDirectory(prefix="bmq-fuzz-") as folder:
            teller = None
            try:
                with ground(kind, shape, Path(folder)) as here:
                    end = min(until, time.monotonic() + ROUND_S)
                    while time.monotonic() < end and number < sessions:
                        teller = Teller(f"{kind}-{seed}-{number}", here.ports[number % len(here.ports)])
                        number += 1
                        _tell(kind, teller, here)
                        told += len(teller.told)
                        if produced is not None:
                            produced.update(*map(names_of, teller.told))
                        here.judge()
                        if kind == "member" and number % QUIET_EVERY == 0:
                            _recover(here)
                    _end(kind, here)
            except Find as find:
                where = "cluster" if kind == "member" else shape
                events = [f"  {shown(event)}" for event in teller.told[-EVENTS_SHOWN:]] if teller is not None else []
                what = f"{kind} at a {where}, seed {seed}, session {number - 1}: {find}"
                return number, told, "\n".join([what, *events])
        if time.monotonic() >= until or number >= sessions:
            break
    return number, told, ""


def _end(kind: str, here: Ground) -> None:
    """End a session: clients get all that they wait for, and a broker restarts on the files left."""
    if kind == "member":
        _recover(here)
    for client in here.honest:
        client.stop()
    here.judge()
    broker = here.watches[0].broker
    try:
        code = broker.stop()
        if code:
            raise Find(f"the broker at port {broker.port} stopped with {code}:\n{broker.output[-LOG_SHOWN:]}")
        broker.start()
    except NodeFailed as failure:
        raise Find(f"the broker at port {broker.port} does not start again: {failure}") from failure


def _tell(kind: str, teller: Teller, here: Ground) -> None:
    try:
        if kind == "member":
            ports = dict(enumerate(here.ports, LIAR + 1))
            teller.member(ports, "local", LIAR, here.heard)
        else:
            getattr(teller, kind)()
    except Lost:
        pass  # as a broker should


def _recover(here: Ground) -> None:
    """Wait until all clients are served again without liars. Raises `Find` if they are not."""
    before = [client.done for client in here.honest]
    deadline = time.monotonic() + RECOVERY_S
    while not all(client.done > count for client, count in zip(here.honest, before, strict=True)):
        here.judge()
        if time.monotonic() > deadline:
            raise Find(f"clients are not served {RECOVERY_S} s after the last lie: {before}")
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz-sessions", description="Talk to brokers as no peer should.")
    parser.add_argument("--seconds", type=int, default=240, help="for all kinds together (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first session (default: %(default)s)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="one of them; all by default")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="brokers to talk to; all in turn by default")
    parser.add_argument("--sessions", type=int, default=1 << 31, help="of each kind at most")
    parser.add_argument("--coverage", action="store_true", help="print which events and elements were never produced")
    options = parser.parse_args()
    kinds = options.kind or KINDS
    produced: set[str] | None = set() if options.coverage else None
    found = 0
    for kind in kinds:
        until = time.monotonic() + options.seconds / len(kinds)
        number, told, what = fuzz(kind, options.seed, until, options.sessions, options.shape or SHAPES, produced)
        print(f"{kind:8}{number:>7,} sessions, {told:>10,} events{'' if what else ', nothing found'}", flush=True)
        if what:
            found = 1
            print(what, flush=True)
    if produced is not None:
        print_missing(EVENT_NAMES, produced)
    return found


if __name__ == "__main__":
    sys.exit(main())
