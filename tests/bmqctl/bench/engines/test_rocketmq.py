"""Sharing a topic's queues between the workers of a run, and whole runs on a RocketMQ node."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.bench.coordinator import Progress, run_bench
from bmqctl.bench.engines.rocketmq import queues_of_consumer, queues_of_producer
from bmqctl.bench.plan import CannotStart, Plan
from bmqctl.client.remoting.client import Queue
from bmqctl.systems.node_process import RocketProcess
from formats.rocketmq.remoting.codes import RequestCode
from tests.bmqctl.bench.plans import PLAN
from tests.rigs.remoting import Remote


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 30))
def test_producer_and_consumer_share_one_queue(producers: int, consumers: int, count: int) -> None:
    queues = [Queue(number // 2, f"broker-{number % 2}", "address") for number in range(max(count, consumers))]
    pulled = [queues_of_consumer(queues, consumers, index) for index in range(consumers)]
    assert sorted(queue for of_one in pulled for queue in of_one) == sorted(queues)
    sent = [queues_of_producer(queues, consumers, index) for index in range(producers)]
    for of_producer in sent:
        assert [len(set(of_producer) & set(of_consumer)) for of_consumer in pulled] == [1] * consumers
    if len(queues) >= producers * consumers:
        assert len({queue for of_one in sent for queue in of_one}) == producers * consumers


def test_without_consumers_each_producer_has_a_queue() -> None:
    queues = [Queue(number, "broker", "address") for number in range(3)]
    assert [queues_of_producer(queues, 0, index) for index in range(4)] == [[queues[n]] for n in (0, 1, 2, 0)]


def plan_of(node: RocketProcess, **changes: Any) -> Plan:
    return replace(PLAN, **{"port": node.nameserver_port, "client": "rocketmq", "queue": "load", **changes})


@pytest.fixture
def node(tmp_path: Path) -> RocketProcess:
    return RocketProcess(tmp_path / "store")


@pytest.mark.process
def test_a_run_and_what_it_refuses(node: RocketProcess) -> None:
    with node:
        outcome = run_bench(plan_of(node, producers=2, consumers=2, count=600, batch=7))
        assert outcome.faults == ()
        account = outcome.account
        assert (account.posted, account.acked, account.delivered, account.confirmed) == (600, 600, 600, 600)
        assert (account.lost, account.duplicated, account.reordered, account.foreign) == (0, 0, 0, 0)
        with Remote(node.port) as remote:
            ends = [
                json.loads(json.dumps(remote.call(RequestCode.GET_MAX_OFFSET, topic="load", queueId=queue).ext_fields))
                for queue in range(4)
            ]
            assert sum(int(end["offset"]) for end in ends) == 600
            assert all(int(end["offset"]) for end in ends)
            told = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="bmqctl-bench", topic="load", queueId=3)
            assert told.ext_fields == {"offset": ends[3]["offset"]}
        # The next run does not count what is in the topic already; without a batch, each message has a request.
        again = run_bench(plan_of(node, count=50, batch=1, rate=500.0))
        assert again.clean
        assert (again.account.delivered, again.account.foreign) == (50, 0)
        with pytest.raises(CannotStart, match="topic load has 4 queues, fewer than the 5 consumers"):
            run_bench(plan_of(node, consumers=5))
        with pytest.raises(CannotStart, match=r"SYSTEM_ERROR|INVALID_PARAMETER"):
            run_bench(plan_of(node, queue="SCHEDULE_TOPIC_XXXX-" + "x" * 200))


@pytest.mark.process
def test_a_node_that_dies_is_reported(node: RocketProcess) -> None:
    with node:
        killed = threading.Event()

        def show(progress: Progress) -> None:
            if progress.delivered > 10 and not killed.is_set():
                killed.set()
                node.stop(signal.SIGKILL)

        outcome = run_bench(plan_of(node, rate=500.0, count=100_000, batch=1), show)
    assert not outcome.clean
    # Its kernel resets the connection if requests were still unread.
    ends = ("the peer closed the connection", "broke", "reset")
    assert any(end in fault.lower() for fault in outcome.faults for end in ends), outcome.faults
    assert outcome.account.delivered > 10


@pytest.mark.process
@pytest.mark.parametrize("system", [["--rocketmq"], []])
def test_the_command_starts_a_node_of_its_own(system: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", *system, "--own-node", "--count", "100", "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["clean"]
    assert report["counts"]["delivered"] == 100
    assert ("remoting" in report["machine"]["client"]) == bool(system)
