"""The users of the cluster and their policies, from its brokers.

Source: ProxyAuthenticationMetadataProvider, ProxyAuthorizationMetadataProvider, ClusterMetadataService. Any broker can
answer: administrators create users and policies at all of a cluster. An answer is used for a while, and longer if no
broker answers again. Without one, it is unknown whether a user exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from broker.rocketmq.access.model import Acl, Invalid, User, parse_acl
from broker.rocketmq.access.needs import Need, denial
from broker.rocketmq.access.tables import subject_of, user_from
from broker.rocketmq.grpc.statuses import CallRejected
from broker.rocketmq.proxy.brokers import Brokers
from broker.rocketmq.proxy.cache import Cache, Found
from formats.errors import FormatError
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.remoting.bodies.access import read_acl, read_user
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.administration import GetAclRequest, GetUserRequest
from formats.rocketmq.remoting.headers.codec import write_header
from formats.schema import Buffer

__all__ = ["Policies", "UserAnswer", "Users"]

log = logging.getLogger("broker.rocketmq.proxy")

_WAIT_MS: Final = 3_000
# For a missing user, who may be created the next moment.
_NOBODY_MS: Final = 1_000
_NAME_MAX: Final = 1_024
# Per user.
_DECISIONS_MAX: Final = 1_000
_NO_USER: Final = "Authentication failed. Please verify the credentials and try again."
_NO_ACL: Final = "Authorization failed. Please verify your access rights and try again."

T = TypeVar("T")


class UserAnswer(NamedTuple):
    user: User | None


class Policies:
    """The policies of a user, if any, and the decisions made by them."""

    def __init__(self, acl: Acl | None) -> None:
        self._acl = acl
        self._decisions: dict[tuple[Need, str], str | None] = {}

    def deny(self, need: Need, address: str) -> str | None:
        """Return why a need is denied to a request from an address; None if it is allowed."""
        key = (need, address)
        if key not in self._decisions:
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = denial(self._acl, need, address)
        return self._decisions[key]


class Users:
    """The users by name, and the policies of each, from the brokers of `cluster`."""

    def __init__(self, brokers: Brokers, cluster: str, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._cluster = cluster
        self._now_ms = now_ms
        self._users: Cache[UserAnswer] = Cache(self._load_user, now_ms)
        self._policies: Cache[Policies] = Cache(self._load_policies, now_ms)
        # The broker that answered last, and the failure that is in the log.
        self._first: str | None = None
        self._reason = ""
        self._doubted_ms = now_ms()

    def find(self, name: str, found: Found[UserAnswer]) -> None:
        if len(name) > _NAME_MAX:
            found(UserAnswer(None))
        else:
            self._users.find(name, found)

    def find_policies(self, name: str, found: Found[Policies]) -> None:
        self._policies.find(name, found)

    def tick(self) -> None:
        self._users.tick()
        self._policies.tick()
        now_ms = self._now_ms()
        if not 0 <= now_ms - self._doubted_ms < _NOBODY_MS:
            self._doubted_ms = now_ms
            self._users.distrust(lambda told: told.user is None)

    # -- brokers' answers

    def _load_user(self, name: str, done: Found[UserAnswer]) -> None:
        def read(body: Buffer) -> UserAnswer:
            if not body:
                return UserAnswer(None)
            info = read_user(body)
            if info.username != name:
                raise Invalid("its answer is about another user")
            if not info.password:
                raise Invalid("it does not show the password: give the proxy the key of a super user")
            return UserAnswer(user_from(info))

        fields = write_header(GetUserRequest(name))
        self._ask(Frame(RequestCode.AUTH_GET_USER, 0, ext_fields=fields), read, _NO_USER, done)

    def _load_policies(self, name: str, done: Found[Policies]) -> None:
        def read(body: Buffer) -> Policies:
            info = read_acl(body) if body else None
            if info is not None and info.subject != subject_of(name):
                raise Invalid("its answer is about another user")
            return Policies(parse_acl(info) if info is not None and info.policies else None)

        fields = write_header(GetAclRequest(subject_of(name)))
        self._ask(Frame(RequestCode.AUTH_GET_ACL, 0, ext_fields=fields), read, _NO_ACL, done)

    def _ask(self, frame: Frame, read: Callable[[Buffer], T], failure: str, done: Found[T]) -> None:
        def ask(left: list[str]) -> None:
            if left:
                until_ms = self._now_ms() + _WAIT_MS
                self._brokers.ask(left[0], frame, until_ms, lambda answer: answered(left, answer))
            else:
                self._note(f"no broker of the cluster {self._cluster} is known")
                done(CallRejected(Code.UNAUTHORIZED, failure))

        def answered(left: list[str], answer: Frame) -> None:
            try:
                if answer.code != ResponseCode.SUCCESS:
                    raise Invalid(f"code {answer.code}, {answer.remark}")
                value = read(answer.body)
            except (FormatError, Invalid) as error:
                self._note(f"the broker {left[0]}: {error}")
                if len(left) > 1:
                    ask(left[1:])
                else:
                    done(CallRejected(Code.UNAUTHORIZED, failure))
                return
            self._first, self._reason = left[0], ""
            done(value)

        def named(names: list[str]) -> None:
            ask(sorted(names, key=lambda name: (name != self._first, name)))

        self._brokers.find_names(self._cluster, named)

    def _note(self, reason: str) -> None:
        if reason != self._reason:
            self._reason = reason
            log.warning("users and their policies cannot be looked up: %s", reason)
