"""Sessions that authenticate: before they say who they are, again while they run, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.bmq.node.services import ProcessServices
from broker.bmq.session.authentication import (
    AnonymousAuthenticator,
    AssumedCredential,
    Authentications,
    BasicAuthenticator,
    Denied,
    Granted,
    Outcome,
    Unauthenticated,
)
from broker.bmq.session.session_table import SessionState
from formats.bmq.control import ber, jsonc
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    AuthenticationResponse,
    NegotiationMessage,
    OpenQueue,
    StatusCategory,
)
from formats.bmq.wire.event import EncodingType, EventType, build_schema_event, iter_frames, schema_encoding
from tests.broker.bmq.rig import WRITE, Client, Rig, handle, identity, start

BASIC = BasicAuthenticator({"ann": "secret", "bob": "se:cret", "zoe": ""})
NOBODY = None
EVERYBODY = AssumedCredential("ANONYMOUS", b"")


class Slow:
    """A mechanism whose answer the test gives."""

    mechanism = "Slow"
    blocking = True

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Outcome], Callable[[Outcome], None]]] = []

    def authenticate(self, data: bytes, peer: str) -> Granted:
        assert peer == "10.0.0.1:5000"
        if data == b"no":
            raise Unauthenticated("not today")
        return Granted(data.decode(), 5_000)

    def keep(self, work: Callable[[], Outcome], done: Callable[[Outcome], None]) -> bool:
        self.works.append((work, done))
        return True

    def answer(self) -> None:
        work, done = self.works.pop(0)
        done(work())


def node(anonymous: AssumedCredential | None = EVERYBODY, slow: Slow | None = None) -> Rig:
    authentications = Authentications([BASIC, AnonymousAuthenticator(), *([slow] if slow else [])], anonymous)
    if slow:
        authentications.attach(slow.keep)
    return start(services=ProcessServices(authentications))


def request(mechanism: str, data: bytes | None, encoding: EncodingType = EncodingType.BER) -> bytes:
    codec = jsonc if encoding is EncodingType.JSON else ber
    message = AuthenticationMessage(choice=AuthenticationRequest(mechanism=mechanism, data=data))
    return build_schema_event(codec.encode(message), EventType.AUTHENTICATION, encoding)


def answers(client: Client) -> list[AuthenticationResponse]:
    """The authentication responses that came, and nothing else did."""
    view = memoryview(bytes(client.session.take_output()))
    found = []
    for frame in iter_frames(view, 0, len(view), 1 << 20):
        assert frame.type == EventType.AUTHENTICATION
        codec = jsonc if schema_encoding(frame.type_specific) is EncodingType.JSON else ber
        answer = codec.decode(AuthenticationMessage, view[frame.body : frame.end]).choice
        assert isinstance(answer, AuthenticationResponse)
        found.append(answer)
    return found


def authenticate(client: Client, mechanism: str, data: bytes | None) -> AuthenticationResponse:
    client.send(request(mechanism, data))
    (answer,) = answers(client)
    return answer


@pytest.mark.parametrize("encoding", EncodingType)
@pytest.mark.parametrize("mechanism", ["BASIC", "basic", "BaSiC"])
@pytest.mark.parametrize("data", [b"ann:secret", b"bob:se:cret", b"zoe:"])
def test_client_with_the_password_may_go_on(encoding: EncodingType, mechanism: str, data: bytes) -> None:
    client = Client(node(NOBODY).node)
    client.send(request(mechanism, data, encoding))
    (answer,) = answers(client)
    assert answer.status.category is StatusCategory.SUCCESS
    assert answer.lifetime_ms == 600_000
    assert client.negotiate(identity()).result.code == 0


@pytest.mark.parametrize(
    ("mechanism", "data", "code", "reason"),
    [
        ("BASIC", b"ann:wrong", -11, "Invalid username or password for user 'ann'"),
        ("BASIC", b"eve:secret", -11, "Invalid username or password for user 'eve'"),
        ("BASIC", b"\xff:", -11, "Invalid username or password for user '\\xff'"),
        ("BASIC", b"ann", -11, "Expected 'username:password'"),
        ("BASIC", None, -11, "Expected 'username:password'"),
        ("OAuth", b"token", -2, "Authentication mechanism 'OAUTH' not supported."),
    ],
)
def test_client_without_the_password_is_refused_and_disconnected(
    mechanism: str, data: bytes | None, code: int, reason: str
) -> None:
    client = Client(node().node)
    answer = authenticate(client, mechanism, data)
    assert answer.status.category is StatusCategory.REFUSED
    assert answer.status.code == code
    assert reason in answer.status.message
    assert answer.lifetime_ms is None
    assert client.session.finished


def test_without_configuration_everybody_is_anonymous_and_nobody_else() -> None:
    rig = start()
    assert rig.connect().session.entrance.auth.principal == "anonymous"
    assert authenticate(Client(rig.node), "ANONYMOUS", None).lifetime_ms is None
    assert authenticate(Client(rig.node), "BASIC", b"ann:secret").status.code == -2


@pytest.mark.parametrize(
    "anonymous",
    [NOBODY, AssumedCredential("BASIC", b"ann:wrong"), AssumedCredential("NONE", b"")],
)
def test_unauthenticated_client_may_be_disconnected_without_an_answer(anonymous: AssumedCredential | None) -> None:
    client = Client(node(anonymous).node)
    client.send(negotiation())
    assert client.session.finished
    assert not client.session.take_output()


def waits(client: Client) -> bool:
    return client.session.paused


def negotiation() -> bytes:
    return build_schema_event(ber.encode(NegotiationMessage(choice=identity())), EventType.CONTROL)


def test_authenticator_that_lets_nobody_pass() -> None:
    nobody = Authentications([AnonymousAuthenticator(should_pass=False)], EVERYBODY)
    rig = start(services=ProcessServices(nobody))
    client = Client(rig.node)
    client.send(negotiation())
    assert client.session.finished


def test_peer_without_a_credential_stays_though_its_credential_has_a_lifetime() -> None:
    rig = node(AssumedCredential("BASIC", b"ann:secret"))
    client = rig.connect()
    rig.now.ms += 700_000
    client.session.tick()
    assert client.session.state is SessionState.RUNNING


def test_second_request_before_the_identity_is_no_valid_order() -> None:
    client = Client(node().node)
    authenticate(client, "BASIC", b"ann:secret")
    client.send(request("BASIC", b"ann:secret"))
    assert client.session.finished


def test_must_authenticate_again_in_time() -> None:
    rig = node()
    client = Client(rig.node)
    authenticate(client, "BASIC", b"ann:secret")
    client.negotiate(identity())
    rig.now.ms += 599_999
    client.session.tick()
    client.take()
    assert authenticate(client, "basic", b"ann:secret").status.code == 0
    rig.now.ms += 599_999
    client.session.tick()
    assert client.session.state is SessionState.RUNNING
    rig.now.ms += 1
    client.session.tick()
    assert client.session.finished


def test_again_with_the_wrong_password_ends_the_session() -> None:
    client = Client(node().node)
    authenticate(client, "BASIC", b"ann:secret")
    client.negotiate(identity())
    assert authenticate(client, "BASIC", b"ann:wrong").status.code == -11
    assert client.session.finished


def test_again_as_another_ends_the_session() -> None:
    client = Client(node().node)
    authenticate(client, "BASIC", b"ann:secret")
    client.negotiate(identity())
    status = authenticate(client, "BASIC", b"bob:se:cret").status
    assert (status.code, status.message) == (-1, "Principal cannot change during reauthentication")
    assert client.session.finished


def test_again_by_another_mechanism_ends_the_session_without_a_word() -> None:
    client = node().connect()
    client.send(request("BASIC", b"ann:secret"))
    assert client.session.finished
    assert not client.session.take_output()


def test_response_is_nothing_that_a_client_sends() -> None:
    client = node().connect()
    answer = AuthenticationResponse(status=authenticate(Client(start().node), "X", b"").status)
    client.send(build_schema_event(ber.encode(AuthenticationMessage(choice=answer)), EventType.AUTHENTICATION))
    assert client.session.finished


# -- mechanisms that take their time


def test_later_events_wait_until_the_peer_is_authenticated() -> None:
    slow = Slow()
    rig = node(slow=slow)
    client = Client(rig.node)
    client.send(request("slow", b"ann") + negotiation())
    assert waits(client)
    assert not client.session.take_output()
    client.send(b"")
    assert not client.session.take_output()
    slow.answer()
    assert not waits(client)
    (answer,) = answers(client)
    assert answer.lifetime_ms == 5_000
    client.send(b"")  # the link gives what it held
    assert client.session.state is SessionState.RUNNING


def test_anonymous_peers_wait_for_slow_mechanisms_too() -> None:
    slow = Slow()
    rig = node(AssumedCredential("SLOW", b"guest"), slow)
    client = Client(rig.node)
    client.send(negotiation())
    assert waits(client)
    slow.answer()
    assert client.session.state is SessionState.RUNNING
    assert client.session.entrance.auth.principal == "guest"
    client = Client(node(AssumedCredential("SLOW", b"no"), slow).node)
    client.send(negotiation())
    slow.answer()
    assert client.session.finished


@pytest.mark.parametrize("encoding", EncodingType)
def test_authenticator_that_fails_denies(encoding: EncodingType, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    client = Client(node(slow=slow).node)
    client.send(request("SLOW", b"\xff", encoding))  # no text, which it does not expect
    slow.answer()
    (answer,) = answers(client)
    assert answer.status.code == -11
    assert "UnicodeDecodeError" in caplog.text
    assert "Unicode" not in answer.status.message
    assert client.session.finished


class Talkative:
    """An authenticator that fails, and tells all that it knows."""

    mechanism = "TALKATIVE"
    blocking = False

    def authenticate(self, data: bytes, peer: str) -> Granted:
        raise KeyError(data, data.decode(), data.hex(), data.partition(b":")[2].decode())


def test_a_failing_authenticators_traceback_stands_in_the_log_without_the_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[Outcome] = []
    Authentications([Talkative()], None).begin("TALKATIVE", b"ann:TOPSECRET", "10.0.0.1:5000", found.append)
    assert isinstance(found[0], Denied)
    assert "TOPSECRET" not in found[0].reason
    assert "in authenticate" in caplog.text
    assert "KeyError: (b'********', '********', '********', '********')" in caplog.text
    assert "TOPSECRET" not in caplog.text


def test_answer_for_a_peer_that_has_left_goes_nowhere() -> None:
    slow = Slow()
    rig = node(AssumedCredential("SLOW", b"guest"), slow)
    for data in (request("SLOW", b"ann"), negotiation()):
        client = Client(rig.node)
        client.send(data)
        rig.node.disconnect(client.session, "it left")
        slow.answer()
        assert not client.session.take_output()
        assert client.session.finished


def test_session_goes_on_while_it_authenticates_again() -> None:
    slow = Slow()
    rig = node(slow=slow)
    client = Client(rig.node)
    client.send(request("SLOW", b"ann"))
    slow.answer()
    assert len(answers(client)) == 1
    client.negotiate(identity())
    client.send(request("SLOW", b"ann"))
    client.send(request("SLOW", b"ann"))  # one is in progress: passed over
    assert len(slow.works) == 1
    rig.now.ms += 6_000
    client.session.tick()  # late, but it has asked in time
    assert client.session.state is SessionState.RUNNING
    client.take()
    client.inbox.clear()
    assert client.ask(OpenQueue(handle_parameters=handle(1, "bmq://priority/q", WRITE)))
    slow.answer()
    assert len(answers(client)) == 1
