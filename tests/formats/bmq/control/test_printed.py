"""Messages on one line, as the reference logs them."""

from __future__ import annotations

from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    ConsumerInfo,
    ControlMessage,
    OpenQueue,
    QueueHandleParameters,
    Status,
    StatusCategory,
    StreamParameters,
    SubQueueIdInfo,
)
from formats.bmq.control.messages import Subscription as SubscriptionInfo
from formats.bmq.control.messages_cluster import AppIdInfo
from formats.bmq.control.messages_session import Expression
from formats.bmq.control.printed import printed


def test_a_sequence_with_an_optional_element() -> None:
    parameters = QueueHandleParameters(
        uri="bmq://shop/orders", q_id=1, flags=4, read_count=0, write_count=1, admin_count=0
    )
    assert printed(parameters) == (
        '[ uri = "bmq://shop/orders" qId = 1 subIdInfo = NULL flags = 4 readCount = 0 writeCount = 1 adminCount = 0 ]'
    )


def test_a_choice_and_a_nested_sequence() -> None:
    parameters = QueueHandleParameters(
        uri="bmq://a/b?id=c",
        q_id=2,
        sub_id_info=SubQueueIdInfo(sub_id=1, app_id="c"),
        flags=2,
        read_count=1,
        write_count=0,
        admin_count=0,
    )
    assert printed(ControlMessage(r_id=3, choice=OpenQueue(handle_parameters=parameters))) == (
        '[ rId = 3 choice = [ openQueue = [ handleParameters = [ uri = "bmq://a/b?id=c" qId = 2 '
        'subIdInfo = [ subId = 1 appId = "c" ] flags = 2 readCount = 1 writeCount = 0 adminCount = 0 ] ] ] ]'
    )


def test_arrays_and_enumerations() -> None:
    consumer = ConsumerInfo(
        max_unconfirmed_messages=10, max_unconfirmed_bytes=20, consumer_priority=-1, consumer_priority_count=1
    )
    one = SubscriptionInfo(s_id=1, expression=Expression(text="x > 1"), consumers=(consumer,))
    assert printed(StreamParameters(subscriptions=())) == '[ appId = "__default" subscriptions = [ ] ]'
    assert printed(StreamParameters(app_id="a", subscriptions=(one,))) == (
        '[ appId = "a" subscriptions = [ [ sId = 1 expression = [ version = E_UNDEFINED text = "x > 1" ] consumers = '
        "[ [ maxUnconfirmedMessages = 10 maxUnconfirmedBytes = 20 consumerPriority = -1 consumerPriorityCount = 1 ] ] "
        "] ] ]"
    )
    assert printed(Status(category=StatusCategory.REFUSED, code=-1, message="no")) == (
        '[ category = E_REFUSED code = -1 message = "no" ]'
    )


def test_octets_are_in_hex() -> None:
    assert printed(AppIdInfo(app_id="a", app_key=b"a:\x00\xff\x01")) == '[ appId = "a" appKey = "613A00FF01" ]'


def test_credentials_are_printed_in_no_way() -> None:
    request = AuthenticationMessage(choice=AuthenticationRequest(mechanism="BASIC", data=b"ann:TOPSECRET"))
    assert printed(request) == '[ choice = [ authenticationRequest = [ mechanism = "BASIC" data = ******** ] ] ]'
    assert repr(request.choice) == "AuthenticationRequest(mechanism='BASIC')"
    assert "TOPSECRET" not in f"{request} {request.choice!s}"
    assert printed(AuthenticationRequest(mechanism="BASIC")) == '[ mechanism = "BASIC" data = NULL ]'
