"""`bmqctl dead-letters` against a real node of RocketMQ, and a consumer that gives messages up."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf import descriptor_pb2

from bmqctl.client.rocketmq import connect
from bmqctl.testing import NodeProcess, RocketProcess
from tests.rigs.config_files import domain, write_config
from tests.rigs.messages_at_hand import run
from tests.rigs.stored_bodies import BODIES, PLAIN, give_up, store_bodies, stored_bodies
from tests.waiting import WAIT_S, eventually


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocketmq"), grpc_port=0) as running:
        yield running


async def consume(rocket: RocketProcess, topic: str, group: str, count: int, level: int | None) -> list[bytes]:
    """Consume messages of a group; give them up, or with None confirm them."""
    found = []
    async with connect(f"rocketmq://{rocket.nameserver}") as session:
        consumer = await session.consume(topic, group, from_start=True)
        with trio.fail_after(WAIT_S):
            for _ in range(count):
                message = await anext(consumer)
                found.append(message.payload)
                if level is None:
                    message.confirm()
                else:
                    message.reject(delay_level=level)
        await consumer.close()
    return found


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def bury(rocket: RocketProcess, topic: str, group: str, count: int) -> None:
    """Post messages that a group gives up."""
    rows = [
        {"payload": json.dumps({"n": n}), "tag": "paid", "keys": [f"k-{n}"], "properties": {"n": str(n)}}
        for n in range(count)
    ]
    uri = f"rocketmq://{rocket.nameserver}/{topic}"
    run("post", uri, "--jsonl", stdin="\n".join(map(json.dumps, rows)).encode())
    assert len(trio.run(consume, rocket, topic, group, count, -1)) == count
    eventually(lambda: len(shown(rocket, group)) >= count)


def shown(rocket: RocketProcess, group: str) -> list[dict[str, Any]]:
    listed = json.loads(run("dead-letters", "list", "--nameserver", rocket.nameserver, "--output", "json")[0])
    if group not in [each["group"] for each in listed]:
        return []
    output, _ = run("dead-letters", "show", group, "--nameserver", rocket.nameserver, "--json", "--count", 1000)
    return rows_of(output)


def stored(rocket: RocketProcess, topic: str) -> list[dict[str, Any]]:
    return rows_of(run("browse", f"rocketmq://{rocket.nameserver}/{topic}", "--json", "--count", 1000)[0])


def test_letters_are_listed_shown_and_sent_again_once(rocket: RocketProcess) -> None:
    at = ("--nameserver", rocket.nameserver)
    bury(rocket, "letters", "billing", 3)
    letters = shown(rocket, "billing")
    by_number = {row["properties"]["n"]: row for row in letters}
    assert {row["original_topic"] for row in letters} == {"letters"}
    assert {row["topic"] for row in letters} == {"%DLQ%billing"}
    assert all(row["sent_again"] == [] and row["tag"] == "paid" for row in letters)
    # A message may be given up twice if the session ends meanwhile.
    count = len(letters)
    (group,) = [
        each
        for each in json.loads(run("dead-letters", "list", *at, "--output", "json")[0])
        if each["group"] == "billing"
    ]
    assert (group["letters"], group["sent_again"]) == (count, 0)
    assert group["oldest_at"] == min(row["dead_since"] for row in letters)
    one = by_number["1"]["message_id"]
    output, _ = run("dead-letters", "show", "billing", *at, "--id", one, "--decode", "json")
    assert "  letters  not sent again  " in output
    decoded, _ = run("dead-letters", "show", "billing", *at, "--id", one, "--decode", "json", "--output", "json")
    assert {json.dumps(row["decoded"]) for row in json.loads(decoded)} == {'{"n": 1}'}
    table, _ = run("dead-letters", "show", "billing", *at, "--id", one, "--output", "csv")
    (row, *_) = csv.DictReader(io.StringIO(table))
    assert (row["original_topic"], row["sent_again"], row["keys"]) == ("letters", "[]", '["k-1"]')
    assert output.splitlines()[0].endswith('  [paid]  n=1  {"n": 1}')

    words = ("dead-letters", "resend", "billing", "--to", "topic", *at)
    _, errors = run(*words, code=2)
    assert errors == (
        f"bmqctl dead-letters resend: Send {count} letters to letters? "
        "Standard input is not a terminal: give --yes, or --dry-run\n"
    )
    output, _ = run(*words, "--dry-run", "--json")
    assert (json.loads(output)["sent"], json.loads(output)["to"]) == (count, {"letters": count})
    assert len(stored(rocket, "letters")) == 3
    output, _ = run(*words, "--dry-run", "--output", "csv")
    assert output.splitlines()[0] == "group,dry_run,sent,to,sent_before,failures,missing,ended_by"
    assert output.splitlines()[1].startswith(f"billing,true,{count},")
    output, _ = run(*words, "--yes", "--id", one)
    times = sum(row["message_id"] == one for row in letters)
    assert output.startswith(f"{times} letter")
    # The rest; a second run says that they were sent again.
    output, _ = run(*words, "--yes", "--json")
    done = json.loads(output)
    assert (done["sent"], done["sent_before"]) == (count - times, times)
    output, _ = run(*words, "--yes")
    assert output == f"no letters sent\n    {count} left out, which were sent again before: --again sends them, too\n"
    found = stored(rocket, "letters")
    assert len(found) == 3 + count
    assert Counter(row["message_id"] for row in found) == Counter(
        [row["message_id"] for row in letters] + [by_number[n]["message_id"] for n in by_number]
    )
    again = [row for row in found if row["offset"] is not None and row["message_id"] == one]
    assert all(row["tag"] == "paid" and row["keys"] == ["k-1"] and row["properties"] == {"n": "1"} for row in again)
    assert all(row["sent_again"][0]["to"] == "letters" for row in shown(rocket, "billing"))
    output, _ = run("dead-letters", "show", "billing", *at, "--count", "1")
    assert "  letters  sent again 20" in output
    output, _ = run(*words, "--yes", "--again", "--count", "1")
    assert output == "1 letter to letters sent\n"
    assert len(stored(rocket, "letters")) == 4 + count


def test_only_the_group_gets_what_goes_to_its_retry_topic(rocket: RocketProcess) -> None:
    at = ("--nameserver", rocket.nameserver)
    bury(rocket, "retried", "shipping", 2)
    count = len(shown(rocket, "shipping"))
    output, _ = run("dead-letters", "resend", "shipping", "--to", "retry", *at, "--yes")
    assert output.endswith("to %RETRY%shipping sent\n")
    assert len(stored(rocket, "retried")) == 2
    payloads = trio.run(consume, rocket, "retried", "shipping", count, None)
    assert {*payloads} == {b'{"n": 0}', b'{"n": 1}'}
    (first, *_) = shown(rocket, "shipping")
    assert first["sent_again"][0]["to"] == "%RETRY%shipping"


def test_dead_letters_that_cannot_be_sent_are_reported(rocket: RocketProcess) -> None:
    at = ("--nameserver", rocket.nameserver)
    bury(rocket, "told", "telling", 1)
    words = ("dead-letters", "resend", "telling", "--to", "topic", *at, "--yes")
    _, errors = run(*words, "--to-topic", "nowhere", code=1)
    assert f"{rocket.nameserver} knows no topic nowhere" in errors
    _, errors = run(*words, "--id", "NONE", code=1)
    assert "group telling has no dead letter with the id NONE" in errors
    _, errors = run("dead-letters", "show", "telling", *at, "--id", "NONE", code=1)
    assert "has no dead letter with the id NONE" in errors
    _, errors = run("dead-letters", "show", "telling", *at, "--decode", "msgpack", code=1)
    assert "the payload is not msgpack" in errors
    assert run(*words)[0].endswith(" to told sent\n")
    output, errors = run("dead-letters", "show", "nobody", *at, "--output", "csv", code=2)
    assert output == ""
    assert "group nobody has no dead letters" in errors
    _, errors = run("dead-letters", "list", "--nameserver", "127.0.0.1:1", code=2)
    assert "no nameserver at 127.0.0.1:1" in errors
    _, errors = run("dead-letters", "list", code=2)
    assert "--nameserver HOST:PORT, or use a context" in errors
    _, errors = run("dead-letters", "list", "--nameserver", "mq", code=2)
    assert "expected HOST:PORT" in errors


def order_descriptor() -> bytes:
    """Descriptors with a message shop.Order that has one number."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="id", number=1)
    field.type, field.label = field.TYPE_INT64, field.LABEL_OPTIONAL
    data: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return data


def test_letters_are_decoded(rocket: RocketProcess, tmp_path: Path) -> None:
    at = ("--nameserver", rocket.nameserver)
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}))
    (tmp_path / "order.desc").write_bytes(order_descriptor())
    payloads = {"msgpack": b"\x81\xa2id\x07", "avro": b"\x0e", "protobuf": b"\x08\x07"}
    rows = [{"payload_base64": base64.b64encode(each).decode(), "keys": [name]} for name, each in payloads.items()]
    run("post", f"rocketmq://{rocket.nameserver}/coded", "--jsonl", stdin="\n".join(map(json.dumps, rows)).encode())
    assert len(trio.run(consume, rocket, "coded", "decoders", 3, -1)) == 3
    eventually(lambda: len(shown(rocket, "decoders")) >= 3)
    ids = {row["keys"][0]: row["message_id"] for row in shown(rocket, "decoders")}
    options = {
        "msgpack": (),
        "avro": ("--schema", schema),
        "protobuf": ("--descriptor", tmp_path / "order.desc", "--message", "shop.Order"),
    }
    for name, more in options.items():
        words = ("dead-letters", "show", "decoders", *at, "--id", ids[name], "--decode")
        found = json.loads(run(*words, name, *more, "--output", "json")[0])
        # Protobuf's JSON has numbers of 64 bits as texts.
        assert {str(row["decoded"]["id"]) for row in found} == {"7"}
        assert run(*words, "hex")[0].splitlines()[0].endswith(f"  {payloads[name].hex()}")


DIE = """
import os, sys, trio
from bmqctl.client import connect

async def main():
    async with connect(sys.argv[1]) as session:
        await anext(await session.open("bmq://fragile/q", read=True))
        os._exit(1)

trio.run(main)
"""


def test_a_poison_message_of_a_queue_is_sent_again_from_the_store(tmp_path: Path) -> None:
    config = write_config(tmp_path / "etc")
    definition = domain("fragile", {"priority": {}})
    definition["definition"]["parameters"]["maxDeliveryAttempts"] = 1
    (config / "domains" / "fragile.json").write_text(json.dumps(definition))
    with NodeProcess(tmp_path / "store", config_dir=config) as node:
        run("post", "bmq://fragile/q", "-b", node.uri, "poison", "-p", "n:=1")
        assert subprocess.run([sys.executable, "-c", DIE, node.uri], timeout=WAIT_S, check=False).returncode == 1
        node.wait_for("ALARM [POISON_PILL]", WAIT_S)
        found = re.search(r"POISON_PILL.*GUID: ([0-9A-F]{32}).*location \[(.*?)\]", node.log)
        assert found is not None
        kept = Path(found[2])
        assert "poison" in kept.read_text()
        kept.unlink()
        assert run("browse", "bmq://fragile/q", "-b", node.uri, "--json")[0] == ""
        (row,) = rows_of(run("journal", "rejected", tmp_path / "store")[0])
        assert (row["guid"], row["is_stored"], row["attempts"]) == (found[1], True, 1)
        run("replay", tmp_path / "store", "--guid", found[1], "-b", node.uri)
        (row,) = rows_of(run("tail", "bmq://fragile/q", "-b", node.uri, "--count", "1", "--json")[0])
    assert (row["payload"], row["properties"]["n"], row["properties"]["replay_guid"]) == ("poison", 1, found[1])


def test_a_cluster_without_letters(tmp_path: Path) -> None:
    with RocketProcess(tmp_path / "mq", grpc_port=0) as rocket:
        assert run("dead-letters", "list", "--nameserver", rocket.nameserver)[0] == "No group has dead letters.\n"
        assert json.loads(run("dead-letters", "list", "--nameserver", rocket.nameserver, "--output", "json")[0]) == []


def test_letters_that_other_clients_compressed_are_shown_and_sent_again(rocket: RocketProcess) -> None:
    at = ("--nameserver", rocket.nameserver)
    trio.run(store_bodies, rocket, "packed")
    trio.run(give_up, rocket, "packed", "packers", len(BODIES))
    eventually(lambda: len(trio.run(stored_bodies, rocket, "%DLQ%packers")) >= len(BODIES))
    output, errors = run("dead-letters", "show", "packers", *at, "--json", code=1)
    assert {row["payload"] for row in rows_of(output)} == {PLAIN.decode()}
    assert {row["message_id"] for row in rows_of(output)} == {f"{n:032X}" for n in range(len(BODIES) - 1)}
    assert "a body compressed with LZ4" in errors
    run("dead-letters", "resend", "packers", "--to", "topic", "--yes", *at)
    assert Counter(trio.run(stored_bodies, rocket, "packed")).keys() == {*BODIES}
    assert len(trio.run(stored_bodies, rocket, "packed")) >= 2 * len(BODIES)
