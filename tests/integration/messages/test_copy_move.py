"""`bmqctl copy` and `bmqctl move` between real nodes of both systems, some of which are killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from bmqctl.client.admin import AdminLost
from bmqctl.client.rocketmq import RequestRefused, connect
from bmqctl.systems.blazingmq.status.asking import Asking, Refused
from bmqctl.systems.blazingmq.status.contents import waiting_of
from bmqctl.testing import NodeProcess, RocketProcess
from formats.bmq.uri import parse_uri
from tests.rigs.config_files import domain, write_config
from tests.rigs.messages_at_hand import run, started
from tests.rigs.stored_bodies import (
    BODIES,
    PLAIN,
    assert_read_only,
    make_read_only,
    store_bodies,
    stored_bodies,
)
from tests.waiting import WAIT_S, eventually

PRIORITY = "bmq://bmq.test.persistent.priority"
FANOUT = "bmq://bmq.test.persistent.fanout"
IDLE = ("--until-idle", "0.5")
# So many that a move of them can be met on its way.
COUNT = 12_000
TYPED = {"t": "ä", "big": {"type": "INT32", "value": 7}, "raw": {"type": "BINARY", "base64": "AAE="}}


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as running:
        yield running


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def fill(count: int, *at: object, **more: object) -> list[dict[str, Any]]:
    """Post messages, and return them."""
    rows = [{"payload": str(n), "properties": {"n": n, **TYPED}, **more} for n in range(count)]
    if str(at[0]).startswith("rocketmq"):
        rows = [{**row, "properties": {"n": str(n), "t": "ä"}} for n, row in enumerate(rows)]
    run("post", *at, "--jsonl", stdin="\n".join(map(json.dumps, rows)).encode())
    return rows


def drain(count: int, *at: object) -> list[dict[str, Any]]:
    """Consume messages, without the fields that say where they were."""
    rows = rows_of(run("tail", *at, "--json", "--count", count)[0])
    assert len({row.pop("guid") for row in rows}) == count
    return rows


def stored(topic: str) -> list[dict[str, Any]]:
    """The messages of a topic, by queue and offset."""
    return rows_of(run("browse", topic, "--json", "--count", 100_000)[0])


def test_a_queue_is_copied_with_all_that_its_messages_have_and_keeps_them(node: NodeProcess) -> None:
    source, copies = f"{PRIORITY}/copy-source", f"{PRIORITY}/copy-copies"
    at = ("-b", node.uri)
    rows = fill(300, source, *at)
    output, _ = run("copy", source, copies, *at, *IDLE, "--dry-run", "--json")
    told = json.loads(output)
    assert (told["messages"], told["dry_run"], told["expression_applied"]) == (300, True, True)
    assert told["bytes"] > 300 * 40
    # More messages than the consumer may have unconfirmed at first.
    output, errors = run("copy", source, copies, *at, *IDLE, "--window", "20", "--json")
    done = json.loads(output)
    assert (done["messages"], done["bytes"], done["repeated"], errors) == (300, told["bytes"], 0, "")
    # A second copy is another one; a part is the oldest messages.
    output, _ = run("copy", source, copies, *at, *IDLE, "--count", "5")
    assert output.startswith("5 messages copied, ")
    output, _ = run("copy", source, copies, *at, *IDLE, "-e", "n >= 298")
    assert output.startswith("2 messages copied, ")
    assert drain(307, copies, *at) == [*rows, *rows[:5], *rows[298:]]
    assert drain(300, source, *at) == rows


def test_a_queue_is_moved_to_another_broker(node: NodeProcess, tmp_path: Path) -> None:
    source, moved = f"{FANOUT}/move?id=foo", f"{PRIORITY}/moved"
    with NodeProcess(tmp_path / "store") as other:
        rows = fill(50, f"{FANOUT}/move", "-b", node.uri)
        ends = (source, moved, "-b", node.uri, "--to-broker", other.uri, *IDLE)
        _, errors = run("move", *ends, code=2)
        assert errors == (
            f"bmqctl move: Move 50 messages from {source} to {moved}? "
            "Standard input is not a terminal: give --yes, or --dry-run\n"
        )
        output, _ = run("move", *ends, "--dry-run")
        assert output.startswith("50 messages, ")
        output, _ = run("move", *ends, "--yes", "--count", "20", "--output", "jsonl")
        assert json.loads(output)["messages"] == 20
        output, _ = run("move", *ends, "--yes", "-e", "n == 30")
        assert output.startswith("1 message moved, ")
        output, _ = run("browse", source, "-b", node.uri, "--json", "--count", 100)
        assert len(rows_of(output)) == 29
        output, _ = run("browse", f"{FANOUT}/move?id=bar", "-b", node.uri, "--json", "--count", 100)
        assert len(rows_of(output)) == 50
        output, _ = run("move", *ends, "--yes")
        assert output.startswith("29 messages moved, ")
        assert drain(50, moved, "-b", other.uri) == [*rows[:20], rows[30], *rows[20:30], *rows[31:]]


def test_messages_held_by_a_copy_lose_no_attempt(tmp_path: Path) -> None:
    config = write_config(tmp_path / "etc")
    definition = domain("fragile", {"priority": {}})
    definition["definition"]["parameters"]["maxDeliveryAttempts"] = 1
    (config / "domains" / "fragile.json").write_text(json.dumps(definition))
    with NodeProcess(tmp_path / "store", config_dir=config) as node:
        fill(10, "bmq://fragile/q", "-b", node.uri)
        for _ in range(2):
            output, _ = run("copy", "bmq://fragile/q", "bmq://shop.orders/q", "-b", node.uri, *IDLE, "--count", "4")
            assert output.startswith("4 messages copied, ")
        assert len(drain(10, "bmq://fragile/q", "-b", node.uri)) == 10


def test_a_destination_without_room_ends_it_and_loses_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path / "etc")
    (config / "domains" / "roomy.json").write_text(json.dumps(domain("roomy", {"priority": {}})))
    with NodeProcess(tmp_path / "store", config_dir=config) as node:
        at = ("-b", node.uri)
        fill(30, "bmq://roomy/q", *at)
        # Its domain has room for 10.
        output, errors = run(
            "move", "bmq://roomy/q", "bmq://shop.orders/q", *at, "--yes", "--patience", "1", "--json", code=1
        )
        done = json.loads(output)
        assert "refuses messages (LIMIT_MESSAGES), for 1 s" in errors
        assert done["ended_by"].endswith("refuses messages (LIMIT_MESSAGES), for 1 s")
        output, _ = run("tail", "bmq://shop.orders/q", *at, "--raw", "--until-idle", "1")
        arrived = output.split()
        output, _ = run("tail", "bmq://roomy/q", *at, "--raw", "--until-idle", "1")
        assert {*arrived, *output.split()} == {str(n) for n in range(30)}
        assert len(output.split()) == 30 - done["messages"]


def test_topics_are_copied_queue_by_queue_with_their_ids(rocket: RocketProcess) -> None:
    source, copies = (f"rocketmq://{rocket.nameserver}/copy-{name}" for name in ("topic", "topics"))
    fill(200, f"{source}?key=n", tag="paid", keys=[["k", "1"][0]])
    run("post", source, "free", "--tag", "free")
    before = stored(source)
    assert len({row["queue"] for row in before}) > 1
    output, _ = run("copy", source, copies, "--dry-run", "--json")
    told = json.loads(output)
    assert (told["messages"], told["unfit"]) == (201, 0)
    output, _ = run("copy", source, copies)
    assert output.startswith("201 messages copied, ")

    def bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        left_out = ("topic", "born_at")
        return [{name: value for name, value in row.items() if name not in left_out} for row in rows]

    assert bare(stored(copies)) == bare(before)
    assert bare(stored(source)) == bare(before)
    output, _ = run("copy", source, f"{copies}-few?queue=1", "--tags", "free || late")
    assert output.startswith("1 message copied, ")
    (row,) = stored(f"{copies}-few")
    assert (row["payload"], row["queue"], row["tag"]) == ("free", 1, "free")
    output, _ = run("copy", source, f"{copies}-sql", "-e", "n >= 150", "--count", "30")
    assert output.startswith("30 messages copied, ")
    _, errors = run("copy", source, copies, "-e", "n >=", code=1)
    assert "SUBSCRIPTION_PARSE_FAILED" in errors
    for words in (("copy", f"{source}-none"), ("copy", f"{source}?queue=99"), ("copy", f"{source}-none", "--dry-run")):
        _, errors = run(*words[:2], copies, *words[2:], code=2)
        assert "knows no such topic" in errors or "has no queue 99" in errors


def test_a_topic_is_moved_for_a_group(rocket: RocketProcess) -> None:
    topic, moved = (f"rocketmq://{rocket.nameserver}/move-{name}" for name in ("topic", "moved"))
    fill(60, topic)
    ends = (f"{topic}?group=movers", moved)
    output, _ = run("move", *ends, "--yes", "--count", "25", *IDLE)
    assert output.startswith("25 messages moved, ")
    output, _ = run("move", *ends, "--dry-run", "--json")
    assert json.loads(output)["messages"] == 35
    output, _ = run("move", *ends, "--yes", *IDLE)
    assert output.startswith("35 messages moved, ")
    assert sorted(int(row["payload"]) for row in stored(moved)) == list(range(60))
    assert sorted(row["message_id"] for row in stored(moved)) == sorted(row["message_id"] for row in stored(topic))
    output, _ = run("move", *ends, "--yes", *IDLE)
    assert output.startswith("0 messages moved, ")


def test_from_one_system_to_the_other_and_back(node: NodeProcess, rocket: RocketProcess) -> None:
    source, back = f"{PRIORITY}/both", f"{PRIORITY}/both-back"
    topic = f"rocketmq://{rocket.nameserver}/both"
    at = ("-b", node.uri, *IDLE)
    rows = fill(40, source, "-b", node.uri)
    output, _ = run("move", source, f"{topic}?key=n", *at, "--yes")
    assert output.startswith("40 messages moved, ")
    for _ in range(2):
        output, _ = run("copy", topic, back, *at)
        assert output.startswith("40 messages copied, ")
    # Each copy is one of its own, also for a broker that leaves out repeated messages.
    found = drain(80, back, "-b", node.uri)
    for row in found:
        row["properties"] = {name: row["properties"][name] for name in rows[0]["properties"]}
    assert Counter(map(json.dumps, found)) == Counter([*map(json.dumps, sorted_rows(rows)), *map(json.dumps, rows)])


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"payload": row["payload"], "properties": row["properties"]} for row in rows]


def test_unfit_messages_are_reported_and_stay(node: NodeProcess, rocket: RocketProcess) -> None:
    source, at = f"{PRIORITY}/unfit", ("-b", node.uri, *IDLE)
    topic = f"rocketmq://{rocket.nameserver}/unfit"
    large = json.dumps({"payload": "large", "properties": {f"p{n}": "x" * 1000 for n in range(40)}}).encode()
    run("post", source, "-b", node.uri, "--jsonl", stdin=b'{"payload": "one"}\n%s\n{"payload": "two"}\n' % large)
    output, errors = run("copy", source, topic, *at, "--json", code=1)
    assert "RocketMQ takes 32767" in errors
    assert json.loads(output)["refused"] == 1
    output, _ = run("copy", source, f"{topic}-skipped", *at, "--skip-refused", code=1)
    assert output.startswith("2 messages copied, ")
    assert "1 refused, and still at bmq://" in output
    _, errors = run("move", source, f"{topic}-moved", *at, "--yes", code=1)
    assert "a message cannot be carried: " in errors
    output, _ = run("tail", source, "-b", node.uri, "--json", "--until-idle", "1")
    assert [row["payload"] for row in rows_of(output)] == ["large", "two"]


class Stage:
    """A move from a node that is killed, to a queue or a topic of another."""

    def __init__(self, source: NodeProcess, destination: NodeProcess, words: tuple[object, ...]) -> None:
        self._destination = destination
        self._source = source
        self.words = ("move", f"{PRIORITY}/q", *words, "-b", source.uri, "--yes", "--window", 100)

    def arrived(self) -> int:
        """The messages that are at the destination."""
        if isinstance(self._destination, RocketProcess):
            return trio.run(topic_end, self._destination)
        asking = Asking(WAIT_S, None, None)
        try:
            return waiting_of("127.0.0.1", self._destination.port, asking, parse_uri(f"{PRIORITY}/moved"))
        except (AdminLost, Refused):
            return 0

    def fill(self) -> None:
        """Post the messages."""
        fill(COUNT, f"{PRIORITY}/q", "-b", self._source.uri)

    def left(self) -> int:
        """The messages that are at the source."""
        return waiting_of("127.0.0.1", self._source.port, Asking(WAIT_S, None, None), parse_uri(f"{PRIORITY}/q"))

    def kill_in_between(self) -> None:
        """Kill a move and its source after the destination has acknowledged, and before the source knows."""
        before = self.arrived()
        with started(*self.words) as process:
            eventually(lambda: self.arrived() > before, state=process.poll)
            os.kill(self._destination.pid, signal.SIGSTOP)
            until_steady(self.left)
            # The window is with the move now, and its confirms reach nobody from here on.
            os.kill(self._source.pid, signal.SIGSTOP)
            os.kill(self._destination.pid, signal.SIGCONT)
            until_steady(self.arrived)
            process.kill()
            process.wait(WAIT_S)
        self._source.restart(signal.SIGKILL)
        assert self.left() + self.arrived() > COUNT


def until_steady(count: Callable[[], int]) -> None:
    """Wait until a count stays the same for a while."""
    found: list[int] = []

    def is_steady() -> bool:
        found.append(count())
        return len(found) > 10 and len(set(found[-10:])) == 1

    eventually(is_steady, state=lambda: found)


async def topic_end(rocket: RocketProcess) -> int:
    """The messages that the topic has."""
    try:
        async with connect(f"rocketmq://{rocket.nameserver}") as session:
            return sum(each.end for each in await session.stored_queues("moved"))
    except RequestRefused:
        return 0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with NodeProcess(tmp_path / "source") as source, NodeProcess(tmp_path / "destination") as destination:
        yield Stage(source, destination, (f"{PRIORITY}/moved", "--to-broker", destination.uri))


def test_a_move_that_is_killed_loses_nothing_and_repeats_nothing_to_a_queue(stage: Stage) -> None:
    stage.fill()
    with started(*stage.words) as process:
        eventually(lambda: stage.arrived() > 0, state=process.poll)
        process.kill()
        assert process.wait(WAIT_S) == -signal.SIGKILL
    stage.kill_in_between()
    between = stage.arrived()
    assert 0 < between < COUNT
    output, _ = run(*stage.words, "--json")
    done = json.loads(output)
    # The last run has moved more messages than were missing, and the broker has left these out by their GUIDs.
    assert (done["ended_by"], done["messages"] > COUNT - between) == (None, True)
    assert stage.arrived() == COUNT
    output, _ = run("tail", f"{PRIORITY}/moved", "-b", stage.words[4], "--raw", "--count", COUNT)
    assert list(map(int, output.split())) == list(range(COUNT))


def test_a_move_to_a_topic_that_is_killed_repeats_messages_with_the_same_mark(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "source") as source, RocketProcess(tmp_path / "mq", grpc_port=0) as destination:
        topic = f"rocketmq://{destination.nameserver}/moved"
        stage = Stage(source, destination, (topic,))
        stage.fill()
        stage.kill_in_between()
        run(*stage.words)
        found = stored(topic)
    numbers = Counter(int(row["payload"]) for row in found)
    assert sorted(numbers) == list(range(COUNT))
    # Nothing is repeated beyond the window, and repeated messages have a mark.
    assert 0 < len(found) - COUNT <= 100
    assert len({row["properties"]["bmq_guid"] for row in found}) == COUNT


def test_a_signal_ends_a_move_between_two_messages(stage: Stage) -> None:
    stage.fill()
    with started(*stage.words, "--json") as process:
        eventually(lambda: stage.arrived() > 0)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=WAIT_S)
    done = json.loads(output)
    assert (process.returncode, done["interrupted"], done["ended_by"]) == (130, True, None)
    assert done["messages"] == stage.arrived() < COUNT
    left = rows_of(run("browse", f"{PRIORITY}/q", "-b", stage.words[6], "--json", "-n", COUNT)[0])
    assert len(left) == COUNT - done["messages"]


def test_bodies_that_other_clients_compressed_are_carried_as_they_are(rocket: RocketProcess) -> None:
    topic, copied, moved = (f"compressed{name}" for name in ("", "-copied", "-moved"))
    trio.run(store_bodies, rocket, topic)
    base = f"rocketmq://{rocket.nameserver}"
    output, _ = run("copy", f"{base}/{topic}", f"{base}/{copied}")
    assert output.startswith(f"{len(BODIES)} messages copied, ")
    output, _ = run("move", f"{base}/{topic}?group=movers", f"{base}/{moved}", "--yes", *IDLE)
    assert output.startswith(f"{len(BODIES)} messages moved, ")
    for each in (copied, moved):
        assert sorted(trio.run(stored_bodies, rocket, each)) == sorted(BODIES)


def test_bodies_that_other_clients_compressed_are_read_for_a_queue(node: NodeProcess, rocket: RocketProcess) -> None:
    trio.run(store_bodies, rocket, "to-queue", BODIES[:-1])
    queue = f"{PRIORITY}/compressed"
    output, _ = run("copy", f"rocketmq://{rocket.nameserver}/to-queue", queue, "-b", node.uri)
    assert output.startswith(f"{len(BODIES) - 1} messages copied, ")
    rows = drain(len(BODIES) - 1, queue, "-b", node.uri)
    assert {row["payload"] for row in rows} == {PLAIN.decode()}
    shown = stored(f"rocketmq://{rocket.nameserver}/to-queue")
    assert [row["payload"] for row in shown] == [PLAIN.decode()] * (len(BODIES) - 1)


def test_a_topic_without_a_queue_to_be_written_is_told_at_once(rocket: RocketProcess) -> None:
    source, topic = (f"rocketmq://{rocket.nameserver}/{name}" for name in ("writer", "read-only"))
    run("post", source, "a message")
    trio.run(make_read_only, rocket, "read-only")
    for words in (("post", topic, "x"), ("copy", source, topic), ("move", f"{source}?group=g", topic, "--yes")):
        _, errors = run(*words, code=2)
        assert "topic read-only takes no messages" in errors
    trio.run(assert_read_only, rocket, "read-only")
