"""The bounds of a nameserver, how often its file is written, and the cost of what others put into it."""

from __future__ import annotations

import time
from typing import Any

from broker.rocketmq.access.guard import AccessOptions, Guard
from broker.rocketmq.access.tables import AccessTables
from broker.rocketmq.nameserver.routes import BrokerAddress, Registration
from broker.rocketmq.nameserver.service import NameserverService
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.bodies.routes import (
    REGISTER_BROKER_BODY,
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.nameserver.nameserver_rig import Requests
from tests.rigs.machine_speed import slowness

HOST = "10.0.0.1"


def _address(name: str) -> str:
    """Return the address of a broker: brokers register from their own host."""
    return f"{HOST}:{10_000 + ord(name)}"


class Served:
    """A nameserver behind connections."""

    def __init__(self) -> None:
        self.requests = Requests()
        access = AccessTables(b"", b"", lambda data: None, lambda data: None)
        guard = Guard(AccessOptions(), access, "c")
        self.service = NameserverService(self.requests.server, guard, lambda: self.requests.now_ms)
        self.sessions = 0
        self.session = self.connect()

    def connect(self) -> Session:
        self.sessions += 1
        return Session(self.sessions, Host(HOST, 5), self.service, lambda session: None, lambda: 0)

    def deliver(self, *frames: Frame) -> None:
        data = b"".join(map(encode_frame, frames))
        assert self.session.receive(memoryview(data)) == len(data)

    def answers(self) -> list[Frame]:
        data, at, found = memoryview(bytes(self.session.take_output())), 0, []
        while (parsed := next_frame(data, at, len(data))) is not None:
            frame, at = parsed
            found.append(frame)
        return found

    def call(self, code: RequestCode, body: bytes = b"", **fields: Any) -> Frame:
        self.deliver(Frame(code, 1, ext_fields={name: str(value) for name, value in fields.items()}, body=body))
        self.service.end_step()
        (answer,) = self.answers()
        return answer

    def put(self, key: str, value: str, namespace: str = "n") -> Frame:
        return self.call(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)

    def configure(self, text: str) -> None:
        self.call(RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())

    def register(self, name: str, topics: int, address: str | None = None) -> Frame:
        table = {f"{name}-{number}": TopicConfig(f"{name}-{number}") for number in range(topics)}
        body = REGISTER_BROKER_BODY.write(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, 0, 1))))
        where: dict[str, Any] = {
            "brokerName": name,
            "brokerAddr": address or _address(name),
            "clusterName": "c",
            "brokerId": 0,
        }
        return self.call(RequestCode.REGISTER_BROKER, body, haServerAddr="", **where)


def test_values_of_a_step_are_written_once_before_the_answers() -> None:
    served = Served()
    fields = [{"namespace": "n", "key": f"k{number}", "value": "v" * 200} for number in range(1_000)]
    served.deliver(*(Frame(RequestCode.PUT_KV_CONFIG, at, ext_fields=each) for at, each in enumerate(fields)))
    assert served.answers() == []
    served.service.end_step()
    assert [answer.code for answer in served.answers()] == [ResponseCode.SUCCESS] * 1_000
    assert len(served.requests.kept) == 1
    assert served.requests.kept[0].count(b"v" * 200) == 1_000


def test_values_are_bounded() -> None:
    served = Served()
    answer = served.put("k", "v" * 900_000)
    assert (answer.code, "kvConfigValueMaxBytes allows 65536" in (answer.remark or "")) == (1, True)
    served.configure("kvConfigMaxNum=11\nkvConfigMaxBytes=1000")
    answers = [served.put(f"k{number}", "v") for number in range(20)]
    # The namespace is one of them.
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 10 + [ResponseCode.SYSTEM_ERROR] * 10
    assert "kvConfigMaxNum allows 11" in (answers[-1].remark or "")
    assert served.put("k", "v", "another").code == ResponseCode.SYSTEM_ERROR
    assert "kvConfigMaxBytes allows 1000" in (served.put("k0", "v" * 1_000).remark or "")
    assert served.put("k0", "v" * 900).code == ResponseCode.SUCCESS
    assert served.call(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k0").code == ResponseCode.SUCCESS
    assert served.put("k11", "v" * 900).code == ResponseCode.SUCCESS


def test_registrations_are_bounded() -> None:
    served = Served()
    served.configure("registeredBrokerMaxNum=3\nregisterBrokerTopicMaxNum=50\nregisteredTopicMaxNum=100")
    assert served.register("a", 40).code == ResponseCode.SUCCESS
    assert "registerBrokerTopicMaxNum allows 50" in (served.register("b", 51).remark or "")
    assert served.register("b", 50).code == ResponseCode.SUCCESS
    assert "registeredTopicMaxNum allows 100" in (served.register("c", 11).remark or "")
    assert served.register("c", 10).code == ResponseCode.SUCCESS
    assert "registeredBrokerMaxNum allows 3" in (served.register("d", 0).remark or "")
    # Registered brokers may register again, and the room of one that leaves can be used by another.
    assert served.register("a", 40).code == ResponseCode.SUCCESS
    where: dict[str, Any] = {"brokerName": "a", "brokerAddr": _address("a"), "clusterName": "c", "brokerId": 0}
    assert served.call(RequestCode.UNREGISTER_BROKER, **where).code == ResponseCode.SUCCESS
    assert served.register("d", 40).code == ResponseCode.SUCCESS


def test_all_names_of_an_address_go_with_its_connection() -> None:
    served = Served()
    for number in range(50):
        assert served.register(f"name-{number}", 3, "10.0.0.1:1").code == ResponseCode.SUCCESS
    served.service.disconnected(served.session)
    routes = served.requests.server.routes
    assert routes.cluster_info() == ClusterInfo({}, {})
    assert routes.topics() == []


def test_brokers_that_leave_cost_what_they_had() -> None:
    """Take out 1,500 brokers with 20 topics each, one by one."""
    routes = Served().requests.server.routes
    for number in range(1_500):
        table = {f"{number}-{each}": TopicConfig(f"{number}-{each}") for each in range(20)}
        topics = TopicConfigs(table, DataVersion(1, 0, 1))
        routes.register(Registration("c", f"b{number}:1", f"b{number}", 0, "", topics), number, 0)
    began = time.thread_time()
    for number in range(1_500):
        if number % 2:
            routes.unregister(f"b{number}", BrokerAddress("c", f"b{number}:1"))
        routes.disconnected(number)
    # It is 0.1 s; looking at all topics and brokers each time takes 4 s.
    assert time.thread_time() - began < slowness()
    assert routes.topics() == []
