"""Domains with limits, on a real node: expressions, times to live, quotas, poison pills, apps that come and go."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from blazingmq import AckStatus

from bmqctl.client.admin import AdminClient
from bmqctl.client.protocol.events import StreamOptions, StreamSubscription
from bmqctl.client.session import Queue, Session
from bmqctl.testing import NodeProcess
from tests.rigs.config_files import domain, write_config
from tests.rigs.official import Connect
from tests.waiting import WAIT_S, eventually

DOMAINS: dict[str, dict[str, Any]] = {
    "plain": {},
    "short": {"messageTtl": 1},
    "poison": {"maxDeliveryAttempts": 2},
    "watched": {"maxIdleTime": 1},
    "few": {"maxQueues": 2, "maxConsumers": 1},
    "picky": {
        "mode": {"fanout": {"appIDs": ["all", "some"]}},
        "subscriptions": [{"appId": "some", "expression": {"version": "E_VERSION_1", "text": "size > 10"}}],
    },
    "faulty": {"subscriptions": [{"appId": "", "expression": {"version": "E_VERSION_1", "text": "size >"}}]},
}


def write_domain(folder: Path, name: str, **changes: Any) -> None:
    definition = domain(name, {"priority": {}}, messages_max=5 if name == "plain" else 1000)
    definition["definition"]["parameters"] |= changes
    (folder / "domains" / f"{name}.json").write_text(json.dumps(definition))


@pytest.fixture(scope="module")
def config_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_config(tmp_path_factory.mktemp("config") / "etc")
    for name, changes in DOMAINS.items():
        write_domain(folder, name, **changes)
    return folder


@pytest.fixture(scope="module")
def node(config_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "store", config_dir=config_dir) as running:
        yield running


async def take(queue: Queue, count: int) -> list[bytes]:
    """The next messages, confirmed."""
    payloads = []
    with trio.fail_after(WAIT_S):
        async for message in queue:
            payloads.append(message.payload)
            queue.confirm(message)
            if len(payloads) == count:
                break
    return payloads


def wanting(*texts: str, **limits: Any) -> StreamOptions:
    return StreamOptions(subscriptions=tuple(StreamSubscription(text) for text in texts), **limits)


def test_consumers_get_what_they_ask_for(node: NodeProcess) -> None:
    uri = "bmq://picky/expressions"

    async def run() -> None:
        async with Session.connect("127.0.0.1", node.port) as session, Session.connect("127.0.0.1", node.port) as other:
            producer = await session.open_queue(uri, write=True)
            small = await session.open_queue(f"{uri}?id=all", read=True, options=wanting('kind == "a" && size < 10'))
            large = await other.open_queue(f"{uri}?id=all", read=True, options=wanting("size >= 10", "!exists(kind)"))
            some = await other.open_queue(f"{uri}?id=some", read=True)
            for size, kind in ((1, "a"), (11, "a"), (2, "b"), (12, "b"), (3, "a")):
                await producer.post(b"%d%s" % (size, kind.encode()), properties={"size": size, "kind": kind})
            await producer.post(b"bare")
            assert await take(small, 2) == [b"1a", b"3a"]
            assert await take(large, 3) == [b"11a", b"12b", b"bare"]
            assert await take(some, 2) == [b"11a", b"12b"]
            # Put aside until somebody wants it.
            last = await session.open_queue(f"{uri}-2", write=True)
            assert last is not producer
        async with Session.connect("127.0.0.1", node.port) as session:
            rest = await session.open_queue(f"{uri}?id=all", read=True, options=wanting('kind == "b"'))
            assert await take(rest, 1) == [b"2b"]

    trio.run(run)


def test_messages_expire(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = "bmq://short/q"
    client.open(uri, write=True)
    client.post_all(uri, [b"message %d" % number for number in range(50)])
    # Two lines where the second of the posts' time changes among them.
    count = re.compile(r"garbage-collected \[(\d+)\] messages due to TTL expiration")
    eventually(lambda: sum(map(int, count.findall(node.log))) == 50)
    reader = connect(node)
    reader.open(uri, read=True)
    reader.barrier()
    assert reader.delivered == []


def test_quotas_and_watermarks(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = "bmq://plain/quota"
    client.open(uri, write=True)
    acks = client.post_all(uri, [b"x"] * 8)
    assert [ack.status for ack in acks] == [AckStatus.SUCCESS] * 6 + [AckStatus.LIMIT_MESSAGES] * 2
    assert "ALARM [CAPACITY_STATE_HIGH_WATERMARK] for 'queue [bmq://plain/quota]': [Messages (STATE_HIGH_WA" in node.log
    assert "ALARM [CAPACITY_STATE_FULL] for 'domain [bmq://plain]': [Messages (STATE_FULL): 5 (limit: 5), " in node.log
    reader = connect(node)
    reader.open(uri, read=True)
    for _, handle in reader.wait_for_messages(6):
        handle.confirm()
    node.wait_for("[CAPACITY_STATE_NORMAL] for 'queue [bmq://plain/quota]'", WAIT_S)
    assert client.post_all(uri, [b"again"])[0].status is AckStatus.SUCCESS


CRASHING = """
import blazingmq, os, signal, sys
session = blazingmq.Session(
    lambda event: None,
    on_message=lambda message, handle: os.kill(os.getpid(), signal.SIGKILL),
    broker=sys.argv[1],
    host_health_monitor=None,
)
session.open_queue(sys.argv[2], read=True)
signal.pause()
"""


def test_a_poison_pill_is_removed_and_kept_in_a_file(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = "bmq://poison/q"
    client.open(uri, write=True)
    client.post_all(uri, [b"deadly dose"])
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", CRASHING, node.uri, uri], timeout=WAIT_S, check=False)
        assert ended.returncode == -signal.SIGKILL
    line = node.wait_for("ALARM [POISON_PILL] A poison pill message was detected and purged from the queue", WAIT_S)
    found = re.search(r"dumped in file at location \[(.*)\] on this machine", line)
    assert found is not None
    path = Path(found[1])
    assert "deadly dose" in path.read_text()
    path.unlink()
    reader = connect(node)
    reader.open(uri, read=True)
    reader.barrier()
    assert reader.delivered == []


def test_message_that_waits_too_long_raises_an_alarm(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = "bmq://watched/q"
    client.open(uri, write=True)
    client.post_all(uri, [b"slow"])
    node.wait_for("ALARM [QUEUE_STUCK] Queue 'bmq://watched/q' ", WAIT_S)
    reader = connect(node)
    reader.open(uri, read=True)
    reader.wait_for_messages(1)
    node.wait_for("Queue 'bmq://watched/q?id=__default' no longer appears to be stuck.", WAIT_S)


def test_no_more_queues_and_consumers_than_allowed(node: NodeProcess, connect: Connect) -> None:
    one, other = connect(node), connect(node)
    one.open("bmq://few/a", read=True)
    with pytest.raises(Exception, match="UNKNOWN"):
        other.open("bmq://few/a", read=True)
    other.open("bmq://few/b", read=True)
    with pytest.raises(Exception, match="REFUSED"):
        one.open("bmq://few/c", read=True)
    assert "PANIC [DOMAIN_QUEUE_LIMIT_FULL] domain 'bmq://few'" in node.log


def test_a_domain_with_a_faulty_expression_cannot_be_used(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    with pytest.raises(Exception, match="UNKNOWN"):
        client.open("bmq://faulty/q", read=True)
    assert "Expression validation failed" in node.log


def test_last_confirms_count_when_the_node_stops(config_dir: Path, tmp_path: Path) -> None:
    """Confirms in flight when the node is stopped are read."""
    uri = "bmq://bmq.test.mem.priority/unused"

    async def run(node: NodeProcess) -> None:
        async with Session.connect("127.0.0.1", node.port) as session:
            queue = await session.open_queue("bmq://watched/last", read=True, write=True)
            await session.open_queue(uri, write=True)
            for number in range(200):
                await queue.post(b"%d" % number)
            await take(queue, 200)

    with NodeProcess(tmp_path / "store", config_dir=config_dir) as node:
        trio.run(run, node)
        node.restart()
        assert "messages: 0," in node.ready_line


def test_apps_come_and_go_with_the_configuration(tmp_path: Path, connect: Connect) -> None:
    folder = write_config(tmp_path / "etc")
    write_domain(folder, "apps", mode={"fanout": {"appIDs": ["one", "two"]}})
    uri = "bmq://apps/q"
    with NodeProcess(tmp_path / "store", config_dir=folder) as node:
        client = connect(node)
        client.open(uri, write=True)
        client.open(f"{uri}?id=three", read=True)
        client.post_all(uri, [b"first"])
        client.barrier()
        assert client.delivered == []
        assert "ALARM [FANOUT_UNREGISTERED_APPID] AppId 'three' is not authorized for queue 'bmq://apps/q'" in node.log
        client.stop()
        write_domain(folder, "apps", mode={"fanout": {"appIDs": ["two", "three"]}})
        node.restart()
        again = connect(node)
        again.open(uri, write=True)
        again.open(f"{uri}?id=two", read=True)
        again.open(f"{uri}?id=three", read=True)
        again.post_all(uri, [b"second"])
        eventually(lambda: len(again.delivered) == 3)
        again.barrier()
        assert again.payloads(f"{uri}?id=two") == [b"first", b"second"]
        assert again.payloads(f"{uri}?id=three") == [b"second"]
        for _, handle in again.delivered:
            handle.confirm()
        again.barrier()
        # An app's messages outlive the configuration; an operator's command removes them.
        assert "ALARM [FANOUT_APPIDS_DIFFER]" in node.log
        node.restart()
        assert "messages: 2," in node.ready_line
        with AdminClient("127.0.0.1", node.port) as admin:
            assert admin.send("DOMAINS RECONFIGURE apps") == "SUCCESS"
        node.restart()
        assert "messages: 0," in node.ready_line
