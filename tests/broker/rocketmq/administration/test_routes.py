"""The queues of a topic on other brokers, as nameservers elsewhere say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.rocketmq.administration.registration import NameserverLink
from broker.rocketmq.remoting.session import Service, Session
from broker.rocketmq.tables.routes import KEEP_MS, QueueFinder
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, QueueData, TopicRoute
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame

NEAR = QueueData("near", 1, 1, 6)
FAR = QueueData("far", 2, 2, 6)
ROUTE = TOPIC_ROUTE.write(TopicRoute([], [FAR]))


class Link:
    """A nameserver that answers when the test lets it."""

    def __init__(self, *, connected: bool = True) -> None:
        self.connected = connected
        self.asked: list[tuple[Frame, Callable[[Frame | None], None]]] = []

    def ask(self, request: Frame, now_ms: int, done: Callable[[Frame | None], None]) -> bool:
        if self.connected:
            self.asked.append((request, done))
        return self.connected

    def answer(self, answer: Frame | None) -> None:
        self.asked.pop(0)[1](answer)


class Found:
    """The results of a finder, in order."""

    def __init__(self, *links: Link) -> None:
        self.finder = QueueFinder(lambda topic: [NEAR], links)
        self.all: list[Sequence[QueueData]] = []

    def find(self, now_ms: int = 1_000) -> Sequence[QueueData] | None:
        """The queues, if they are known at once."""
        before = len(self.all)
        self.finder("t", now_ms, self.all.append)
        return self.all[-1] if len(self.all) > before else None


def test_without_others_there_is_nobody_to_wait_for() -> None:
    assert Found().find() == [NEAR]
    assert Found(Link(connected=False)).find() == [NEAR]


def test_first_that_is_connected_is_asked_and_believed_for_a_while() -> None:
    away, link = Link(connected=False), Link()
    found = Found(away, link, Link())
    assert found.find() is None
    (request, _), *rest = link.asked
    assert (request.code, request.ext_fields, rest) == (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}, [])
    link.answer(Frame(ResponseCode.SUCCESS, 0, body=ROUTE))
    assert found.all == [[NEAR, FAR]]
    assert found.find(999 + KEEP_MS) == [NEAR, FAR]
    assert found.find(1_000 + KEEP_MS) is None


def test_known_routes_stand_while_no_nameserver_answers() -> None:
    link = Link()
    found = Found(link)
    for answer in (
        None,
        Frame(ResponseCode.TOPIC_NOT_EXIST, 0),
        Frame(ResponseCode.SUCCESS, 0, body=b"{"),
        Frame(ResponseCode.SUCCESS, 0, body=ROUTE),
        None,
    ):
        assert found.find(1_000 + len(found.all) * KEEP_MS) is None
        link.answer(answer)
    assert found.all == [[NEAR]] * 3 + [[NEAR, FAR]] * 2


def test_link_gives_each_answer_to_who_asked() -> None:
    connected: list[Callable[[str], Session]] = []
    services: list[Service] = []

    def open_session(peer: str, service: Service) -> Session:
        services.append(service)
        return Session(1, Host("127.0.0.1", 1), service, lambda _: None, lambda: 0)

    link = NameserverLink(
        "ns:1",
        lambda done, failed: connected.append(done),
        open_session,
        lambda: Frame(RequestCode.REGISTER_BROKER, 0),
    )
    got: list[Frame | None] = []
    question = Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0)
    assert not link.ask(question, 0, got.append)
    link.tick(0)
    session = connected.pop()("127.0.0.1:1")
    session.take_output()
    for _ in range(3):
        assert link.ask(question, 0, got.append)
    view, at, opaque = memoryview(bytes(session.take_output())), 0, []
    while (parsed := next_frame(view, at, len(view))) is not None:
        frame, at = parsed
        opaque.append(frame.opaque)
    told = encode_frame(Frame(ResponseCode.TOPIC_NOT_EXIST, opaque[1], flag=1))
    assert session.receive(memoryview(told)) == len(told)
    assert [frame.code for frame in got if frame is not None] == [ResponseCode.TOPIC_NOT_EXIST]
    link.tick(10_000)
    assert got[1:] == [None, None]
    assert link.ask(question, 10_000, got.append)
    services[0].disconnected(session)
    assert got[3:] == [None]
    assert not link.ask(question, 10_000, got.append)
