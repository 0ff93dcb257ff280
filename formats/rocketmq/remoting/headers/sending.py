"""Headers of producers' requests: messages, ends of transactions, recalls."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from formats.rocketmq.remoting.headers.codec import Int, Long

__all__ = [
    "CheckTransactionStateRequest",
    "EndTransactionRequest",
    "RecallMessageRequest",
    "RecallMessageResponse",
    "ReplyMessageRequest",
    "SendMessageRequest",
    "SendMessageRequestV2",
    "SendMessageResponse",
]


class SendMessageRequest(NamedTuple):
    """A message to store; the frame's body is the message's."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queues: Annotated[Int, "defaultTopicQueueNums"]
    queue_id: Int
    system_flags: Annotated[Int, "sysFlag"]
    born_ms: Annotated[Long, "bornTimestamp"]
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    is_batch: Annotated[bool | None, "batch"] = None
    max_reconsume_times: Int | None = None


class SendMessageRequestV2(NamedTuple):
    """`SendMessageRequest` with names of one letter, which make frames smaller; also for batches and replies."""

    producer_group: Annotated[str, "a"]
    topic: Annotated[str, "b"]
    default_topic: Annotated[str, "c"]
    default_topic_queues: Annotated[Int, "d"]
    queue_id: Annotated[Int, "e"]
    system_flags: Annotated[Int, "f"]
    born_ms: Annotated[Long, "g"]
    flag: Annotated[Int, "h"]
    properties: Annotated[str | None, "i"] = None
    reconsume_times: Annotated[Int | None, "j"] = None
    unit_mode: Annotated[bool | None, "k"] = None
    max_reconsume_times: Annotated[Int | None, "l"] = None
    is_batch: Annotated[bool | None, "m"] = None
    broker_name: Annotated[str | None, "n"] = None


class SendMessageResponse(NamedTuple):
    """The place of a stored message. The id is the offset id; for a batch, one for each message, separated by
    commas.
    """

    message_id: Annotated[str, "msgId"]
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_unique_id: Annotated[str | None, "batchUniqId"] = None
    recall_handle: str | None = None


class EndTransactionRequest(NamedTuple):
    """Commit or roll back a prepared message; `transaction` is a `Transaction`, 0 if undecided."""

    producer_group: str
    state_table_offset: Annotated[Long, "tranStateTableOffset"]
    commit_log_offset: Long
    transaction: Annotated[Int, "commitOrRollback"]
    message_id: Annotated[str, "msgId"]
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequest(NamedTuple):
    """A broker's question to a producer about the outcome of a transaction."""

    state_table_offset: Annotated[Long, "tranStateTableOffset"]
    commit_log_offset: Long
    topic: str | None = None
    message_id: Annotated[str | None, "msgId"] = None
    transaction_id: str | None = None
    offset_message_id: Annotated[str | None, "offsetMsgId"] = None


class RecallMessageRequest(NamedTuple):
    """Withdraw a delayed message."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponse(NamedTuple):
    """The unique id of the withdrawn message."""

    message_id: Annotated[str, "msgId"]


class ReplyMessageRequest(NamedTuple):
    """A reply, forwarded by the broker to the requesting client."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queues: Annotated[Int, "defaultTopicQueueNums"]
    queue_id: Int
    system_flags: Annotated[Int, "sysFlag"]
    born_ms: Annotated[Long, "bornTimestamp"]
    flag: Int
    born_host: str
    store_host: str
    stored_ms: Annotated[Long, "storeTimestamp"]
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
