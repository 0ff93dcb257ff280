"""Connections for questions, a new one each time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from bmqctl.clients.rocketmq.faults import FAULTS, RequestRefused, words_of
from bmqctl.clients.rocketmq.link import AccessKeys, RemotingLink, dial
from bmqctl.common.nurseries import open_nursery
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Asker", "NobodyAnswers", "body_of"]

T = TypeVar("T")


class NobodyAnswers(Exception):
    """A nameserver or a broker that is needed does not answer; the text says which, and why."""


class Asker:
    """Opens a new connection for each question."""

    def __init__(self, timeout_s: float, keys: AccessKeys | None) -> None:
        self.timeout_s = timeout_s
        self._keys = keys

    async def over(self, address: str, use: Callable[[RemotingLink], Awaitable[T]]) -> T:
        """Use a connection. Raises `NobodyAnswers`, which names the address."""
        place = split_address(address)
        if place is None:
            raise NobodyAnswers(f"{address[:80]!r} is no HOST:PORT")
        try:
            with trio.fail_after(self.timeout_s):
                link = await dial(*place, self.timeout_s, keys=self._keys)
                async with open_nursery() as nursery:
                    nursery.start_soon(link.run)
                    try:
                        found = await use(link)
                    finally:
                        link.end("closed")
                return found
        except trio.TooSlowError:
            raise NobodyAnswers(f"{address} does not answer within {self.timeout_s:g} s") from None
        except FAULTS as fault:
            raise NobodyAnswers(f"{address}: {words_of(fault)}") from None


def body_of(answer: Frame, asked: str = "the request") -> bytes:
    """Return the body of an answer. Raises `RequestRefused` for any but success."""
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(asked, answer)
    return bytes(answer.body)
