# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The opens of a queue: by its clients, and by a relay at its upstream."""

from __future__ import annotations

from broker.bmq.relay.handles.handle_counts import COUNT_MAX, Count
from broker.bmq.relay.upstream import Upstream, UpstreamState
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control.messages import QueueHandleParameters, SubQueueIdInfo, Subscription

__all__ = ["ClientHandles", "UpstreamConsumer"]


class UpstreamConsumer:
    """An app read by this relay: `reads` counts its opens; `asked` is True once it is opened at this upstream.

    `told` are the subscriptions that this upstream was sent.
    """

    __slots__ = ("app_id", "asked", "asking", "is_refused", "reads", "sub_id", "subscriptions", "told")

    def __init__(self, app_id: str, sub_id: int) -> None:
        self.app_id = app_id
        self.sub_id = sub_id
        self.reads = Count()
        self.asking = 0  # open requests in flight
        self.asked = False
        self.is_refused = False  # not open at this upstream
        self.subscriptions: tuple[Subscription, ...] = ()
        self.told: tuple[Subscription, ...] = ()

    @property
    def readers(self) -> int:
        return self.reads.open

    @property
    def info(self) -> SubQueueIdInfo | None:
        return None if self.app_id == DEFAULT_APP_ID else SubQueueIdInfo(sub_id=self.sub_id, app_id=self.app_id)

    @property
    def is_untold(self) -> bool:
        return self.subscriptions != self.told and not self.is_refused


class ClientHandles:
    """The opens of one queue, whose number upstream is `queue_id`.

    `generation` is incremented with each upstream, found at `found_ms`: answers of older ones are ignored. `sent` are
    the unanswered requests to the upstream. While `is_leaving`, it has been asked to send no more messages.
    """

    __slots__ = (
        "_last_sub_id",
        "consumers",
        "found_ms",
        "generation",
        "is_leaving",
        "queue_id",
        "sent",
        "state",
        "upstream",
        "uri",
        "writers_asked",
        "writes",
    )

    def __init__(self, uri: str, queue_id: int) -> None:
        self.uri = uri
        self.queue_id = queue_id
        self.state = UpstreamState.NONE
        self.upstream: Upstream | None = None
        self.generation = 0
        self.found_ms = 0
        self.is_leaving = False
        self.writes = Count()
        self.writers_asked = False  # the writers are opened at the upstream
        self.consumers: dict[str, UpstreamConsumer] = {}
        self.sent: list[QueueHandleParameters] = []
        self._last_sub_id = 0

    @property
    def writers(self) -> int:
        return self.writes.open

    @property
    def untold(self) -> list[UpstreamConsumer]:
        return [each for each in self.consumers.values() if each.is_untold]

    def forget_asked(self) -> None:
        self.writers_asked = False
        self.writes.forget()
        for consumer in self.consumers.values():
            consumer.asked = consumer.is_refused = False
            consumer.told = ()
            consumer.reads.forget()

    def adopt_reads(self, app_id: str, count: int) -> UpstreamConsumer:
        """Adopt opens of clients that come from a root; while there is no upstream."""
        assert self.state is UpstreamState.NONE
        consumer = self.consumer(app_id)
        consumer.reads.open += count
        return consumer

    def adopt_writes(self, count: int) -> None:
        """Adopt opens for writing, like `adopt_reads`."""
        assert self.state is UpstreamState.NONE
        self.writes.open += count

    def consumer(self, app_id: str) -> UpstreamConsumer:
        return self.consumers.get(app_id) or self._add_consumer(app_id)

    def _add_consumer(self, app_id: str) -> UpstreamConsumer:
        sub_id = 0
        if app_id != DEFAULT_APP_ID:
            taken = {consumer.sub_id for consumer in self.consumers.values()}
            while sub_id in taken or not sub_id:
                sub_id = self._last_sub_id = self._last_sub_id % COUNT_MAX + 1
        consumer = self.consumers[app_id] = UpstreamConsumer(app_id, sub_id)
        return consumer

    def drop_unused(self, consumer: UpstreamConsumer | None) -> None:
        """Drop the consumer of an app that no client has open, or is opening."""
        if consumer is None or consumer.readers > 0 or consumer.asking:
            return
        if self.consumers.get(consumer.app_id) is consumer:
            del self.consumers[consumer.app_id]

    def parameters(
        self, consumer: UpstreamConsumer | None, flags: int, reads: int, writes: int
    ) -> QueueHandleParameters:
        return QueueHandleParameters(
            uri=self._uri(consumer),
            q_id=self.queue_id,
            sub_id_info=None if consumer is None else consumer.info,
            flags=flags,
            read_count=reads,
            write_count=writes,
        )

    def _uri(self, consumer: UpstreamConsumer | None) -> str:
        return self.uri if consumer is None or consumer.info is None else f"{self.uri}?id={consumer.app_id}"
