"""Records that no client of version 5 makes, and that its consumers receive all the same."""

from __future__ import annotations

import pytest

from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.remoting.batch import BatchMessage, encode_batch
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.rocketmq.grpc.served import Served, message


def send_batch(served: Served, *properties: bytes) -> None:
    """Send messages over the remoting protocol; their properties are stored as they are."""
    batch = [BatchMessage(0, b"body %d" % number, each) for number, each in enumerate(properties)]
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": served.rig.wall_ms, "h": 0, "m": "true"}
    answer = served.rig.peer().call(RequestCode.SEND_BATCH_MESSAGE, encode_batch(batch), **fields)
    assert answer.code == ResponseCode.SUCCESS


def test_properties_that_are_not_utf_8_hold_up_no_queue() -> None:
    served = Served()
    send_batch(served, b"A\x01\xff\xfe\x02TAGS\x01x\x02", b"\xc3\x01b\x02")
    served.send(message(body=b"next"))
    stored = [record.properties for record in served.rig.messages("t")]
    assert stored[:2] == [b"A\x01\xff\xfe\x02TAGS\x01x\x02", b"\xc3\x01b\x02"]
    first, second, third = served.receive()
    assert dict(first.user_properties) == {"A": "\ufffd\ufffd"}
    assert first.system_properties.tag == "x"
    assert dict(second.user_properties) == {"\ufffd": "b"}
    assert third.body == b"next"
    # They come again, and go, as others do.
    served.pass_time(20_000)
    again = served.receive()
    assert [each.system_properties.delivery_attempt for each in again] == [2, 2, 2]
    answer = served.acknowledge(*(each.system_properties.receipt_handle for each in again))
    assert {entry.status.code for entry in answer.entries} == {Code.OK}


@pytest.mark.parametrize("given", [b"no receipt", b"0 1 2 0 0 elsewhere 7 7"])
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_receipt_that_a_sender_gives_is_not_the_message_s(given: bytes, attempts: int) -> None:
    served = Served()
    send_batch(served, b"POP_CK\x01" + given + b"\x02")
    (received,) = served.receive()
    for _ in range(1, attempts):
        served.pass_time(20_000)
        (received,) = served.receive()
    assert received.system_properties.delivery_attempt == attempts
    assert served.acknowledge(received.system_properties.receipt_handle).status.code == Code.OK
    served.pass_time(20_000)
    assert served.receive() == []
