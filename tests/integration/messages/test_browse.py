"""`bmqctl browse` and the stored queues of the client library against real nodes of both systems."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio

from bmqctl.client.rocketmq import RequestRefused, connect
from bmqctl.testing import NodeProcess, RocketProcess
from tests.rigs.messages_at_hand import run, started
from tests.waiting import WAIT_S, eventually

LINE = b'{"payload": "x", "properties": {"customer": "Ada"}}\n'
PRIORITY = "bmq://bmq.test.persistent.priority"


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as running:
        yield running


def test_a_queue_is_listed_and_keeps_its_messages(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/browse", "-b", node.uri)
    run("post", *at, "--lines", stdin=b"one\ntwo\nthree\n")
    output, errors = run("browse", *at, "--json", "--offset", "1", "--count", "1")
    (row,) = map(json.loads, output.splitlines())
    assert row["size"] == 3
    assert errors == "bmqctl browse: 1 of 3 messages: --offset and --count choose others\n"
    output, errors = run("browse", *at, "--offset", "-2")
    assert [line.split()[0] for line in output.splitlines()[1:]] == ["1", "2"]
    assert row["guid"] in output.splitlines()[1]
    output, _ = run("browse", *at, "--output", "json")
    assert json.loads(output)[1]["guid"] == row["guid"]
    output, _ = run("browse", *at, "--output", "csv", "--offset", "-1")
    assert output.splitlines()[0] == ",".join(row)
    # All three are there for consumers.
    output, _ = run("tail", *at, "--json", "--count", "3")
    found = [json.loads(line) for line in output.splitlines()]
    assert [each["payload"] for each in found] == ["one", "two", "three"]
    assert found[1]["guid"] == row["guid"]
    assert run("browse", *at, "--json") == ("", "")


def test_messages_of_a_queue_are_shown_whole(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/browse-whole", "-b", node.uri)
    run("post", *at, "--jsonl", stdin=LINE * 3)
    output, errors = run("browse", *at, "--whole", "--json", "--count", "2")
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["payload"], row["properties"]) for row in rows] == [("x", {"customer": "Ada"})] * 2
    assert errors == "bmqctl browse: 2 of 3 messages: --offset and --count choose others\n"
    assert run("browse", *at, "--raw")[0] == "x\n" * 3
    output, _ = run("browse", *at, "--whole", "--offset", "-1")
    assert output.endswith("  customer=Ada  x\n")
    output, _ = run("browse", *at, "--whole", "--output", "csv")
    assert output.splitlines()[0] == "guid,payload,payload_base64,properties"
    # Nothing is consumed, and what is printed can be posted.
    copy = (f"{PRIORITY}/browse-whole-copy", *at[1:])
    run("post", *copy, "--jsonl", stdin=b"".join(LINE for _ in rows))
    assert run("tail", *at, "--raw", "--count", "3")[0] == "x\n" * 3


def test_missing_queue_is_refused(node: NodeProcess) -> None:
    _, errors = run("browse", f"{PRIORITY}/browse-none", "-b", node.uri, code=2)
    assert "Queue 'browse-none' was not found" in errors
    assert errors.count("\n") == 1


def test_a_topic_is_shown_by_its_queues_and_nothing_is_committed(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/browse"
    run("post", f"{topic}?key=customer", "--jsonl", stdin=LINE * 600)
    output, errors = run("browse", topic, "--json", "--count", "1000")
    rows = [json.loads(line) for line in output.splitlines()]
    (queue,) = {row["queue"] for row in rows}
    assert ([row["offset"] for row in rows], errors) == (list(range(600)), "")
    output, errors = run("browse", f"{topic}?queue={queue}", "--offset", "-2")
    assert [line.split()[1] for line in output.splitlines()] == ["598", "599"]
    assert output.endswith("  customer=Ada  x\n")
    assert errors == "bmqctl browse: 2 of 600 messages: --offset and --count choose others\n"
    output, _ = run("browse", f"{topic}?queue={queue}", "--offset", "40", "--count", "3", "--raw")
    assert output == "x\nx\nx\n"
    for form, count in (("csv", 1 + 2), ("json", 1 + 2 + 1)):
        output, _ = run("browse", f"{topic}?queue={queue}", "--count", "2", "--output", form)
        assert len(output.splitlines()) == count
    assert [row["offset"] for row in json.loads(output)] == [0, 1]
    # A group begins where it would have begun.
    output, _ = run("tail", f"{topic}?group=behind", "--from-start", "--count", "600", "--raw")
    assert output == "x\n" * 600
    _, errors = run("browse", f"{topic}?queue=999", code=2)
    assert "has no queue 999" in errors
    output, errors = run("browse", f"{topic}-none", "--output", "json", code=2)
    assert output == ""
    assert "knows no topic browse-none" in errors


def test_a_reader_that_leaves_ends_it(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/browse-pipe"
    run("post", topic, "x" * 1000, "--count", "2000")
    with started("browse", topic, "--count", "2000") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(WAIT_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_dead_letters_are_a_topic(rocket: RocketProcess) -> None:
    nameserver = f"rocketmq://{rocket.nameserver}"
    run("post", f"{nameserver}/browse-poison", "poison", "-p", "n=1")

    async def die() -> None:
        async with connect(nameserver) as session:
            consumer = await session.consume("browse-poison", "browse-dead", from_start=True)
            with trio.fail_after(WAIT_S):
                message = await anext(consumer)
                message.reject(delay_level=-1)

    trio.run(die)

    def dead() -> str | None:
        with started("browse", f"{nameserver}/%25DLQ%25browse-dead", "--json") as process:
            output, _ = process.communicate(timeout=WAIT_S)
        return output.decode() or None

    # A message may be sent back twice if the session ends meanwhile.
    row, *_ = map(json.loads, eventually(dead).splitlines())
    assert (row["topic"], row["payload"]) == ("%DLQ%browse-dead", "poison")
    assert row["properties"]["n"] == "1"


async def read_all(rocket: RocketProcess) -> None:
    async with connect(f"rocketmq://{rocket.nameserver}") as session:
        producer = await session.producer("stored")
        await producer.post_all(b"%d" % at for at in range(100))
        queues = await session.stored_queues("stored")
        assert [(each.broker, each.queue_id) for each in queues] == sorted(
            (each.broker, each.queue_id) for each in queues
        )
        assert sum(each.end - each.first for each in queues) == 100
        for _ in queues:
            await producer.post(b"later")
        found = []
        for queue in queues:
            pieces = [await queue.read(at, 7) for at in range(queue.first, queue.end, 7)]
            assert all(len(piece) <= 7 for piece in pieces)
            found += [message.payload for piece in pieces for message in piece]
            assert await queue.read(queue.end) == []
        assert sorted(found) == sorted(b"%d" % at for at in range(100))
        with pytest.raises(ValueError, match="offset is -1: expected"):
            await queues[0].read(-1)
        with pytest.raises(RequestRefused, match="knows no topic stored-none"):
            await session.stored_queues("stored-none")


def test_stored_queues_are_read_by_their_offsets(rocket: RocketProcess) -> None:
    trio.run(read_all, rocket)
