"""One port for nameserver and broker: the broker's requests, the routes given, and the right to ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.nameserver.key_values import ORDER_TOPICS, KeyValues
from broker.rocketmq.nameserver.one_port import OnePort, moved_routes
from broker.rocketmq.nameserver.requests import RouteRequests
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.routes import TOPIC_ROUTE, BrokerData, QueueData, TopicRoute
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame, next_frame

OWN, TOLD, OTHER, SLAVE = "10.0.0.1:10911", "10.0.0.1:8080", "10.0.0.2:10911", "10.0.0.3:10911"
BROKERS = [BrokerData("c", "a", {0: OWN, 1: SLAVE}), BrokerData("c", "b", {0: OTHER})]
QUEUES = [QueueData("a", 4, 4, 6, 0), QueueData("b", 2, 2, 6, 0)]


def find(topic: str) -> TopicRoute | None:
    return TopicRoute(BROKERS, QUEUES) if topic == "t" else None


class Recorder:
    """A broker that notes what it is handed."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.ended: list[Session] = []

    def take(self, data: memoryview, at: int, end: int, session: Session) -> int:
        """Take what begins with four bytes of one."""
        return at + 4 if bytes(data[at : at + 4]) == b"\1\1\1\1" else at

    def receive(self, frame: Frame, session: Session) -> None:
        """Note the code."""
        self.codes.append(frame.code)

    def disconnected(self, session: Session) -> None:
        """Note the session."""
        self.ended.append(session)


class Served:
    """A connection to the port."""

    def __init__(self, options: AccessOptions | None = None) -> None:
        tables = AccessTables(b"", b"", _keep_nothing, _keep_nothing)
        values = KeyValues(b"", _keep_nothing)
        values.put(ORDER_TOPICS, "t", "a:4")
        routes = RouteRequests(moved_routes(find, OWN, TOLD), values)
        self.broker = Recorder()
        service = OnePort(self.broker, routes, Guard(options or AccessOptions(), tables, "c"))
        self.session = Session(1, Host("10.0.0.9", 5), service, lambda session: None, lambda: 0)

    def send(self, *frames: Frame, first: bytes = b"") -> list[Frame]:
        """Return the answers to frames."""
        self.session.receive(memoryview(first + b"".join(map(encode_frame, frames))))
        data, at, answers = memoryview(bytes(self.session.take_output())), 0, []
        while (found := next_frame(data, at, len(data))) is not None:
            frame, at = found
            answers.append(frame._replace(body=bytes(frame.body)))
        return answers


def _keep_nothing(data: bytes) -> None:
    """Keep nothing."""


def ask(topic: str, **fields: str) -> Frame:
    return Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 7, ext_fields={"topic": topic, **fields})


def test_the_own_broker_is_at_the_port_and_others_stay_where_they_are() -> None:
    (answer,) = Served().send(ask("t"))
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, 7)
    assert answer.flag & FrameFlag.RESPONSE
    route = TOPIC_ROUTE.read(answer.body)
    assert [data.broker_addrs for data in route.broker_datas] == [{0: TOLD, 1: SLAVE}, {0: OTHER}]
    assert route.queue_datas == QUEUES
    assert route.order_topic_conf == "a:4"
    # The nameserver's tables are unchanged.
    assert BROKERS[0].broker_addrs == {0: OWN, 1: SLAVE}


def test_routes_are_told_in_standard_json_where_that_is_wanted() -> None:
    served = Served()
    (fast,) = served.send(ask("t"))
    (standard,) = served.send(ask("t", acceptStandardJsonOnly="true"))
    assert b"{0:" in fast.body
    assert b'{"0":' in standard.body
    assert TOLD.encode() in standard.body


@pytest.mark.parametrize(
    ("request_", "code"),
    [(ask("u"), ResponseCode.TOPIC_NOT_EXIST), (ask("t")._replace(ext_fields=None), ResponseCode.SYSTEM_ERROR)],
)
def test_invalid_request_is_answered_with_its_fault(request_: Frame, code: ResponseCode) -> None:
    (answer,) = Served().send(request_)
    assert answer.code == code


def test_all_else_is_the_brokers() -> None:
    served = Served()
    answer = Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 3, flag=FrameFlag.RESPONSE)
    assert served.send(Frame(RequestCode.HEART_BEAT, 1), answer, first=b"\1\1\1\1") == []
    assert served.broker.codes == [RequestCode.HEART_BEAT, RequestCode.GET_ROUTEINFO_BY_TOPIC]
    served.session.end()
    assert served.broker.ended == [served.session]


def test_client_without_the_right_to_a_route_is_refused() -> None:
    served = Served(AccessOptions(authentication=True))
    (answer,) = served.send(ask("t"))
    assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")


def test_a_route_that_is_not_there_is_none() -> None:
    found: Callable[[str], TopicRoute | None] = moved_routes(find, OWN, TOLD)
    assert found("u") is None
