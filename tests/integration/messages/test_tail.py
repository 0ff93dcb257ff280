"""`bmqctl tail` against real nodes of both systems."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from bmqctl.testing import NodeProcess, RocketProcess
from tests.rigs.messages_at_hand import run, started
from tests.waiting import WAIT_S

PRIORITY = "bmq://bmq.test.persistent.priority"
IDLE = ("--until-idle", "1")


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as started:
        yield started


def rows_of(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def lines_until(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The next lines of a process; the test's timeout bounds the wait."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_a_queue_is_shown_and_confirmed(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/tail", "-b", node.uri)
    run("post", *at, "--lines", stdin=b"one\ntwo\nthree\n\xff")
    output, _ = run("tail", *at, "--count", "2", "--json")
    assert [row["payload"] for row in rows_of(output)] == ["one", "two"]
    # Messages not shown are still there, and shown ones are not.
    output, _ = run("tail", *at, "--raw", "--count", "1")
    assert output == "three\n"
    output, _ = run("tail", *at, *IDLE, "--json")
    (row,) = rows_of(output)
    assert row["payload_base64"] == "/w=="
    output, _ = run("tail", *at, *IDLE)
    assert output == ""
    run("post", *at, "--lines", stdin=b"four\nfive\n")
    output, _ = run("tail", *at, "--output", "csv", "--count", "1")
    assert output.splitlines()[0] == "guid,payload,payload_base64,properties"
    assert output.splitlines()[1].endswith(",four,,")
    output, _ = run("tail", *at, *IDLE, "--output", "json")
    assert [row["payload"] for row in json.loads(output)] == ["five"]
    _, errors = run("tail", *at, *IDLE, "--count", "1", code=1)
    assert errors == "bmqctl tail: 0 of 1 messages came\n"


def test_an_expression_selects_and_leaves_the_others(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/tail-expression", "-b", node.uri)
    for amount in (5, 50, 7):
        run("post", *at, f"order of {amount}", "-p", f"amount:={amount}")
    output, _ = run("tail", *at, *IDLE, "-e", "amount > 10")
    assert output.endswith("  amount=50  order of 50\n")
    output, _ = run("tail", *at, *IDLE, "--raw")
    assert output == "order of 5\norder of 7\n"
    _, errors = run("tail", *at, "-e", "amount >", code=2)
    assert "syntax error" in errors
    _, errors = run("tail", *at, "--from-start", code=2)
    assert "for topics of RocketMQ" in errors


def test_an_app_that_the_queue_does_not_have_is_refused(node: NodeProcess) -> None:
    uri, at = "bmq://bmq.test.persistent.fanout/tail-apps", ("-b", node.uri)
    _, errors = run("tail", f"{uri}?id=fo", *at, code=2)
    assert errors == f"bmqctl tail: {uri} has no app fo, but bar, baz, foo\n"
    run("post", uri, "one", *at)
    assert run("tail", f"{uri}?id=foo", *at, "--count", "1", "--raw")[0] == "one\n"


def test_a_queue_is_moved_by_a_pipe_with_all_that_its_messages_have(node: NodeProcess) -> None:
    source, destination = (f"{PRIORITY}/tail-{name}" for name in ("source", "destination"))
    rows = [
        {"payload": str(at), "properties": {"n": at, "id": {"type": "INT32", "value": at}, "t": "ä"}}
        for at in range(500)
    ]
    run("post", source, "-b", node.uri, "--jsonl", stdin="\n".join(map(json.dumps, rows)).encode())
    output, _ = run("tail", source, "-b", node.uri, "--json", "--count", "500")
    run("post", destination, "-b", node.uri, "--jsonl", stdin=output.encode())
    output, _ = run("tail", destination, "-b", node.uri, "--json", "--count", "500")
    found = rows_of(output)
    assert len({row.pop("guid") for row in found}) == 500
    # Properties come in the order of their names.
    assert found == rows


def test_a_signal_ends_it_cleanly(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/tail-signal", "-b", node.uri)
    for how, count, code in ((signal.SIGINT, (), 0), (signal.SIGTERM, (), 0), (signal.SIGINT, ("--count", "9"), 130)):
        run("post", *at, "one")
        with started("tail", *at, "--raw", *count) as process:
            assert lines_until(process, 1) == [b"one\n"]
            process.send_signal(how)
            output, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, output, errors) == (code, b"", b"")
    # It was confirmed.
    assert run("tail", *at, *IDLE)[0] == ""


def test_it_ends_when_its_reader_leaves(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/tail-pipe", "-b", node.uri)
    run("post", *at, "one")
    with started("tail", *at, "--raw") as process:
        assert lines_until(process, 1) == [b"one\n"]
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(WAIT_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_it_goes_on_when_the_node_was_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with NodeProcess(tmp_path_factory.mktemp("killed") / "store") as node:
        at = (f"{PRIORITY}/tail-killed", "-b", node.uri)
        with started("tail", *at, "--raw", "--count", "2") as process:
            run("post", *at, "one")
            assert lines_until(process, 1) == [b"one\n"]
            node.restart(signal.SIGKILL)
            run("post", *at, "two")
            while lines_until(process, 1) == [b"one\n"]:
                pass  # its confirm was lost
            assert process.wait(WAIT_S) == 0
            assert process.stderr is not None
            errors = process.stderr.read().decode()
    assert errors.startswith("bmqctl tail: the connection to ")
    assert "bmqctl tail: the connection is restored\n" in errors
    assert "Traceback" not in errors


def test_a_topic_without_a_group_is_shown_to_all_and_nothing_is_committed(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/tail"
    run("post", topic, "--lines", stdin=b"one\ntwo\nthree\n")
    for _ in range(2):
        output, _ = run("tail", topic, "--from-start", "--count", "3", "--raw")
        assert sorted(output.split()) == ["one", "three", "two"]


def test_a_member_of_a_group_commits_what_it_shows(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/tail-group"
    run("post", topic, "one", "--tag", "paid", "--key", "o-1", "-p", "customer=Ada")
    output, _ = run("tail", f"{topic}?group=tails", "--from-start", "--count", "1", "--json")
    (row,) = rows_of(output)
    fields = {name: row[name] for name in ("topic", "offset", "attempt", "payload", "properties", "tag", "keys")}
    assert fields == {
        "topic": "tail-group",
        "offset": 0,
        "attempt": 1,
        "payload": "one",
        "properties": {"customer": "Ada"},
        "tag": "paid",
        "keys": ["o-1"],
    }
    run("post", topic, "--jsonl", stdin=json.dumps({**row, "payload": "two"}).encode())
    output, _ = run("tail", f"{topic}?group=tails", "--from-start", "--count", "1", "--raw")
    assert output == "two\n"


def test_tags_and_expressions_select_messages_of_a_topic(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/tail-selected"
    for tag, amount in (("paid", 5), ("free", 50), ("late", 500)):
        run("post", topic, tag, "--tag", tag, "-p", f"amount:={amount}")
    output, _ = run("tail", topic, "--from-start", "--tags", "paid || late", "--count", "2", "--raw")
    assert sorted(output.split()) == ["late", "paid"]
    output, _ = run("tail", topic, "--from-start", "-e", "amount > 100", "--count", "1", "--raw")
    assert output == "late\n"
    _, errors = run("tail", f"{topic}?group=malformed", "-e", "amount >", code=1)
    assert "SUBSCRIPTION_PARSE_FAILED" in errors
    _, errors = run("tail", f"{topic}-none", code=2)
    assert "knows no topic tail-selected-none" in errors
