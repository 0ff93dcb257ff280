"""Runs against a node of our own, with both clients."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bmqctl.bench.coordinator import Progress, run_bench
from bmqctl.bench.plan import CannotStart, Engine, Plan
from bmqctl.systems.node_process import NodeFailed, NodeProcess
from scripts.bench.node import records_in
from tests.bmqctl.bench.plans import PLAN

CLIENTS: tuple[Engine, ...] = ("own", "official")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "store") as node:
        yield node


def plan_for(node: NodeProcess, client: Engine, domain: str = "bmq.test.persistent.priority") -> Plan:
    queue = f"bmq://{domain}/bench-{secrets.token_hex(4)}"
    return replace(PLAN, port=node.port, client=client, queue=queue, run=secrets.randbits(32))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("rate", [0.0, 1000.0])
def test_nothing_is_lost(node: NodeProcess, client: Engine, rate: float) -> None:
    outcome = run_bench(replace(plan_for(node, client), rate=rate))
    account = outcome.account
    assert outcome.faults == ()
    assert (account.posted, account.acked, account.delivered, account.confirmed) == (400, 400, 400, 400)
    assert (account.lost, account.nacked, account.duplicated, account.reordered, account.foreign) == (0, 0, 0, 0, 0)


def test_several_producers_and_consumers_share_a_queue(node: NodeProcess) -> None:
    outcome = run_bench(replace(plan_for(node, "own"), producers=2, consumers=2))
    assert outcome.clean
    assert outcome.account.delivered == 400


def test_confirmed_messages_stay_away_and_others_are_foreign_to_the_next_run(node: NodeProcess) -> None:
    plan = plan_for(node, "own")
    assert run_bench(replace(plan, consumers=0, count=50)).clean
    again = run_bench(replace(plan, run=plan.run ^ 1))
    assert again.clean
    assert again.account.foreign == 50
    assert again.account.confirmed == 400
    third = run_bench(replace(plan, run=plan.run ^ 2))
    assert third.account.foreign == 50


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_domain_is_told_in_a_line(node: NodeProcess, client: Engine) -> None:
    with pytest.raises(CannotStart, match=r"cannot open .*nowhere") as caught:
        run_bench(plan_for(node, client, domain="bmq.nowhere"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_node_that_dies_is_a_fault_of_the_run(tmp_path: Path, client: Engine) -> None:
    with NodeProcess(tmp_path / "store") as node:

        def show(progress: Progress) -> None:
            if progress.delivered > 10:
                node.close(signal.SIGKILL)

        outcome = run_bench(replace(plan_for(node, client), rate=500.0, count=100_000), show)
    assert not outcome.clean
    assert outcome.faults
    assert "connection" in outcome.faults[0].lower()
    # One record of each message at the least.
    assert records_in(tmp_path / "store") >= outcome.account.acked


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for extension in ("data", "journal", "qlist"):
        (store / f"bmq_0.20261121_000000.bmq_{extension}").write_bytes(b"garbage" * 100)
    with pytest.raises(NodeFailed, match="bmq_0"), NodeProcess(store):
        raise AssertionError("started")
