"""Definitions of RocketMQ's brokers by kind, and requests that change them.

A right is a user's on one resource, by a policy of one type: its name is `User:NAME RESOURCE TYPE`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

from bmqctl.client.remoting.link import RemotingLink
from bmqctl.systems.definitions.model import KINDS, ROCKETMQ, Action, BadDefinitions, Change, Definitions, Table
from bmqctl.systems.rocketmq.status.asker import Asker, NobodyAnswers, body_of
from bmqctl.systems.rocketmq.status.asking import Places, hear
from bmqctl.systems.rocketmq.status.names import is_own_group, is_own_topic
from bmqctl.systems.rocketmq.status.view import Unheard, view_of
from formats.errors import FormatError
from formats.rocketmq.files.property_text import changed_properties, read_properties
from formats.rocketmq.remoting.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    read_acls,
    read_users,
    write_acl,
    write_user,
)
from formats.rocketmq.remoting.bodies.clients import GROUP_CONFIG, GROUPS
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.bodies.routes import TOPIC_CONFIG, TOPIC_CONFIGS, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.administration import (
    CreateAclRequest,
    CreateTopicRequest,
    CreateUserRequest,
    DeleteAclRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
    DeleteUserRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateAclRequest,
    UpdateUserRequest,
)
from formats.rocketmq.remoting.headers.codec import write_header
from formats.rocketmq.remoting.headers.routing import DeleteTopicFromNameserverRequest
from formats.rocketmq.topic_names import AUTO_CREATE_TOPIC

__all__ = ["Master", "apply_changes", "checked", "forget_topics", "masters_of"]

_Request = tuple[RequestCode, Mapping[str, str], bytes]

USER: Final = BodyCodec(UserInfo)
RIGHT: Final = BodyCodec(PolicyEntryInfo)


async def read_user_table(link: RemotingLink, timeout_s: float) -> Table:
    answer = await link.call(RequestCode.AUTH_LIST_USER, write_header(ListUsersRequest()), timeout_s)
    # The answer about no users has no body.
    found = read_users(body) if (body := body_of(answer, "users")) else []
    return {
        each.username or "": _access_fields(USER, each._replace(username="", password=None), "username")
        for each in found
    }


async def read_rights(link: RemotingLink, timeout_s: float) -> Table:
    answer = await link.call(RequestCode.AUTH_LIST_ACL, write_header(ListAclsRequest()), timeout_s)
    found = read_acls(body) if (body := body_of(answer, "rights")) else []
    table: dict[str, dict[str, Any]] = {}
    for each in found:
        for policy in each.policies:
            for entry in policy.entries:
                table[f"{each.subject} {entry.resource} {policy.policy_type}"] = _access_fields(
                    RIGHT, entry, "resource"
                )
    return table


def _access_fields(codec: BodyCodec[Any], value: Any, named_by: str) -> dict[str, Any]:
    found = codec.write_value(value)
    found.pop(named_by, None)
    return found


def change_user(change: Change) -> tuple[RequestCode, dict[str, str], bytes]:
    """The request that makes a user as wanted, or deletes it with its rights."""
    if change.action is Action.DELETE:
        return RequestCode.AUTH_DELETE_USER, write_header(DeleteUserRequest(change.name)), b""
    body = write_user(USER.read_value({**change.wanted, "username": change.name}))
    if change.action is Action.CREATE:
        return RequestCode.AUTH_CREATE_USER, write_header(CreateUserRequest(change.name)), body
    return RequestCode.AUTH_UPDATE_USER, write_header(UpdateUserRequest(change.name)), body


def change_right(change: Change) -> tuple[RequestCode, dict[str, str], bytes]:
    """The request that grants a right as wanted, or revokes it."""
    subject, resource, policy_type = change.name.rsplit(" ", 2)
    if change.action is Action.DELETE:
        return RequestCode.AUTH_DELETE_ACL, write_header(DeleteAclRequest(subject, policy_type, resource)), b""
    entry = RIGHT.read_value({**change.wanted, "resource": resource})
    body = write_acl(AclInfo(subject, [PolicyInfo(policy_type, [entry])]))
    if change.action is Action.CREATE:
        return RequestCode.AUTH_CREATE_ACL, write_header(CreateAclRequest(subject)), body
    return RequestCode.AUTH_UPDATE_ACL, write_header(UpdateAclRequest(subject)), body


class Master:
    """The master of a name of brokers, and its definitions."""

    def __init__(self, name: str, address: str, definitions: Definitions) -> None:
        self.name = name
        self.address = address
        self.definitions = definitions


def checked(wanted: Definitions) -> Definitions:
    """Return definitions with their defaults. Raises `BadDefinitions` for invalid fields and values."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for kind, table in wanted.tables.items():
        tables[kind] = {}
        for name, fields in table.items():
            try:
                config = _KINDS[kind].codec.read_value({**fields, _KINDS[kind].named_by: name})
            except FormatError as fault:
                raise BadDefinitions(f"{kind}.{name}: {fault}") from None
            found = _fields(kind, config)
            if unknown := sorted(fields.keys() - found.keys()):
                raise BadDefinitions(
                    f"{kind}.{name}.{unknown[0]}: there is no such field; there are {', '.join(found)}"
                )
            tables[kind][name] = found
    return Definitions(ROCKETMQ, tables)


def _fields(kind: str, config: Any) -> dict[str, Any]:
    found: dict[str, Any] = _KINDS[kind].codec.write_value(config)
    del found[_KINDS[kind].named_by]
    return found


def masters_of(places: Places, asker: Asker, kinds: Sequence[str] = KINDS[ROCKETMQ]) -> list[Master]:
    """Ask all masters of a cluster for kinds of definitions.

    Raises `NobodyAnswers` if one does not answer, or there is none.
    """
    return trio.run(_masters_of, places, asker, kinds)


async def _masters_of(places: Places, asker: Asker, kinds: Sequence[str]) -> list[Master]:
    heard = await hear(places, asker)
    silent = [f"{address}: {each.reason}" for address, each in heard.nameservers.items() if isinstance(each, Unheard)]
    view = view_of(heard)
    own = frozenset(name for each in view.names for name in (each.name, each.cluster))
    found = []
    for each in view.names:
        master = each.master
        if master is None:
            raise NobodyAnswers(f"brokers {each.name} have no master")
        if master.error is not None:
            raise NobodyAnswers(f"{master.address}: {master.error}")
        tables = await asker.over(master.address, lambda link: _tables(link, kinds, own, asker.timeout_s))
        found.append(Master(each.name, master.address, Definitions(ROCKETMQ, tables)))
    if not found:
        raise NobodyAnswers("; ".join(silent) or "no broker is registered")
    return found


async def _tables(link: RemotingLink, kinds: Sequence[str], own: frozenset[str], timeout_s: float) -> dict[str, Table]:
    return {kind: await _KINDS[kind].read(link, own, timeout_s) for kind in kinds}


async def _read_topics(link: RemotingLink, own: frozenset[str], timeout_s: float) -> Table:
    body = body_of(await link.call(RequestCode.GET_ALL_TOPIC_CONFIG, {}, timeout_s), "topics")
    found = TOPIC_CONFIGS.read(body).topic_config_table
    return {name: _fields("topics", each) for name, each in found.items() if not is_own_topic(name, own)}


async def _read_groups(link: RemotingLink, own: frozenset[str], timeout_s: float) -> Table:
    body = body_of(await link.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, timeout_s), "groups")
    found = GROUPS.read(body).subscription_group_table
    return {name: _fields("groups", each) for name, each in found.items() if not is_own_group(name)}


async def _read_settings(link: RemotingLink, _: frozenset[str], timeout_s: float) -> Table:
    body = body_of(await link.call(RequestCode.GET_BROKER_CONFIG, {}, timeout_s), "settings")
    return {name: {"value": value} for name, value in read_properties(body.decode("utf-8", "replace")).items()}


def apply_changes(master: Master, changes: Sequence[Change], asker: Asker) -> None:
    """Have a master make changes in order. Raises `NobodyAnswers`, also if it refuses one."""
    trio.run(_apply, master, changes, asker)


async def _apply(master: Master, changes: Sequence[Change], asker: Asker) -> None:
    for change in changes:
        code, fields, body = _KINDS[change.kind].request(change)

        async def send(
            link: RemotingLink,
            code: RequestCode = code,
            fields: Mapping[str, str] = fields,
            body: bytes = body,
            what: str = f"{change.action} {change.kind} {change.name}",
        ) -> bytes:
            return body_of(await link.call(code, fields, asker.timeout_s, body), what)

        await asker.over(master.address, send)


def forget_topics(places: Places, names: Sequence[str], asker: Asker) -> None:
    """Have all nameservers forget topics that the brokers have deleted. Raises `NobodyAnswers`."""
    trio.run(_forget, places, names, asker)


async def _forget(places: Places, names: Sequence[str], asker: Asker) -> None:
    requests = [write_header(DeleteTopicFromNameserverRequest(name)) for name in names]

    async def send(link: RemotingLink) -> None:
        for fields in requests:
            body_of(await link.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields, asker.timeout_s), "delete a topic")

    for address in places.nameservers:
        await asker.over(address, send)


def _signed_attributes(change: Change) -> dict[str, str]:
    """The attributes to set, with a plus in front of their names, and the attributes to remove."""
    before = (change.found or {}).get("attributes", {})
    after = change.wanted.get("attributes", {})
    signed = {f"+{name}": value for name, value in after.items() if before.get(name) != value}
    return signed | {f"-{name}": "" for name in before.keys() - after.keys()}


def _change_group(change: Change) -> _Request:
    if change.action is Action.DELETE:
        fields = write_header(DeleteSubscriptionGroupRequest(change.name, clean_offset=False))
        return RequestCode.DELETE_SUBSCRIPTIONGROUP, fields, b""
    signed = _signed_attributes(change)
    config = GROUP_CONFIG.read_value({**change.wanted, "groupName": change.name, "attributes": signed})
    return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP_CONFIG.write(config)


def _change_topic(change: Change) -> _Request:
    if change.action is Action.DELETE:
        return RequestCode.DELETE_TOPIC_IN_BROKER, write_header(DeleteTopicRequest(change.name)), b""
    topic: TopicConfig = TOPIC_CONFIG.read_value({**change.wanted, "topicName": change.name})
    signed = _signed_attributes(change)
    text = ",".join(f"{name}={value}" if name[0] == "+" else name for name, value in signed.items())
    request = CreateTopicRequest(
        topic.topic_name,
        AUTO_CREATE_TOPIC,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type,
        topic.order,
        topic.topic_sys_flag,
        text,
    )
    return RequestCode.UPDATE_AND_CREATE_TOPIC, write_header(request), b""


def _change_setting(change: Change) -> _Request:
    return RequestCode.UPDATE_BROKER_CONFIG, {}, changed_properties("", {change.name: change.wanted["value"]}).encode()


class Setting(NamedTuple):
    """A property of a broker's configuration."""

    name: str
    value: str


class _Kind(NamedTuple):
    """A kind of definitions: the codec of one, the field that has its name, and the requests about them.

    `request` makes the request that creates, changes or deletes a definition.
    """

    codec: Any
    named_by: str
    read: Callable[[RemotingLink, frozenset[str], float], Awaitable[Table]]
    request: Callable[[Change], _Request]


_KINDS: Final[Mapping[str, _Kind]] = {
    "topics": _Kind(TOPIC_CONFIG, "topicName", _read_topics, _change_topic),
    "groups": _Kind(GROUP_CONFIG, "groupName", _read_groups, _change_group),
    "users": _Kind(USER, "username", lambda link, _, timeout_s: read_user_table(link, timeout_s), change_user),
    "acls": _Kind(RIGHT, "resource", lambda link, _, timeout_s: read_rights(link, timeout_s), change_right),
    "settings": _Kind(BodyCodec(Setting), "name", _read_settings, _change_setting),
}
