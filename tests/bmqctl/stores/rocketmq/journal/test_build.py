"""`bmqctl journal build` of RocketMQ stores: stores of the original to lines and back, and what our broker writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmqctl.stores.rocketmq.build import BuildOptions, LogStoreBuilder, build_log_store, read_build_options
from bmqctl.stores.rocketmq.build_files import StoreSizes
from bmqctl.stores.rocketmq.lines import BadMessage
from bmqctl.testing import RocketProcess
from broker.rocketmq.delays.levels import make_due_time
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.options import DELAY_LEVELS, parse_delay_levels
from broker.shell.files.folders import FileFolder
from formats.rocketmq.flags import SystemFlag, Transaction
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import encode_properties
from tests.bmqctl.stores.conftest import Outcome
from tests.broker.rocketmq.answers import records_of
from tests.families import examples
from tests.golden.rocketmq.stores import read_back
from tests.rigs.remoting import Remote

Run = Callable[..., Outcome]

START_MS = 1_767_225_600_000
SIZES = StoreSizes(1 << 16, 100 * 20, 50, 40)
CONFIG = "mappedFileSizeCommitLog=262144\nmappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=500\nmaxIndexNum=400\n"


def build(directory: Path, lines: Iterable[dict[str, Any]], sizes: StoreSizes = SIZES) -> LogStoreBuilder:
    directory.mkdir()
    options = read_build_options(None)._replace(sizes=sizes)
    return build_log_store(map(json.dumps, lines), directory, START_MS, options)


def files_of(root: Path, *folders: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def test_golden_store_to_lines_and_back(run: Run, golden_store: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(CONFIG)
    dumped = run("dump", "--payload", "stored", "--payload-limit", 0, golden_store).out
    lines = tmp_path / "lines.jsonl"
    lines.write_text(dumped)
    outcome = run("build", lines, "--out", tmp_path / "built", "--config", config)
    assert outcome.code == 0, outcome.err
    assert "topic GOne: 650 messages, 1 queues" in outcome.out
    built = tmp_path / "built"
    assert run("dump", "--payload", "stored", "--payload-limit", 0, built).out == dumped
    found = json.loads(run("diff", "--json", golden_store, built).out)
    assert (found["status"], found["queues"]) == ("equal", [])
    # Files of the index are named by the clock.
    assert list(files_of(built, "index").values()) == list(files_of(golden_store, "index").values())
    assert (built / "checkpoint").read_bytes() == (golden_store / "checkpoint").read_bytes()


def messages() -> Iterable[Message]:
    """Messages of all sorts: with and without keys, of IPv6, delayed, of transactions, of a lite topic."""
    v4, v6 = Host("10.0.0.1", 5).pack(), Host("fd00::2", 10911).pack()
    for number in range(700):
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number} other"} if number % 5 else {}
        properties |= {"TAGS": "paid"} if number % 3 else {}
        flags, topic = 0, f"topic-{number % 2}" if number % 50 else "t" * 130
        if number % 11 == 0:
            topic, properties["DELAY"] = "SCHEDULE_TOPIC_XXXX", str(number % 4)
        if number % 13 == 0:
            flags = int(Transaction.PREPARED if number % 2 else Transaction.ROLLBACK)
        if number % 17 == 0:
            topic, name = "parent", f"%LMQ%$parent$lite-{number % 2}"
            properties["__LITE_TOPIC"] = f"lite-{number % 2}"
            properties["INNER_MULTI_DISPATCH"], properties["INNER_MULTI_QUEUE_OFFSET"] = name, str(number // 34)
        yield Message(
            topic=topic,
            queue_id=number % 3,
            flag=number,
            system_flags=flags | (int(SystemFlag.STORE_HOST_V6) if number % 7 == 0 else 0),
            born_ms=START_MS - number,
            born_host=v4,
            store_host=v6 if number % 7 == 0 else v4,
            reconsume_times=number % 4,
            prepared_transaction_offset=number,
            body=bytes([number % 256]) * (number % 400),
            properties=encode_properties(properties),
        )


def test_files_are_those_that_our_broker_writes(run: Run, tmp_path: Path) -> None:
    names = iter(range(100))
    options = StoreOptions(*SIZES)
    ours = open_store(
        FileFolder(tmp_path / "ours"),
        options,
        lambda ms: f"{next(names):017d}",
        make_due_time(parse_delay_levels(DELAY_LEVELS)),
    )
    for number, message in enumerate(messages()):
        Writer(ours).put(message, START_MS + 10 * number)
    ours.close()
    dumped = run("dump", "--payload", "auto", "--payload-limit", 0, tmp_path / "ours").out
    build(tmp_path / "built", map(json.loads, dumped.splitlines()))
    assert run("dump", "--payload", "auto", "--payload-limit", 0, tmp_path / "built").out == dumped
    wanted = files_of(tmp_path / "ours", "commitlog", "consumequeue")
    assert len(wanted) > 12
    assert files_of(tmp_path / "built", "commitlog", "consumequeue") == wanted
    index = files_of(tmp_path / "ours", "index")
    assert len(index) > 10
    assert list(files_of(tmp_path / "built", "index").values()) == list(index.values())
    assert (tmp_path / "built" / "checkpoint").read_bytes() == (tmp_path / "ours" / "checkpoint").read_bytes()


def test_defaults(run: Run, tmp_path: Path) -> None:
    built = build(tmp_path / "store", [{"topic": "orders", "payload": text} for text in ("a", "b")])
    assert built.messages == {"orders": 2}
    rows = [json.loads(line) for line in run("dump", "--payload", "auto", tmp_path / "store").out.splitlines()]
    assert [(row["queue_offset"], row["payload"], row["stored_ms"]) for row in rows] == [
        (0, "a", START_MS),
        (1, "b", START_MS),
    ]
    assert rows[0]["store_host"] == "127.0.0.1:10911"
    build(tmp_path / "again", [{"topic": "orders", "payload": text} for text in ("a", "b")])
    assert files_of(tmp_path / "again", ".") == files_of(tmp_path / "store", ".")


def test_queue_that_begins_later_and_anew(run: Run, tmp_path: Path) -> None:
    lines = [{"topic": "t", "queue_offset": number} for number in (250, 251, 3, 4)]
    build(tmp_path / "store", lines)
    (queue,) = [
        json.loads(line) for line in run("queues", "--output", "json-line", tmp_path / "store").out.splitlines()
    ]
    assert (queue["begin"], queue["end"]) == (3, 5)
    build(tmp_path / "later", lines[:2])
    (queue,) = [
        json.loads(line) for line in run("queues", "--output", "json-line", tmp_path / "later").out.splitlines()
    ]
    assert (queue["begin"], queue["end"]) == (250, 252)


def test_log_that_begins_later(run: Run, tmp_path: Path) -> None:
    build(tmp_path / "store", [{"topic": "t", "offset": 3 << 16}, {"topic": "t"}])
    first, second = run("dump", tmp_path / "store").out.splitlines()
    assert json.loads(first)["offset"] == 3 << 16
    assert json.loads(second)["offset"] > 3 << 16
    assert run("dump", tmp_path / "store").code == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("7", "is not a JSON object"),
        ('{"queue_id": 3}', "topic: is required"),
        ('{"topic": "../../etc"}', "cannot be the name of a folder"),
        ('{"topic": "a", "queue_id": true}', "queue_id: is not a number between 0 and 65535"),
        ('{"topic": "a", "queue_id": 65536}', "queue_id: is not a number"),
        ('{"topic": "a", "stored_ms": -1}', "stored_ms: is not a number"),
        ('{"topic": "a", "payload": "x", "body_hex": "00"}', "give at most one of them"),
        ('{"topic": "a", "payload_hex": "0"}', "payload_hex: is not hexadecimal"),
        ('{"topic": "a", "properties": {"k": 1}}', "properties: is no object of texts"),
        ('{"topic": "a", "properties": {"k": "\\u0002"}}', "contains a separator"),
        ('{"topic": "a", "properties": {"k": "\\ud800"}}', "half of a surrogate pair"),
        ('{"topic": "a", "payload": "x", "body_crc": 7}', "dump with --payload stored"),
        ('{"topic": "a", "size": 7}', "omit size and offset"),
        ('{"topic": "a", "offset": 7}', "a log begins at the begin of a file"),
        ('{"topic": "a", "born_host": "no"}', "born_host: is not ADDRESS:PORT"),
        ('{"topic": "a", "born_host": "1.2.3.4:70000"}', "born_host: is not ADDRESS:PORT"),
        ('{"topic": "a", "system_flags": 513, "payload": "x"}', "only zlib"),
        ('{"topic": "a", "system_flags": 1281, "payload": "x"}', "no version compresses"),
        ('{"topic": "a", "payload": "x", "payload_omitted": 5}', "--payload-limit 0"),
        ('{"offset": 0, "size": 9, "fault": "holds no record"}', "is a fault"),
        ('{"topic": "a", "tpoic": "b"}', "tpoic: is unknown"),
        ('{"topic": "a", "payload": "%s"}' % ("x" * (1 << 16)), "does not fit into a file of 65536"),
    ],
)
def test_line_without_a_message_is_reported(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(BadMessage) as raised:
        build_log_store(["", line], tmp_path, START_MS, BuildOptions(SIZES))
    assert str(raised.value).startswith("line 2: ")
    assert reason in str(raised.value)


def test_contradictions_between_lines_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadMessage, match="line 2: queue_offset: 7, but the next one of queue 0 of a is 1"):
        build(tmp_path / "1", [{"topic": "a"}, {"topic": "a", "queue_offset": 7}])
    with pytest.raises(BadMessage, match="line 2: offset: 77, but this record goes to 92"):
        build(tmp_path / "2", [{"topic": "a"}, {"topic": "a", "offset": 77}])


def test_command_refuses_in_one_line(run: Run, tmp_path: Path) -> None:
    lines, config = tmp_path / "lines.jsonl", tmp_path / "broker.conf"
    lines.write_text('{"topic": "a"}\n{"topic": "b", "x": 1}\n')
    outcome = run("build", lines, "--out", tmp_path / "out")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{lines}: line 2: x: is unknown" in outcome.err
    config.write_text("mappedFileSizeCommitLog=7\n")
    outcome = run("build", lines, "--out", tmp_path / "new", "--config", config)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "mappedFileSizeCommitLog=7: is not a number between 4096" in outcome.err
    lines.write_text('{"type": "MESSAGE", "queue_uri": "bmq://a.b/c"}\n')
    assert run("build", lines, "--out", tmp_path / "bmq", "--config", config).code == 2


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.text(max_size=8),
    st.sampled_from(["FF", "1.2.3.4:5", "[::1]:9"]),
)
NAMES = ["topic", "queue_id", "queue_offset", "offset", "size", "born_host", "payload", "body_hex", "stored_ms", "flag"]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4), max_size=4))
def test_garbage_is_refused_or_can_be_dumped(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("garbage")
    try:
        build_log_store(
            map(json.dumps, [{"topic": "t", **line} for line in lines]), root, START_MS, BuildOptions(SIZES)
        )
    except BadMessage:
        return
    assert (root / "checkpoint").is_file()


@pytest.mark.process
def test_our_broker_serves_what_was_built(run: Run, golden_store: Path, tmp_path: Path) -> None:
    config, lines = tmp_path / "broker.conf", tmp_path / "lines.jsonl"
    config.write_text(CONFIG)
    lines.write_text(run("dump", "--payload", "stored", "--payload-limit", 0, golden_store).out)
    assert run("build", lines, "--out", tmp_path / "store", "--config", config).code == 0
    wanted = {
        row["queueOffset"]: base64.b64decode(row["bodyB64"])
        for row in read_back().values()
        if row["topic"] == "GOne" and row["queueId"] == 0 and "bodyB64" in row
    }
    with RocketProcess(tmp_path / "store", config_file=config) as node:
        with Remote(node.port) as remote:
            found: dict[int, bytes] = {}
            while len(found) < 650:
                records = records_of(remote.answer(remote.pull("GOne", len(found))))
                found |= {record.queue_offset: bytes(record.body) for record in records}
            assert {number: found[number] for number in wanted} == wanted
            answer = remote.send_message("GOne", b"next")
            assert answer.ext_fields is not None
            assert answer.ext_fields["queueOffset"] == "650"
        assert node.stop() == 0
        # It had nothing to mend.
        assert "broker.rocketmq.store" not in node.output
