"""The rights of users who call the broker of this process over gRPC."""

from __future__ import annotations

import pytest

from broker.rocketmq.access.guard import AccessOptions
from broker.rocketmq.grpc.access.needs import NEEDS
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import Message, time_of_ms
from formats.rocketmq.remoting.bodies.access import UserInfo
from formats.rocketmq.remoting.bodies.routes import TopicConfig
from tests.broker.rocketmq.grpc.grpc_service_rig import credential, producer
from tests.broker.rocketmq.grpc.served import Served, message
from tests.broker.rocketmq.proxy.keyed import allow
from tests.broker.rocketmq.proxy.rights_rig import is_denied, rename, requests
from tests.broker.rocketmq.rig import Rig

ROOT, BOB = credential("root", "secret"), credential("bob", "secret")
# A client ends what it has itself, whatever it says with that.
OF_ITSELF = {"NotifyClientTermination"}


@pytest.fixture
def guarded() -> Served:
    rig = Rig()
    rig.access_options = AccessOptions(authentication=True, authorization=True)
    rig.stop()
    rig.topics.put(TopicConfig("t", 1, 1), rig.wall_ms)
    rig.topics.put(TopicConfig("theirs", 1, 1, attributes={"message.type": "MIXED"}), rig.wall_ms)
    rig.access.create_user(UserInfo("root", "secret", "Super", "enable"))
    rig.access.create_user(UserInfo("bob", "secret", "Normal", "enable"))
    allow(rig, "Topic:t", "Group:g", actions="All")
    made = Served(rig)
    made.headers = BOB
    return made


def is_done(served: Served, name: str, request: Message) -> bool:
    """Return whether a call is carried out."""
    if name == "Telemetry":
        return not is_denied(served, name, request)
    answers = served.answers(name, served.begin(name, request))
    # Waiting consumers have passed the check already.
    return not answers or answers[0].status.code in (Code.OK, Code.MESSAGE_NOT_FOUND)


@pytest.mark.parametrize("name", sorted(NEEDS.keys() - OF_ITSELF))
@pytest.mark.parametrize("other", ["", " ", "theirs", "%RETRY%theirs", "%DLQ%theirs", "%RETRY%theirs_t"])
def test_call_about_anothers_topic_or_group_is_refused(guarded: Served, name: str, other: str) -> None:
    assert not is_denied(guarded, name)
    for kind in ("topic", "group"):
        request = requests(guarded)[name]
        before = request.SerializeToString()
        rename(request, kind, other)
        if request.SerializeToString() != before:
            assert not is_done(guarded, name, request)


@pytest.mark.parametrize("user", [BOB, ROOT])
def test_question_about_a_transaction_goes_to_the_user_who_may_send(guarded: Served, user: dict[str, str]) -> None:
    """Another user at the same address, with the same client id, is not asked."""
    guarded.headers = ROOT
    stream, _ = guarded.tell(producer("theirs"))
    guarded.send(message("theirs", message_type=4, born_timestamp=time_of_ms(guarded.rig.wall_ms)))
    if user is BOB:
        guarded.headers = BOB
        other = guarded.client.open("Telemetry", x_mq_client_id=guarded.client_id, **BOB)
        guarded.client.exchange()
    guarded.pass_time(9_000)
    asked = [each.WhichOneof("command") for each in guarded.answers("Telemetry", stream)]
    assert "recover_orphaned_transaction_command" in asked
    assert user is ROOT or guarded.answers("Telemetry", other) == []


def test_question_about_another_topic_goes_to_no_producer_whose_topic_is_called_like_the_group(guarded: Served) -> None:
    stream, (answer,) = guarded.tell(producer("t"))
    assert answer.status.code == Code.OK
    peer = guarded.rig.peer()
    guarded.rig.guard.setters()["authenticationEnabled"](False)
    guarded.rig.guard.setters()["authorizationEnabled"](False)
    peer.send(b"secret", {"TRAN_MSG": "true", "PGROUP": "t", "UNIQ_KEY": "U"}, topic="theirs", f=4)
    guarded.pass_time(9_000)
    asked = [each.WhichOneof("command") for each in guarded.answers("Telemetry", stream)]
    assert "recover_orphaned_transaction_command" not in asked
