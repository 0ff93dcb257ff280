"""The console of RocketMQ nodes that run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
import trio

from bmqctl.client.rocketmq import connect
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import RocketProcess
from tests.rigs.console_pages import Pages, console, play
from tests.waiting import eventually

CONFIG = """authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={"username":"root","password":"hush-root"}
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"hush-inner"}
"""


async def _fill(nameserver: str) -> None:
    """Post 40 messages, of which a group consumes all."""
    async with connect(f"rocketmq://{nameserver}") as session:
        producer = await session.producer("orders")
        for number in range(40):
            await producer.post(json.dumps({"n": number}).encode(), tag="paid", keys=[f"o-{number}"])
        consumer = await session.consume("orders", "billing", from_start=True)
        consumed = 0
        async for message in consumer:
            async with message:
                consumed += 1
            if consumed == 40:
                break


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketProcess]:
    """A node with a topic and a group, and with a console."""
    options = ("--console-port", str(free_port()))
    with RocketProcess(tmp_path_factory.mktemp("rocketmq") / "store", options=options) as running:
        trio.run(_fill, running.nameserver)
        yield running


@pytest.fixture(scope="module")
def pages(node: RocketProcess) -> Pages:
    """The console beside the node."""
    found = Pages(int(node.options[1]))
    assert found.begin()["place"] == node.nameserver
    return found


def backlog(pages: Pages) -> int | None:
    rows = {row[0]: row for row in pages.look()["rows"]}
    found: int | None = rows["orders"][5]
    return found


def test_topics_groups_and_messages(node: RocketProcess, pages: Pages) -> None:
    overview = pages.look()
    assert overview["map"]["name"] == "DefaultCluster"
    assert [shard["name"] for shard in overview["map"]["shards"]] == ["broker-a"]
    assert [row[0] for row in overview["rows"]] == ["orders"]
    detail = pages.get("/api/detail?name=orders").value
    assert [part[1] for part in detail["parts"]] == ["billing"]
    assert {each["name"]: each["value"] for each in detail["facts"]}["Stored messages"] == "40"
    listed = pages.get("/api/ask/messages?name=orders&offset=2&count=3").value
    assert (listed["part"], listed["total"], listed["offset"]) == ("broker-a/0", 10, 2)
    assert [each["where"] for each in listed["messages"]] == ["2", "3", "4"]
    other = pages.get("/api/ask/messages?name=orders&part=broker-a/3&offset=-1&count=9").value
    (last,) = other["messages"]
    assert last["id"] == "broker-a:3:9"
    assert last["note"].startswith("paid o-")
    opened = pages.get(f"/api/ask/message?name=orders&id={last['id']}").value
    assert opened["forms"][0]["name"] == "JSON"
    assert {"name": "Tag", "value": "paid"} in opened["facts"]
    for words in ("id=broker-a:3:10", "id=broker-z:0:0", "id=x", "id=broker-a:0:-1"):
        assert pages.get(f"/api/ask/message?name=orders&{words}").status == 502
    for name in ("none", quote("a b"), quote("orders@billing")):
        assert pages.get(f"/api/ask/messages?name={name}&count=1").status == 502


def test_a_reset_says_what_it_does_and_does_it(node: RocketProcess, pages: Pages) -> None:
    words = {"name": "orders", "part": "billing"}
    # The client commits what it has consumed in the background.
    eventually(lambda: backlog(pages) == 0)
    plan = pages.post("/api/plan/reset", {**words, "to": "begin"}).value
    assert "the oldest stored message" in plan["text"]
    assert "40 messages that it has consumed will come again, and 0 messages that it has not" in plan["text"]
    assert backlog(pages) == 0
    done = pages.post("/api/act/reset", {**words, "to": "begin"}).value["done"]
    assert done == (
        "group billing of topic orders continues at the oldest stored message; done at " + f"127.0.0.1:{node.port}"
    )
    assert backlog(pages) == 40
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for to in ("end", soon):
        plan = pages.post("/api/plan/reset", {**words, "to": to}).value
        assert "0 messages that it has consumed will come again, and 40 messages that it has not" in plan["text"]
    long_ago = pages.post("/api/plan/reset", {**words, "to": "2020-01-01T00:00:00"}).value
    assert "the first message stored at 2020-01-01 00:00:00 UTC or later" in long_ago["text"]
    assert "and 0 messages that it has not consumed" in long_ago["text"]
    assert pages.post("/api/act/reset", {**words, "to": "end"}).status == 200
    assert backlog(pages) == 0
    for wrong in ({"to": "yesterday"}, {"to": "end", "part": "none"}, {"to": "end", "name": "none"}, {}):
        assert pages.post("/api/act/reset", {**words, **wrong}).status == 502
    assert pages.post("/api/act/purge", words).status == 502


def test_a_reset_in_a_browser(pages: Pages) -> None:
    found = play(
        [
            ["open", f"{pages.url}/#/queue/orders"],
            ["wait", "document.querySelector('button[aria-label=\"Reset the offsets of group billing\"]')"],
            ["run", "document.querySelector('button[aria-label=\"Reset the offsets of group billing\"]').click()"],
            ["wait", "document.activeElement.id === 'to-begin'"],
            ["key", "Space"],
            ["key", "Return"],
            ["wait", "document.querySelector('dialog .danger')"],
            # The button that changes nothing has the focus: Return alone does no harm.
            ["run", "[document.activeElement.textContent, document.querySelector('dialog .danger').textContent]"],
            ["run", "document.querySelector('#dialog-text').textContent"],
            ["key", "Tab"],
            ["key", "Return"],
            ["wait", "document.querySelector('.note')?.textContent.includes('continues at the oldest')"],
        ]
    )
    assert found["results"][1] == ["Cancel", "Reset billing"]
    assert "In topic orders, group billing continues at the oldest stored message" in found["results"][2]
    eventually(lambda: backlog(pages) == 40)


def test_console_signs_as_the_user_who_is_logged_in(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(CONFIG)
    with (
        RocketProcess(tmp_path / "store", config_file=config) as node,
        console("--nameserver", node.nameserver) as pages,
    ):
        refused = pages.get("/api/overview")
        assert refused.status == 401
        assert "NO_PERMISSION" in refused.value["fault"]
        assert pages.post("/api/login", {"user": "root", "password": "guess"}).status == 401
        assert pages.post("/api/login", {"user": "root", "password": "hush-root"}).value["user"] == "root"
        assert pages.get("/api/overview").value["map"]["name"] == "DefaultCluster"
