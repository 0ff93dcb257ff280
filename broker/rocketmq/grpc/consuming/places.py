"""Places in a broker's log, from clients' handles.

Places can be guessed. A broker with access control checks the message at such a place. It cannot do so for the clients
that a proxy has checked, as their requests are the proxy's.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.rocketmq.grpc.calling import Asked
from broker.rocketmq.grpc.statuses import CallRejected, rejection
from formats.errors import FormatError
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import consuming
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.receipts import RETRY_PREFIX

__all__ = ["check_place"]


def check_place(asked: Asked, broker: str, offset: int, topic: str, group: str, then: Callable[[], None]) -> None:
    """Call `then` if an offset of a broker's log has a message of a topic that a group may consume.

    Otherwise end the call. For clients that are not vouched for, the broker checks it: call `then` at once.
    """
    if not asked.client.is_vouched_for:
        then()
        return

    def viewed(frame: Frame) -> None:
        if frame.code != ResponseCode.SUCCESS:
            raise rejection(frame)
        try:
            record = decode_record(frame.body)
        except FormatError as error:
            raise CallRejected(Code.INTERNAL_SERVER_ERROR, f"the broker's message cannot be read: {error}") from None
        if not isinstance(record, Record) or record.topic != topic or not _is_of(record, group):
            raise CallRejected(Code.INVALID_RECEIPT_HANDLE, "receipt handle is of another topic")
        then()

    frame = Frame(
        RequestCode.VIEW_MESSAGE_BY_ID, 0, ext_fields=write_header(consuming.ViewMessageRequest(offset, topic))
    )
    asked.client.ask(broker, frame, viewed)


def _is_of(record: Record, group: str) -> bool:
    """Return whether a record belongs to a group, if its topic is a POP retry topic of the group.

    A group with a longer name may have the same retry topic.
    """
    if not record.topic.startswith(f"{RETRY_PREFIX}{group}_"):
        return True
    properties = decode_properties(record.properties)
    # Brokers before 5.4 do not set ORIGIN_GROUP; messages sent back to a group always have RETRY_TOPIC.
    return properties.get("ORIGIN_GROUP", "" if "RETRY_TOPIC" in properties else group) == group
