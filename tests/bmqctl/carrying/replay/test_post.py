"""Posting, against a broker that refuses, is silent, or goes away; time runs as the tests say."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from bmqctl.carrying.replay.account import Account, count_steps, make_account
from bmqctl.carrying.replay.messages import StoredMessage
from bmqctl.carrying.replay.outgoing import GUID_PROPERTY, TIME_PROPERTY, marked
from bmqctl.carrying.replay.plan import Selection, make_plan
from bmqctl.carrying.replay.post import ReplayPostOptions, post
from bmqctl.carrying.replay.progress import Head, Progress, ReplayStep, replay_guid
from bmqctl.carrying.replay.run import ReplayFault, Run
from bmqctl.client.posting import PostingOptions
from bmqctl.client.session import SessionOptions
from formats.bmq.codes import PROPERTIES_MAX
from formats.bmq.wire.ack import AckStatus
from formats.bmq.wire.properties import Property, PropertyType
from tests.bmqctl.carrying.replay.stores import PRIORITY, build, guid, message
from tests.bmqctl.client.fakes import FakeBroker
from tests.bmqctl.client.serving import Server, serving
from tests.golden.archives import only
from tests.waiting import WAIT_S, eventually_in_trio

pytestmark = pytest.mark.trio
COUNT = 40


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    messages = (message(number, PRIORITY) for number in range(COUNT))
    return build(tmp_path_factory.mktemp("replay") / "store", [{"type": "QUEUE_OP", "queue_uri": PRIORITY}, *messages])


@pytest.fixture
async def run(store: Path) -> AsyncIterator[Run]:
    with ExitStack() as stack:
        plan = make_plan([only(store, ".bmq_journal")], Selection(), stack)
        progress = Progress.in_memory(Head.new(plan.digest(), len(plan.entries), plan.ends, {}))
        yield Run(plan, progress, [*plan.queues])


def options(server: Server, speed: float | None = None, **posting: Any) -> ReplayPostOptions:
    return ReplayPostOptions("127.0.0.1", server.port, SessionOptions(resume=True), speed, PostingOptions(**posting))


def closed(run: Run) -> Account:
    return make_account(run, np.zeros_like(count_steps(run.plan, run.progress.steps)))


class Refusing(FakeBroker):
    """Acks with what `verdict` says of the number of a message, counted as they come."""

    verdict: Callable[[int], AckStatus] = staticmethod(lambda number: AckStatus.SUCCESS)
    count = 0

    def ack(self, queue_id: int, guids: list[bytes]) -> bytes:
        out = b""
        for each in guids:
            self.ack_status = self.verdict(self.count)
            self.count += 1
            out += super().ack(queue_id, [each])
        return out


async def test_all_go_out_in_order_under_guids_of_their_own(run: Run) -> None:
    async with serving() as server:
        await post(run, options(server, window=7))
    seed = run.progress.head.seed
    assert [each for each, _ in server.broker.posted] == [replay_guid(seed, number) for number in range(COUNT)]
    assert closed(run).total == (COUNT, 0, COUNT, 0, 0, 0, 0, 0)
    assert (run.progress.steps == ReplayStep.POSTED).all()
    assert run.ended_by is None
    # Again, there is nothing to do: no broker is asked.
    again = Run(run.plan, run.progress, run.targets)
    await post(again, ReplayPostOptions("127.0.0.1", 1, SessionOptions()))
    assert again.acked == 0


async def test_messages_refused_for_want_of_room_are_posted_again_in_order(run: Run, autojump_clock: None) -> None:
    broker = Refusing()
    broker.verdict = lambda number: AckStatus.LIMIT_MESSAGES if 10 <= number < 60 else AckStatus.SUCCESS
    async with serving(broker) as server:
        await post(run, options(server, window=10))
    assert closed(run).total.is_complete
    assert run.refused == {}
    seed = run.progress.head.seed
    numbers = {replay_guid(seed, number): number for number in range(COUNT)}
    taken = [numbers[each] for each, _ in broker.posted[:10] + broker.posted[60:]]
    assert sorted(taken) == list(range(COUNT))
    # None of these was taken, so that each time it begins with the first of them.
    refused = [numbers[each] for each, _ in broker.posted[10:60]]
    assert refused[0] == 10
    assert all(one in (before + 1, 10) for before, one in pairwise(refused))


async def test_other_refusals_are_final(run: Run) -> None:
    broker = Refusing()
    broker.verdict = lambda number: AckStatus.STORAGE_FAILURE if number in (3, 5) else AckStatus.SUCCESS
    async with serving(broker) as server:
        await post(run, options(server))
    account = closed(run)
    assert account.total == (COUNT, 0, COUNT - 2, 2, 0, 0, 0, 0)
    assert account.refused == {"STORAGE_FAILURE": 2}
    # Another run tries them once more, under the same GUIDs.
    again = Run(run.plan, run.progress, run.targets)
    async with serving() as server:
        await post(again, options(server))
    seed = run.progress.head.seed
    assert [each for each, _ in server.broker.posted] == [replay_guid(seed, 3), replay_guid(seed, 5)]


@pytest.mark.parametrize(
    ("broker", "reason", "step"),
    [
        (FakeBroker(mute_puts=True), "the broker does not answer, for 0.2 s", ReplayStep.SENT),
        (FakeBroker(ack_status=1), "the broker refuses (LIMIT_MESSAGES), for 0.2 s", ReplayStep.REFUSED),
    ],
)
async def test_patience_ends(run: Run, broker: FakeBroker, reason: str, step: ReplayStep) -> None:
    async with serving(broker) as server:
        with trio.fail_after(WAIT_S):
            await post(run, options(server, window=5, patience_s=0.2))
    assert run.ended_by == reason
    assert run.progress.steps.tolist() == [step] * 5 + [ReplayStep.NEW] * (COUNT - 5)


async def test_a_connection_is_replaced_and_nothing_lost(run: Run) -> None:
    broker = FakeBroker(mute_puts=True)
    async with serving(broker) as server, trio.open_nursery() as nursery:
        nursery.start_soon(post, run, options(server, window=5))
        await eventually_in_trio(lambda: len(broker.posted) >= 5, step_s=0.001)
        broker.mute_puts = False
        await server.cut()
    assert closed(run).total.is_complete
    # The first ones were heard twice, under the same GUIDs.
    assert len(broker.posted) == COUNT + 5
    assert len({each for each, _ in broker.posted}) == COUNT


async def test_a_signal_ends_it_with_what_is_under_way_answered(run: Run) -> None:
    async with serving() as server, trio.open_nursery() as nursery:
        # A message a second: the second one is not due when the signal comes.
        nursery.start_soon(post, run, options(server, speed=1.0))
        await eventually_in_trio(lambda: run.acked > 0, step_s=0.001)
        os.kill(os.getpid(), signal.SIGTERM)
    assert run.interrupted
    total = closed(run).total
    assert total.posted == run.acked < COUNT
    assert total.left == COUNT - run.acked


async def test_message_without_room_for_the_marks_is_unfit(tmp_path: Path) -> None:
    full = {f"p{number}": number for number in range(PROPERTIES_MAX)}
    lines = [{"type": "QUEUE_OP", "queue_uri": PRIORITY}, message(0, PRIORITY, properties=full), message(1, PRIORITY)]
    faults: list[ReplayFault] = []
    with ExitStack() as stack:
        plan = make_plan([only(build(tmp_path / "store", lines), ".bmq_journal")], Selection(), stack)
        progress = Progress.in_memory(Head.new(plan.digest(), len(plan.entries), plan.ends, {}))
        run = Run(plan, progress, [*plan.queues], on_fault=faults.append)
        async with serving() as server:
            await post(run, options(server))
        assert closed(run).total == (2, 0, 1, 0, 0, 1, 0, 0)
    assert [(each.number, each.reason) for each in faults] == [
        (0, f"{PROPERTIES_MAX + 2} properties: their names must differ, and be 1..{PROPERTIES_MAX}")
    ]


async def test_pace(run: Run, autojump_clock: None) -> None:
    started = trio.current_time()
    async with serving() as server:
        await post(run, options(server, speed=2.0))
    # One message a second at twice the pace: the last one of 40 is due after 39 / 2 s. Answers take real time.
    assert trio.current_time() - started >= (COUNT - 1) / 2


async def test_marks_are_added_unless_they_are_there() -> None:
    own = [Property("n", PropertyType.INT32, 1)]
    plain = StoredMessage(bytes.fromhex(guid(1)), 5, own, b"", False)
    marks = [
        Property(GUID_PROPERTY, PropertyType.STRING, guid(1)),
        Property(TIME_PROPERTY, PropertyType.INT64, 5),
    ]
    assert marked(plain) == own + marks
    assert marked(plain._replace(properties=[*own, *marks], timestamp=9)) == own + marks
