"""The console's server side: an ASGI application over one cluster.

`/` and `/assets/` serve the pages. `/api/` answers with JSON, in the session that the browser's cookie names. A session
begins without a login. The cluster answers its questions and actions with the credentials of its login, or without any.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple, TypeVar

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bmqctl.console.avro import decode_avro
from bmqctl.console.cluster import Cluster, ClusterFault, Connector, Login, LoginNeeded, Plan, Seen
from bmqctl.console.guarding import PageGuard
from bmqctl.console.history import SampleHistory
from bmqctl.console.sessions import Session, Sessions
from bmqctl.systems.watching.model import Row, Sample, Selection, rows_of, selected, whole

__all__ = ["ConsoleSettings", "make_application"]

log = logging.getLogger("bmqctl.console")

BODY_BYTES_MAX: Final = 4 << 20
# Delay of the next login after a refused one.
REFUSED_LOGIN_S: Final = 1.0
# Payloads decoded at a time, each in a process of its own.
DECODERS_MAX: Final = 2
TOKEN_HEADER: Final = "x-console-token"

Answer = Callable[["Request", "Session[Observer]"], Awaitable[Any]]


_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

T = TypeVar("T")

COLUMNS: Final = Row._fields
TOTAL: Final = "\0"
# The second sample comes early, so that there are rates soon.
SECOND_S: Final = 0.5
# The pause is at least this many times as long as the look, to spare the nodes.
PAUSE_LOOKS: Final = 4


class Overview(NamedTuple):
    """A look at a cluster, with its number and its time in seconds since 1970; `rows` are totals of `parts`."""

    number: int
    at_s: float
    map: dict[str, Any]
    sample: Sample
    rows: list[Row]
    parts: dict[str, list[Row]]
    total: Row


class Observer:
    """Looks at a cluster in a thread, and keeps the past for charts.

    All pages of a person share the looks. `clock_s` returns the time of day.
    """

    def __init__(self, cluster: Cluster, interval_s: float, clock_s: Callable[[], float] = time.time) -> None:
        self.cluster = cluster
        self.interval_s = interval_s
        self.history = SampleHistory()
        self._clock_s = clock_s
        self._turn = trio.Lock()
        self._latest: Overview | None = None
        self._before: Sample | None = None
        self._looked_at_s = -1e9
        self._took_s = 0.0

    async def overview(self, after: int) -> Overview:
        """A look after number `after`: the last one, or a new one when due. Raises `ClusterFault`."""
        if (latest := self._recent(after)) is not None:
            return latest
        async with self._turn:
            if (latest := self._recent(after)) is not None:
                return latest
            await trio.sleep_until(self._looked_at_s + self._pause_s)
            began_s = trio.current_time()
            try:
                seen = await self.ask(self.cluster.look)
            finally:
                self._looked_at_s = trio.current_time()
                self._took_s = self._looked_at_s - began_s
            self._latest = self._overview(seen)
            return self._latest

    def _recent(self, after: int) -> Overview | None:
        latest = self._latest
        if latest is None or latest.number <= after:
            return None
        age_s = trio.current_time() - self._looked_at_s
        return latest if age_s < self._pause_s + self._took_s else None

    @property
    def _pause_s(self) -> float:
        wanted_s = SECOND_S if self._latest is not None and self._latest.number == 1 else self.interval_s
        return max(wanted_s, PAUSE_LOOKS * self._took_s)

    async def ask(self, question: Callable[..., T], *words: Any) -> T:
        """Call a method of the cluster in a thread. Raises `ClusterFault`, also for an unintelligible answer."""
        try:
            return await trio.to_thread.run_sync(partial(question, *words))
        except (LookupError, TypeError, ValueError, AttributeError) as fault:
            raise ClusterFault(f"a broker's answer cannot be read: {type(fault).__name__}: {fault}") from fault

    def latest(self) -> Overview | None:
        return self._latest

    def close(self) -> None:
        self.cluster.close()

    def _overview(self, seen: Seen) -> Overview:
        all_rows = rows_of(self._before, seen.sample)
        self._before = seen.sample
        rows = selected(all_rows, Selection("name", is_descending=False))
        parts: dict[str, list[Row]] = {}
        for each in _parts(all_rows):
            parts.setdefault(each.name, []).append(each)
        total = whole(TOTAL, rows) if rows else Row(TOTAL, "", "", 0.0, 0.0, 0, None, 0, None)
        at_s = self._clock_s()
        self.history.add(at_s, [total, *rows, *(each for of_one in parts.values() for each in of_one)])
        number = 1 if self._latest is None else self._latest.number + 1
        return Overview(number, at_s, seen.map, seen.sample, rows, parts, total)


def _parts(rows: Iterable[Row]) -> list[Row]:
    grouped: dict[tuple[str, str], list[Row]] = {}
    for each in rows:
        if each.part:
            grouped.setdefault((each.name, each.part), []).append(each)
    return [whole(name, grouped[name, part]) for name, part in sorted(grouped)]


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class AssetFiles:
    """The files below `assets`, by path: read once, and served from memory."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._read(resources.files("bmqctl.console") / "assets", "")

    async def index(self, request: Request) -> Response:
        return self._answer(request, "index.html")

    async def asset(self, request: Request) -> Response:
        return self._answer(request, request.path_params["path"])

    def _read(self, folder: Traversable, prefix: str) -> None:
        for each in folder.iterdir():
            path = f"{prefix}{each.name}"
            if each.is_dir():
                self._read(each, f"{path}/")
            elif (kind := _TYPES.get(path.rpartition(".")[2])) is not None:
                content = each.read_bytes()
                self._files[path] = _File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')

    def _answer(self, request: Request, path: str) -> Response:
        found = self._files.get(path)
        if found is None:
            return PlainTextResponse("There is no such file.\n", HTTPStatus.NOT_FOUND)
        # No cache without a check: a file may change with the version.
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(found.content, media_type=found.kind, headers=headers)


class ConsoleSettings(NamedTuple):
    """The cluster's displayed place, its system, and the interval of looks. `is_secure` means HTTPS.

    `hosts` are the console's names besides the loopback interface's; `port` is its port.
    """

    place: str
    system: str
    interval_s: float
    is_secure: bool
    hosts: tuple[str, ...]
    port: int


class _BadRequest(Exception):
    """A request that the console's own pages never make."""


def make_application(connect: Connector, settings: ConsoleSettings) -> Starlette:
    return _Console(connect, settings).application()


class _Console:
    def __init__(self, connect: Connector, settings: ConsoleSettings) -> None:
        self._connect = connect
        self._settings = settings
        self._sessions: Sessions[Observer] = Sessions(time.monotonic, self._end)
        self._login_turn = trio.Lock()
        # Sessions without a login share one observer.
        self._nobody = Observer(connect(None), settings.interval_s)
        self._decoders = trio.Semaphore(DECODERS_MAX)
        # Browsers send cookies to all ports of a host, so each console's has its own name. With the prefix, only this
        # host can set it, over HTTPS, and no other host of its domain.
        self._cookie = f"{'__Host-' if settings.is_secure else ''}bmqctl_console_{settings.port}"

    def application(self) -> Starlette:
        files = AssetFiles()
        return Starlette(
            routes=[
                Route("/", files.index),
                Route("/assets/{path:path}", files.asset),
                Route("/api/session", self._session),
                Route("/api/login", self._login, methods=["POST"]),
                Route("/api/logout", self._logout, methods=["POST"]),
                Route("/api/overview", self._asked(self._overview)),
                Route("/api/detail", self._asked(self._detail)),
                Route("/api/ask/{question}", self._asked(self._question)),
                Route("/api/plan/{action}", self._asked(self._plan), methods=["POST"]),
                Route("/api/act/{action}", self._asked(self._act), methods=["POST"]),
                Route("/api/decode", self._asked(self._decode), methods=["POST"]),
            ],
            middleware=[Middleware(PageGuard, hosts=self._settings.hosts)],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, application: Starlette) -> AsyncIterator[None]:
        yield
        self._sessions.end_all()
        self._nobody.close()

    def _end(self, observer: Observer) -> None:
        if observer is not self._nobody:
            observer.close()

    # -- sessions

    async def _session(self, request: Request) -> Response:
        session = self._session_of(request)
        if session is None:
            session = self._sessions.begin(None, self._nobody)
        return self._with_cookie(session)

    def _session_of(self, request: Request) -> Session[Observer] | None:
        return self._sessions.find(request.cookies.get(self._cookie))

    def _with_cookie(self, session: Session[Observer]) -> Response:
        answer = _json(
            {
                "system": self._settings.system,
                "place": self._settings.place,
                "user": session.user,
                "token": session.token,
            }
        )
        answer.set_cookie(
            self._cookie, session.key, secure=self._settings.is_secure, httponly=True, samesite="strict", path="/"
        )
        return answer

    async def _login(self, request: Request) -> Response:
        """Begin a session with a login that the cluster accepts, in place of the browser's earlier one."""
        try:
            earlier = self._checked(request)
            given = await _body(request)
            login = Login(_text(given, "user"), _text(given, "password"))
        except _BadRequest as fault:
            return _fault(HTTPStatus.BAD_REQUEST, str(fault))
        if earlier is None:
            return _fault(HTTPStatus.FORBIDDEN, "the session is over: load the page again")
        observer = Observer(self._connect(login), self._settings.interval_s)
        async with self._login_turn:
            try:
                await observer.overview(0)
            except ClusterFault as fault:
                observer.close()
                await trio.sleep(REFUSED_LOGIN_S)
                return _fault(HTTPStatus.UNAUTHORIZED, str(fault))
        self._sessions.end(earlier)
        return self._with_cookie(self._sessions.begin(login.user, observer))

    async def _logout(self, request: Request) -> Response:
        session = self._checked(request)
        if session is None:
            return _fault(HTTPStatus.FORBIDDEN, "the session is over: load the page again")
        self._sessions.end(session)
        return self._with_cookie(self._sessions.begin(None, self._nobody))

    def _checked(self, request: Request) -> Session[Observer] | None:
        """The session of a request for a change, if the request has the session's token."""
        session = self._session_of(request)
        if session is None or not session.is_token(request.headers.get(TOKEN_HEADER, "")):
            return None
        return session

    def _asked(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            session = self._session_of(request) if request.method == "GET" else self._checked(request)
            if session is None:
                return _fault(HTTPStatus.FORBIDDEN, "the session is over: load the page again")
            try:
                return _json(await answer(request, session))
            except _BadRequest as fault:
                return _fault(HTTPStatus.BAD_REQUEST, str(fault))
            except LoginNeeded as fault:
                return _fault(HTTPStatus.UNAUTHORIZED, str(fault))
            except ClusterFault as fault:
                return _fault(HTTPStatus.BAD_GATEWAY, str(fault))

        return respond

    # -- questions

    async def _overview(self, request: Request, session: Session[Observer]) -> Any:
        text = request.query_params.get("after", "0")
        if not text.isascii() or not text.isdecimal() or len(text) > 15:
            raise _BadRequest("after: expected a number")
        observer = session.shown
        return _overview_value(await observer.overview(int(text)), observer)

    async def _detail(self, request: Request, session: Session[Observer]) -> Any:
        name = _parameter(request, "name")
        observer = session.shown
        overview = observer.latest()
        rows = [] if overview is None else [each for each in overview.rows if each.name == name]
        parts = [] if overview is None else overview.parts.get(name, [])
        return {
            "row": next(map(_rounded, rows), None),
            "parts": [_rounded(each) for each in parts],
            "history": observer.history.points(name),
            **await observer.ask(
                observer.cluster.ask, "detail", {"name": name, "parts": "\n".join(each.part for each in parts)}
            ),
        }

    async def _question(self, request: Request, session: Session[Observer]) -> Any:
        words = _checked_words(dict(request.query_params))
        return await session.shown.ask(session.shown.cluster.ask, request.path_params["question"], words)

    async def _plan(self, request: Request, session: Session[Observer]) -> Any:
        words = _checked_words(await _body(request))
        plan: Plan = await session.shown.ask(session.shown.cluster.plan, request.path_params["action"], words)
        return plan._asdict()

    async def _act(self, request: Request, session: Session[Observer]) -> Any:
        words = _checked_words(await _body(request))
        action = request.path_params["action"]
        done = await session.shown.ask(session.shown.cluster.act, action, words)
        log.info("%s: %s %s: %s", session.user or "nobody", action, words, done)
        return {"done": done}

    async def _decode(self, request: Request, session: Session[Observer]) -> Any:
        """Decode an Avro payload, which a browser sends with its schema."""
        given = await _body(request)
        schema, encoded = given.get("schema"), given.get("payload")
        if not isinstance(schema, str) or not isinstance(encoded, str):
            raise _BadRequest("schema and payload: expected texts")
        try:
            payload = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise _BadRequest("payload: is not base64") from None
        async with self._decoders:
            return {"text": await session.shown.ask(decode_avro, payload, schema)}


def _overview_value(overview: Overview, observer: Observer) -> dict[str, Any]:
    return {
        "number": overview.number,
        "at": overview.at_s,
        "interval": observer.interval_s,
        "map": overview.map,
        "columns": COLUMNS,
        "rows": [_rounded(each) for each in overview.rows],
        "total": _rounded(overview.total),
        "history": observer.history.points(TOTAL),
        "faults": overview.sample.faults,
    }


def _rounded(row: tuple[Any, ...]) -> list[Any]:
    return [round(value, 2) if isinstance(value, float) else value for value in row]


def _json(value: object) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")


def _fault(status: HTTPStatus, text: str) -> Response:
    return Response(json.dumps({"fault": text}), status, media_type="application/json")


def _parameter(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if found is None or len(found) > 4096:
        raise _BadRequest(f"{name}: is missing, or too long")
    return found


async def _body(request: Request) -> dict[str, Any]:
    """Read a JSON object. The request must name this type, which a form of another page cannot do."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise _BadRequest("expected JSON")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise _BadRequest(f"more than {BODY_BYTES_MAX:,} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise _BadRequest("expected JSON") from None
    if not isinstance(found, dict):
        raise _BadRequest("expected a JSON object")
    return found


def _checked_words(given: dict[str, Any]) -> dict[str, str]:
    return {name: _text(given, name) for name in given}


def _text(given: dict[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or len(found) > 4096:
        raise _BadRequest(f"{name}: expected a text")
    return found
