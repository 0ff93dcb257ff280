"""The dashboards and alert rules of `packaging`, judged by a real Prometheus.

    .venv/bin/python -m scripts.suites.prometheus FOLDER

FOLDER has `prometheus` and `promtool`; the brokers are ours. `promtool` checks the rules and tests them by made-up
series. Prometheus scrapes a node and a broker and evaluates the rules; then every expression of a panel, with every
choice, has to have a result. The exit code is 1 if anything fails.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import trio
import yaml

import bmqctl.client as blazingmq
import bmqctl.client.rocketmq as rocketmq
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST, NodeProcess, RocketProcess
from scripts.releases.dashboards import DASHBOARDS, FOLDER

RULES: Final = FOLDER.parent / "prometheus" / "alerts.yml"
RULE_TESTS: Final = Path(__file__).parent / "prometheus_rules.yml"
PATIENCE_S: Final = 60.0
STEP_S: Final = 0.25
# The window of `rate`, several scrapes long.
RATE_INTERVAL: Final = "10s"


QUEUES: Final = ("bmq://bmq.test.mem.priority/watched", "bmq://bmq.test.mem.fanout/watched")
TOPIC, GROUP = "watched", "watchers"
_POSTS: Final = 20


class Watched(NamedTuple):
    """The two brokers, and the ports of their pages."""

    node: NodeProcess
    node_port: int
    broker: RocketProcess
    broker_port: int


@contextmanager
def watched_brokers(folder: Path) -> Iterator[Watched]:
    """Start brokers of both systems, and use them a little, so that they have every metric of the dashboards."""
    ports = free_port(), free_port()
    options = [("--metrics-port", str(port)) for port in ports]
    with ExitStack() as stack:
        node = stack.enter_context(NodeProcess(folder / "node", options=options[0]))
        broker = stack.enter_context(RocketProcess(folder / "broker", grpc_port=0, options=options[1]))
        yield Watched(node, ports[0], broker, ports[1])


def page_of(port: int, path: str = "/metrics") -> str:
    """Read a page. Raises `OSError`, and `ValueError` for an answer other than 200."""
    connection = HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"{path} is answered with {answer.status}: {text}")
    return text


async def use(watched: Watched) -> None:
    """Post messages to both, and consume some; one goes to the dead letters."""
    async with blazingmq.connect(watched.node.address) as session:
        for uri in QUEUES:
            async with await session.open(uri, write=True) as queue:
                await queue.post_all([b"x" * 100] * _POSTS)
        async with await session.open(QUEUES[0], read=True) as queue:
            for _ in range(_POSTS // 2):
                async with await anext(queue):
                    pass
    async with rocketmq.connect(f"rocketmq://{watched.broker.nameserver}") as session:
        producer = await session.producer(TOPIC)
        await producer.post_all([b"x" * 100] * _POSTS)
        async with await session.consume(TOPIC, GROUP, from_start=True) as consumer:
            (await anext(consumer)).reject(-1)
            for _ in range(_POSTS // 2):
                async with await anext(consumer):
                    pass


def configuration(watched: Watched) -> dict[str, Any]:
    """Make the configuration of Prometheus, with the jobs that the rules name."""
    ports = {"bmq": watched.node_port, "rocketmq": watched.broker_port}
    jobs = [{"job_name": job, "static_configs": [{"targets": [f"{HOST}:{port}"]}]} for job, port in ports.items()]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return {"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs}


@contextmanager
def prometheus(program: Path, config: Path, folder: Path) -> Iterator[int]:
    """Run Prometheus; yield its port."""
    port = free_port()
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder}", f"--web.listen-address={HOST}:{port}"]
    with (folder.parent / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *options], stdout=log, stderr=log)
        try:
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def ask(port: int, path: str, **fields: str) -> Any:
    """Ask Prometheus; return the data of its answer. Raises `OSError`, and `ValueError` for a refusal."""
    connection = HTTPConnection(HOST, port, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"/api/v1/{path}?{urlencode(fields)}")
        answer = json.loads(connection.getresponse().read())
    except HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
    if answer["status"] != "success":
        raise ValueError(answer.get("error", "no reason given"))
    return answer["data"]


def eventually(look: Callable[[], bool]) -> bool:
    """Poll until a condition holds; return False after PATIENCE_S."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            if look():
                return True
        except (OSError, ValueError):
            pass
        time.sleep(STEP_S)
    return False


def chosen(expression: str) -> str:
    """Substitute Grafana's values for a choice of everything."""
    for dashboard in DASHBOARDS:
        for variable in dashboard.variables:
            expression = expression.replace(f"${variable.name}", ".*")
    return expression.replace("$__rate_interval", RATE_INTERVAL)


def failures_of(port: int) -> Iterator[str]:
    """Judge the scrapes, the rules and the expressions of the panels; yield the failures."""

    def targets_are_up() -> bool:
        targets = ask(port, "targets")["activeTargets"]
        return len(targets) == 2 and all(each["health"] == "up" for each in targets)

    if not eventually(targets_are_up):
        yield "not every target is up"
        return

    def rules_are_evaluated() -> bool:
        groups = ask(port, "rules")["groups"]
        return bool(groups) and all(rule["health"] == "ok" for group in groups for rule in group["rules"])

    if not eventually(rules_are_evaluated):
        yield "not every rule can be evaluated"
    for dashboard in DASHBOARDS:
        panels = [panel for row in dashboard.rows for panel in row.panels]
        asked = [(panel.title, chosen(query.expr)) for panel in panels for query in panel.queries]
        empty = [each for each in asked if not eventually(partial(is_shown, port, each[1]))]
        print(f"{dashboard.title}: {len(asked) - len(empty)} of {len(asked)} expressions show something")
        yield from (f"{dashboard.title}, {title}: nothing is shown by {text}" for title, text in empty)


def is_shown(port: int, expression: str) -> bool:
    return bool(ask(port, "query", query=expression)["result"])


async def watch(watched: Watched, port: int) -> list[str]:
    """Use the brokers, and judge Prometheus while clients of both are connected."""
    await use(watched)
    async with rocketmq.connect(f"rocketmq://{watched.broker.nameserver}") as session:
        await session.producer(TOPIC)
        await session.consume(TOPIC, GROUP)
        return await trio.to_thread.run_sync(lambda: list(failures_of(port)))


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {Path(sys.argv[0]).stem} FOLDER (with prometheus and promtool)")
    programs = Path(sys.argv[1])
    commands = {"check": RULES, "test": RULE_TESTS}
    codes = {
        what: subprocess.run([programs / "promtool", what, "rules", file]).returncode for what, file in commands.items()
    }
    failures = [f"promtool {what} rules" for what, code in codes.items() if code]
    with tempfile.TemporaryDirectory(prefix="bmqctl-prometheus-") as name, watched_brokers(Path(name)) as watched:
        config = Path(name) / "prometheus.yml"
        config.write_text(yaml.safe_dump(configuration(watched)))
        with prometheus(programs / "prometheus", config, Path(name) / "series") as port:
            failures += trio.run(watch, watched, port)
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"prometheus: {len(failures)} failures")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
