"""The headers of each request and its answer, by the request's code.

A code that is not in the table has no header in either.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers import administration, consuming, lite, replicating, routing, sending
from formats.rocketmq.remoting.headers.codec import HeaderCodec, codec_of

__all__ = ["HEADERS", "Headers"]


class Headers(NamedTuple):
    """The codecs of a request's header and its answer's; None without fields."""

    request: HeaderCodec[Any] | None
    response: HeaderCodec[Any] | None


_TABLE: Final[dict[RequestCode, tuple[type[Any] | None, type[Any] | None]]] = {
    RequestCode.SEND_MESSAGE: (sending.SendMessageRequest, sending.SendMessageResponse),
    RequestCode.SEND_MESSAGE_V2: (sending.SendMessageRequestV2, sending.SendMessageResponse),
    RequestCode.SEND_BATCH_MESSAGE: (sending.SendMessageRequestV2, sending.SendMessageResponse),
    RequestCode.SEND_REPLY_MESSAGE: (sending.SendMessageRequest, sending.SendMessageResponse),
    RequestCode.SEND_REPLY_MESSAGE_V2: (sending.SendMessageRequestV2, sending.SendMessageResponse),
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: (sending.ReplyMessageRequest, None),
    RequestCode.END_TRANSACTION: (sending.EndTransactionRequest, None),
    RequestCode.CHECK_TRANSACTION_STATE: (sending.CheckTransactionStateRequest, None),
    RequestCode.RECALL_MESSAGE: (sending.RecallMessageRequest, sending.RecallMessageResponse),
    RequestCode.PULL_MESSAGE: (consuming.PullMessageRequest, consuming.PullMessageResponse),
    RequestCode.LITE_PULL_MESSAGE: (consuming.PullMessageRequest, consuming.PullMessageResponse),
    RequestCode.POP_MESSAGE: (consuming.PopMessageRequest, consuming.PopMessageResponse),
    RequestCode.POP_LITE_MESSAGE: (consuming.PopLiteMessageRequest, consuming.PopLiteMessageResponse),
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: (consuming.NotifyUnsubscribeLiteRequest, None),
    RequestCode.GET_PARENT_TOPIC_INFO: (lite.GetParentTopicInfoRequest, None),
    RequestCode.GET_LITE_TOPIC_INFO: (lite.GetLiteTopicInfoRequest, None),
    RequestCode.GET_LITE_CLIENT_INFO: (lite.GetLiteClientInfoRequest, None),
    RequestCode.GET_LITE_GROUP_INFO: (lite.GetLiteGroupInfoRequest, None),
    RequestCode.TRIGGER_LITE_DISPATCH: (lite.TriggerLiteDispatchRequest, None),
    RequestCode.PEEK_MESSAGE: (consuming.PeekMessageRequest, consuming.PopMessageResponse),
    RequestCode.ACK_MESSAGE: (consuming.AckMessageRequest, None),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (
        consuming.ChangeInvisibleTimeRequest,
        consuming.ChangeInvisibleTimeResponse,
    ),
    RequestCode.NOTIFICATION: (consuming.NotificationRequest, consuming.NotificationResponse),
    RequestCode.POLLING_INFO: (consuming.PollingInfoRequest, consuming.PollingInfoResponse),
    RequestCode.CONSUMER_SEND_MSG_BACK: (consuming.ConsumerSendMessageBackRequest, None),
    RequestCode.QUERY_CONSUMER_OFFSET: (consuming.QueryConsumerOffsetRequest, consuming.QueryConsumerOffsetResponse),
    RequestCode.UPDATE_CONSUMER_OFFSET: (consuming.UpdateConsumerOffsetRequest, None),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (consuming.GetConsumerListByGroupRequest, None),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: (consuming.NotifyConsumerIdsChangedRequest, None),
    RequestCode.UNREGISTER_CLIENT: (consuming.UnregisterClientRequest, None),
    RequestCode.GET_MAX_OFFSET: (consuming.GetMaxOffsetRequest, consuming.GetMaxOffsetResponse),
    RequestCode.GET_MIN_OFFSET: (consuming.GetMinOffsetRequest, consuming.GetMinOffsetResponse),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (consuming.SearchOffsetRequest, consuming.SearchOffsetResponse),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (
        consuming.GetEarliestStoreTimeRequest,
        consuming.GetEarliestStoreTimeResponse,
    ),
    RequestCode.QUERY_MESSAGE: (consuming.QueryMessageRequest, consuming.QueryMessageResponse),
    RequestCode.VIEW_MESSAGE_BY_ID: (consuming.ViewMessageRequest, None),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (administration.CreateTopicRequest, None),
    RequestCode.DELETE_TOPIC_IN_BROKER: (administration.DeleteTopicRequest, None),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (administration.DeleteSubscriptionGroupRequest, None),
    RequestCode.GET_TOPIC_CONFIG: (administration.GetTopicConfigRequest, None),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (administration.GetSubscriptionGroupConfigRequest, None),
    RequestCode.GET_ALL_TOPIC_CONFIG: (
        administration.GetAllTopicConfigRequest,
        administration.GetAllTopicConfigResponse,
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        administration.GetAllSubscriptionGroupRequest,
        administration.GetAllSubscriptionGroupResponse,
    ),
    RequestCode.GET_BROKER_CONFIG: (None, administration.GetBrokerConfigResponse),
    RequestCode.GET_TOPIC_STATS_INFO: (administration.GetTopicStatsInfoRequest, None),
    RequestCode.GET_CONSUME_STATS: (administration.GetConsumeStatsRequest, None),
    RequestCode.GET_BROKER_CONSUME_STATS: (administration.GetBrokerConsumeStatsRequest, None),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (administration.GetConsumerConnectionListRequest, None),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (administration.GetProducerConnectionListRequest, None),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (administration.GetConsumerRunningInfoRequest, None),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (administration.GetConsumerStatusRequest, None),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: (administration.GetConsumerStatusRequest, None),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (administration.ConsumeMessageDirectlyRequest, None),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (administration.ResetOffsetRequest, None),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: (administration.ResetOffsetRequest, None),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (administration.QueryConsumeTimeSpanRequest, None),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (administration.QueryTopicConsumeByWhoRequest, None),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: (administration.QueryTopicsByConsumerRequest, None),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (administration.QuerySubscriptionByConsumerRequest, None),
    RequestCode.QUERY_CONSUME_QUEUE: (administration.QueryConsumeQueueRequest, None),
    RequestCode.QUERY_CORRECTION_OFFSET: (administration.QueryCorrectionOffsetRequest, None),
    RequestCode.CLONE_GROUP_OFFSET: (administration.CloneGroupOffsetRequest, None),
    RequestCode.VIEW_BROKER_STATS_DATA: (administration.ViewBrokerStatsDataRequest, None),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: (administration.UpdateGroupForbiddenRequest, None),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (administration.ResumeCheckHalfMessageRequest, None),
    RequestCode.AUTH_CREATE_USER: (administration.CreateUserRequest, None),
    RequestCode.AUTH_UPDATE_USER: (administration.UpdateUserRequest, None),
    RequestCode.AUTH_DELETE_USER: (administration.DeleteUserRequest, None),
    RequestCode.AUTH_GET_USER: (administration.GetUserRequest, None),
    RequestCode.AUTH_LIST_USER: (administration.ListUsersRequest, None),
    RequestCode.AUTH_CREATE_ACL: (administration.CreateAclRequest, None),
    RequestCode.AUTH_UPDATE_ACL: (administration.UpdateAclRequest, None),
    RequestCode.AUTH_DELETE_ACL: (administration.DeleteAclRequest, None),
    RequestCode.AUTH_GET_ACL: (administration.GetAclRequest, None),
    RequestCode.AUTH_LIST_ACL: (administration.ListAclsRequest, None),
    RequestCode.REGISTER_BROKER: (routing.RegisterBrokerRequest, routing.RegisterBrokerResponse),
    RequestCode.UNREGISTER_BROKER: (routing.UnregisterBrokerRequest, None),
    RequestCode.BROKER_HEARTBEAT: (routing.BrokerHeartbeatRequest, None),
    RequestCode.QUERY_DATA_VERSION: (routing.QueryDataVersionRequest, routing.QueryDataVersionResponse),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (routing.GetRouteInfoRequest, None),
    RequestCode.GET_BROKER_MEMBER_GROUP: (routing.GetBrokerMemberGroupRequest, None),
    RequestCode.GET_TOPICS_BY_CLUSTER: (routing.GetTopicsByClusterRequest, None),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (routing.DeleteTopicFromNameserverRequest, None),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: (routing.RegisterTopicRequest, None),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (routing.WipeWritePermissionRequest, routing.WipeWritePermissionResponse),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (routing.AddWritePermissionRequest, routing.AddWritePermissionResponse),
    RequestCode.PUT_KV_CONFIG: (routing.PutKeyValueRequest, None),
    RequestCode.GET_KV_CONFIG: (routing.GetKeyValueRequest, routing.GetKeyValueResponse),
    RequestCode.DELETE_KV_CONFIG: (routing.DeleteKeyValueRequest, None),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (routing.GetKeyValueListRequest, None),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (routing.NotifyMinBrokerIdChangeRequest, None),
    RequestCode.EXCHANGE_BROKER_HA_INFO: (replicating.ExchangeHaInfoRequest, replicating.ExchangeHaInfoResponse),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (replicating.ResetMasterFlushOffsetRequest, None),
    RequestCode.ADD_BROKER: (replicating.AddBrokerRequest, None),
    RequestCode.REMOVE_BROKER: (replicating.RemoveBrokerRequest, None),
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: (replicating.NotifyBrokerRoleChangedRequest, None),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: (
        replicating.AlterSyncStateSetRequest,
        replicating.AlterSyncStateSetResponse,
    ),
    RequestCode.CONTROLLER_ELECT_MASTER: (replicating.ElectMasterRequest, replicating.ElectMasterResponse),
    RequestCode.CONTROLLER_GET_METADATA_INFO: (None, replicating.GetControllerMetadataResponse),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: (replicating.GetReplicaInfoRequest, replicating.GetReplicaInfoResponse),
    RequestCode.CLEAN_BROKER_DATA: (replicating.CleanBrokerDataRequest, None),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: (
        replicating.GetNextBrokerIdRequest,
        replicating.GetNextBrokerIdResponse,
    ),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: (replicating.ApplyBrokerIdRequest, replicating.ApplyBrokerIdResponse),
    RequestCode.CONTROLLER_REGISTER_BROKER: (
        replicating.RegisterBrokerToControllerRequest,
        replicating.RegisterBrokerToControllerResponse,
    ),
}

HEADERS: Final[dict[int, Headers]] = {
    code: Headers(*(None if each is None else codec_of(each) for each in pair)) for code, pair in _TABLE.items()
}
