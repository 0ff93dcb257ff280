"""The console's application: sessions, logins, what it answers, and what it refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio
import trio.testing

from bmqctl.console.application import ConsoleSettings, make_application
from bmqctl.console.cluster import ClusterFault
from bmqctl.console.guarding import HEADERS
from bmqctl.console.sessions import SESSIONS_MAX
from tests.bmqctl.console.asgi import Browser
from tests.bmqctl.console.clusters import QUEUE, MemoryClusters

T = TypeVar("T")
Script = Callable[[Browser, MemoryClusters], Awaitable[None]]


def play(script: Script, users: dict[str, str] | None = None, hosts: tuple[str, ...] = ()) -> None:
    """Run a script with a browser; time passes as soon as all tasks wait.

    Calls in threads are made at once: a clock that waits for a thread would jump where the machine is busy.
    """
    clusters = MemoryClusters(users)
    application = make_application(clusters, ConsoleSettings("tcp://h:1", "BlazingMQ", 2.0, False, hosts, 30180))

    async def run() -> None:
        await script(Browser(application), clusters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio.to_thread, "run_sync", call_at_once)
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def call_at_once(call: Callable[..., T], *words: object, **_: object) -> T:
    """Stand in for `trio.to_thread.run_sync`."""
    await trio.lowlevel.checkpoint()
    return call(*words)


def test_an_overview_has_rates_from_the_second_look_on() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        assert (await browser.get("/api/overview")).status == 403
        session = await browser.begin()
        assert (session["system"], session["place"], session["user"]) == ("BlazingMQ", "tcp://h:1", None)
        first = (await browser.get("/api/overview?after=0")).value
        assert (first["number"], first["map"]["name"]) == (1, "east")
        assert first["rows"] == [[QUEUE, "", "node 1", None, None, 3, 1.5, 1, 0]]
        began_s = trio.current_time()
        second = (await browser.get("/api/overview?after=1")).value
        third = (await browser.get("/api/overview?after=2")).value
        assert trio.current_time() - began_s == pytest.approx(2.5, abs=0.1)
        assert (second["number"], second["rows"][0][3], third["number"]) == (2, 3.0, 3)
        assert third["history"]["backlog"] == [3, 6, 9]
        # A client that has seen less does not wait, and no broker is asked.
        again = (await browser.get("/api/overview?after=1")).value
        assert (again["number"], clusters.made[0].looks) == (3, 3)

    play(script)


def test_a_page_that_opens_does_not_wait_for_the_next_look_of_another() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        await browser.get("/api/overview")
        await browser.get("/api/overview?after=1")
        began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(browser.get, "/api/overview?after=2")
            await trio.sleep(0.5)
            assert (await browser.get("/api/overview")).value["number"] == 2
            assert trio.current_time() - began_s < 1

    play(script)


def test_a_detail_has_rows_parts_and_the_past() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        await browser.get("/api/overview")
        found = (await browser.get(f"/api/detail?name={QUEUE}")).value
        assert found["row"][0] == QUEUE
        assert [each[1] for each in found["parts"]] == ["audit"]
        assert found["history"]["backlog"] == [3]
        missing = await browser.get("/api/detail?name=bmq://shop/none")
        assert (missing.status, missing.value) == (502, {"fault": "there is no queue bmq://shop/none"})
        assert (await browser.get("/api/detail")).status == 400
        assert (await browser.get("/api/overview?after=x")).status == 400

    play(script)


def test_faults_of_brokers_are_told_and_the_next_look_is_another() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        clusters.made[0].fault = ClusterFault("no broker at h:1")
        answer = await browser.get("/api/overview")
        assert (answer.status, answer.value) == (502, {"fault": "no broker at h:1"})
        clusters.made[0].fault = KeyError("view")
        assert "cannot be read: KeyError" in (await browser.get("/api/overview")).value["fault"]
        clusters.made[0].fault = None
        assert (await browser.get("/api/overview")).status == 200

    play(script)


def test_the_cluster_decides_who_is_admitted() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        nobody = dict(browser.cookies)
        refused = await browser.get("/api/overview")
        assert (refused.status, refused.value["fault"]) == (401, "the broker refused: Connection not authorized")
        began_s = trio.current_time()
        assert (await browser.post("/api/login", {"user": "ops", "password": "wrong"})).status == 401
        assert trio.current_time() - began_s >= 1
        assert clusters.made[-1].is_closed
        entered = await browser.post("/api/login", {"user": "ops", "password": "x"})
        assert (entered.status, entered.value["user"]) == (200, "ops")
        # The session of nobody is no longer one: a cookie that was known before the login leads nowhere.
        assert browser.cookies != nobody
        assert (await browser.get("/api/overview")).status == 200
        own, browser.cookies = browser.cookies, nobody
        assert (await browser.get("/api/overview")).status == 403
        browser.cookies, browser.token = own, entered.value["token"]
        left = await browser.post("/api/logout", {})
        assert (left.status, left.value["user"]) == (200, None)
        assert clusters.made[-1].is_closed
        assert (await browser.get("/api/overview")).status == 401

    play(script, {"ops": "x"})


def test_actions_are_planned_and_then_done() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        words = {"name": QUEUE, "part": ""}
        asked = await browser.get(f"/api/ask/messages?name={QUEUE}&count=5")
        assert asked.value == {"asked": "messages", "name": QUEUE, "count": "5"}
        plan = await browser.post("/api/plan/purge", words)
        assert plan.value == {"title": "purge?", "text": f"{QUEUE} will be gone", "label": "Do it"}
        assert clusters.made[0].acted == []
        assert (await browser.post("/api/act/purge", words)).value == {"done": "done"}
        assert clusters.made[0].acted == [("purge", words)]
        for forged in ({"x_console_token": "x"}, {"origin": "http://evil.example"}, {"sec_fetch_site": "same-site"}):
            assert (await browser.post("/api/act/purge", words, **forged)).status == 403
        assert (await browser.get(f"/api/act/purge?name={QUEUE}")).status == 405
        assert (await browser.post("/api/act/purge", {"name": 1})).status == 400
        assert (await browser.post("/api/act/purge", words, content_type="text/plain")).status == 400
        assert len(clusters.made[0].acted) == 1
        assert (await browser.post("/api/decode", {"schema": "", "payload": "?"})).status == 400

    play(script)


def test_forged_requests_lack_a_token() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        words = {"user": "ops", "password": "x"}
        for headers in (
            {"x_console_token": ""},
            {"x_console_token": "guessed"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:8000"},
            {"cookie": ""},
        ):
            assert (await browser.post("/api/login", words, **headers)).status == 403, headers
        assert (await browser.post("/api/login", words, content_type="text/plain")).status == 400
        assert (await browser.post("/api/login", ["ops"])).status == 400
        assert (await browser.post("/api/login", {"user": "ops", "password": 1})).status == 400
        assert (await browser.get("/api/login")).status == 405
        assert [each.login for each in clusters.made] == [None]
        own = {"origin": f"http://{browser.host}"}
        assert (await browser.post("/api/login", words, **own)).status == 200

    play(script)


def test_requests_of_other_pages_end_nobodys_session() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        await browser.begin()
        entered = await browser.post("/api/login", {"user": "ops", "password": "x"})
        browser.token = entered.value["token"]
        for site in ("cross-site", "same-site", "none"):
            refused = await browser.get("/api/session", cookie="", sec_fetch_site=site)
            assert (refused.status, "set-cookie" in refused.headers) == (403, False)
        # A browser that does not name the page that asks.
        key = dict(browser.cookies)
        for _ in range(2 * SESSIONS_MAX):
            await browser.get("/api/session", cookie="")
        browser.cookies = key
        assert (await browser.get("/api/session", sec_fetch_site="same-origin")).value["user"] == "ops"
        assert (await browser.get("/", sec_fetch_site="cross-site")).status == 200

    play(script, {"ops": "x"})


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:30180", 200),
        ("localhost", 200),
        ("[::1]:30180", 200),
        ("ops.example.com", 200),
        ("OPS.example.com:443", 200),
        ("evil.example:30180", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("[::1].evil.example", 421),
        ("[::1]evil.example:30180", 421),
        ("[::1", 421),
        ("::1", 421),
        ("localhost:30180.evil.example", 421),
        ("localhost:30180@evil.example", 421),
        ("localhost/.evil.example", 421),
        ("localhost\\.evil.example", 421),
        ("evil.example@localhost", 421),
        (" localhost", 421),
        ("localhost:", 200),
        ("[127.0.0.1]", 421),
        ("[localhost]", 421),
    ],
)
def test_names_that_the_console_is_known_by(host: str, status: int) -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        browser.host = host
        for path in ("/", "/api/session", "/assets/main.js"):
            assert (await browser.get(path)).status == status

    play(script, hosts=("ops.example.com",))


def test_each_answer_forbids_what_a_hostile_page_needs() -> None:
    async def script(browser: Browser, clusters: MemoryClusters) -> None:
        for path in ("/", "/api/session", "/assets/main.js", "/assets/views/queue.js", "/none", "/assets/../app.py"):
            answer = await browser.get(path)
            assert {name: answer.headers.get(name.lower()) for name in HEADERS} == HEADERS
        page = await browser.get("/assets/main.js")
        again = await browser.get("/assets/main.js", if_none_match=page.headers["etag"])
        assert (page.headers["content-type"], again.status, again.body) == ("text/javascript; charset=utf-8", 304, b"")
        cookie = (await browser.get("/api/session")).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await browser.get("/assets/../application.py")).status == 404
        assert (await browser.get("/api/session")).headers["cache-control"] == "no-store"

    play(script)
