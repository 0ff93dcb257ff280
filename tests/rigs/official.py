"""The official client (PyPI `blazingmq`), with everything that it hears kept, and awaited as an event."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

import blazingmq
from blazingmq.session_events import SessionEvent

from tests.waiting import WAIT_S

__all__ = ["Client", "Connect", "Delivered", "confirm", "queue_name"]

# For a session whose broker was killed, too.
_DISCONNECT_S: Final = 20.0

Delivered = tuple[blazingmq.Message, blazingmq.MessageHandle]


def queue_name(domain: str = "bmq.test.persistent.priority") -> str:
    return f"bmq://{domain}/{uuid.uuid4()}"


class Client:
    """One session. `delivered`, `acks` and `events` hold what came, in order; `acks` by the posts' `tag`.

    Its barriers need a queue of `barrier_domain`; clusters of several nodes have none in memory.
    """

    def __init__(self, uri: str, *, barrier_domain: str = "bmq.test.mem.priority", **options: Any) -> None:
        self.delivered: list[Delivered] = []
        self.acks: list[tuple[object, blazingmq.Ack]] = []
        self.events: list[SessionEvent] = []
        self._heard = threading.Condition()
        self._stopped = False
        self._barrier = queue_name(barrier_domain)
        self.session = blazingmq.Session(
            self._on_event,
            on_message=self._on_message,
            broker=uri,
            host_health_monitor=None,
            timeout=blazingmq.Timeouts(connect_timeout=WAIT_S, disconnect_timeout=_DISCONNECT_S),
            **options,
        )

    def _keep(self, where: list[Any], what: object) -> None:
        with self._heard:
            where.append(what)
            self._heard.notify_all()

    def _on_event(self, event: SessionEvent) -> None:
        self._keep(self.events, event)

    def _on_message(self, message: blazingmq.Message, handle: blazingmq.MessageHandle) -> None:
        self._keep(self.delivered, (message, handle))

    # -- requests

    def open(self, uri: str, *, read: bool = False, write: bool = False, **options: Any) -> None:
        self.session.open_queue(uri, read=read, write=write, options=blazingmq.QueueOptions(**options))

    def configure(self, uri: str, **options: Any) -> None:
        self.session.configure_queue(uri, blazingmq.QueueOptions(**options))

    def close(self, uri: str) -> None:
        self.session.close_queue(uri)

    def post(self, uri: str, payload: bytes, *, tag: object = None, **properties: Any) -> None:
        """Post, and keep the answer under `tag`."""
        self.session.post(uri, payload, on_ack=lambda ack: self._keep(self.acks, (tag, ack)), **properties)

    def post_all(self, uri: str, payloads: Iterable[bytes]) -> list[blazingmq.Ack]:
        """Post messages, and return the answers in the order of the posts."""
        tags = []
        for number, payload in enumerate(payloads):
            tags.append((uri, number, object()))
            self.post(uri, payload, tag=tags[-1])
        wanted = set(tags)
        self.wait(lambda: sum(tag in wanted for tag, _ in self.acks) == len(tags))
        by_tag = dict(self.acks)
        return [by_tag[tag] for tag in tags]

    # -- what came

    def wait(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait until `condition`, evaluated whenever something comes, is true."""
        with self._heard:
            if not self._heard.wait_for(condition, timeout_s):
                heard = f"{len(self.delivered)} messages, {len(self.acks)} acks, events {self.events}"
                raise TimeoutError(f"waited {timeout_s} s in vain; there came {heard}")

    def wait_for_messages(self, count: int, uri: str | None = None, timeout_s: float = WAIT_S) -> list[Delivered]:
        """Wait for `count` messages (of queue `uri`, if given); return all that have come."""
        self.wait(lambda: len(self.of(uri)) >= count, timeout_s)
        return self.of(uri)

    def wait_for_event(self, kind: type[SessionEvent], timeout_s: float = WAIT_S) -> SessionEvent:
        self.wait(lambda: any(isinstance(event, kind) for event in self.events), timeout_s)
        return next(event for event in self.events if isinstance(event, kind))

    def of(self, uri: str | None = None) -> list[Delivered]:
        return [item for item in self.delivered if uri is None or item[0].queue_uri == uri]

    def payloads(self, uri: str | None = None) -> list[bytes]:
        return [message.data for message, _ in self.of(uri)]

    def barrier(self) -> None:
        """Return when the session has heard all that the node had sent to it before now.

        Events of one session are handed out in order: a message to oneself comes after them.
        """
        uri = self._barrier
        self.open(uri, read=True, write=True)
        self.post(uri, b"barrier")
        ((_, handle),) = self.wait_for_messages(1, uri)
        handle.confirm()
        self.close(uri)
        with self._heard:
            self.delivered[:] = [item for item in self.delivered if item[0].queue_uri != uri]
            self.acks[:] = [item for item in self.acks if item[1].queue_uri != uri]

    # -- its end

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.session.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


Connect = Callable[..., Client]


def confirm(delivered: Iterable[Delivered]) -> None:
    for _, handle in delivered:
        handle.confirm()
