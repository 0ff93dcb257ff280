"""Whole runs, in processes of their own, against the bare relay: nothing here depends on a broker."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess

import pytest

from bmqctl.bench.coordinator import Progress, run_bench
from bmqctl.bench.plan import CannotStart
from bmqctl.bench.relay import serve
from bmqctl.bench.report import as_json
from bmqctl.common.ports import free_port
from tests.bmqctl.bench.plans import PLAN


@dataclass
class Relay:
    port: int
    process: BaseProcess


@pytest.fixture
def relay() -> Iterator[Relay]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(PLAN.size, theirs), daemon=True)
    process.start()
    yield Relay(ours.recv(), process)
    process.kill()
    process.join()
    process.close()
    ours.close()
    theirs.close()


def test_every_message_is_accounted_for(relay: Relay) -> None:
    seen: list[Progress] = []
    outcome = run_bench(replace(PLAN, port=relay.port), seen.append)
    report = as_json(outcome)
    assert report["clean"]
    assert report["counts"] == {
        "posted": 400,
        "acked": 400,
        "nacked": 0,
        "unanswered": 0,
        "delivered": 400,
        "confirmed": 400,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "foreign": 0,
    }
    assert report["latency_us"]["end_to_end"]["count"] == 400
    assert report["latency_us"]["ack"]["max"] > 0
    assert all(rate > 0 for rate in report["throughput_per_s"].values())
    assert seen[-1].delivered == 400


def test_an_open_loop_keeps_its_rate(relay: Relay) -> None:
    outcome = run_bench(replace(PLAN, port=relay.port, rate=500.0, count=None, duration_s=0.5, batch=1))
    assert outcome.clean
    # Decided by the schedule, not by how fast the machine is.
    assert outcome.account.posted == 250


def test_a_broker_that_dies_is_reported(relay: Relay) -> None:
    killed = threading.Event()

    def show(progress: Progress) -> None:
        if progress.delivered > 10 and not killed.is_set():
            killed.set()
            relay.process.kill()

    outcome = run_bench(replace(PLAN, port=relay.port, rate=200.0, count=10_000), show)
    assert not outcome.clean
    assert "the relay's connection ended" in outcome.faults
    assert outcome.account.delivered > 10


def test_ctrl_c_ends_a_run_with_the_account_of_what_was_done(relay: Relay) -> None:
    pressed = threading.Event()

    def show(progress: Progress) -> None:
        if progress.delivered > 10 and not pressed.is_set():
            pressed.set()
            raise KeyboardInterrupt

    outcome = run_bench(replace(PLAN, port=relay.port, rate=2000.0, count=100_000), show)
    assert outcome.interrupted
    # The run waits for messages on their way.
    assert outcome.clean
    assert 10 < outcome.account.posted < 100_000
    assert outcome.account.delivered == outcome.account.posted


def test_a_second_ctrl_c_ends_it_at_once(relay: Relay) -> None:
    def show(progress: Progress) -> None:
        if progress.delivered > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(replace(PLAN, port=relay.port, rate=2000.0, count=100_000), show)


def test_refused_connection_is_reported() -> None:
    with pytest.raises(OSError, match="refused"):
        run_bench(replace(PLAN, port=free_port()))


def test_a_worker_that_cannot_begin_ends_the_run(relay: Relay) -> None:
    # The relay is no broker: our client's negotiation gets no answer there.
    with pytest.raises(CannotStart, match=r"identity|connection"):
        run_bench(replace(PLAN, port=relay.port, client="own", connect_timeout_s=0.5))
