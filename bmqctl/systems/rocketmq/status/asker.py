"""Connections for queries, a new one each time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import trio

from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.moving.security import security_of
from bmqctl.client.remoting.client import PLAIN, Security
from bmqctl.client.remoting.faults import FAULTS, RequestRefused
from bmqctl.client.remoting.link import RemotingLink, dial
from bmqctl.common.nurseries import open_nursery
from formats.rocketmq.hosts import split_address
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["Asker", "NobodyAnswers", "Silent", "asker_of", "body_of"]

T = TypeVar("T")


class NobodyAnswers(Exception):
    """Silence of a needed nameserver or broker; the text says which, and why."""


class Silent(Exception):
    """No answer from an address; the text is the reason."""


class Asker(NamedTuple):
    """Opens a new connection for each query, whose answer it awaits for `timeout_s`."""

    timeout_s: float
    security: Security = PLAIN

    async def over(self, address: str, use: Callable[[RemotingLink], Awaitable[T]]) -> T:
        """Use a connection. Raises `NobodyAnswers`, which names the address."""
        try:
            return await self.ask(address, use)
        except Silent as fault:
            raise NobodyAnswers(f"{address[:80]}: {fault}") from None

    async def ask(self, address: str, use: Callable[[RemotingLink], Awaitable[T]]) -> T:
        """Use a connection. Raises `Silent`."""
        place = split_address(address)
        if place is None:
            raise Silent("is no HOST:PORT")
        try:
            with trio.fail_after(self.timeout_s):
                link = await dial(*place, self.timeout_s, tls=self.security.tls, keys=self.security.keys)
                async with open_nursery() as nursery:
                    nursery.start_soon(link.run)
                    try:
                        found = await use(link)
                    finally:
                        link.end("closed")
                return found
        except trio.TooSlowError:
            raise Silent(f"no answer within {self.timeout_s:g} s") from None
        except FAULTS as fault:
            # The caller knows the address.
            reason = str(fault.__cause__ or fault) if isinstance(fault, OSError) else str(fault)
            raise Silent(reason.removeprefix(f"{address}: ")) from None


def asker_of(reach: Reach) -> Asker:
    """The asker for a command's options. Raises `CannotBegin`."""
    return Asker(reach.timeout_s, security_of(reach))


def body_of(answer: Frame, asked: str = "the request") -> bytes:
    """The body of an answer. Raises `RequestRefused` for any but success."""
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(asked, answer)
    return bytes(answer.body)
