# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""A queue at a proxy: a relay that learns about the domain from its upstream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from broker.bmq.core.config import DomainConfig, Mode
from broker.bmq.core.messages import Content
from broker.bmq.queue.queue import Surroundings
from broker.bmq.relay.put_room import PutRoom
from broker.bmq.relay.relay import RelayQueue
from formats.bmq.codes import DEFAULT_APP_ID
from formats.bmq.control.messages import OpenQueueResponse, RoutingConfigurationFlags
from formats.bmq.disk.keys import DEFAULT_APP_KEY, NULL_KEY

__all__ = ["ProxyQueue"]

UNCONFIRMED_BYTES_MAX: Final = 256 << 20


class ProxyQueue(RelayQueue):
    """A proxy's queue. Each answer to an open request has its routing, so no client has it open before the first.

    Consumers may leave very many messages unconfirmed. A proxy keeps these in memory and so has its own limit.
    """

    def __init__(
        self,
        uri: str,
        config: DomainConfig,
        around: Surroundings,
        queue_id: int,
        unused: Callable[[RelayQueue], None],
        room: PutRoom,
    ) -> None:
        super().__init__(uri, NULL_KEY, config, (), around, queue_id, _nothing, unused, None, _no_store, room)

    @property
    def asked_bytes_max(self) -> int:
        return UNCONFIRMED_BYTES_MAX

    def learn(self, response: OpenQueueResponse) -> None:
        mode = _mode(response.routing_configuration.flags)
        deduplication_time_ms = response.deduplication_time_ms
        if mode is not Mode.FANOUT and DEFAULT_APP_ID not in self.apps:
            self.app(DEFAULT_APP_ID).key = DEFAULT_APP_KEY
        if (mode, deduplication_time_ms) != (self.config.mode, self.config.deduplication_time_ms):
            self.configure_domain(replace(self.config, mode=mode, deduplication_time_ms=deduplication_time_ms))


def _mode(flags: int) -> Mode:
    if flags >> RoutingConfigurationFlags.AT_MOST_ONCE & 1:
        return Mode.BROADCAST
    return Mode.FANOUT if flags >> RoutingConfigurationFlags.HAS_MULTIPLE_SUB_STREAMS & 1 else Mode.PRIORITY


def _nothing(guid: bytes) -> Content | None:
    return None


def _no_store(queue: RelayQueue) -> None:
    """Reject a message without payload: only brokers with a store can use it."""
