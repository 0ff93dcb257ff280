"""Requests about users and policies (source: AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Callable

from broker.rocketmq.access.model import CUSTOM, DEFAULT, SUPER, Invalid, User, choose, parse_resource
from broker.rocketmq.access.tables import AccessTables, subject_of, user_of
from broker.rocketmq.remoting.requests import Handlers, Refused, Request, success, with_body
from formats.rocketmq.remoting.bodies.access import (
    UserInfo,
    read_acl,
    read_user,
    write_acl,
    write_acls,
    write_user,
    write_users,
)
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers import administration as headers
from formats.rocketmq.remoting.headers.codec import read_header
from formats.rocketmq.remoting.signature import ACCESS_KEY

__all__ = ["AccessRequests"]


class AccessRequests:
    """Shows and changes users and policies.

    Only the answer about a user, to a request signed by a super user, contains a password. Proxies need it to check
    that user's signatures.
    """

    def __init__(self, tables: AccessTables) -> None:
        self._tables = tables
        handlers: dict[int, Callable[[Request], Frame]] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._create_acl,
            RequestCode.AUTH_UPDATE_ACL: self._update_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }
        self.handlers: Handlers = {code: _refusing(handler) for code, handler in handlers.items()}

    # -- users

    def _create_user(self, request: Request) -> Frame:
        name = _named(read_header(headers.CreateUserRequest, request.fields).username)
        info = read_user(request.body)._replace(username=name)
        self._check_super(request, choose((SUPER,), info.user_type), "create")
        self._tables.create_user(info)
        return success()

    def _update_user(self, request: Request) -> Frame:
        name = _named(read_header(headers.UpdateUserRequest, request.fields).username)
        info = read_user(request.body)._replace(username=name)
        old = self._tables.users.get(name)
        self._check_super(request, choose((SUPER,), info.user_type), "update")
        self._check_super(request, None if old is None else old.kind, "update")
        self._tables.update_user(info)
        return success()

    def _delete_user(self, request: Request) -> Frame:
        name = read_header(headers.DeleteUserRequest, request.fields).username or ""
        user = self._tables.users.get(name)
        self._check_super(request, None if user is None else user.kind, "update")
        self._tables.delete_user(name)
        return success()

    def _check_super(self, request: Request, kind: str | None, what: str) -> None:
        """Refuse the change of a super user by a user who is none. Requests without a user are not checked."""
        sender = self._tables.users.get(request.fields.get(ACCESS_KEY, ""))
        is_other = bool(request.fields.get(ACCESS_KEY)) and (sender is None or sender.kind != SUPER)
        if kind == SUPER and is_other:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The super user can only be {what} by super user")

    def _get_user(self, request: Request) -> Frame:
        user = self._tables.users.get(_named(read_header(headers.GetUserRequest, request.fields).username))
        if user is None:
            return success()
        told = _told(user)
        if self._tables.is_signed_by_super(request.frame):
            told = told._replace(password=user.password)
        return with_body(write_user(told))

    def _list_users(self, request: Request) -> Frame:
        part = read_header(headers.ListUsersRequest, request.fields).filter or ""
        users = [_told(user) for name, user in sorted(self._tables.users.items()) if part in name]
        return with_body(write_users(users)) if users else success()

    # -- policies

    def _create_acl(self, request: Request) -> Frame:
        return self._put_acl(request, read_header(headers.CreateAclRequest, request.fields).subject)

    def _update_acl(self, request: Request) -> Frame:
        return self._put_acl(request, read_header(headers.UpdateAclRequest, request.fields).subject)

    def _put_acl(self, request: Request, subject: str | None) -> Frame:
        info = read_acl(request.body)
        self._tables.put_acl(info if info.subject else info._replace(subject=subject))
        return success()

    def _delete_acl(self, request: Request) -> Frame:
        header = read_header(headers.DeleteAclRequest, request.fields)
        policy_type = choose((CUSTOM, DEFAULT), header.policy_type) or CUSTOM
        resource = parse_resource(header.resource) if header.resource else None
        self._tables.delete_acl(header.subject, policy_type, resource)
        return success()

    def _get_acl(self, request: Request) -> Frame:
        name = user_of(read_header(headers.GetAclRequest, request.fields).subject)
        if name not in self._tables.users:
            raise Invalid("The subject is not exist.")
        acl = self._tables.acls.get(name)
        return success() if acl is None else with_body(write_acl(acl.info(subject_of(name))))

    def _list_acls(self, request: Request) -> Frame:
        header = read_header(headers.ListAclsRequest, request.fields)
        subject_part, resource_part = header.subject_filter or "", header.resource_filter or ""
        found = [
            (subject_of(name), acl.about(resource_part))
            for name, acl in sorted(self._tables.acls.items())
            if subject_part in subject_of(name)
        ]
        told = [acl.info(subject) for subject, acl in found if any(acl)]
        return with_body(write_acls(told)) if told else success()


def _refusing(handler: Callable[[Request], Frame]) -> Callable[[Request], Frame]:
    """Turn invalid users and policies into the original's answers."""

    def handle(request: Request) -> Frame:
        try:
            return handler(request)
        except Invalid as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None

    return handle


def _named(name: str | None) -> str:
    if not name or not name.strip():
        raise Refused(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name.strip()


def _told(user: User) -> UserInfo:
    return UserInfo(user.name, None, user.kind, user.status)
