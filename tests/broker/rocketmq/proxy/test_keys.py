"""A proxy that signs what it asks, and checks who calls by the users that brokers tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.grpc import service as service_module
from broker.rocketmq.proxy.access import Checks
from broker.rocketmq.remoting.session import Session
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import make
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import signed
from tests.broker.rocketmq.grpc.grpc_service_rig import consumer, credential, endpoints, producer, resource
from tests.broker.rocketmq.grpc.served import message
from tests.broker.rocketmq.proxy.clustered import Clustered
from tests.broker.rocketmq.proxy.keyed import (
    BOB,
    BOTH,
    NO_ACL,
    NO_USER,
    PROXY,
    WHO_ONLY,
    allow,
    authenticate,
    guarded,
    outcome,
    proxy,
)

# -- signing


def test_brokers_that_check_take_what_the_proxy_signs() -> None:
    served = proxy(checks=Checks())
    served.headers = {}
    assert served.send(message()).status.code == Code.OK
    (received,) = served.receive()
    answer = served.acknowledge(received.system_properties.receipt_handle)
    assert answer.status.code == Code.OK
    served.tell(producer("many"))
    served.pass_time(21_000)
    code, fields = RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "many"}
    sealed = signed(Frame(code, 0, ext_fields=fields), *PROXY)
    listed = served.rig.peer().call(code, b"", **(sealed.ext_fields or {}))
    assert b'"clientId":"proxy"' in bytes(listed.body)
    served.call("NotifyClientTermination", make("NotifyClientTerminationRequest"))
    served.step()
    assert served.rig.peer().call(code, b"", **(sealed.ext_fields or {})).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("key", [None, ("proxy", "guess"), ("nobody", "x")])
def test_brokers_that_check_refuse_what_is_not_signed(key: tuple[str, str] | None) -> None:
    served = proxy(checks=Checks(), key=key)
    assert served.send(message()).status.code == Code.INTERNAL_SERVER_ERROR
    assert served.rig.messages("t") == []


# -- who calls


@pytest.mark.parametrize("is_broker_checking", [True, False])
def test_signed_client_may_call(is_broker_checking: bool) -> None:
    served = proxy(guarded(is_broker_checking), WHO_ONLY)
    assert served.send(message()).status.code == Code.OK
    (received,) = served.receive()
    assert served.acknowledge(received.system_properties.receipt_handle).status.code == Code.OK
    _, answers = served.tell(consumer())
    assert [each.status.code for each in answers] == [Code.OK]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "username cannot be null."),
        (credential("bob", "guess"), "check signature failed."),
        (credential("nobody", "x"), "User:nobody is not found."),
        (credential("x" * 2000, "x"), f"User:{'x' * 80} is not found."),
    ],
)
@pytest.mark.parametrize("checks", [WHO_ONLY, BOTH])
def test_unsigned_client_may_not_call(checks: Checks, headers: dict[str, str], text: str) -> None:
    served = proxy(checks=checks)
    allow(served.rig, "*")
    served.headers = headers
    for _ in range(2):
        assert outcome(served.send(message())) == (Code.UNAUTHORIZED, text)
    answer = served.call("QueryRoute", make("QueryRouteRequest", topic=resource("t"), endpoints=endpoints()))
    assert outcome(answer) == (Code.UNAUTHORIZED, text)
    stream, answers = served.tell(producer("t"))
    assert (answers, served.client.status(stream)) == ([], "3")
    assert served.rig.messages("t") == []
    assert len(served.service._clients) == 0
    assert not served.service._held


def test_a_disabled_user_may_not() -> None:
    served = proxy(checks=WHO_ONLY)
    served.rig.access.update_user(UserInfo("bob", user_status="disable"))
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, "User:bob is disabled.")


def lookups(served: Clustered) -> list[Frame]:
    """Gather the requests about users that the broker gets from now on."""
    asked: list[Frame] = []
    receive = served.rig.broker.receive

    def gather(frame: Frame, session: Session) -> None:
        if frame.code == RequestCode.AUTH_GET_USER:
            asked.append(frame)
        receive(frame, session)

    served.rig.broker.receive = gather  # type: ignore[method-assign]
    return asked


def test_users_are_known_for_a_while_and_looked_up_anew() -> None:
    served = proxy(checks=WHO_ONLY)
    asked = lookups(served)
    for _ in range(5):
        assert served.send(message()).status.code == Code.OK
    assert len(asked) == 1
    served.rig.access.update_user(UserInfo("bob", "changed"))
    served.pass_time(21_000)
    served.send(message())
    assert len(asked) == 2
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, "check signature failed.")
    served.headers = credential("bob", "changed")
    assert served.send(message()).status.code == Code.OK


def test_a_user_who_is_made_later_is_found_soon_and_names_are_not_asked_about_each_time() -> None:
    served = proxy(checks=WHO_ONLY)
    asked = lookups(served)
    served.headers = credential("ann", "x")
    for _ in range(10):
        assert outcome(served.send(message())) == (Code.UNAUTHORIZED, "User:ann is not found.")
    assert len(asked) == 1
    served.rig.access.create_user(UserInfo("ann", "x", "Normal", "enable"))
    served.pass_time(2_000)
    assert served.send(message()).status.code == Code.OK


# -- brokers that do not tell


def test_calls_are_refused_if_no_broker_answers() -> None:
    served = proxy(checks=WHO_ONLY)
    served.end_broker(0)
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, NO_USER)


def test_calls_are_refused_if_no_broker_answers_in_time_and_carried_out_otherwise() -> None:
    served = proxy(checks=WHO_ONLY)
    served.pass_time(1_000)
    served.network.is_stuck = True
    stream = served.begin("SendMessage", make("SendMessageRequest", messages=[message()]))
    assert served.client.status(stream) is None
    telemetry, _ = served.tell(producer("t"))
    # The nameserver, which knows where the broker is, is asked over another connection.
    served.pass_time(4_000)
    (answer,) = served.answers("SendMessage", stream)
    assert outcome(answer) == (Code.UNAUTHORIZED, NO_USER)
    assert served.client.status(telemetry) == "3"
    assert not served.service._held


@pytest.mark.parametrize("key", [None, BOB])
def test_calls_are_refused_if_brokers_give_the_proxy_no_users(key: tuple[str, str] | None) -> None:
    rig = guarded()
    allow(rig, "*", actions="All")
    served = proxy(rig, WHO_ONLY, key)
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, NO_USER)
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, NO_USER)
    assert served.rig.messages("t") == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"username":"ann","password":"bob-secret","userType":"Super","userStatus":"enable"}',
        b'{"username":"bob","userType":"Normal","userStatus":"enable"}',
        b'{"username":"bob","password":" "}',
        b'{"username":"bob","password":["bob-secret"]}',
        b"garbage",
    ],
)
def test_calls_are_refused_if_a_brokers_answer_is_invalid(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    served = proxy(checks=WHO_ONLY)
    tell(served, body, monkeypatch)
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, NO_USER)


@pytest.mark.parametrize(
    "body",
    [
        b'{"subject":"User:ann","policies":[{"entries":[{"resource":"*","actions":["All"],"decision":"Allow"}]}]}',
        b'{"subject":"User:bob","policies":[{"entries":[{"resource":"?","actions":["All"],"decision":"Allow"}]}]}',
        b"garbage",
    ],
)
def test_nothing_is_allowed_by_what_a_broker_tells_wrong(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    served = proxy()
    authenticate(served)
    tell(served, body, monkeypatch)
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, NO_ACL)


def tell(served: Clustered, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have brokers tell the same of every user."""

    def ask(name: str, frame: Frame, until_ms: int, done: Callable[[Frame], None]) -> None:
        done(Frame(ResponseCode.SUCCESS, 0, body=body))

    monkeypatch.setattr(served.cluster._users._brokers, "ask", ask)


def test_calls_are_refused_if_the_cluster_has_no_brokers() -> None:
    served = proxy(checks=Checks(True, True, cluster="another"))
    assert outcome(served.send(message())) == (Code.UNAUTHORIZED, NO_USER)


def test_known_users_count_while_no_broker_answers() -> None:
    served = proxy(checks=WHO_ONLY)
    assert served.send(message()).status.code == Code.OK
    address = str(served.rig.options.address)
    served.end_broker(0)
    served.pass_time(25_000)
    served.send(message())
    served.network.services[address] = served.rig.broker
    served.pass_time(2_000)
    assert served.send(message()).status.code == Code.OK


def test_another_broker_of_the_cluster_tells_if_one_does_not() -> None:
    served = Clustered(guarded(), others=1, checks=WHO_ONLY, key=PROXY)
    served.headers = credential(*BOB)
    # The first by its name has no such user, and the one whom the proxy signs as: it answers nothing.
    served.rigs[1].access_options = AccessOptions(True, True)
    served.rigs[1].stop()
    served.network.services[str(served.rigs[1].options.address)] = served.rigs[1].broker
    assert served.send(message()).status.code == Code.OK


# -- calls that wait


def stuck() -> Clustered:
    """A proxy whose broker does not answer for the time being."""
    served = proxy(checks=WHO_ONLY)
    served.pass_time(1_000)
    served.network.is_stuck = True
    return served


def test_a_call_that_waits_is_forgotten_with_its_client() -> None:
    served = stuck()
    served.begin("SendMessage", make("SendMessageRequest", messages=[message()]))
    assert served.service._held
    served.client.session.end()
    assert not served.service._held
    assert served.service._held._bytes == 0
    served.network.is_stuck = False
    served.pass_time(1_000)
    assert served.rig.messages("t") == []


def test_a_call_is_not_carried_out_if_it_is_over_before_it_is_allowed() -> None:
    served = proxy()
    allow(served.rig, "Topic:t")
    authenticate(served)
    served.network.is_stuck = True
    served.begin("SendMessage", make("SendMessageRequest", messages=[message()]))
    served.client.session.end()
    served.network.is_stuck = False
    served.pass_time(1_000)
    assert served.rig.messages("t") == []


def test_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_BYTES_MAX", 10_000)
    served = stuck()
    body = b"x" * 6_000
    first, second = (
        served.begin("SendMessage", make("SendMessageRequest", messages=[message(body=body)])) for _ in range(2)
    )
    assert served.client.status(first) is None
    assert served.client.status(second) == "8"
    telemetry = served.client.open("Telemetry", x_mq_client_id="client", **served.headers)
    for _ in range(17):
        served.client.send(telemetry, make("TelemetryCommand").SerializeToString())
    served.client.exchange()
    assert served.client.status(telemetry) == "8"
    served.network.is_stuck = False
    served.step()
    (answer,) = served.answers("SendMessage", first)
    assert answer.status.code == Code.OK
