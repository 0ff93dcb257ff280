"""`bmqctl replay` to a real node: what the official client reads then, and what is left of a replay that was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blazingmq
import pytest

from bmqctl.carrying.replay.progress import ReplayStep, read_head
from bmqctl.stores.blazingmq.build import build_store
from bmqctl.testing import NodeProcess
from tests.bmqctl.carrying.replay.stores import START_S, build, guid, message
from tests.rigs.official import Connect, queue_name
from tests.waiting import WAIT_S, eventually

COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()", "replay")
COUNT = 3000


def replay(node: NodeProcess, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--broker", node.uri, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)


def account(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_official_client_reads_what_was_replayed(tmp_path: Path, node: NodeProcess, connect: Connect) -> None:
    source, target = queue_name("there.fanout"), queue_name("bmq.test.persistent.fanout")
    typed = {"raw": {"type": "BINARY", "value": "00ff"}, "short": {"type": "SHORT", "value": -7}, "yes": True}
    store = build(
        tmp_path / "store",
        [
            {"type": "QUEUE_OP", "queue_uri": source, "apps": ["foo", "bar"]},
            message(0, source, payload_hex="00ff10", payload=None, properties=typed),
            message(1, source, properties={}),
            message(2, source, payload="squeeze me " * 500, compression="ZLIB"),
            {"type": "CONFIRM", "queue_uri": source, "guid": guid(1), "app_id": "foo"},
        ],
    )
    found = account(replay(node, "--json", "--rename", f"{source}={target}", store))
    assert (found["selected"], found["posted"]) == (3, 3)
    client = connect(node)
    client.open(f"{target}?id=foo", read=True)
    messages = [each for each, _ in client.wait_for_messages(3)]
    assert [each.data for each in messages] == [b"\0\xff\x10", b"message 1", b"squeeze me " * 500]
    first, second, third = messages
    marks = [{"replay_guid": guid(number), "replay_time": START_S + number} for number in range(3)]
    assert first.properties == {"raw": b"\0\xff", "short": -7, "yes": True} | marks[0]
    assert first.property_types["short"] is blazingmq.PropertyType.SHORT
    assert first.property_types["replay_time"] is blazingmq.PropertyType.INT64
    assert second.properties == marks[1]
    assert third.properties == {"n": 2, "region": "us"} | marks[2]


def test_a_queue_that_cannot_be_opened_is_told_before_anything_is_posted(tmp_path: Path, node: NodeProcess) -> None:
    source = queue_name("there.priority")
    store = build(tmp_path / "store", [{"type": "QUEUE_OP", "queue_uri": source}, message(0, source)])
    done = replay(node, store)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bmqctl replay: cannot open {source}: Domain 'there.priority' is not configured")
    assert done.stderr.count("\n") == 1


def test_only_what_an_app_missed(tmp_path: Path, node: NodeProcess, connect: Connect) -> None:
    source, target = queue_name("there.fanout"), queue_name()
    lines = [{"type": "QUEUE_OP", "queue_uri": source, "apps": ["foo", "bar"]}]
    lines += [message(number, source) for number in range(10)]
    lines += [{"type": "CONFIRM", "queue_uri": source, "guid": guid(n), "app_id": "foo"} for n in (0, 1, 4, 5)]
    store = build(tmp_path / "store", lines)
    options = ("--app", "foo", "--status", "outstanding", "--where", 'region == "eu" && n > 2')
    assert account(replay(node, "--json", *options, "--rename", f"{source}={target}", store))["posted"] == 3
    client = connect(node)
    client.open(target, read=True)
    assert [each.data for each, _ in client.wait_for_messages(3)] == [b"message 3", b"message 7", b"message 9"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of three queues by turns, in one second."""
    uris = [queue_name() for _ in range(3)]

    def lines() -> Iterator[dict[str, Any]]:
        for uri in uris:
            yield {"type": "QUEUE_OP", "queue_uri": uri}
        for number in range(COUNT):
            yield message(number, uris[number % 3], timestamp=START_S + number // 1000)

    directory = tmp_path_factory.mktemp("large") / "store"
    directory.mkdir()
    build_store(map(json.dumps, lines()), directory, START_S)
    return directory


def steps(state: Path) -> Counter[int]:
    """Count the messages at each `ReplayStep` in the file; none if it does not exist."""
    head = read_head(state)
    return Counter(state.read_bytes()[-head.messages :]) if head is not None else Counter()


def wait_for_posted(state: Path, count: int) -> None:
    """Wait until more than `count` messages are posted."""
    eventually(lambda: steps(state)[ReplayStep.POSTED] > count)


def start(node: NodeProcess, *arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "--broker", node.uri, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def expect_each_once(client: Any, store: Path, node: NodeProcess) -> None:
    """All messages are in their queues, once and in order."""
    uris = {each["from"] for each in account(replay(node, "--dry-run", "--json", store))["queues"]}
    for uri in uris:
        client.open(uri, read=True, max_unconfirmed_messages=COUNT)
    client.wait_for_messages(COUNT)
    client.barrier()
    by_queue = {uri: [int(each.properties["n"]) for each, _ in client.of(uri)] for uri in uris}
    assert sorted(number for numbers in by_queue.values() for number in numbers) == list(range(COUNT))
    assert all(numbers == sorted(numbers) for numbers in by_queue.values())


def test_killed_again_and_again_it_posts_each_message_once(tmp_path: Path, large: Path, connect: Connect) -> None:
    state = tmp_path / "state"
    with NodeProcess(tmp_path / "node") as node:
        # At this pace the whole takes 3 s: each run is killed on its way.
        options = ("--state", state, "--pace", "original", "--json", large)
        for part in (1, 2):
            process = start(node, *options)
            wait_for_posted(state, part * COUNT // 5)
            process.kill()
            assert process.wait() == -signal.SIGKILL
            process.communicate()
        before = steps(state)
        assert 0 < before[ReplayStep.POSTED] < COUNT
        done = replay(node, "--state", state, "--json", large)
        found = account(done)
        assert found["before"] == before[ReplayStep.POSTED]
        assert found["posted_again"] == before[ReplayStep.SENT]
        assert found["before"] + found["posted"] == found["selected"] == COUNT
        expect_each_once(connect(node), large, node)
        # All is done: once more there is nothing to do, and no broker needed.
        node.stop()
        again = account(replay(node, "--state", state, "--json", large))
        assert (again["before"], again["posted"]) == (COUNT, 0)


def test_a_node_that_restarts_meanwhile(tmp_path: Path, large: Path, connect: Connect) -> None:
    state = tmp_path / "state"
    with NodeProcess(tmp_path / "node") as node:
        process = start(node, "--state", state, "--pace", "1", "--json", large)
        for part in (1, 2):
            wait_for_posted(state, part * COUNT // 5)
            node.restart(signal.SIGKILL)
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, err
        assert json.loads(out)["posted"] == COUNT
        expect_each_once(connect(node), large, node)


def test_sigint_ends_it_with_an_account(tmp_path: Path, large: Path, node: NodeProcess) -> None:
    state = tmp_path / "state"
    to_memory = ("--rename", "bmq://bmq.test.persistent.*=bmq://bmq.test.mem.*")
    process = start(node, "--state", state, "--pace", "0.5", "--json", *to_memory, large)
    wait_for_posted(state, 10)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["interrupted"]
    assert found["unanswered"] == 0
    assert found["posted"] == steps(state)[ReplayStep.POSTED] > 10
    assert found["posted"] + found["left"] == COUNT
    assert f"run again with --state {state}" in err
