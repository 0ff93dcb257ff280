"""The fuzzer of sessions: what it makes follows from its seed, is within the protocol's frames, and finds things."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bmqctl.systems.node_process import LOG_NAME, NodeProcess
from formats.bmq.codes import EventType
from formats.bmq.control.messages import ClusterMessage, ControlMessage, ElectorMessage, OpenQueue
from formats.bmq.wire.event import build_event, iter_frames
from tests.fuzz import sessions
from tests.fuzz.judging import Find, Watch
from tests.fuzz.produced import EVENT_NAMES, names_of, print_missing
from tests.fuzz.session_events import LENGTH_MAX, Maker, events_of, shown
from tests.fuzz.session_kinds import Teller
from tests.fuzz.session_peer import Honest
from tests.waiting import WAIT_S, eventually

KINDS = (
    *(EventType.CONTROL, EventType.ELECTOR, EventType.CLUSTER_STATE, EventType.PUT, EventType.STORAGE),
    EventType.AUTHENTICATION,
)


def made(seed: int, count: int) -> list[bytes]:
    maker = Maker(Random(seed))
    events = []
    for _ in range(count):
        events.append(maker.any_event(KINDS))
        maker.show(events[-1])
    return events


def test_events_follow_from_the_seed() -> None:
    assert made(1, 50) == made(1, 50)
    assert made(1, 50) != made(2, 50)


@pytest.mark.parametrize("seed", range(20))
def test_generated_events_have_a_whole_frame(seed: int) -> None:
    for event in made(seed, 60):
        view = memoryview(event)
        (frame,) = iter_frames(view, 0, len(view), LENGTH_MAX)
        assert frame.end == len(event)
        assert events_of(event) == [event]
        assert EventType(frame.type).name in shown(event)


@pytest.mark.parametrize("cls", [ControlMessage, ClusterMessage, ElectorMessage])
def test_messages_are_changed_in_parts(cls: type[object]) -> None:
    maker = Maker(Random(0))
    for _ in range(200):
        message = maker.message(cls)
        assert isinstance(maker.changed(message), cls)
        assert maker.changed(message, rate=0.0) == message


def test_nearly_all_that_the_schema_has_is_produced() -> None:
    produced = {name for seed in range(30) for event in made(seed, 60) for name in names_of(event)}
    missing = {name for name in EVENT_NAMES - produced if "." in name}
    assert len(missing) < len(EVENT_NAMES) // 7, sorted(missing)


def test_events_never_produced_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    event = build_event(EventType.PUT, b"")
    assert set(names_of(event)) == {"PUT"}
    assert print_missing({"PUT", "ACK"}, names_of(event)) == 1
    assert capsys.readouterr().out == "never produced: ACK\ncoverage: 1 of 2 produced\n"


def test_a_client_begins_properly() -> None:
    teller = Teller("seed", 0)
    events = [teller.client_event() for _ in range(200)]
    assert events == [other.client_event() for other in [Teller("seed", 0)] for _ in range(200)]
    assert any(OpenQueue.__name__ in shown(event) for event in events)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "node") as node:
        yield node


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["client", "proxy", "admin"])
def test_sessions_are_told_and_nothing_is_found(kind: str) -> None:
    number, told, what = sessions.fuzz(kind, 7, time.monotonic() + 4 * WAIT_S, 15, ["node"])
    assert (number, what) == (15, "")
    assert told > 50


def test_an_honest_client_notices_that_its_broker_is_gone(node: NodeProcess) -> None:
    client = Honest(node.port, "bmq.test.mmap.priority", bound_s=20)
    client.start()
    eventually(lambda: client.done >= 5)
    node.kill()
    client.join(WAIT_S)
    assert client.faults
    assert "lost its broker" in client.faults[0]


def test_a_broker_that_has_ended_is_a_find(node: NodeProcess) -> None:
    watch = Watch(node, node.data_dir / LOG_NAME)
    watch.judge()
    node.close()
    with pytest.raises(Find, match="has ended"):
        watch.judge()


def test_a_fault_in_the_log_is_a_find(node: NodeProcess) -> None:
    watch = Watch(node, node.data_dir / LOG_NAME)
    watch.judge()
    with (node.data_dir / LOG_NAME).open("a") as log:
        log.write("fuzz: the session is closed because of a fault of this broker: KeyError: 7\n")
    with pytest.raises(Find, match="KeyError: 7"):
        watch.judge()
