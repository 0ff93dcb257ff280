"""The messages of the gRPC protocol: the names, numbers and types of their fields."""

from __future__ import annotations

from typing import Final

from formats.rocketmq.grpc.describing import Field, Method

__all__ = ["MESSAGES", "METHODS"]


MESSAGES: Final[dict[str, tuple[Field, ...]]] = {
    "FilterExpression": (
        Field(1, "type", "FilterType"),
        Field(2, "expression", "string"),
    ),
    "RetryPolicy": (
        Field(1, "max_attempts", "int32"),
        Field(2, "exponential_backoff", "ExponentialBackoff", "strategy"),
        Field(3, "customized_backoff", "CustomizedBackoff", "strategy"),
    ),
    "ExponentialBackoff": (
        Field(1, "initial", "Duration"),
        Field(2, "max", "Duration"),
        Field(3, "multiplier", "float"),
    ),
    "CustomizedBackoff": (Field(1, "next", "*Duration"),),
    "Resource": (
        Field(1, "resource_namespace", "string"),
        Field(2, "name", "string"),
    ),
    "SubscriptionEntry": (
        Field(1, "topic", "Resource"),
        Field(2, "expression", "FilterExpression"),
    ),
    "Address": (
        Field(1, "host", "string"),
        Field(2, "port", "int32"),
    ),
    "Endpoints": (
        Field(1, "scheme", "AddressScheme"),
        Field(2, "addresses", "*Address"),
    ),
    "Broker": (
        Field(1, "name", "string"),
        Field(2, "id", "int32"),
        Field(3, "endpoints", "Endpoints"),
    ),
    "MessageQueue": (
        Field(1, "topic", "Resource"),
        Field(2, "id", "int32"),
        Field(3, "permission", "Permission"),
        Field(4, "broker", "Broker"),
        Field(5, "accept_message_types", "*MessageType"),
    ),
    "Digest": (
        Field(1, "type", "DigestType"),
        Field(2, "checksum", "string"),
    ),
    "SystemProperties": (
        Field(1, "tag", "?string"),
        Field(2, "keys", "*string"),
        Field(3, "message_id", "string"),
        Field(4, "body_digest", "Digest"),
        Field(5, "body_encoding", "Encoding"),
        Field(6, "message_type", "MessageType"),
        Field(7, "born_timestamp", "Timestamp"),
        Field(8, "born_host", "string"),
        Field(9, "store_timestamp", "?Timestamp"),
        Field(10, "store_host", "string"),
        Field(11, "delivery_timestamp", "?Timestamp"),
        Field(12, "receipt_handle", "?string"),
        Field(13, "queue_id", "int32"),
        Field(14, "queue_offset", "?int64"),
        Field(15, "invisible_duration", "?Duration"),
        Field(16, "delivery_attempt", "?int32"),
        Field(17, "message_group", "?string"),
        Field(18, "trace_context", "?string"),
        Field(19, "orphaned_transaction_recovery_duration", "?Duration"),
        Field(20, "dead_letter_queue", "?DeadLetterQueue"),
        Field(21, "lite_topic", "?string"),
        Field(22, "priority", "?int32"),
    ),
    "DeadLetterQueue": (
        Field(1, "topic", "string"),
        Field(2, "message_id", "string"),
    ),
    "Message": (
        Field(1, "topic", "Resource"),
        Field(2, "user_properties", "map"),
        Field(3, "system_properties", "SystemProperties"),
        Field(4, "body", "bytes"),
    ),
    "Assignment": (Field(1, "message_queue", "MessageQueue"),),
    "Status": (
        Field(1, "code", "Code"),
        Field(2, "message", "string"),
    ),
    "UA": (
        Field(1, "language", "Language"),
        Field(2, "version", "string"),
        Field(3, "platform", "string"),
        Field(4, "hostname", "string"),
    ),
    "Settings": (
        Field(1, "client_type", "?ClientType"),
        Field(2, "access_point", "?Endpoints"),
        Field(3, "backoff_policy", "?RetryPolicy"),
        Field(4, "request_timeout", "?Duration"),
        Field(5, "publishing", "Publishing", "pub_sub"),
        Field(6, "subscription", "Subscription", "pub_sub"),
        Field(7, "user_agent", "UA"),
        Field(8, "metric", "Metric"),
        Field(9, "client_properties", "map"),
    ),
    "Publishing": (
        Field(1, "topics", "*Resource"),
        Field(2, "max_body_size", "int32"),
        Field(3, "validate_message_type", "bool"),
    ),
    "Subscription": (
        Field(1, "group", "?Resource"),
        Field(2, "subscriptions", "*SubscriptionEntry"),
        Field(3, "fifo", "?bool"),
        Field(4, "receive_batch_size", "?int32"),
        Field(5, "long_polling_timeout", "?Duration"),
        Field(6, "lite_subscription_quota", "?int32"),
        Field(7, "max_lite_topic_size", "?int32"),
    ),
    "Metric": (
        Field(1, "on", "bool"),
        Field(2, "endpoints", "?Endpoints"),
    ),
    "OffsetOption": (
        Field(1, "policy", "OffsetPolicy", "offset_type"),
        Field(2, "offset", "int64", "offset_type"),
        Field(3, "tail_n", "int64", "offset_type"),
        Field(4, "timestamp", "int64", "offset_type"),
    ),
    "QueryRouteRequest": (
        Field(1, "topic", "Resource"),
        Field(2, "endpoints", "Endpoints"),
    ),
    "QueryRouteResponse": (
        Field(1, "status", "Status"),
        Field(2, "message_queues", "*MessageQueue"),
    ),
    "SendMessageRequest": (Field(1, "messages", "*Message"),),
    "SendResultEntry": (
        Field(1, "status", "Status"),
        Field(2, "message_id", "string"),
        Field(3, "transaction_id", "string"),
        Field(4, "offset", "int64"),
        Field(5, "recall_handle", "string"),
    ),
    "SendMessageResponse": (
        Field(1, "status", "Status"),
        Field(2, "entries", "*SendResultEntry"),
    ),
    "QueryAssignmentRequest": (
        Field(1, "topic", "Resource"),
        Field(2, "group", "Resource"),
        Field(3, "endpoints", "Endpoints"),
    ),
    "QueryAssignmentResponse": (
        Field(1, "status", "Status"),
        Field(2, "assignments", "*Assignment"),
    ),
    "ReceiveMessageRequest": (
        Field(1, "group", "Resource"),
        Field(2, "message_queue", "MessageQueue"),
        Field(3, "filter_expression", "FilterExpression"),
        Field(4, "batch_size", "int32"),
        Field(5, "invisible_duration", "?Duration"),
        Field(6, "auto_renew", "bool"),
        Field(7, "long_polling_timeout", "?Duration"),
        Field(8, "attempt_id", "?string"),
    ),
    "ReceiveMessageResponse": (
        Field(1, "status", "Status", "content"),
        Field(2, "message", "Message", "content"),
        Field(3, "delivery_timestamp", "Timestamp", "content"),
    ),
    "AckMessageEntry": (
        Field(1, "message_id", "string"),
        Field(2, "receipt_handle", "string"),
        Field(3, "lite_topic", "?string"),
    ),
    "AckMessageRequest": (
        Field(1, "group", "Resource"),
        Field(2, "topic", "Resource"),
        Field(3, "entries", "*AckMessageEntry"),
    ),
    "AckMessageResultEntry": (
        Field(1, "message_id", "string"),
        Field(2, "receipt_handle", "string"),
        Field(3, "status", "Status"),
    ),
    "AckMessageResponse": (
        Field(1, "status", "Status"),
        Field(2, "entries", "*AckMessageResultEntry"),
    ),
    "ForwardMessageToDeadLetterQueueRequest": (
        Field(1, "group", "Resource"),
        Field(2, "topic", "Resource"),
        Field(3, "receipt_handle", "string"),
        Field(4, "message_id", "string"),
        Field(5, "delivery_attempt", "int32"),
        Field(6, "max_delivery_attempts", "int32"),
        Field(7, "lite_topic", "?string"),
    ),
    "ForwardMessageToDeadLetterQueueResponse": (Field(1, "status", "Status"),),
    "HeartbeatRequest": (
        Field(1, "group", "?Resource"),
        Field(2, "client_type", "ClientType"),
    ),
    "HeartbeatResponse": (Field(1, "status", "Status"),),
    "EndTransactionRequest": (
        Field(1, "topic", "Resource"),
        Field(2, "message_id", "string"),
        Field(3, "transaction_id", "string"),
        Field(4, "resolution", "TransactionResolution"),
        Field(5, "source", "TransactionSource"),
        Field(6, "trace_context", "string"),
    ),
    "EndTransactionResponse": (Field(1, "status", "Status"),),
    "PrintThreadStackTraceCommand": (Field(1, "nonce", "string"),),
    "ReconnectEndpointsCommand": (Field(1, "nonce", "string"),),
    "ThreadStackTrace": (
        Field(1, "nonce", "string"),
        Field(2, "thread_stack_trace", "?string"),
    ),
    "VerifyMessageCommand": (
        Field(1, "nonce", "string"),
        Field(2, "message", "Message"),
    ),
    "VerifyMessageResult": (Field(1, "nonce", "string"),),
    "RecoverOrphanedTransactionCommand": (
        Field(1, "message", "Message"),
        Field(2, "transaction_id", "string"),
    ),
    "NotifyUnsubscribeLiteCommand": (Field(1, "lite_topic", "string"),),
    "TelemetryCommand": (
        Field(1, "status", "?Status"),
        Field(2, "settings", "Settings", "command"),
        Field(3, "thread_stack_trace", "ThreadStackTrace", "command"),
        Field(4, "verify_message_result", "VerifyMessageResult", "command"),
        Field(5, "recover_orphaned_transaction_command", "RecoverOrphanedTransactionCommand", "command"),
        Field(6, "print_thread_stack_trace_command", "PrintThreadStackTraceCommand", "command"),
        Field(7, "verify_message_command", "VerifyMessageCommand", "command"),
        Field(8, "reconnect_endpoints_command", "ReconnectEndpointsCommand", "command"),
        Field(9, "notify_unsubscribe_lite_command", "NotifyUnsubscribeLiteCommand", "command"),
    ),
    "NotifyClientTerminationRequest": (Field(1, "group", "?Resource"),),
    "NotifyClientTerminationResponse": (Field(1, "status", "Status"),),
    "ChangeInvisibleDurationRequest": (
        Field(1, "group", "Resource"),
        Field(2, "topic", "Resource"),
        Field(3, "receipt_handle", "string"),
        Field(4, "invisible_duration", "Duration"),
        Field(5, "message_id", "string"),
        Field(6, "lite_topic", "?string"),
        Field(7, "suspend", "?bool"),
    ),
    "ChangeInvisibleDurationResponse": (
        Field(1, "status", "Status"),
        Field(2, "receipt_handle", "string"),
    ),
    "PullMessageRequest": (
        Field(1, "group", "Resource"),
        Field(2, "message_queue", "MessageQueue"),
        Field(3, "offset", "int64"),
        Field(4, "batch_size", "int32"),
        Field(5, "filter_expression", "FilterExpression"),
        Field(6, "long_polling_timeout", "Duration"),
    ),
    "PullMessageResponse": (
        Field(1, "status", "Status", "content"),
        Field(2, "message", "Message", "content"),
        Field(3, "next_offset", "int64", "content"),
    ),
    "UpdateOffsetRequest": (
        Field(1, "group", "Resource"),
        Field(2, "message_queue", "MessageQueue"),
        Field(3, "offset", "int64"),
    ),
    "UpdateOffsetResponse": (Field(1, "status", "Status"),),
    "GetOffsetRequest": (
        Field(1, "group", "Resource"),
        Field(2, "message_queue", "MessageQueue"),
    ),
    "GetOffsetResponse": (
        Field(1, "status", "Status"),
        Field(2, "offset", "int64"),
    ),
    "QueryOffsetRequest": (
        Field(1, "message_queue", "MessageQueue"),
        Field(2, "query_offset_policy", "QueryOffsetPolicy"),
        Field(3, "timestamp", "?Timestamp"),
    ),
    "QueryOffsetResponse": (
        Field(1, "status", "Status"),
        Field(2, "offset", "int64"),
    ),
    "RecallMessageRequest": (
        Field(1, "topic", "Resource"),
        Field(2, "recall_handle", "string"),
    ),
    "RecallMessageResponse": (
        Field(1, "status", "Status"),
        Field(2, "message_id", "string"),
    ),
    "SyncLiteSubscriptionRequest": (
        Field(1, "action", "LiteSubscriptionAction"),
        Field(2, "topic", "Resource"),
        Field(3, "group", "Resource"),
        Field(4, "lite_topic_set", "*string"),
        Field(5, "version", "?int64"),
        Field(6, "offset_option", "?OffsetOption"),
    ),
    "SyncLiteSubscriptionResponse": (Field(1, "status", "Status"),),
}

# The service apache.rocketmq.v2.MessagingService.
METHODS: Final = {
    "QueryRoute": Method("QueryRouteRequest", "QueryRouteResponse"),
    "Heartbeat": Method("HeartbeatRequest", "HeartbeatResponse"),
    "SendMessage": Method("SendMessageRequest", "SendMessageResponse"),
    "QueryAssignment": Method("QueryAssignmentRequest", "QueryAssignmentResponse"),
    "ReceiveMessage": Method("ReceiveMessageRequest", "ReceiveMessageResponse", streams_responses=True),
    "AckMessage": Method("AckMessageRequest", "AckMessageResponse"),
    "ForwardMessageToDeadLetterQueue": Method(
        "ForwardMessageToDeadLetterQueueRequest", "ForwardMessageToDeadLetterQueueResponse"
    ),
    "PullMessage": Method("PullMessageRequest", "PullMessageResponse", streams_responses=True),
    "UpdateOffset": Method("UpdateOffsetRequest", "UpdateOffsetResponse"),
    "GetOffset": Method("GetOffsetRequest", "GetOffsetResponse"),
    "QueryOffset": Method("QueryOffsetRequest", "QueryOffsetResponse"),
    "EndTransaction": Method("EndTransactionRequest", "EndTransactionResponse"),
    "Telemetry": Method("TelemetryCommand", "TelemetryCommand", streams_requests=True, streams_responses=True),
    "NotifyClientTermination": Method("NotifyClientTerminationRequest", "NotifyClientTerminationResponse"),
    "ChangeInvisibleDuration": Method("ChangeInvisibleDurationRequest", "ChangeInvisibleDurationResponse"),
    "RecallMessage": Method("RecallMessageRequest", "RecallMessageResponse"),
    "SyncLiteSubscription": Method("SyncLiteSubscriptionRequest", "SyncLiteSubscriptionResponse"),
}
