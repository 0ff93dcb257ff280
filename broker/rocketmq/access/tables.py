"""The users and their policies, and the files that keep them.

Source: AuthenticationMetadataManagerImpl, AuthorizationMetadataManagerImpl. Passwords are kept as they are: who checks
signatures needs them. Their file is for the node's own account only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from formats.rocketmq.access_bodies import AclInfo, UserInfo, read_acls, read_users, write_acls, write_users

__all__ = ["AccessTables", "lockout", "subject_of", "user_from", "user_of"]

_PREFIX = "User:"

Keep = Callable[[bytes], None]


def subject_of(name: str) -> str:
    """A user as the subject of policies."""
    return _PREFIX + name


def user_of(subject: str | None) -> str:
    """The user that is the subject of policies. Raises `Invalid`: there are no other subjects."""
    kind, separator, name = (subject or "").partition(":")
    if not separator or kind.lower() != "user":
        raise Invalid("The subject type is null.")
    return name


def lockout(users: Mapping[str, User], acls: Mapping[str, Acl], cluster: str) -> str | None:
    """Return why nobody could administer a cluster that checks requests; None if somebody could.

    That is an enabled super user, or one whose policies allow to update the cluster.
    """
    if not users:
        return "there is no user"
    enabled = [user for user in users.values() if user.status == ENABLED]
    if any(user.kind == SUPER or _administers(acls.get(user.name), cluster) for user in enabled):
        return None
    return "there is no user who is enabled and may administer"


def _administers(acl: Acl | None, cluster: str) -> bool:
    """Return whether policies let somebody update a cluster from some address."""
    anywhere = (
        tuple(each._replace(sources=()) for each in entries if each.allows or not each.sources) for entries in acl or ()
    )
    return decide(Acl(*anywhere), Resource("Cluster", cluster), frozenset(("Update",)), "") is None


class AccessTables:
    """The users by name, and the policies of each. `keep_*` write their files; they may raise `OSError`.

    `find_fault` returns why they cannot be changed to others, if they cannot.
    """

    def __init__(self, users: bytes, acls: bytes, keep_users: Keep, keep_acls: Keep) -> None:
        self._keep_users = keep_users
        self._keep_acls = keep_acls
        self.find_fault: Callable[[Mapping[str, User], Mapping[str, Acl]], str | None] = lambda users, acls: None
        try:
            self.users: Mapping[str, User] = {
                user.name: user for user in (user_from(info) for info in (read_users(users) if users else ()))
            }
            self.acls: Mapping[str, Acl] = {
                user_of(info.subject): parse_acl(info) for info in (read_acls(acls) if acls else ())
            }
        except Invalid as error:
            raise FormatError("users or policies", 0, str(error)) from None
        self.changes = 0

    # -- users

    def create_user(self, info: UserInfo) -> None:
        """Make a user. Raises `Invalid`."""
        user = user_from(info)
        if user.name in self.users:
            raise Invalid("The user is existed")
        self._put_user(user)

    def update_user(self, info: UserInfo) -> None:
        """Change of a user what is told. Raises `Invalid`."""
        old = self.users.get(info.username or "")
        if old is None:
            raise Invalid("The user is not exist")
        kind, status = choose((SUPER, NORMAL), info.user_type), choose((ENABLED, DISABLED), info.user_status)
        password = info.password if (info.password or "").strip() else old.password
        self._put_user(User(old.name, password or old.password, kind or old.kind, status or old.status))

    def _put_user(self, user: User) -> None:
        self._change_users({**self.users, user.name: user})

    def delete_user(self, name: str) -> None:
        """Delete a user and its policies, if it is there. Raises `Invalid`."""
        if name in self.users:
            users = {each: user for each, user in self.users.items() if each != name}
            acls = {each: acl for each, acl in self.acls.items() if each != name}
            self._check(users, acls)
            if name in self.acls:
                self._change_acls(acls)
            self._change_users(users)

    def _check(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> None:
        """Raise `Invalid` if users and policies cannot be changed to these."""
        fault = self.find_fault(users, acls)
        if fault is not None:
            raise Invalid(fault)

    def _change_users(self, users: dict[str, User]) -> None:
        self._check(users, self.acls)
        told = [UserInfo(user.name, user.password, user.kind, user.status) for user in users.values()]
        self._keep_users(write_users(told))
        self.users = users
        self.changes += 1

    # -- policies

    def put_acl(self, info: AclInfo) -> None:
        """Give a user policies, beside those that it has about other resources. Raises `Invalid`."""
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
        others = {each: known for each, known in self.acls.items() if each != name}
        self._change_acls({**others, name: acl} if any(acl) else others)

    def _change_acls(self, acls: dict[str, Acl]) -> None:
        self._check(self.users, acls)
        self._keep_acls(write_acls([acl.info(subject_of(name)) for name, acl in acls.items()]))
        self.acls = acls
        self.changes += 1


def user_from(info: UserInfo) -> User:
    """The user that is told of. Raises `Invalid`."""
    name, password = (info.username or "").strip(), info.password or ""
    if not name:
        raise Invalid("username can not be blank")
    if not password.strip():
        raise Invalid("password can not be blank")
    kind = choose((SUPER, NORMAL), info.user_type) or NORMAL
    return User(name, password, kind, choose((ENABLED, DISABLED), info.user_status) or ENABLED)
