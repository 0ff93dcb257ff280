"""`--decode` of `bmqctl tail` and `bmqctl browse` against real nodes of both systems."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgpack
import pytest

from bmqctl.testing import NodeProcess, RocketProcess
from tests.rigs.messages_at_hand import run

PRIORITY = "bmq://bmq.test.persistent.priority"
IDLE = ("--until-idle", "1")
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as running:
        yield running


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def post(payloads: list[bytes], *at: object) -> None:
    rows = [json.dumps({"payload_base64": base64.b64encode(each).decode()}) for each in payloads]
    run("post", *at, "--jsonl", stdin="\n".join(rows).encode())


def test_payloads_of_a_queue_are_decoded_and_a_bad_one_stays(node: NodeProcess, tmp_path: Path) -> None:
    at = (f"{PRIORITY}/decode", "-b", node.uri)
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(SCHEMA))
    one = io.BytesIO()
    fastavro.schemaless_writer(one, fastavro.parse_schema(SCHEMA), {"id": 7})
    post([one.getvalue(), b"\xff", one.getvalue()], *at)
    words = ("tail", *at, *IDLE, "--decode", "avro", "--schema", schema)
    output, errors = run(*words, "--json", code=1)
    assert [row["decoded"] for row in rows_of(output)] == [{"id": 7}, {"id": 7}]
    assert errors.startswith("bmqctl tail: message 4")
    assert ": the payload is not avro: " in errors
    # Neither was it confirmed, nor has it become less: another attempt, which stays as futile, and then as it is.
    output, _ = run(*words, code=1)
    assert output == ""
    output, _ = run("tail", *at, *IDLE, "--decode", "hex")
    assert output.endswith("  ff\n")


def test_too_many_bad_payloads_end_it(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/decode-none", "-b", node.uri)
    post([b"no json"] * 5, *at)
    output, errors = run("tail", *at, "--count", "3", "--decode", "json", code=1)
    assert output == ""
    assert errors.count("the payload is not json") == 3
    assert "as many as may be unconfirmed have payloads that are not decoded" in errors
    output, _ = run("tail", *at, "--count", "5", "--raw")
    assert output == "no json\n" * 5


def test_payloads_of_a_topic_are_decoded(rocket: RocketProcess) -> None:
    topic = f"rocketmq://{rocket.nameserver}/decode"
    post([msgpack.packb({"id": 1}), b"\xc1", msgpack.packb({"id": 2})], topic)
    output, errors = run("browse", topic, "--decode", "msgpack", "--json", code=1)
    rows = rows_of(output)
    assert sorted(row["decoded"]["id"] for row in rows) == [1, 2]
    assert {base64.b64decode(row["payload_base64"]) for row in rows} == {b"\x81\xa2id\x01", b"\x81\xa2id\x02"}
    assert "the payload is not msgpack: " in errors
    assert "(broker-a/" in errors
    output, _ = run("browse", topic, "--decode", "msgpack", code=1)
    assert sorted(line.rpartition("  ")[2] for line in output.splitlines()) == ['{"id": 1}', '{"id": 2}']
    # With a group the bad one is not committed, nor sent to be tried again; without one nothing is in any case.
    for _ in range(2):
        at = (f"{topic}?group=decoders", "--from-start", *IDLE)
        output, errors = run("tail", *at, "--decode", "msgpack", code=1)
        assert "the payload is not msgpack: " in errors
    output, _ = run("tail", *at, "--json")
    assert "wQ==" in [row.get("payload_base64") for row in rows_of(output)]
    output, errors = run("browse", f"rocketmq://{rocket.nameserver}/%25RETRY%25decoders", "--json")
    assert (output, errors) == ("", "")


def test_lines_with_decoded_payloads_are_posted_again(node: NodeProcess) -> None:
    at = (f"{PRIORITY}/decode-again", "-b", node.uri)
    run("post", *at, '{"a": 1}')
    output, _ = run("tail", *at, "--count", "1", "--json", "--decode", "json")
    (row,) = rows_of(output)
    assert (row["payload"], row["decoded"]) == ('{"a": 1}', {"a": 1})
    run("post", *at, "--jsonl", stdin=output.encode())
    assert run("tail", *at, "--count", "1", "--raw")[0] == '{"a": 1}\n'
