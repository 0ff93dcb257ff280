"""Requests to a nameserver and their answers (source: DefaultRequestProcessor, ClientRequestProcessor).

The entry is `Nameserver.answer`: a frame in, a frame out. The texts of failures are the original's, as clients show
them.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.common.limited_log import LimitedLog
from broker.rocketmq.nameserver.bounds import BOUNDS
from broker.rocketmq.nameserver.key_values import ORDER_TOPICS, KeyValues
from broker.rocketmq.nameserver.routes import BrokerAddress, Registration, Routes
from broker.rocketmq.remoting.requests import failure, success, with_body
from broker.rocketmq.settings import SettingRefused, Settings
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.routes import (
    BROKER_MEMBER_GROUP_BODY,
    CLUSTER_INFO,
    DATA_VERSION,
    TOPIC_LIST,
    TOPIC_ROUTE,
    BrokerMemberGroupBody,
    RegisterBrokerBody,
    TopicList,
    TopicRoute,
    read_compressed_registration,
    read_registration,
    standard_route,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag
from formats.rocketmq.remoting.headers import routing
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.versions import STANDARD_JSON_VERSION, VERSION

__all__ = ["Nameserver", "RouteRequests"]

log = logging.getLogger("broker.rocketmq.nameserver")

_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_UNIT, _UNIT_SUBSCRIPTION = 1, 2


class RouteRequests:
    """Requests for the routes of topics, which `find` finds."""

    def __init__(self, find: Callable[[str], TopicRoute | None], values: KeyValues) -> None:
        self._find = find
        self._values = values

    def answer(self, request: Frame) -> Frame:
        try:
            header = read_header(routing.GetRouteInfoRequest, request.ext_fields)
        except FormatError as error:
            return failure(ResponseCode.SYSTEM_ERROR, str(error))
        route = self._find(header.topic)
        if route is None:
            text = f"No topic route info in name server for the topic: {header.topic}{_FAQ}"
            return failure(ResponseCode.TOPIC_NOT_EXIST, text)
        route = route._replace(order_topic_conf=self._values.get(ORDER_TOPICS, header.topic))
        if request.version >= STANDARD_JSON_VERSION or header.accept_standard_json_only:
            return with_body(standard_route(route))
        return with_body(TOPIC_ROUTE.write(route))


class Nameserver:
    """A nameserver. Two of its `settings` can be changed."""

    def __init__(self, routes: Routes, values: KeyValues, settings: Settings) -> None:
        self.routes = routes
        self.values = values
        self._settings = settings
        # Returns why a broker may not register, or None.
        self.refuse: Callable[[Registration, object], str | None] = lambda told, connection: None
        self.files = (values.file, settings.file)
        self._refusals = LimitedLog(log)
        self._route_requests = RouteRequests(routes.route, values)
        # True if brokers get the ordered topics when they register.
        self._returns_order_topics = True
        settings.on_change("returnOrderTopicConfigToBroker", self._return_order_topics)
        settings.on_change("supportActingMaster", routes.support_acting_master)
        settings.on_change("notifyMinBrokerIdChanged", partial(setattr, routes, "tells_least"))
        values.bounds = routes.bounds
        for name, attribute in BOUNDS.items():
            settings.on_change(name, partial(setattr, routes.bounds, attribute))
        self._handlers: dict[int, Callable[[Frame, object, int], Frame]] = {
            RequestCode.PUT_KV_CONFIG: self._put_value,
            RequestCode.GET_KV_CONFIG: self._get_value,
            RequestCode.DELETE_KV_CONFIG: self._delete_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_values,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.QUERY_DATA_VERSION: self._query_version,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._hear,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_subscription_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_subscription_only_topics,
        }

    def answer(self, request: Frame, connection: object, now_ms: int) -> Frame | None:
        """Return the answer to a request; None if it wants none. `connection` stands for that of the request."""
        handler = self._handlers.get(request.code)
        try:
            if handler is None:
                answer = failure(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")
            else:
                answer = handler(request, connection, now_ms)
        except FormatError as error:
            answer = failure(ResponseCode.SYSTEM_ERROR, str(error))
        except SettingRefused as refused:
            self._refusals.add(f"request {request.code} is refused: {refused.text}", now_ms)
            answer = failure(refused.code, refused.text)
        except OSError as error:
            answer = failure(ResponseCode.SYSTEM_ERROR, f"the change cannot be stored: {error}")
        if request.is_one_way:
            return None
        return answer._replace(
            opaque=request.opaque, flag=FrameFlag.RESPONSE, version=VERSION, encoding=request.encoding
        )

    # -- brokers

    def _register(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.RegisterBrokerRequest, request.ext_fields)
        if header.body_crc and header.body_crc != zlib.crc32(request.body) & 0x7FFFFFFF:
            return failure(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        body = RegisterBrokerBody()
        if request.body:
            read = read_compressed_registration if header.is_compressed else read_registration
            body = read(request.body)
        told = Registration(
            header.cluster_name,
            header.broker_addr,
            header.broker_name,
            header.broker_id,
            header.ha_server_addr,
            body.topic_config_serialize_wrapper,
            header.heartbeat_timeout_ms,
            header.enable_acting_master,
            (request.ext_fields or {}).get("zoneName"),
        )
        refusal = self.refuse(told, connection)
        if refusal is not None:
            return failure(ResponseCode.NO_PERMISSION, refusal)
        master = self.routes.register(told, connection, now_ms)
        if master is None:
            return failure(ResponseCode.SYSTEM_ERROR, "register broker failed")
        address, ha_address = master
        answer = routing.RegisterBrokerResponse(ha_address or None, address or None)
        order_topics = self.values.table(ORDER_TOPICS) if self._returns_order_topics else None
        return success(answer, order_topics or b"")

    def _unregister(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.UnregisterBrokerRequest, request.ext_fields)
        self.routes.unregister(header.broker_name, BrokerAddress(header.cluster_name, header.broker_addr))
        return success()

    def _hear(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.BrokerHeartbeatRequest, request.ext_fields)
        self.routes.heard(BrokerAddress(header.cluster_name, header.broker_addr), now_ms, connection)
        return success()

    def _query_version(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.QueryDataVersionRequest, request.ext_fields)
        address = BrokerAddress(header.cluster_name, header.broker_addr)
        known = self.routes.version_of(address)
        self.routes.heard(address, now_ms, connection)
        answer = routing.QueryDataVersionResponse(known != DATA_VERSION.read(request.body))
        return success(answer, b"" if known is None else DATA_VERSION.write(known))

    def _get_member_group(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.GetBrokerMemberGroupRequest, request.ext_fields)
        group = self.routes.member_group(header.cluster_name, header.broker_name)
        return with_body(BROKER_MEMBER_GROUP_BODY.write(BrokerMemberGroupBody(group)))

    def _get_cluster_info(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return with_body(CLUSTER_INFO.write(self.routes.cluster_info()))

    def _wipe_write_permission(self, request: Frame, connection: object, now_ms: int) -> Frame:
        topics = self.routes.wipe_write_permission(
            read_header(routing.WipeWritePermissionRequest, request.ext_fields).broker_name
        )
        return success(routing.WipeWritePermissionResponse(topics))

    def _add_write_permission(self, request: Frame, connection: object, now_ms: int) -> Frame:
        topics = self.routes.add_write_permission(
            read_header(routing.AddWritePermissionRequest, request.ext_fields).broker_name
        )
        return success(routing.AddWritePermissionResponse(topics))

    # -- topics

    def _get_route(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return self._route_requests.answer(request)

    def _register_topic(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.RegisterTopicRequest, request.ext_fields)
        if request.body:
            self.routes.register_topic(header.topic, TOPIC_ROUTE.read(request.body).queue_datas)
        return success()

    def _delete_topic(self, request: Frame, connection: object, now_ms: int) -> Frame:
        header = read_header(routing.DeleteTopicFromNameserverRequest, request.ext_fields)
        self.routes.delete_topic(header.topic, header.cluster_name)
        return success()

    def _get_all_topics(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return _topics(self.routes.topics())

    def _get_topics_of_cluster(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return _topics(
            self.routes.topics_of_cluster(read_header(routing.GetTopicsByClusterRequest, request.ext_fields).cluster)
        )

    def _get_system_topics(self, request: Frame, connection: object, now_ms: int) -> Frame:
        names, address = self.routes.system_topics()
        return with_body(TOPIC_LIST.write(TopicList(names, address)))

    def _get_unit_topics(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return _topics(self.routes.topics(lambda queues: bool(queues.topic_sys_flag & _UNIT)))

    def _get_unit_subscription_topics(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return _topics(self.routes.topics(lambda queues: bool(queues.topic_sys_flag & _UNIT_SUBSCRIPTION)))

    def _get_unit_subscription_only_topics(self, request: Frame, connection: object, now_ms: int) -> Frame:
        both = _UNIT | _UNIT_SUBSCRIPTION
        return _topics(self.routes.topics(lambda queues: queues.topic_sys_flag & both == _UNIT_SUBSCRIPTION))

    # -- the table of values

    def _put_value(self, request: Frame, connection: object, now_ms: int) -> Frame:
        self.values.put(*read_header(routing.PutKeyValueRequest, request.ext_fields))
        return success()

    def _get_value(self, request: Frame, connection: object, now_ms: int) -> Frame:
        namespace, key = read_header(routing.GetKeyValueRequest, request.ext_fields)
        value = self.values.get(namespace, key)
        if value is None:
            text = f"No config item, Namespace: {namespace} Key: {key}"
            return failure(ResponseCode.QUERY_NOT_FOUND, text)
        return success(routing.GetKeyValueResponse(value))

    def _delete_value(self, request: Frame, connection: object, now_ms: int) -> Frame:
        self.values.delete(*read_header(routing.DeleteKeyValueRequest, request.ext_fields))
        return success()

    def _get_values(self, request: Frame, connection: object, now_ms: int) -> Frame:
        namespace = read_header(routing.GetKeyValueListRequest, request.ext_fields).namespace
        body = self.values.table(namespace)
        if body is None:
            return failure(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return with_body(body)

    # -- the configuration

    def _get_config(self, request: Frame, connection: object, now_ms: int) -> Frame:
        return with_body(self._settings.text())

    def _update_config(self, request: Frame, connection: object, now_ms: int) -> Frame:
        self._settings.change(bytes(request.body), str(getattr(connection, "host", connection)))
        return success()

    def _return_order_topics(self, value: bool) -> None:
        self._returns_order_topics = value


def _topics(names: list[str]) -> Frame:
    return with_body(TOPIC_LIST.write(TopicList(names)))
