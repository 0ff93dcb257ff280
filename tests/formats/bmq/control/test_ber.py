"""The rules of BER that the captures do not show, and the faults."""

from __future__ import annotations

import pytest

from formats.bmq.control import ber
from formats.bmq.control.messages import (
    AuthenticationMessage,
    AuthenticationRequest,
    ClientIdentity,
    ControlMessage,
    Disconnect,
    ElectorMessage,
    GuidInfo,
    LeaderHeartbeat,
    NegotiationMessage,
    OpenQueue,
    Status,
    StatusCategory,
)
from formats.errors import FormatError


def elector(term: bytes) -> bytes:
    """An ElectorMessage whose term has these contents."""
    return bytes.fromhex("3080 80") + bytes([len(term)]) + term + bytes.fromhex("a180 a280 0000 0000 0000")


@pytest.mark.parametrize(
    ("number", "contents"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "0080"),
        (255, "00ff"),
        (256, "0100"),
        ((1 << 63) - 1, "7fffffffffffffff"),
        (1 << 63, "008000000000000000"),
        ((1 << 64) - 1, "00ffffffffffffffff"),
    ],
)
def test_unsigned_integers_are_minimal_with_a_clear_sign_bit(number: int, contents: str) -> None:
    written = elector(bytes.fromhex(contents))
    value = ElectorMessage(term=number, choice=LeaderHeartbeat())
    assert ber.encode(value) == written
    assert ber.decode(ElectorMessage, written) == value


@pytest.mark.parametrize(
    ("number", "contents"),
    [(-1, "ff"), (-128, "80"), (-129, "ff7f"), (-(1 << 31), "80000000"), ((1 << 31) - 1, "7fffffff")],
)
def test_signed_integers_are_minimal(number: int, contents: str) -> None:
    octets = bytes.fromhex(contents)
    written = bytes.fromhex("3080 80") + bytes([len(octets)]) + octets + bytes.fromhex("a180 a180 0000 0000 0000")
    assert ber.encode(ControlMessage(r_id=number, choice=Disconnect())) == written
    assert ber.decode(ControlMessage, written).r_id == number


def test_integers_may_have_more_bytes_than_they_need() -> None:
    assert ber.decode(ElectorMessage, elector(b"\x00\x00\x00\x07")).term == 7
    # All eight bytes, as a peer without unsigned types writes them.
    assert ber.decode(ElectorMessage, elector(b"\xff" * 8)).term == (1 << 64) - 1


def test_definite_lengths_are_read() -> None:
    status = bytes.fromhex("8001ff 810105 8203") + b"abc"
    alternative = b"\xa0\x81" + bytes([len(status)]) + status
    choice = b"\xa1\x82\x00" + bytes([len(alternative)]) + alternative
    body = b"\x80\x01\x09" + choice
    written = b"\x30" + bytes([len(body)]) + body
    assert ber.decode_from(ControlMessage, written + b"\x02\x02", 0) == (
        ControlMessage(r_id=9, choice=Status(category=StatusCategory.UNKNOWN, code=5, message="abc")),
        len(written),
    )


def test_unknown_elements_are_skipped() -> None:
    unknown = bytes.fromhex(
        "890101"  # a primitive
        "bf8f7f 80 a080 0000 300400000000 0000"  # constructed, tag 2047, with both kinds of length inside
        "9f 84e2ac7f 01 03"  # the array length hint of newer encoders
    )
    plain = ber.encode(ElectorMessage(term=3, choice=LeaderHeartbeat()))
    assert ber.decode(ElectorMessage, plain[:2] + unknown + plain[2:]) == ElectorMessage(
        term=3, choice=LeaderHeartbeat()
    )


def test_absent_elements_take_their_defaults() -> None:
    written = bytes.fromhex("3080 a080 a080 800101 820101 0000 0000 0000")
    identity = ber.decode(NegotiationMessage, written).choice
    assert isinstance(identity, ClientIdentity)
    assert identity.protocol_version == 1
    assert identity.sdk_version == 999999
    assert identity.cluster_node_id == -1
    assert identity.guid_info == GuidInfo()
    opened = ber.decode(ControlMessage, bytes.fromhex("3080 a180 aa80 0000 0000 0000"))
    assert isinstance(opened.choice, OpenQueue)
    assert opened.choice.handle_parameters.uri == ""
    assert opened.choice.handle_parameters.sub_id_info is None


def test_an_optional_value_may_be_empty() -> None:
    for data in (None, b"", b"\x00\xff"):
        value = AuthenticationMessage(choice=AuthenticationRequest(mechanism="BASIC", data=data))
        assert ber.decode(AuthenticationMessage, ber.encode(value)) == value


def test_an_integer_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(OverflowError, match="term"):
        ber.encode(ElectorMessage(term=1 << 64, choice=LeaderHeartbeat()))


@pytest.mark.parametrize(
    ("cls", "written", "path", "offset", "reason"),
    [
        (ControlMessage, "", "ControlMessage", 0, "ends inside"),
        (ControlMessage, "3180 0000", "ControlMessage", 0, "expected a SEQUENCE"),
        (ControlMessage, "3080 0000", "ControlMessage.choice", 2, "no alternative"),
        (ControlMessage, "3080 a180 0000 0000", "ControlMessage.choice", 4, "no alternative"),
        (ControlMessage, "3080 a180 be80 0000 0000 0000", "ControlMessage.choice", 4, "unknown alternative 30"),
        (ControlMessage, "3080 a180 a180 0000 a180 0000 0000 0000", "ControlMessage.choice", 8, "more than one"),
        (ControlMessage, "3080 800500000000ff", "ControlMessage.rId", 4, "an integer of 5 bytes"),
        (ControlMessage, "3080 8000", "ControlMessage.rId", 4, "an integer of 0 bytes"),
        (ControlMessage, "3080 a080 0000", "ControlMessage.rId", 2, "must be primitive"),
        (ControlMessage, "3080 8080", "ControlMessage.rId", 2, "must be primitive"),
        (ControlMessage, "3080 810100", "ControlMessage.choice", 2, "must be constructed"),
        (ControlMessage, "3080 000100", "ControlMessage.rId", 2, "context-specific"),
        (ControlMessage, "3080 8005 0102", "ControlMessage", 2, "needs 5 bytes, 2 left"),
        (ControlMessage, "3080 8085 0000000001 01", "ControlMessage", 4, "length in 5 bytes"),
        (ControlMessage, "3080 8984 7fffffff", "ControlMessage", 2, "needs 2147483647 bytes, 0 left"),
        (ControlMessage, "3080 9fffffffffffff7f", "ControlMessage", 2, "tag number does not end"),
        (ControlMessage, "3003 800101 00", "ControlMessage.choice", 5, "no alternative"),
        (ControlMessage, "3080 a180 a080 800109", "ControlMessage.choice.status.category", 8, "has no value 9"),
        (ControlMessage, "3080 a180 a080 8202 c328", "ControlMessage.choice.status.message", 8, "is not UTF-8"),
        (
            ElectorMessage,
            "3080 a180 a380 80020000",
            "ElectorMessage.choice.electorNodeStatus.isAvailable",
            8,
            "boolean",
        ),
        (
            ControlMessage,
            "3080 a180 b080 a180 a180 3180",
            "ControlMessage.choice.configureStream.streamParameters.subscriptions[0]",
            10,
            "expected a SEQUENCE",
        ),
    ],
)
def test_faults_name_the_element(cls: type, written: str, path: str, offset: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        ber.decode(cls, bytes.fromhex(written))
    assert (caught.value.path, caught.value.offset) == (path, offset)
    assert reason in caught.value.reason


def test_nesting_is_bounded() -> None:
    deep = b"\x30\x80" + b"\xbe\x80" * 100_000
    with pytest.raises(FormatError, match="nested deeper than 32"):
        ber.decode(ControlMessage, deep)
