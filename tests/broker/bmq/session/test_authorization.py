"""Permissions of peers: the rules, and the places where they are applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.bmq.node.node import unadministered
from broker.bmq.node.services import ProcessServices, RunCommand
from broker.bmq.relay.guests import Guests
from broker.bmq.session.authentication import AssumedCredential, Authentications, BasicAuthenticator
from broker.bmq.session.authorization import (
    Action,
    Authorizations,
    Authorizer,
    ConnectAdmin,
    ConnectClient,
    ConnectClusterNode,
    ConnectProxy,
    DefaultAuthorizer,
    ExecuteAdminCommand,
    Permission,
    QueueRead,
    QueueWrite,
    Rule,
    RuleAuthorizer,
    Who,
    connection_action,
)
from broker.bmq.session.session import Session
from broker.bmq.session.session_table import SessionState
from broker.common.clock import Now
from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AdminCommand,
    AdminCommandResponse,
    ClientIdentity,
    ClientType,
    NegotiationMessage,
    OpenQueueResponse,
    Status,
    StatusCategory,
)
from formats.bmq.wire.event import build_schema_event
from tests.broker.bmq.rig import ACK, READ, START_S, WRITE, Client, Rig, bare_proxy, guid, identity, start

ANONYMOUS = Who("anonymous", "ANONYMOUS")
ANN = Who("BASIC_USER-ann", "BASIC")
ACTIONS: list[Action] = [
    ConnectClient(),
    ConnectProxy(),
    ConnectAdmin(),
    ConnectClusterNode("planets"),
    QueueRead("bmq://shop.orders/q?id=foo"),
    QueueWrite("bmq://shop.orders/q"),
    ExecuteAdminCommand("HELP"),
]
PROXY = replace(identity(ClientType.TCPBROKER), cluster_name="local")
MEMBER = replace(PROXY, cluster_node_id=1)
ADMIN = identity(ClientType.TCPADMIN)


def permitted(rule: Rule, who: Who = ANN) -> list[str]:
    """The names of the actions that it permits."""
    return [type(action).__name__ for action in ACTIONS if rule.permits(action, who)]


@pytest.mark.parametrize(
    ("permission", "names"),
    [
        (Permission.ADMINISTER, ["ConnectAdmin", "ExecuteAdminCommand"]),
        (Permission.BROKER, ["ConnectProxy", "ConnectClusterNode"]),
        (Permission.READ, ["ConnectClient", "QueueRead"]),
        (Permission.WRITE, ["ConnectClient", "QueueWrite"]),
    ],
)
def test_a_permission_is_for_its_actions(permission: Permission, names: list[str]) -> None:
    assert permitted(Rule([permission])) == names


def test_by_default_everything_is_allowed() -> None:
    assert all(Authorizations.open().allows(action, ANONYMOUS) for action in ACTIONS)
    assert DefaultAuthorizer().name == "DefaultAuthorizer"


@pytest.mark.parametrize(
    ("principals", "mechanisms", "matches"),
    [
        (["*"], ["*"], True),
        (["BASIC_USER-ann"], ["basic"], True),
        (["someone", "BASIC_USER-*"], ["OAUTH", "BASIC"], True),
        (["BASIC_USER-an"], ["*"], False),
        (["ann"], ["*"], False),
        (["basic_user-ann"], ["*"], False),
        (["*"], ["ANONYMOUS"], False),
        ([], ["*"], False),
    ],
)
def test_a_rule_is_for_those_whom_its_patterns_match(
    principals: list[str], mechanisms: list[str], matches: bool
) -> None:
    rule = Rule([Permission.BROKER], principals, mechanisms)
    assert rule.permits(ConnectProxy(), ANN) is matches


@pytest.mark.parametrize(
    ("domains", "uri", "matches"),
    [
        (["shop.*"], "bmq://shop.orders/q", True),
        (["shop.*"], "bmq://shop.orders.~test/q?id=foo", True),
        (["shop.orders"], "bmq://shop.orders.~test/q", False),
        (["shop.orders"], "bmq://shop.orders2/q", False),
        (["shop.orders"], "bmq://myshop.orders/q", False),
        (["a", "shop.orders"], "bmq://shop.orders/shop.bills", True),
        (["shop.bills"], "bmq://shop.orders/shop.bills", False),
        (["*"], "no uri", False),
    ],
)
def test_reading_and_writing_is_for_the_domains_that_match(domains: list[str], uri: str, matches: bool) -> None:
    rule = Rule([Permission.READ, Permission.WRITE], domains=domains)
    assert rule.permits(QueueRead(uri), ANN) is matches
    assert rule.permits(QueueWrite(uri), ANN) is matches
    assert not Rule([Permission.READ], domains=domains).permits(QueueWrite(uri), ANN)
    assert not Rule([Permission.WRITE], domains=domains).permits(QueueRead(uri), ANN)


def test_one_rule_that_permits_is_enough_and_without_one_nothing_is_allowed() -> None:
    authorizer = RuleAuthorizer([Rule([Permission.READ], domains=["a"]), Rule([Permission.READ], domains=["b"])])
    assert authorizer.authorize(QueueRead("bmq://b/q"), ANN)
    assert not authorizer.authorize(QueueRead("bmq://c/q"), ANN)
    assert not any(RuleAuthorizer([]).authorize(action, ANN) for action in ACTIONS)


@pytest.mark.parametrize(
    ("who", "action"),
    [
        (identity(), ConnectClient()),
        (ADMIN, ConnectAdmin()),
        (PROXY, ConnectProxy()),
        (MEMBER, ConnectClusterNode("local")),
    ],
)
def test_a_peer_asks_to_be_what_it_says_it_is(who: ClientIdentity, action: Action) -> None:
    assert connection_action(who) == action


DENY_ALL = Authorizations(RuleAuthorizer([]))


# -- where it is asked


class Recorder:
    """An authorizer that keeps its questions, and gives prepared answers."""

    name = "Recorder"

    def __init__(self, answer: object = True) -> None:
        self.asked: list[tuple[Action, Who]] = []
        self.answer = answer

    def authorize(self, action: Action, who: Who) -> bool:
        self.asked.append((action, who))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


def node(authorizer: Authorizer, authentications: Authentications | None = None, run: RunCommand | None = None) -> Rig:
    services = ProcessServices(authentications or Authentications.open(), Authorizations(authorizer))
    return start(services=services, administer=unadministered if run is None else lambda node: run, make_door=Guests)


@pytest.mark.parametrize("who", [identity(), ADMIN, PROXY, MEMBER])
def test_a_peer_that_may_not_connect_is_told_so_and_nothing_else(who: ClientIdentity) -> None:
    rig = node(RuleAuthorizer([]))
    client = Client(rig.node)
    answer = client.negotiate(who)
    assert answer.result == Status(category=StatusCategory.REFUSED, code=-1, message="Connection not authorized")
    assert (answer.broker_identity.cluster_name, answer.broker_identity.host_name) == ("", "")
    assert client.session.state is SessionState.CLOSED


@pytest.mark.parametrize("answer", [RuntimeError("down"), None, 1, "yes"])
def test_an_authorizer_that_fails_allows_nothing(answer: object) -> None:
    client = Client(node(Recorder(answer)).node)
    assert client.negotiate(identity()).result.category is StatusCategory.REFUSED


def test_an_authorizer_is_asked_about_each_thing_once_with_the_principal_and_the_mechanism() -> None:
    recorder = Recorder()
    users = [BasicAuthenticator({"ann": "x"})]
    rig = node(recorder, Authentications(users, AssumedCredential("BASIC", b"ann:x")))
    client = rig.connect()
    client.open(1, "bmq://priority/q", WRITE | ACK)
    client.open(2, "bmq://fanout/q", READ, "foo", 1)
    client.post(1, guid(1), b"payload")
    assert recorder.asked == [
        (ConnectClient(), ANN),
        (QueueWrite("bmq://priority/q"), ANN),
        (QueueRead("bmq://fanout/q?id=foo"), ANN),
    ]


def may_read_priority() -> Rig:
    return node(RuleAuthorizer([Rule([Permission.READ], ["anonymous"], domains=["priority"])]))


@pytest.mark.parametrize(
    ("uri", "flags", "what"),
    [
        ("bmq://priority/q", WRITE, "write to"),
        ("bmq://priority/q", READ | WRITE, "write to"),
        ("bmq://memory/q", READ, "read from"),
        ("bmq://there.is.none/q", READ, "read from"),
    ],
)
def test_a_queue_that_may_not_be_opened_so_is_refused(uri: str, flags: int, what: str) -> None:
    rig = may_read_priority()
    client = rig.connect()
    answer = client.try_open(1, uri, flags)
    assert answer == Status(category=StatusCategory.REFUSED, code=-1, message=f"Not authorized to {what} queue '{uri}'")
    assert not rig.node.queues
    assert isinstance(client.try_open(1, "bmq://priority/q", READ), OpenQueueResponse)


def test_a_queue_that_is_open_for_reading_gets_no_right_to_write() -> None:
    client = may_read_priority().connect()
    assert isinstance(client.try_open(1, "bmq://priority/q", READ), OpenQueueResponse)
    assert isinstance(client.try_open(1, "bmq://priority/q", WRITE), Status)
    client.post(1, guid(1), b"payload")
    assert [ack.status for ack in client.acks()] != [0]


def test_brokers_are_not_asked_again_what_their_clients_may() -> None:
    rig = node(RuleAuthorizer([Rule([Permission.BROKER])]))
    client = Client(rig.node)
    assert client.negotiate(PROXY).result.category is StatusCategory.SUCCESS
    client.inbox.clear()  # of the node's status
    assert isinstance(client.try_open(1, "bmq://priority/q", READ), OpenQueueResponse)


def test_each_command_of_an_administrator_may_be_refused() -> None:
    class Curious(Recorder):
        def authorize(self, action: Action, who: Who) -> bool:
            super().authorize(action, who)
            return action in (ConnectAdmin(), ExecuteAdminCommand("HELP"))

    commands: list[str] = []

    def run(command: str, source: str, may_read: Callable[[str], bool] | None = None, /) -> tuple[int, str]:
        assert may_read is not None
        assert not may_read("bmq://priority/q")
        commands.append(command)
        return 0, "done"

    rig = node(authorizer := Curious(), run=run)
    client = Client(rig.node)
    client.negotiate(ADMIN)
    assert client.ask(AdminCommand(command="HELP")) == AdminCommandResponse(text="done")
    assert client.ask(AdminCommand(command="DOMAINS DOMAIN priority PURGE")) == AdminCommandResponse(
        text="Not authorized to execute this command"
    )
    assert commands == ["HELP"]
    assert not client.session.finished
    assert (ConnectAdmin(), ANONYMOUS) in authorizer.asked


@pytest.mark.parametrize(("names", "may"), [((), False), (("other",), False), (("other", "node1.example"), True)])
def test_client_certificate_gives_the_identities_that_it_names(names: tuple[str, ...], may: bool) -> None:
    rig = node(RuleAuthorizer([Rule([Permission.READ], ["node1.*"], ["TLS"])]))
    session = Session(rig.node, 77, "10.0.0.1:5000", lambda: frozenset(names))
    session.receive(memoryview(build_schema_event(ber.encode(NegotiationMessage(choice=identity())))))
    assert session.state is (SessionState.RUNNING if may else SessionState.CLOSED)


def test_a_proxy_decides_for_the_clients_that_are_connected_to_it() -> None:
    proxy = bare_proxy(Now(START_S, 1_000_000), services=ProcessServices(authorizations=DENY_ALL))
    client = Client(proxy)
    assert client.negotiate(identity()).result.category is StatusCategory.REFUSED
    assert client.session.finished
