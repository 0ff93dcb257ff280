"""A probe of a node: asks its pages and its ports, over its own connections, and reports silence."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import CLUSTER_INFO
from formats.rocketmq.remoting.codes import RequestCode
from tests.fuzz.rocketmq.clients import HOST
from tests.rigs.remoting import Remote

__all__ = ["Probe"]

PERIOD_S = 0.1
# A page or a request that is silent for this time is a fault.
SILENT_S = 5.0
# A node that starts is not asked for its routes yet.
ROUTES_EVERY = 10


class Probe:
    """Asks for `/healthz`, and sends a small request, repeatedly between `begin` and `end`.

    It also asks a nameserver whether it knows all brokers. `faults` names the silent ones; `asked` and `looked` count.
    """

    def __init__(self, brokers: Sequence[int], pages: Sequence[int], nameserver: int | None) -> None:
        self.faults: list[str] = []
        self.asked = 0
        self.looked = 0
        self._brokers = brokers
        self._pages = pages
        self._nameserver = nameserver
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        self._over.clear()
        pages = [partial(self._watch, f"/healthz at {port}", partial(_page, port)) for port in self._pages]
        brokers = [partial(self._watch, f"the broker at {port}", partial(_ask, port)) for port in self._brokers]
        targets: list[Callable[[], None]] = [*pages, *brokers]
        if self._nameserver is not None:
            targets.append(self._watch_routes)
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(2 * SILENT_S)

    def _watch(self, what: str, ask: Callable[[], None]) -> None:
        last_s = time.monotonic()
        while not self._over.wait(PERIOD_S):
            reason = _attempt(ask)
            now_s = time.monotonic()
            self.asked += 1
            if not reason:
                last_s = now_s
            elif now_s - last_s > SILENT_S and not self._over.is_set():
                self.faults.append(f"{what} has been silent for {now_s - last_s:.0f} s: {reason}")
                last_s = now_s

    def _watch_routes(self) -> None:
        assert self._nameserver is not None
        missing = 0
        while not self._over.wait(PERIOD_S * ROUTES_EVERY):
            try:
                with Remote(self._nameserver, timeout_s=SILENT_S) as remote:
                    answer = remote.call(RequestCode.GET_BROKER_CLUSTER_INFO)
                known = CLUSTER_INFO.read(answer.body).broker_addr_table
            except (OSError, EOFError, FormatError):
                continue
            self.looked += 1
            addresses = {address for broker in known.values() for address in broker.broker_addrs.values()}
            lost = [port for port in self._brokers if f"{HOST}:{port}" not in addresses]
            missing = missing + 1 if lost else 0
            if missing == 3 and not self._over.is_set():
                self.faults.append(f"the nameserver has forgotten the broker at {lost}, which is alive")


def _attempt(ask: Callable[[], None]) -> str:
    try:
        ask()
    except (OSError, EOFError, FormatError, http.client.HTTPException, ValueError) as error:
        return f"{type(error).__name__} {error}"
    return ""


def _page(port: int) -> None:
    connection = http.client.HTTPConnection(HOST, port, timeout=SILENT_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 200:
        raise ValueError(f"is answered with {status}")


def _ask(port: int) -> None:
    with Remote(port, timeout_s=SILENT_S) as remote:
        remote.call(RequestCode.GET_MAX_OFFSET, topic="TBW102", queueId=0)
