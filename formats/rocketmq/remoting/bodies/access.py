"""Users and policies in bodies and files (source: UserInfo, AclInfo).

`read_...` functions raise `FormatError`; for a malformed user its text never quotes the input, which may hold a
password.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.schema import Buffer

__all__ = [
    "AclInfo",
    "PolicyEntryInfo",
    "PolicyInfo",
    "UserInfo",
    "read_acl",
    "read_acls",
    "read_user",
    "read_users",
    "write_acl",
    "write_acls",
    "write_user",
    "write_users",
]


class UserInfo(NamedTuple):
    """A user. The password, if set, is present in files and in the answer to a super user."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"


class PolicyEntryInfo(NamedTuple):
    """A decision about actions on a resource."""

    resource: str | None = None
    actions: list[str] = []
    source_ips: list[str] = []
    decision: str | None = None


class PolicyInfo(NamedTuple):
    """A policy of type Custom or Default; Default applies where no custom policy does."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = []


class AclInfo(NamedTuple):
    """The policies of a subject, as `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] = []


_USER = BodyCodec(UserInfo)
_ACL = BodyCodec(AclInfo)


def _load(body: Buffer, what: str) -> Any:
    try:
        return fastjson.loads(str(body, "utf-8"))
    except (FormatError, UnicodeDecodeError):
        raise FormatError(what, 0, "cannot be read") from None


def _items(body: Buffer, what: str) -> list[Any]:
    value = _load(body, what)
    if not isinstance(value, list):
        raise FormatError(what, 0, "is not a list")
    return value


def _user(value: Any) -> UserInfo:
    try:
        return _USER.read_value(value)
    except FormatError:
        raise FormatError("UserInfo", 0, "cannot be read") from None


def read_user(body: Buffer) -> UserInfo:
    return _user(_load(body, "UserInfo"))


def read_users(body: Buffer) -> list[UserInfo]:
    return [_user(value) for value in _items(body, "UserInfo")]


def read_acl(body: Buffer) -> AclInfo:
    return _ACL.read_value(_load(body, "AclInfo"))


def read_acls(body: Buffer) -> list[AclInfo]:
    return [_ACL.read_value(value) for value in _items(body, "AclInfo")]


def write_user(user: UserInfo) -> bytes:
    return _USER.write(user)


def write_users(users: list[UserInfo]) -> bytes:
    return fastjson.dumps([_USER.write_value(user) for user in users]).encode()


def write_acl(acl: AclInfo) -> bytes:
    return _ACL.write(acl)


def write_acls(acls: list[AclInfo]) -> bytes:
    return fastjson.dumps([_ACL.write_value(acl) for acl in acls]).encode()
