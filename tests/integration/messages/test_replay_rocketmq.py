"""`bmqctl replay` from and to real nodes of RocketMQ: each direction, and what is left of replays that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from bmqctl.carrying.replay.progress import ReplayStep, read_head
from bmqctl.client.remoting.client import Client
from bmqctl.client.remoting.consuming import QueuePuller
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.scan import LogScan
from bmqctl.stores.rocketmq.read.topics import DELAY_TOPIC
from bmqctl.testing import NodeProcess, RocketProcess
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties, encode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.bmqctl.stores.rocketmq.logs import message, write_log
from tests.rigs.official import Connect, queue_name
from tests.waiting import WAIT_S, eventually

COMMAND = (sys.executable, "-c", "from bmqctl.app import main; main()", "replay")
COUNT = 2000
QUEUES = 4
# Messages of the store of a node: their number, and how many are in each queue.
SENT = 24
EACH = SENT // QUEUES


@pytest.fixture(scope="module")
def rocket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path_factory.mktemp("rocket") / "store", grpc_port=0) as running:
        yield running


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a node that was killed: a topic with tags, keys and properties, and a message that waits."""
    with RocketProcess(tmp_path_factory.mktemp("crashed") / "store", grpc_port=0) as node:
        trio.run(fill, node)
        node.kill()
        return node.data_dir


async def fill(node: RocketProcess) -> None:
    async with Client.connect("127.0.0.1", node.nameserver_port) as client:
        queues = await client.create_topic("orders", QUEUES)
        link = await client.link_to(queues[0].address)
        for number in range(SENT + 1):
            is_delayed = number == SENT
            delay = {"DELAY": "18"} if is_delayed else {}
            properties = {
                "UNIQ_KEY": f"{number:032X}",
                "TAGS": f"t{number % 2}",
                "KEYS": f"k{number}",
                "n": str(number),
            }
            # Every other body is compressed, as a client would.
            is_packed = number % 2 == 0
            body = zlib.compress(b"body %d" % number) if is_packed else b"body %d" % number
            fields = {
                "a": "test",
                "b": "orders",
                "c": "TBW102",
                "d": "4",
                "e": str(number % QUEUES),
                "f": str(int(is_packed)),
                "g": "1795400000000",
                "h": str(number),
                "j": "0",
                "k": "false",
                "m": "false",
                "i": encode_properties({**properties, **delay}).decode(),
            }
            answer = await link.call(RequestCode.SEND_MESSAGE_V2, fields, WAIT_S, body)
            assert answer.code == ResponseCode.SUCCESS


def replay(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--json", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def account(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def to(rocket: RocketProcess, rest: str = "") -> tuple[str, str]:
    return "--to", f"rocketmq://{rocket.nameserver}{rest}"


def read_topic(rocket: RocketProcess, topic: str) -> dict[int, list[Record]]:
    """All messages of a topic, by queue."""

    async def main() -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {}
        async with Client.connect("127.0.0.1", rocket.nameserver_port) as client:
            for queue in await client.queues(topic):
                link = await client.link_to(queue.address)
                puller = QueuePuller(link, "reader", topic, queue.queue_id, WAIT_S)
                await puller.seek_end()
                end = puller.offset
                await puller.seek_begin()
                found[queue.queue_id] = []
                while puller.offset < end:
                    found[queue.queue_id] += await puller.pull_records(1024)
        return found

    return trio.run(main)


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)


def numbers(records: list[Record]) -> list[int]:
    return [int(properties_of(record)["n"]) for record in records]


def test_from_rocketmq_to_rocketmq(crashed: Path, rocket: RocketProcess) -> None:
    unknown = replay("--topic", "orders", *to(rocket), crashed)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == f"bmqctl replay: rocketmq://{rocket.nameserver}: the nameserver knows no topic orders\n"
    found = account(replay("--create-topics", "--delayed", *to(rocket), crashed))
    assert (found["selected"], found["posted"]) == (SENT + 1, SENT + 1)
    queues = read_topic(rocket, "orders")
    assert {queue: numbers(records) for queue, records in queues.items()} == {
        queue: [*range(queue, SENT, QUEUES)] for queue in range(QUEUES)
    }
    for records in queues.values():
        for record in records:
            number = numbers([record])[0]
            properties = properties_of(record)
            assert (bytes(record.body), record.flag) == (b"body %d" % number, number)
            assert (properties["TAGS"], properties["KEYS"]) == (f"t{number % 2}", f"k{number}")
            assert properties["rocketmq_id"] == f"{number:032X}" != properties["UNIQ_KEY"]
            assert properties["rocketmq_queue"].startswith("orders/")
            assert int(properties["rocketmq_offset"]) == number // QUEUES
    # The delayed one waits here, too.
    waiting = [
        decode_properties(properties)
        for chunk in LogScan(open_store(rocket.data_dir).log).chunks()
        for topic, properties in zip(chunk.records.topics(), chunk.records.properties(), strict=True)
        if topic == DELAY_TOPIC.encode()
    ]
    assert [(each["n"], each["DELAY"], each["REAL_TOPIC"], each["REAL_QID"]) for each in waiting] == [
        (str(SENT), "18", "orders", "0")
    ]


def test_to_one_queue_or_by_a_key(crashed: Path, rocket: RocketProcess) -> None:
    assert account(replay("--create-topics", *to(rocket, "/one?queue=2"), crashed))["posted"] == SENT
    queues = read_topic(rocket, "one")
    assert {queue: len(records) for queue, records in queues.items()} == {0: 0, 1: 0, 2: SENT, 3: 0}
    assert numbers(queues[2]) == [*range(SENT)]
    account(replay("--create-topics", *to(rocket, "/keyed?key=TAGS"), crashed))
    keyed = [records for records in read_topic(rocket, "keyed").values() if records]
    assert sorted(numbers(records) for records in keyed) in (
        [[*range(0, SENT, 2)], [*range(1, SENT, 2)]],
        [[*range(SENT)]],
    )
    missing = replay(*to(rocket, "/one?queue=9"), crashed)
    assert missing.returncode == 2
    assert "topic one has 4 queues, and none with number 9" in missing.stderr


def test_from_rocketmq_to_blazingmq_and_back(
    crashed: Path, rocket: RocketProcess, node: NodeProcess, connect: Connect
) -> None:
    uri = queue_name()
    options = ("--broker", node.uri, "--tag", "t1", "--where", "n >= 5")
    found = account(replay(*options, "--to", uri, crashed))
    wanted = [*range(5, SENT, 2)]
    assert (found["selected"], found["posted"]) == (len(wanted), len(wanted))
    client = connect(node)
    client.open(uri, read=True)
    posted = [each for each, _ in client.wait_for_messages(len(wanted))]
    assert [int(each.properties["n"]) for each in posted] == wanted
    assert [each.data for each in posted] == [b"body %d" % number for number in wanted]
    first = posted[0].properties
    assert (first["TAGS"], first["KEYS"], first["rocketmq_id"]) == ("t1", "k5", f"{5:032X}")
    assert (first["rocketmq_flag"], first["rocketmq_offset"]) == (5, 1)
    # Back, from the store of a node that runs.
    back = account(replay("--queue", uri, "--create-topics", *to(rocket, "/back"), node.data_dir))
    assert back["posted"] == len(wanted)
    records = read_topic(rocket, "back")[0]
    assert numbers(records) == wanted
    for record, number in zip(records, wanted, strict=True):
        properties = properties_of(record)
        assert (bytes(record.body), record.flag) == (b"body %d" % number, number)
        assert (properties["TAGS"], properties["KEYS"]) == ("t1", f"k{number}")
        assert properties["rocketmq_id"] == f"{number:032X}"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of four queues by turns, one each 2 ms."""
    first_ms = 1_795_400_000_000
    made = (message(number, stored_ms=first_ms + 2 * number, properties={"n": str(number)}) for number in range(COUNT))
    return write_log(tmp_path_factory.mktemp("large") / "store", made).root


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "--json", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def steps(state: Path) -> Counter[int]:
    """Count the messages at each `ReplayStep` in the file; none if it does not exist."""
    head = read_head(state)
    return Counter(state.read_bytes()[-head.messages :]) if head is not None else Counter()


def wait_for_posted(state: Path, count: int) -> None:
    eventually(lambda: steps(state)[ReplayStep.POSTED] > count)


def check_all(rocket: RocketProcess, topic: str) -> int:
    """Check that all messages are in their queues, and that copies are in their order; return how many copies are."""
    copies = 0
    for queue, records in read_topic(rocket, topic).items():
        found = numbers(records)
        wanted = [*range(queue, COUNT, QUEUES)]
        assert list(dict.fromkeys(found)) == wanted, "lost, or a first copy out of order"
        assert list(dict.fromkeys(reversed(found))) == wanted[::-1], "a last copy out of order"
        assert len({properties_of(record)["UNIQ_KEY"] for record in records}) == len(wanted)
        copies += len(found) - len(wanted)
    return copies


def test_killed_again_and_again_it_loses_nothing(tmp_path: Path, large: Path, rocket: RocketProcess) -> None:
    state = tmp_path / "state"
    options = ("--state", state, "--create-topics", *to(rocket, "/killed"))
    for part in (1, 2):
        # At this pace the whole takes 4 s: each run is killed on its way.
        process = start(*options, "--pace", "original", large)
        wait_for_posted(state, part * COUNT // 5)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
    before = steps(state)
    assert 0 < before[ReplayStep.POSTED] < COUNT
    found = account(replay(*options, large))
    assert (found["before"], found["posted_again"]) == (before[ReplayStep.POSTED], before[ReplayStep.SENT])
    assert found["before"] + found["posted"] == found["selected"] == COUNT
    # Messages in flight may be there twice, under one id.
    check_all(rocket, "killed")
    assert account(replay(*options, large))["before"] == COUNT


def test_a_node_that_is_killed_meanwhile(tmp_path: Path, large: Path) -> None:
    state = tmp_path / "state"
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        process = start("--state", state, "--pace", "original", "--create-topics", *to(node, "/orders"), large)
        for part in (1, 2):
            wait_for_posted(state, part * COUNT // 5)
            node.restart(signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert json.loads(out)["posted"] == COUNT
        check_all(node, "orders")


def test_a_node_that_stays_away_ends_patience(tmp_path: Path, large: Path) -> None:
    state = tmp_path / "state"
    with RocketProcess(tmp_path / "store", grpc_port=0) as node:
        options = ("--state", state, "--create-topics", *to(node, "/orders"))
        process = start(*options, "--pace", "original", "--patience", "3", large)
        wait_for_posted(state, COUNT // 5)
        node.kill()
        out, err = process.communicate(timeout=120)
        assert process.returncode == 1, err
        found = json.loads(out)
        assert "for 3 s" in found["ended_by"]
        assert found["posted"] + found["unanswered"] + found["left"] == COUNT
        assert f"run again with --state {state}" in err
        node.start()
        assert account(replay(*options, large))["before"] == found["posted"]
        check_all(node, "orders")


def test_sigint_ends_it_with_an_account(tmp_path: Path, large: Path, rocket: RocketProcess) -> None:
    state = tmp_path / "state"
    options = ("--state", state, "--create-topics", *to(rocket, "/interrupted"))
    process = start(*options, "--pace", "0.5", large)
    wait_for_posted(state, 10)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["interrupted"]
    assert found["unanswered"] == 0
    assert found["posted"] == steps(state)[ReplayStep.POSTED] > 10
    assert found["posted"] + found["left"] == COUNT


def test_a_message_that_is_too_large_is_refused_and_the_others_go(tmp_path: Path, rocket: RocketProcess) -> None:
    bodies = [b"first", b"x" * (5 << 20), b"last"]
    made = [message(n, body=body, queue_id=0, properties={"n": str(n)}) for n, body in enumerate(bodies)]
    store = write_log(tmp_path / "store", made, file_bytes=1 << 24).root
    done = replay("--create-topics", *to(rocket, "/sizes"), store)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["selected"], found["posted"], found["refused"]) == (3, 2, 1)
    assert numbers(read_topic(rocket, "sizes")[0]) == [0, 2]
