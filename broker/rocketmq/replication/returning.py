"""The return of a master: before it registers, it takes the consumer offsets of brokers that stood in for it.

Source: BrokerPreOnlineService. Consumers then continue where they were, and get no message twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.rocketmq.remoting.outgoing import Outgoing
from broker.rocketmq.replication.members import Members
from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.tables.offsets import Offsets
from formats.errors import FormatError
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["OffsetsReturning"]

log = logging.getLogger("broker.rocketmq.replication")

# Added to the time after which nameservers drop a dead broker.
SLACK_MS: Final = 5_000


class OffsetsReturning:
    """The requests to all other known brokers; see `node.Part`. `back` is called at their end."""

    def __init__(
        self,
        options: ReplicationOptions,
        members: Members,
        offsets: Offsets,
        make_link: Callable[[], Outgoing],
        now_ms: Callable[[], int],
        back: Callable[[], None],
    ) -> None:
        self._members = members
        self._offsets = offsets
        self._make_link = make_link
        self._now_ms = now_ms
        self._back: Callable[[], None] | None = back
        self._until_ms = now_ms() + options.silent_ms + SLACK_MS
        self._links: dict[str, Outgoing] = {}
        self._asked: set[str] = set()
        self._answered: set[str] = set()

    def end_step(self) -> bool:
        return False

    def tick(self) -> None:
        if self._back is None:
            return
        now_ms = self._now_ms()
        others = self._members.others
        wanted = set() if others is None else {each for each in others.values() if split_address(each) is not None}
        for address in wanted - self._answered:
            self._ask(address, now_ms)
        missing = wanted - self._answered
        if others is not None and not missing:
            self._finish()
        elif now_ms >= self._until_ms:
            who = ", ".join(sorted(missing)) or "nameservers"
            log.warning("no answer from %s: this master goes on by its own consumer offsets", who)
            self._finish()

    def _ask(self, address: str, now_ms: int) -> None:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._make_link()
            link.follow(address)
        link.tick(now_ms)
        if link.is_connected and address not in self._asked:
            self._asked.add(address)
            link.ask(Frame(RequestCode.GET_ALL_CONSUMER_OFFSET, 0), now_ms, partial(self._take, address))

    def _take(self, address: str, answer: Frame | None) -> None:
        self._asked.discard(address)
        if self._back is None or answer is None:
            return
        self._answered.add(address)
        if answer.code != ResponseCode.SUCCESS:
            log.warning("%s does not report its consumer offsets: %s", address, answer.remark or f"code {answer.code}")
            return
        try:
            is_taken = self._offsets.follow_newer(bytes(answer.body))
        except FormatError as error:
            log.warning("the consumer offsets of %s cannot be read: %s", address, error)
            return
        log.info("the consumer offsets of %s are %s", address, "taken" if is_taken else "older")

    def _finish(self) -> None:
        back, self._back = self._back, None
        for link in self._links.values():
            link.close()
        if back is not None:
            back()

    def leave(self) -> None:
        self._back = None
        for link in self._links.values():
            link.close()
