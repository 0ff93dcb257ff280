"""A controller's connections to the other controllers."""

from __future__ import annotations

import logging
from typing import Final

from broker.rocketmq.remoting.broker_calls import Dial, Open
from broker.rocketmq.remoting.outgoing import Listener, OtherEnd, Outgoing
from formats.rocketmq.remoting.codes import ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["controller_link"]

log = logging.getLogger("broker.rocketmq.controller")

RETRY_MS: Final = 500


def controller_link(
    address: str, dial: Dial, open_session: Open, own_id: str = "", secret: bytes | None = None
) -> Outgoing:
    """Make the connection to another controller; with a `secret`, both must prove that they know it."""
    told = ""

    def ready() -> None:
        nonlocal told
        told = ""

    def answered(frame: Frame) -> None:
        nonlocal told
        reason = frame.remark or f"it answers {frame.code}"
        if frame.code != ResponseCode.SUCCESS and reason != told:
            told = reason
            log.warning("controller %s refuses: %s", address, reason)

    # The service seals what it sends.
    link = Outgoing(
        dial,
        open_session,
        lambda frame: frame,
        OtherEnd("controller", log, RETRY_MS, own_id),
        secret,
        Listener(ready, answered),
    )
    link.follow(address)
    return link
