"""The form of the JSON, accepted variants, and errors."""

from __future__ import annotations

import base64

import pytest

from formats.bmq.control import jsonc
from formats.bmq.control.messages import (
    AdminCommand,
    AppIdInfo,
    AuthenticationMessage,
    AuthenticationRequest,
    ClientIdentity,
    ClientType,
    ClusterMessage,
    ControlMessage,
    Disconnect,
    ElectorMessage,
    GuidInfo,
    LeaderHeartbeat,
    LeaderMessageSequence,
    NegotiationMessage,
    OpenQueue,
    QueueAssignmentAdvisory,
    QueueHandleParameters,
    QueueInfo,
    StatusCategory,
    SubQueueIdInfo,
)
from formats.errors import FormatError

OPEN = ControlMessage(
    r_id=2,
    choice=OpenQueue(
        handle_parameters=QueueHandleParameters(
            uri="bmq://d/q?id=foo", q_id=0, sub_id_info=SubQueueIdInfo(sub_id=1, app_id="foo"), flags=2, read_count=1
        )
    ),
)
OPEN_JSON = (
    r'{"rId":2,"openQueue":{"handleParameters":{"uri":"bmq:\/\/d\/q?id=foo","qId":0,'
    r'"subIdInfo":{"subId":1,"appId":"foo"},"flags":2,"readCount":1,"writeCount":0,"adminCount":0}}}'
)


def test_a_choice_is_written_in_place() -> None:
    assert jsonc.encode(OPEN).decode() == OPEN_JSON
    assert jsonc.decode(ControlMessage, OPEN_JSON.encode()) == OPEN


def test_octets_are_base64_and_empty_arrays_are_left_out() -> None:
    key = bytes.fromhex("fbefbeffff")
    advisory = QueueAssignmentAdvisory(
        sequence_number=LeaderMessageSequence(elector_term=1, sequence_number=2),
        queues=(
            QueueInfo(uri="u", key=key, partition_id=0, app_ids=(AppIdInfo(app_id="a", app_key=b""),)),
            QueueInfo(uri="v", key=key, partition_id=1),
        ),
    )
    message = ControlMessage(choice=ClusterMessage(choice=advisory))
    encoded = base64.b64encode(key).decode().replace("/", "\\/")
    assert jsonc.encode(message).decode() == (
        '{"clusterMessage":{"queueAssignmentAdvisory":{"sequenceNumber":{"electorTerm":1,"sequenceNumber":2},"queues":['
        f'{{"uri":"u","key":"{encoded}","partitionId":0,"appIds":[{{"appId":"a","appKey":""}}]}},'
        f'{{"uri":"v","key":"{encoded}","partitionId":1}}]}}}}}}'
    )
    assert jsonc.decode(ControlMessage, jsonc.encode(message)) == message


def test_strings_are_escaped_as_the_reference_escapes_them() -> None:
    """Short escapes where JSON has them, four lower-case digits for other control characters, the rest in UTF-8."""
    text = '"\\/\b\f\n\r\t\0\x1f\x7fé\U0001f600'
    written = r'{"adminCommand":{"command":"\"\\\/\b\f\n\r\t\u0000\u001f' + '\x7fé\U0001f600"}}'
    message = ControlMessage(choice=AdminCommand(command=text))
    assert jsonc.encode(message).decode() == written
    assert jsonc.decode(ControlMessage, written.encode()) == message


def test_enumerators_and_integers_are_read_in_either_form() -> None:
    identity = {"protocolVersion": '"1"', "clientType": '"E_TCPBROKER"', "sdkVersion": "-7"}
    for client_type in ('"E_TCPBROKER"', "2"):
        identity["clientType"] = client_type
        text = ",".join(f'"{name}":{value}' for name, value in identity.items())
        read = jsonc.decode(NegotiationMessage, f'{{"clientIdentity":{{{text}}}}}'.encode())
        assert read.choice == ClientIdentity(
            protocol_version=1, sdk_version=-7, client_type=ClientType.TCPBROKER, guid_info=GuidInfo()
        )


def test_unknown_names_are_skipped_and_null_is_no_value() -> None:
    text = b'{"rId":null,"later":{"a":[1.5,null]},"disconnect":{"later":1}}'
    assert jsonc.decode(ControlMessage, text) == ControlMessage(choice=Disconnect())
    text = b'{"authenticationRequest":{"mechanism":"BASIC","data":null}}'
    assert jsonc.decode(AuthenticationMessage, text).choice == AuthenticationRequest(mechanism="BASIC")


def test_an_integer_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(OverflowError, match="term"):
        jsonc.encode(ElectorMessage(term=-1, choice=LeaderHeartbeat()))


@pytest.mark.parametrize(
    ("written", "path", "offset", "reason"),
    [
        (b"", "ControlMessage", 0, "is not JSON"),
        (b"\xff", "ControlMessage", 0, "is not UTF-8"),
        ('{"é" 1}'.encode(), "ControlMessage", 6, "is not JSON"),
        (b"[]", "ControlMessage", 0, "expected an object, found list"),
        (b"{}", "ControlMessage.choice", 0, "no alternative"),
        (b'{"later":{}}', "ControlMessage.choice", 0, "no alternative"),
        (b'{"disconnect":1}', "ControlMessage.disconnect", 0, "expected an object, found int"),
        (b'{"rId":true}', "ControlMessage.rId", 0, "expected integer, found bool"),
        (b'{"rId":1.0}', "ControlMessage.rId", 0, "expected integer, found float"),
        (b'{"rId":2147483648}', "ControlMessage.rId", 0, "is not in -2147483648..2147483647"),
        (b'{"rId":' + b"9" * 4000 + b"}", "ControlMessage.rId", 0, f"{'9' * 40} is not in"),
        (b'{"rId":" 1"}', "ControlMessage.rId", 0, "is not an integer"),
        (b'{"rId":' + b"9" * 5000 + b"}", "ControlMessage", 0, "is not JSON"),
        (b'{"rId":NaN}', "ControlMessage", 0, "is not JSON"),
        (b'{"rId":' + b"[" * 100_000, "ControlMessage", 0, "nested too deeply"),
        (b'{"status":{"category":"SUCCESS"}}', "ControlMessage.status.category", 0, "has no value 'SUCCESS'"),
        (b'{"status":{"category":7}}', "ControlMessage.status.category", 0, "has no value '7'"),
        (b'{"status":{"message":1}}', "ControlMessage.status.message", 0, "expected text, found int"),
        (b'{"status":{"message":"\\ud800"}}', "ControlMessage.status.message", 0, "surrogate"),
        (
            b'{"clusterMessage":{"queueUnassignmentRequest":{"queueKey":"?"}}}',
            "ControlMessage.clusterMessage.queueUnassignmentRequest.queueKey",
            0,
            "is not base64",
        ),
        (
            b'{"clusterMessage":{"leaderAdvisory":{"queues":{}}}}',
            "ControlMessage.clusterMessage.leaderAdvisory.queues",
            0,
            "expected an array, found dict",
        ),
    ],
)
def test_faults_name_the_element(written: bytes, path: str, offset: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        jsonc.decode(ControlMessage, written)
    assert (caught.value.path, caught.value.offset) == (path, offset)
    assert reason in caught.value.reason


def _refusal_of_nesting(depth: int) -> str:
    head = b'{"configureStream":{"streamParameters":{"subscriptions":[{"expression":{"version":'
    with pytest.raises(FormatError) as caught:
        jsonc.decode(ControlMessage, head + b"[" * depth + b"]" * depth + b"}}]}}}")
    return caught.value.reason


def test_nesting_that_just_fits_the_stack_is_refused() -> None:
    """Processing a decoded value recurses deeper than decoding it. How deep that may be differs between Pythons."""
    decoded, too_deep = 1, 1_000_000
    assert _refusal_of_nesting(decoded) == "ExpressionVersion has no value 'list'"
    assert _refusal_of_nesting(too_deep) == "nested too deeply"
    while too_deep - decoded > 1:
        depth = (decoded + too_deep) // 2
        if _refusal_of_nesting(depth) == "nested too deeply":
            too_deep = depth
        else:
            decoded = depth
    reasons = {_refusal_of_nesting(depth) for depth in range(max(1, decoded - 100), too_deep + 100)}
    assert reasons == {"ExpressionVersion has no value 'list'", "nested too deeply"}


def test_every_status_category_has_a_name() -> None:
    for category in StatusCategory:
        text = f'{{"status":{{"category":"E_{category.name}","code":{category.value}}}}}'
        status = jsonc.decode(ControlMessage, text.encode()).choice
        assert getattr(status, "category", None) is category
