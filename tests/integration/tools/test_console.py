"""The console of nodes that run, asked over HTTP and shown in Chromium."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.client.admin import AdminClient
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.testing import NodeProcess, free_port
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.config_files import spoil, write_config
from tests.rigs.console_axe import ASKED, axe_steps
from tests.rigs.console_pages import Pages, console, play
from tests.rigs.official import Client, confirm, queue_name
from tests.waiting import eventually

AUTHENTICATION = {
    "authenticators": [
        {"name": "BasicAuthenticator", "settings": [{"key": "ops", "value": {"stringVal": "x"}}]},
        {"name": "AnonAuthenticator"},
    ],
    "anonymousCredential": {"credential": {"mechanism": "ANONYMOUS", "identity": ""}},
}
ORDERS = "bmq://shop.orders/q"
AUTHORIZATION = {"rules": [{"principals": ["BASIC_USER-ops"], "actions": ["administer"]}]}


@pytest.fixture(scope="module")
def pages(node: NodeProcess) -> Iterator[Pages]:
    """The console of the node that the tests of this module share."""
    with console("--broker", node.uri, "--interval", "0.5") as found:
        yield found


def test_queues_of_a_node(node: NodeProcess, pages: Pages) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    with Client(node.uri) as client:
        client.open(uri, write=True)
        client.post_all(uri, [b"x"] * 4)
        overview = pages.look()
        rows = {row[0]: row for row in overview["rows"]}
        assert rows[uri][5] == 4
        assert overview["map"]["name"] == "local"
        client.post_all(uri, [b"x"] * 2)
        rows = {row[0]: row for row in pages.look()["rows"]}
        assert rows[uri][5] == 6
        assert rows[uri][3] > 0
        detail = pages.get(f"/api/detail?name={uri}").value
        assert [part[1] for part in detail["parts"]] == ["bar", "baz", "foo"]
        assert [cause["cause"] for cause in detail["causes"]] == ["no consumer"] * 3
        assert detail["history"]["backlog"] == [4, 6]
        assert detail["facts"][1]["used"] == 6
        client.open(f"{uri}?id=foo", read=True, max_unconfirmed_messages=5)
        client.wait_for_messages(5)
        consumers = pages.get(f"/api/detail?name={uri}").value["consumers"]
        assert [(each["app"], each["unconfirmed"], each["is_full"]) for each in consumers] == [("foo", 5, True)]
        domain = pages.get("/api/ask/domain?name=bmq.test.persistent.fanout").value
        assert '"fanout"' in domain["config"]
        assert pages.get("/api/ask/domain?name=x%20PURGE").status == 502
        assert pages.get("/api/detail?name=bmq://bmq.test.mem.priority/none").status == 502


def test_messages_of_a_queue(node: NodeProcess, pages: Pages) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    with Client(node.uri) as client:
        client.open(uri, write=True)
        client.post_all(uri, [b'{"n": 1}', b"\xff" * 3, b"x" * 4])
        client.open(f"{uri}?id=foo", read=True)
        confirm(client.wait_for_messages(3))
        eventually(lambda: pages.get(f"/api/ask/messages?name={uri}&part=foo&count=9").value["total"] == 0)
        listed = pages.get(f"/api/ask/messages?name={uri}&part=bar&offset=1&count=9").value
        assert (listed["total"], listed["offset"]) == (3, 1)
        assert [(each["size"], each["where"]) for each in listed["messages"]] == [(3, "1"), (4, "2")]
        first = pages.get(f"/api/ask/messages?name={uri}&count=1").value["messages"][0]["id"]
        opened = pages.get(f"/api/ask/message?name={uri}&id={first}").value
        assert opened["forms"][0] == {"name": "JSON", "text": '{\n  "n": 1\n}', "is_cut": False}
        assert {"name": "Not confirmed by", "value": "bar, baz"} in opened["facts"]
        for words in (f"id={'0' * 32}", "id=x", "id=0%20PURGE", "nothing=1"):
            assert pages.get(f"/api/ask/message?name={uri}&{words}").status == 502
        assert pages.get(f"/api/ask/messages?name={uri}&part=foo%20bar&count=9").status == 502
        assert pages.get(f"/api/ask/messages?name={uri}&count=many").status == 502


def test_a_cluster_in_a_browser(node: NodeProcess, pages: Pages, tmp_path: Path) -> None:
    uris = [queue_name("bmq.test.persistent.priority") for _ in range(3)]
    with Client(node.uri) as client:
        for number, uri in enumerate(uris):
            client.open(uri, write=True)
            client.post_all(uri, [b"x"] * (number + 1))
        name = uris[2].removeprefix("bmq://")
        found = play(
            [
                ["open", pages.url],
                ["wait", "document.querySelector('h1').textContent === 'Cluster local'"],
                ["wait", "document.querySelector('#health').textContent.length > 0"],
                ["run", "[...document.querySelectorAll('table.map tbody th')].map(each => each.textContent)"],
                ["wait", "document.querySelectorAll('path.line').length === 3"],
                ["key", "/"],
                ["wait", "document.activeElement.id === 'search'"],
                *[["key", letter] for letter in name[-6:]],
                ["wait", "document.querySelectorAll('tbody tr').length === 1"],
                ["run", "[...document.querySelector('tbody tr').children].map(each => each.textContent)"],
                ["run", "document.querySelector('tbody a').click()"],
                ["wait", f"document.querySelector('h1').textContent === '{name}'"],
                ["wait", "document.querySelector('.causes li b')?.textContent === 'no consumer'"],
                ["run", "document.activeElement === document.querySelector('h1')"],
                ["shot", str(tmp_path / "queue.png")],
                # On a narrow screen nothing is cut off, and the focus is seen.
                ["size", 390, 860],
                ["run", "document.documentElement.scrollWidth <= innerWidth"],
                ["key", "Tab"],
                ["wait", "document.activeElement.className === 'danger-line'"],
                ["run", "getComputedStyle(document.activeElement).outlineStyle"],
            ]
        )
        assert found["results"][0] == ["0"]
        assert found["results"][1][0] == name
        assert found["results"][1][4] == "3"
        assert found["results"][3:] == [True, True, "solid"]
        assert all(url.startswith(pages.url) for url in found["urls"])
        assert (tmp_path / "queue.png").stat().st_size > 10_000


def test_each_page_is_accessible_in_both_themes(node: NodeProcess, pages: Pages) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    with Client(node.uri) as client:
        client.open(uri, write=True)
        client.post_all(uri, [b'{"n": 1}'] * 3)
        guid = pages.get(f"/api/ask/messages?name={uri}&count=1").value["messages"][0]["id"]
        steps, judgements = axe_steps(pages.url, uri, guid)
        results = play(steps)["results"]
    assert [each for each in results if each in ("light", "dark")] == ["light", "dark"]
    # Each page was judged before its data, too.
    assert [set(each) for each in results if isinstance(each, list)] == [ASKED]
    verdicts = [each for each in results if isinstance(each, dict)]
    assert len(verdicts) == judgements
    assert [each for each in verdicts if each["objections"]] == []


def test_a_cluster_whose_nodes_go_one_by_one(tmp_path: Path) -> None:
    uri = queue_name("bmq.test.persistent.fanout")
    with ClusterProcesses(tmp_path) as cluster:
        cluster.wait_available()
        # Whichever node is asked, the primary does it.
        leader = cluster.leader()
        asked, other = (number for number in cluster.nodes if number != leader)
        broker = cluster.nodes[asked].uri
        with console("--broker", broker, "--interval", "0.5") as pages:

            def copies() -> list[list[str]]:
                shards = pages.look()["map"]["shards"]
                return [[copy["state"] for copy in shard["copies"]] for shard in shards]

            eventually(lambda: all(sorted(each) == ["active", "in sync", "in sync"] for each in copies()))
            with Client(broker) as client:
                client.open(uri, write=True)
                client.post_all(uri, [b"x"] * 4)
                purge(pages, uri)
            reconfigure = ("/api/act/reconfigure", {"name": "bmq.test.persistent.fanout"})
            done = pages.post(*reconfigure)
            assert done.value == {"done": "bmq.test.persistent.fanout is reconfigured at node 1, node 2, node 3"}
            cluster.kill(other)
            failed = pages.post(*reconfigure)
            assert failed.status == 502
            assert f"is not reconfigured at node {other}: no broker at" in failed.value["fault"]
            assert "Done at node" in failed.value["fault"]
            assert all(each[other - 1] == "does not answer" for each in copies())
            found = pages.look()
            assert any(f"node {other} cannot be asked" in each["text"] for each in found["map"]["problems"])
            # The named node goes, and another one that it listed answers.
            cluster.kill(asked)
            states = {each["name"]: each["is_well"] for each in pages.look()["map"]["nodes"]}
            assert [states[f"node {number}"] for number in (other, asked)] == [False, False]
            cluster.kill(leader)
            gone = pages.get("/api/overview?after=99")
            assert gone.status == 502
            assert gone.value["fault"].count("no broker at 127.0.0.1:") == 3


def purge(pages: Pages, uri: str) -> None:
    """Purge an app of a queue with four messages, then all of them."""
    words = {"name": uri, "part": "foo"}
    plan = pages.post("/api/plan/purge", words).value
    assert plan["label"] == "Purge 4 messages"
    assert "the 4 messages that it has not confirmed" in plan["text"]
    assert pages.get(f"/api/ask/messages?name={uri}&part=foo&count=1").value["total"] == 4
    done = pages.post("/api/act/purge", words)
    assert done.value == {"done": f"4 messages removed from {uri} for app foo"}
    assert pages.get(f"/api/ask/messages?name={uri}&part=foo&count=1").value["total"] == 0
    assert pages.post("/api/act/purge", {"name": uri, "part": ""}).value["done"].startswith("4 messages removed")
    assert pages.post("/api/act/purge", {"name": uri, "part": "x y"}).status == 502
    assert pages.post("/api/act/drop", words).status == 502
    plan = pages.post("/api/plan/reconfigure", {"name": "bmq.test.persistent.fanout"}).value
    assert "Each of the 3 nodes reads" in plan["text"]


def test_console_asks_as_the_user_who_is_logged_in(tmp_path: Path) -> None:
    config = write_config(tmp_path / "etc")
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authentication", value=AUTHENTICATION)
    spoil(config, "bmqbrkrcfg.json", "appConfig", "authorization", value=AUTHORIZATION)
    with NodeProcess(tmp_path / "store", config_dir=config) as node, console("--broker", node.uri) as pages:
        refused = pages.get("/api/overview")
        assert (refused.status, refused.value["fault"]) == (401, "the broker refused: Connection not authorized")
        wrong = pages.post("/api/login", {"user": "ops", "password": "TOPSECRET"})
        assert wrong.status == 401
        assert wrong.value["fault"].startswith("the broker refused the credentials")
        assert pages.post("/api/login", {"user": "ops", "password": "x"}).value["user"] == "ops"
        assert pages.get("/api/overview").status == 200
        assert "BASIC_USER-ops" in node.log
        # A user who may administer and not read does not see payloads.
        with AdminClient("127.0.0.1", node.port, credentials=Credentials("BASIC", b"ops:x")) as admin:
            command = f"DOMAINS DOMAIN shop.orders QUEUE q MESSAGE {'0' * 32}"
            assert admin.send(command) == f"Not authorized to read from queue '{ORDERS}'"
        have_read_again(pages, config, "shop.orders")
        assert pages.post("/api/logout", {}).status == 200
        assert pages.get("/api/overview").status == 401
        assert "TOPSECRET" not in node.log


def have_read_again(pages: Pages, config: Path, name: str) -> None:
    """Change a domain's limit, and have its file read again."""
    limit = ("definition", "parameters", "storage", "domainLimits", "messages")
    before = pages.get(f"/api/ask/domain?name={name}").value["room"]["messages"]["limit"]
    spoil(config, f"domains/{name}.json", *limit, value=777)
    assert pages.get(f"/api/ask/domain?name={name}").value["room"]["messages"]["limit"] == before != 777
    assert pages.post("/api/act/reconfigure", {"name": name}).status == 200
    assert pages.get(f"/api/ask/domain?name={name}").value["room"]["messages"]["limit"] == 777


def test_consoles_of_a_node_that_comes_and_goes(tmp_path: Path) -> None:
    port = free_port()
    node = NodeProcess(tmp_path / "store", options=("--console-port", str(port)))
    with console("--broker", node.uri, "--interval", "0.5") as apart:
        gone = apart.get("/api/overview")
        assert gone.status == 502
        assert gone.value["fault"].startswith(f"no broker at 127.0.0.1:{node.port}")
        with node:
            assert apart.get("/api/overview").status == 200
            beside = Pages(port)
            assert beside.begin()["place"] == node.uri
            assert beside.get("/api/overview").status == 200
            # A browser gives the cookies of one console to the other, too.
            assert {each.name for each in beside.cookies}.isdisjoint(each.name for each in apart.cookies)
            kill_console(node)
            Pages(port).begin()
            node.kill()
            eventually(Pages(port).is_over)
            assert apart.get("/api/overview?after=1").status == 502
            node.options = ()
            node.start()
            assert apart.get("/api/overview?after=1").value["number"] == 2


def kill_console(node: NodeProcess) -> None:
    """Kill the console beside a node, which starts it again."""
    tasks = Path(f"/proc/{node.pid}/task").iterdir()
    (child,) = {int(word) for task in tasks for word in (task / "children").read_text().split()}
    os.kill(child, signal.SIGKILL)
    eventually(lambda: "the console ended with -9; it is started again in 1 s" in node.output)
