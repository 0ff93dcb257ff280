"""The users and their policies, and the files that keep them.

Source: AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl. Passwords are kept as they are: checking a
signature needs them. Only the node's own account may read their file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.common.kept import Keep, KeptTable
from broker.rocketmq.access.model import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    Acl,
    Invalid,
    Resource,
    User,
    choose,
    decide,
    parse_acl,
)
from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.access import AclInfo, UserInfo, read_acls, read_users, write_acl, write_user
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.signature import ACCESS_KEY, is_signed_with

__all__ = ["AccessTables", "lockout", "subject_of", "user_from", "user_of"]

_PREFIX = "User:"

# Of users, and of policies of each.
USERS_MAX: Final = 5_000
POLICIES_MAX: Final = 1_000


def subject_of(name: str) -> str:
    return _PREFIX + name


def user_of(subject: str | None) -> str:
    """Return the user that is the subject of policies. Raises `Invalid`: there are no other subjects."""
    kind, separator, name = (subject or "").partition(":")
    if not separator or kind.lower() != "user":
        raise Invalid("The subject type is null.")
    return name


def lockout(users: Mapping[str, User], acls: Mapping[str, Acl], cluster: str) -> str | None:
    """Return why nobody could administer a cluster that checks requests; None if an enabled user could.

    Administrators are super users, and users whose policies permit to update the cluster.
    """
    if not users:
        return "there is no user"
    enabled = [user for user in users.values() if user.status == ENABLED]
    if any(user.kind == SUPER or _administers(acls.get(user.name), cluster) for user in enabled):
        return None
    return "there is no user who is enabled and may administer"


def _administers(acl: Acl | None, cluster: str) -> bool:
    anywhere = (
        tuple(each._replace(sources=()) for each in entries if each.allows or not each.sources) for entries in acl or ()
    )
    return decide(Acl(*anywhere), Resource("Cluster", cluster), frozenset(("Update",)), "") is None


class AccessTables:
    """The users by name, and the policies of each. `keep_*` write their files; they may raise `OSError`.

    `find_fault` returns why new users and policies may not replace these, or None. With a `Keeper` for the `files`,
    changes are written at the end of the step.
    """

    def __init__(self, users: bytes, acls: bytes, keep_users: Keep, keep_acls: Keep) -> None:
        self.find_fault: Callable[[Mapping[str, User], Mapping[str, Acl]], str | None] = lambda users, acls: None
        try:
            known = {user.name: user for user in (user_from(info) for info in (read_users(users) if users else ()))}
            policies = {user_of(info.subject): parse_acl(info) for info in (read_acls(acls) if acls else ())}
        except Invalid as error:
            raise FormatError("users or policies", 0, str(error)) from None
        self._users: KeptTable[str, User, str, None] = KeptTable(keep_users, known, None, _user_text, _compose)
        self._acls: KeptTable[str, Acl, str, None] = KeptTable(keep_acls, policies, None, _acl_text, _compose)
        self.users: Mapping[str, User] = self._users.table
        self.acls: Mapping[str, Acl] = self._acls.table
        self.files = (self._users.file, self._acls.file)

    @property
    def changes(self) -> object:
        return self._users.edition, self._acls.edition

    # -- users

    def create_user(self, info: UserInfo) -> None:
        """Create a user. Raises `Invalid`."""
        user = user_from(info)
        if user.name in self.users:
            raise Invalid("The user is existed")
        self._put_user(user)

    def update_user(self, info: UserInfo) -> None:
        """Change the given properties of a user. Raises `Invalid`."""
        old = self.users.get(info.username or "")
        if old is None:
            raise Invalid("The user is not exist")
        kind, status = choose((SUPER, NORMAL), info.user_type), choose((ENABLED, DISABLED), info.user_status)
        password = info.password if (info.password or "").strip() else old.password
        self._put_user(User(old.name, password or old.password, kind or old.kind, status or old.status))

    def _put_user(self, user: User) -> None:
        if len(self.users) >= USERS_MAX and user.name not in self.users:
            raise Invalid(f"There are {USERS_MAX} users, and no more are allowed.")
        self._check({**self.users, user.name: user}, self.acls)
        self._users.change({user.name: user}, None)

    def delete_user(self, name: str) -> None:
        """Delete a user, if known, and its policies. Raises `Invalid`."""
        if name in self.users:
            users = {each: user for each, user in self.users.items() if each != name}
            acls = {each: acl for each, acl in self.acls.items() if each != name}
            self._check(users, acls)
            if name in self.acls:
                self._acls.change({name: None}, None)
            self._users.change({name: None}, None)

    def is_signed_by_super(self, request: Frame) -> bool:
        """Return whether an enabled super user has signed a request, even if the node checks no signatures."""
        sender = self.users.get((request.ext_fields or {}).get(ACCESS_KEY, ""))
        if sender is None or sender.kind != SUPER or sender.status == DISABLED:
            return False
        return is_signed_with(request, sender.password)

    def _check(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> None:
        fault = self.find_fault(users, acls)
        if fault is not None:
            raise Invalid(fault)

    # -- policies

    def put_acl(self, info: AclInfo) -> None:
        """Give a user policies, beside those about other resources. Raises `Invalid`."""
        name = self._known(info.subject)
        self._put_acl(name, self.acls.get(name, Acl()).updated(parse_acl(info)))

    def delete_acl(self, subject: str | None, policy_type: str, resource: Resource | None) -> None:
        """Take from a user its policies about a resource, or all. Raises `Invalid`."""
        name = self._known(subject)
        acl = self.acls.get(name)
        if acl is None:
            raise Invalid("The acl is not exist.")
        self._put_acl(name, Acl() if resource is None else acl.without(policy_type, resource))

    def _known(self, subject: str | None) -> str:
        name = user_of(subject)
        if name not in self.users:
            raise Invalid(f"The subject of {subject} is not exist.")
        return name

    def _put_acl(self, name: str, acl: Acl) -> None:
        if sum(map(len, acl)) > POLICIES_MAX:
            raise Invalid(f"The user has policies about more than {POLICIES_MAX} resources.")
        others = {each: known for each, known in self.acls.items() if each != name}
        self._check(self.users, {**others, name: acl} if any(acl) else others)
        self._acls.change({name: acl if any(acl) else None}, None)


def _user_text(name: str, user: User) -> str:
    return write_user(UserInfo(user.name, user.password, user.kind, user.status)).decode()


def _acl_text(name: str, acl: Acl) -> str:
    return write_acl(acl.info(subject_of(name))).decode()


def _compose(texts: Iterable[str], _: None) -> bytes:
    return f"[{','.join(texts)}]".encode()


def user_from(info: UserInfo) -> User:
    """Return the user of a body. Raises `Invalid`."""
    name, password = (info.username or "").strip(), info.password or ""
    if not name:
        raise Invalid("username can not be blank")
    if not password.strip():
        raise Invalid("password can not be blank")
    kind = choose((SUPER, NORMAL), info.user_type) or NORMAL
    return User(name, password, kind, choose((ENABLED, DISABLED), info.user_status) or ENABLED)
