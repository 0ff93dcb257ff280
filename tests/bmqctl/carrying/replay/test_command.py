"""`bmqctl replay` without a broker: dry runs, refusals, and a broker that is not there or refuses."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bmqctl.app import app
from bmqctl.carrying.replay.plan import Selection, make_plan
from bmqctl.carrying.replay.progress import Head, ReplayStep, open_state
from bmqctl.stores.blazingmq.read.reader import JournalReader
from bmqctl.testing import free_port
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE, FileType
from tests.bmqctl.carrying.replay.stores import FANOUT, PRIORITY, build, guid, lines, message
from tests.bmqctl.stores.rocketmq.logs import message as log_message
from tests.bmqctl.stores.rocketmq.logs import write_log
from tests.golden.archives import STORES, only, storage_records, unpack_store
from tests.golden.rocketmq.stores import read_back, unpack


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def account(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    parts = ("before", "posted", "refused", "unreadable", "unfit", "unanswered", "left")
    for each in (found, *found["queues"]):
        assert each["selected"] == sum(each[part] for part in parts)
    assert found["selected"] == sum(each["selected"] for each in found["queues"])
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return build(tmp_path / "store", lines())


def test_a_dry_run_reads_all_and_says_what_would_go_where(store: Path) -> None:
    result = run("--dry-run", "--rename", "bmq://bmq.test.persistent.*=bmq://bmq.test.mem.*", store)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1][:4] == [FANOUT, "bmq://bmq.test.mem.fanout/replayed", "6", "6"]
    assert rows[2][:4] == [PRIORITY, "bmq://bmq.test.mem.priority/replayed", "5", "5"]
    assert rows[3] == ["in", "all", "11", "11", f"{6 * 9 + 4 * 10 + 3300:,}"]
    assert result.stdout.splitlines()[4].startswith("11 of 11 messages could be posted; nothing was posted, in ")


def test_the_queues_are_rows_for_programs(store: Path) -> None:
    queues = account(run("--dry-run", "--output", "json", store))["queues"]
    lines = run("--dry-run", "--output", "jsonl", store).stdout.splitlines()
    assert list(map(json.loads, lines)) == queues
    rows = list(csv.DictReader(io.StringIO(run("--dry-run", "--output", "csv", store).stdout)))
    assert rows == [{name: str(value) for name, value in queue.items()} for queue in queues]
    assert [row["from"] for row in rows] == [FANOUT, PRIORITY]


def test_damaged_messages_are_counted_and_told(store: Path) -> None:
    data = only(store, FileType.DATA.extension)
    data.write_bytes(data.read_bytes().replace(b"message 12", b"message xx"))
    result = run("--dry-run", "--json", store)
    assert result.exit_code == 1
    found = account(result)
    assert (found["selected"], found["posted"], found["unreadable"]) == (11, 10, 1)
    assert "its checksum does not match the journal" in result.stderr


def test_damaged_journals_are_told(store: Path) -> None:
    journal = only(store, FileType.JOURNAL.extension)
    content = bytearray(journal.read_bytes())
    with JournalReader(journal) as reader:
        at = reader.offset_of(reader.index_of(content.index(bytes.fromhex(guid(10)))) - 1)
    content[at : at + JOURNAL_RECORD_SIZE] = bytes(JOURNAL_RECORD_SIZE)
    journal.write_bytes(content)
    result = run("--dry-run", "--json", store)
    assert result.exit_code == 1
    assert account(result)["selected"] == 10
    assert "hold no record: see bmqctl journal validate" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_all_messages_of_the_reference_s_stores_can_be_read(tmp_path: Path, name: str) -> None:
    found = account(run("--dry-run", "--json", unpack_store(name, tmp_path)))
    records = [each for each in storage_records(name) if each["RecordType"] == "MESSAGE"]
    assert found["selected"] >= len(records) > 0
    assert found["unreadable"] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--pace", "0"], "--pace 0: expected max, original, or a factor above 0"),
        (["--pace", "nan"], "--pace nan: expected max"),
        (["--pace", "fast"], "--pace fast: expected max"),
        (["--broker", "ftp://x"], "--broker ftp://x: expected tcp://HOST:PORT"),
        (["--where", "region =="], "--where: syntax error"),
        (["--where", "true"], "--where: expression does not use any properties"),
        (["--guid", "xyz"], "--guid xyz: a GUID has 32 hexadecimal digits"),
        (["--queue", "bmq://a/b"], "--queue bmq://a/b: not in the store"),
        (["--since", "yesterday"], "'yesterday' is not a time"),
        (["--since", "5", "--until", "5"], "--since must be before --until"),
        (["--partition", "7"], "--partition 7: "),
        (["--rename", "x"], "'x': write FROM=TO"),
        (["--rename", f"{PRIORITY}=bmq://a/b?id=c"], "not to one of its apps"),
    ],
)
def test_refusals_are_one_line(store: Path, options: list[str], reason: str) -> None:
    result = run(*options, store)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("bmqctl replay: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_store_no_broker(store: Path, tmp_path: Path) -> None:
    missing = run(tmp_path / "nowhere")
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    port = free_port()
    alone = run("--broker", f"tcp://127.0.0.1:{port}", store)
    assert alone.exit_code == 2
    assert f"no broker at 127.0.0.1:{port}: " in alone.stderr
    data = only(store, FileType.DATA.extension)
    assert f"{data} is a DATA file: name the .bmq_journal file beside it" in run(data).stderr
    assert "is not a file of a BlazingMQ store" in run(__file__).stderr
    data.unlink()
    assert "has no DATA file next to it" in run("--dry-run", store).stderr


def test_a_guid_that_is_not_there_is_missed(store: Path) -> None:
    result = run("--dry-run", "--json", "--guid", guid(1), "--guid", guid(99), store)
    assert result.exit_code == 1
    assert account(result)["posted"] == 1
    assert f"no record has the GUID {guid(99)}" in result.stderr


def test_nothing_selected_is_no_fault(store: Path) -> None:
    result = run("--status", "no-quorum", "--json", store)
    assert result.exit_code == 0
    assert account(result)["selected"] == 0


def test_a_queue_without_a_name_needs_one(tmp_path: Path) -> None:
    store = build(tmp_path / "store", [{"type": "QUEUE_OP", "queue_uri": PRIORITY}, message(1, PRIORITY)])
    for extension in (FileType.QLIST.extension, ".bmq_csl"):
        only(store, extension).unlink()
    result = run("--dry-run", store)
    assert result.exit_code == 2
    key = result.stderr.split("the queue with key ")[1][:10]
    named = run("--dry-run", "--json", "--rename", f"{key}={PRIORITY}", store)
    assert account(named)["queues"][0]["to"] == PRIORITY


def write_state(state: Path, store: Path) -> None:
    """Write the state left by a run that never reached its first message."""
    with ExitStack() as stack:
        plan = make_plan([only(store, FileType.JOURNAL.extension)], Selection(), stack)
        about: dict[str, Any] = {name: [] for name in ("--queue", "--app", "--guid", "--status", "--rename")}
        about |= dict.fromkeys(("--since", "--until", "--where"))
        stack.enter_context(open_state(state, Head.new(plan.digest(), len(plan.entries), plan.ends, about)))


def test_a_state_of_another_replay_is_refused(store: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    write_state(state, store)
    for options, reason in (
        (["--queue", PRIORITY], f"--queue was not given, and is {PRIORITY}"),
        (["--rename", f"{PRIORITY}={FANOUT}"], f"--rename was not given, and is {PRIORITY}={FANOUT}"),
        (["--status", "expired"], "--status was not given, and is expired"),
    ):
        result = run("--dry-run", "--state", state, *options, store)
        assert result.exit_code == 2
        assert reason in result.stderr
    other = build(tmp_path / "other", [{"type": "QUEUE_OP", "queue_uri": PRIORITY}, message(1, PRIORITY)])
    result = run("--state", state, other)
    assert result.exit_code == 2
    assert " records, and had " in result.stderr
    result = run("--state", store, store)
    assert (result.exit_code, result.stderr) == (2, f"bmqctl replay: {store}: Is a directory\n")


def test_a_dry_run_leaves_the_state_as_it_is(store: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert run("--dry-run", "--state", state, store).exit_code == 0
    assert not state.exists()
    write_state(state, store)
    content = bytearray(state.read_bytes())
    content[-11:-5] = bytes([ReplayStep.POSTED] * 5 + [ReplayStep.SENT])
    state.write_bytes(content)
    found = account(run("--dry-run", "--json", "--state", state, store))
    assert (found["before"], found["posted"], found["posted_again"]) == (5, 6, 1)
    assert state.read_bytes() == content


@pytest.fixture
def rocketmq_store(tmp_path: Path) -> Path:
    return write_log(tmp_path / "rocketmq", map(log_message, range(8))).root


def test_a_dry_run_of_a_rocketmq_store(rocketmq_store: Path) -> None:
    result = run("--dry-run", "--rename", "*=bmq://bmq.test.persistent.priority/*", rocketmq_store)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[1] == ["orders", "bmq://bmq.test.persistent.priority/orders", "8", "8", "48"]
    same = account(run("--dry-run", "--json", "--tag", "paid", "--to", "rocketmq://127.0.0.1:9876", rocketmq_store))
    assert [(each["from"], each["to"], each["posted"]) for each in same["queues"]] == [("orders", "orders", 4)]
    renamed = ("--rename", "orders=old", "--to", "rocketmq://127.0.0.1:9876")
    assert account(run("--dry-run", "--json", *renamed, rocketmq_store))["queues"][0]["to"] == "old"


def test_a_dry_run_from_one_system_to_the_other(store: Path) -> None:
    found = account(run("--dry-run", "--json", "--to", "rocketmq://127.0.0.1:9876/all", store))
    assert {each["to"] for each in found["queues"]} == {"all"}
    assert (found["selected"], found["posted"]) == (11, 11)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "orders is a topic, and BlazingMQ has queues: name one, --rename orders=bmq://DOMAIN/QUEUE"),
        (["--queue", "bmq://a/b"], "is a RocketMQ store, and --queue is for BlazingMQ's"),
        (["--status", "expired"], "and --status is for BlazingMQ's"),
        (["--partition", "0"], "and --partition is for BlazingMQ's"),
        (["--topic", "x", "--to", "bmq://a/b"], "--topic x: not in the store; known names: orders"),
        (["--group", "x", "--to", "bmq://a/b"], "--group x: has no progress in the store; known names: none"),
        (["--delayed", "--to", "bmq://a/b"], "--delayed: BlazingMQ has no delays"),
        (["--to", "bmq://a/b?id=c"], "--to bmq://a/b?id=c: messages are posted to a queue, not to one of its apps"),
        (["--to", "nowhere"], "--to nowhere: expected bmq://DOMAIN/QUEUE or rocketmq://HOST:PORT/TOPIC"),
        (["--to", "rocketmq://mq"], "--to rocketmq://mq: expected rocketmq://HOST:PORT/TOPIC"),
        (["--to", "rocketmq://mq:1", "--rename", "orders=a.b"], "a.b is no topic: name one"),
        (["--to", "rocketmq://mq:1", "--rename", "x=y"], "--rename x: the store has no such queue or topic"),
        (["--to", "rocketmq://mq:1/t", "--rename", "orders=y"], "--to names t for all messages; give one of the two"),
    ],
)
def test_refusals_of_rocketmq_stores_are_one_line(rocketmq_store: Path, options: list[str], reason: str) -> None:
    result = run(*options, rocketmq_store)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("bmqctl replay: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_faults_of_rocketmq_stores(rocketmq_store: Path, tmp_path: Path, store: Path) -> None:
    port = free_port()
    nobody = run("--to", f"rocketmq://127.0.0.1:{port}", rocketmq_store)
    assert nobody.exit_code == 2
    assert f"rocketmq://127.0.0.1:{port}: all attempts to connect" in nobody.stderr
    assert "--topic is for these" in run("--topic", "orders", store).stderr
    assert "bmq://bmq.test.persistent.fanout/replayed is no topic" in run("--to", "rocketmq://mq:1", store).stderr
    (tmp_path / "nothing").mkdir()
    assert "and no commitlog of a RocketMQ store" in run(tmp_path / "nothing").stderr
    part = rocketmq_store / "commitlog"
    assert f"is a part of a store: name the store, {rocketmq_store}" in run(part).stderr
    (file,) = part.iterdir()
    missed = f"{99:032X}"
    unseen = run("--dry-run", "--json", "--id", missed, "--to", "bmq://a/b", rocketmq_store)
    assert (unseen.exit_code, unseen.stderr) == (1, f"bmqctl replay: no message has the id {missed}\n")
    content = bytearray(file.read_bytes())
    content[content.index(b"body 5")] ^= 1
    file.write_bytes(content)
    damaged = run("--dry-run", "--json", "--to", "bmq://a/b", rocketmq_store)
    assert damaged.exit_code == 1
    assert (account(damaged)["posted"], account(damaged)["unreadable"]) == (7, 1)
    assert "commitlog: the message at offset " in damaged.stderr
    assert "the checksum of the body differs" in damaged.stderr
    file.write_bytes(bytes(range(256)) * 40)
    garbage = run("--dry-run", "--json", "--to", "bmq://a/b", rocketmq_store)
    assert garbage.exit_code == 1
    assert account(garbage)["selected"] == 0
    assert "1 places of the commit log hold no record that can be replayed" in garbage.stderr


@pytest.mark.slow
def test_java_s_store_is_replayed_as_its_consumers_read_it(tmp_path: Path) -> None:
    (golden,) = unpack("store", tmp_path)
    # The reader read all topics, also those of the broker.
    counts = Counter(each["topic"] for each in read_back().values())
    found = account(run("--dry-run", "--json", "--to", "rocketmq://127.0.0.1:9876", golden))
    names = {"GNormal", "GOne", "GFifo", "GDelay", "GTx", "GSql", "GMixed"}
    assert {each["from"]: each["posted"] for each in found["queues"]} == {name: counts[name] for name in names}
