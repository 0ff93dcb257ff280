"""A client in one call, with its lookups and its requests to brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TypeVar

from broker.rocketmq.grpc.brokers.backend import Backend, Done, Link, Topic
from broker.rocketmq.grpc.clients import GrpcClient
from broker.rocketmq.grpc.statuses import CallRejected
from formats.rocketmq.grpc.codes import Code
from formats.rocketmq.grpc.messages import ms_of
from formats.rocketmq.remoting.bodies.clients import GroupConfig
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["ClientAsker"]

F = TypeVar("F", Topic, GroupConfig)


class ClientAsker:
    """A client in one call; a fault in handling an answer ends that call. See `calling.Asker`.

    `seal` signs a request as the caller; `failed` ends the call. With `is_guarded`, brokers check the caller.
    """

    def __init__(
        self,
        client: GrpcClient,
        version: str,
        backend: Backend,
        seal: Callable[[Frame], Frame],
        failed: Callable[[Exception], None],
        *,
        is_guarded: bool,
        is_vouched_for: bool,
    ) -> None:
        self.client = client
        self.client_id = client.client_id
        self.version = version
        self.host = client.host
        self.seal = seal
        self._backend = backend
        self._failed = failed
        self.is_vouched_for = is_vouched_for
        self._is_guarded = is_guarded

    @property
    def key(self) -> object:
        return self.client

    @property
    def request_timeout_ms(self) -> int:
        return 0 if self.client.settings is None else ms_of(self.client.settings.request_timeout)

    @property
    def is_present(self) -> bool:
        return self.client.telemetry is not None

    def go_on(self, work: Callable[[], None]) -> None:
        """Do more for the call, later; a fault ends the call."""
        try:
            work()
        except Exception as error:
            self._failed(error)

    def knows(self, broker: str) -> bool:
        return self._backend.knows(broker)

    def find_topic(self, name: str, then: Callable[[Topic], None]) -> None:
        self._backend.find_topic(name, partial(self._go_on_with, then))

    def find_group(self, name: str, topic: str | None, then: Callable[[GroupConfig], None]) -> None:
        self._backend.find_group(name, topic, partial(self._go_on_with, then))

    def _go_on_with(self, then: Callable[[F], None], found: F | CallRejected) -> None:
        """Call `then` with a lookup's result; a fault ends the call."""
        try:
            if isinstance(found, CallRejected):
                raise found
            then(found)
        except Exception as error:
            self._failed(error)

    def ask(self, broker: str, frame: Frame, done: Done, wait_ms: int = 0) -> None:
        self._link().ask(broker, self.seal(frame), partial(self._take, done), wait_ms)

    def join(self, frame: Frame, producer_groups: Collection[str], done: Done) -> None:
        self._link().join(self.seal(frame), producer_groups, partial(self._take, done))

    def _link(self) -> Link:
        link = self.client.link
        if link is None or link.is_over:
            raise CallRejected(Code.INTERNAL_SERVER_ERROR, "the client is gone")
        return link

    def _take(self, done: Done, answer: Frame) -> None:
        """Handle an answer; a fault ends the call."""
        try:
            if self._is_guarded and answer.code == ResponseCode.NO_PERMISSION:
                raise CallRejected(Code.UNAUTHORIZED, answer.remark or "")
            done(answer)
        except Exception as error:
            self._failed(error)
