"""`bmqctl find`, `tail --since` and `--format` against real nodes of both systems."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from bmqctl.testing import NodeProcess, RocketProcess
from tests.rigs.messages_at_hand import run
from tests.waiting import eventually


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    store = tmp_path_factory.mktemp("rocketmq")
    config = store / "broker.conf"
    config.write_text("enablePropertyFilter=true\n")
    with RocketProcess(store / "store", config_file=config, grpc_port=0) as running:
        yield running


def rows(*words: str, code: int = 0) -> list[dict[str, Any]]:
    output, _ = run(*words, "--output", "jsonl", code=code)
    return [json.loads(line) for line in output.splitlines()]


def between() -> str:
    """Return a time after everything that was posted, and before everything that will be."""
    time.sleep(0.01)
    now = datetime.now(UTC)
    time.sleep(0.01)
    return now.isoformat()


def test_messages_of_a_topic_are_found(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/found"
    post = ("post", topic, "-p")
    run(*post, "amount=10", "old", "--key", "o-1", "--key", "both", "--tag", "paid")
    since = between()
    run(*post, "amount=200", "new", "--key", "o-2", "--key", "both")

    def found(*words: str) -> list[str]:
        return sorted(each["payload"] for each in rows("find", topic, *words))

    eventually(lambda: found("--key", "both") == ["new", "old"])
    assert found("--key", "o-1") == ["old"]
    (new,) = rows("find", topic, "--key", "o-2")
    assert found("--id", new["message_id"]) == ["new"]
    assert found("--since", since) == ["new"]
    assert found("--until", since) == ["old"]
    assert found("--expression", "amount > 100") == ["new"]
    assert found("--tags", "paid") == ["old"]
    assert len(found("--count", "1")) == 1
    assert rows("find", topic, "--key", "o-3", code=1) == []
    assert run("find", topic, "--key", "o-2", "--format", "{key} {properties.amount}{{{tag}}}: {payload}")[0] == (
        "o-2 200{}: new\n"
    )
    _, errors = run("find", topic, "--key", "a", "--tags", "b", code=2)
    assert "leave out --tags and --expression" in errors

    tailed = rows("tail", topic, "--since", since, "--count", "1")
    assert [each["payload"] for each in tailed] == ["new"]


def test_messages_of_a_queue_are_found(node: NodeProcess) -> None:
    uri = "bmq://bmq.test.persistent.priority/find"
    at = (uri, "-b", node.uri)
    for amount in (10, 200, 300):
        run("post", *at, str(amount), "-p", f"amount:={amount}")

    def found(*words: str, code: int = 0) -> list[str]:
        return [each["payload"] for each in rows("find", *at, *words, code=code)]

    assert found() == ["10", "200", "300"]
    assert found("--expression", "amount > 100") == ["200", "300"]
    assert found("--expression", "amount > 100", "--count", "1") == ["200"]
    guid = rows("find", *at, "--expression", "amount == 300")[0]["guid"]
    assert run("find", *at, "--id", guid, "--format", r"{payload}\t{properties}")[0] == '300\t{"amount": 300}\n'
    assert found("--since", "2020-01-01T00:00:00") == ["10", "200", "300"]
    assert found("--until", "2020-01-01T00:00:00", code=1) == []
    assert "'customer == \"Ada\"'" in run("find", *at, "--key", "a", code=2)[1]
    assert "`bmqctl find` looks at times" in run("tail", *at, "--since", "2020-01-01", code=2)[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--format", "{who}"), "{who}: expected one of guid, message_id"),
        (("--format", "{payload"), "a brace that stands for itself is doubled: {{"),
        (("--format", "{payload}", "--raw"), "--raw or --format, not both"),
        (("--since", "soon"), "'soon' is no time"),
    ],
)
def test_impossible_options_are_refused(node: NodeProcess, words: tuple[str, ...], text: str) -> None:
    _, errors = run("tail", "bmq://bmq.test.persistent.priority/find", "-b", node.uri, *words, code=2)
    assert text in " ".join(errors.replace("│", "").split())
