"""Users and rights of RocketMQ's brokers, as definitions: requests that list them, and requests that change them.

A right is a user's on one resource, by a policy of one type: its name is `User:NAME RESOURCE TYPE`.
"""

from __future__ import annotations

from typing import Any, Final

from bmqctl.clients.rocketmq.link import RemotingLink
from bmqctl.systems.definitions.model import Action, Change, Table
from bmqctl.systems.rocketmq.status.asker import body_of
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
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.headers.administration import (
    CreateAclRequest,
    CreateUserRequest,
    DeleteAclRequest,
    DeleteUserRequest,
    ListAclsRequest,
    ListUsersRequest,
    UpdateAclRequest,
    UpdateUserRequest,
)
from formats.rocketmq.remoting.headers.codec import write_header

__all__ = ["RIGHT", "USER", "change_right", "change_user", "read_rights", "read_user_table"]

USER: Final = BodyCodec(UserInfo)
RIGHT: Final = BodyCodec(PolicyEntryInfo)


async def read_user_table(link: RemotingLink, timeout_s: float) -> Table:
    """Ask a broker for its users, whose passwords it keeps to itself."""
    answer = await link.call(RequestCode.AUTH_LIST_USER, write_header(ListUsersRequest()), timeout_s)
    # The answer about no users has no body.
    found = read_users(body) if (body := body_of(answer, "users")) else []
    return {each.username or "": _fields(USER, each._replace(username="", password=None), "username") for each in found}


async def read_rights(link: RemotingLink, timeout_s: float) -> Table:
    """Ask a broker for the rights of all users."""
    answer = await link.call(RequestCode.AUTH_LIST_ACL, write_header(ListAclsRequest()), timeout_s)
    found = read_acls(body) if (body := body_of(answer, "rights")) else []
    table: dict[str, dict[str, Any]] = {}
    for each in found:
        for policy in each.policies:
            for entry in policy.entries:
                table[f"{each.subject} {entry.resource} {policy.policy_type}"] = _fields(RIGHT, entry, "resource")
    return table


def _fields(codec: BodyCodec[Any], value: Any, named_by: str) -> dict[str, Any]:
    found = codec.write_value(value)
    found.pop(named_by, None)
    return found


def change_user(change: Change) -> tuple[RequestCode, dict[str, str], bytes]:
    """Return the request that makes a user as it is wanted, or deletes it with its rights."""
    if change.action is Action.DELETE:
        return RequestCode.AUTH_DELETE_USER, write_header(DeleteUserRequest(change.name)), b""
    body = write_user(USER.read_value({**change.wanted, "username": change.name}))
    if change.action is Action.CREATE:
        return RequestCode.AUTH_CREATE_USER, write_header(CreateUserRequest(change.name)), body
    return RequestCode.AUTH_UPDATE_USER, write_header(UpdateUserRequest(change.name)), body


def change_right(change: Change) -> tuple[RequestCode, dict[str, str], bytes]:
    """Return the request that gives a right as it is wanted, or takes it away."""
    subject, resource, policy_type = change.name.rsplit(" ", 2)
    if change.action is Action.DELETE:
        return RequestCode.AUTH_DELETE_ACL, write_header(DeleteAclRequest(subject, policy_type, resource)), b""
    entry = RIGHT.read_value({**change.wanted, "resource": resource})
    body = write_acl(AclInfo(subject, [PolicyInfo(policy_type, [entry])]))
    if change.action is Action.CREATE:
        return RequestCode.AUTH_CREATE_ACL, write_header(CreateAclRequest(subject)), body
    return RequestCode.AUTH_UPDATE_ACL, write_header(UpdateAclRequest(subject)), body
