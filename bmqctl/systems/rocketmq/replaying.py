"""Topics of RocketMQ, as the places that the messages of a replay go to."""

from __future__ import annotations

from typing import Final

from bmqctl.carrying.bridge.carrying import CannotBegin
from bmqctl.carrying.bridge.ends import RocketEnd
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.moving.security import security_of
from bmqctl.carrying.replay.destination import ReplayOptions
from bmqctl.carrying.replay.messages import Stored
from bmqctl.carrying.replay.names import check_topic
from bmqctl.carrying.replay.outgoing import for_rocketmq
from bmqctl.carrying.replay.run import Run
from bmqctl.carrying.replay.send import SendOptions, send

__all__ = ["TopicReplay"]

# As long as those that messages are given when they are sent.
_ANY_UNIQUE_ID: Final = "0" * 32


class TopicReplay:
    """A topic, or a cluster in which each message keeps its topic. Raises `CannotBegin` for an invalid `reach`."""

    def __init__(self, end: RocketEnd, reach: Reach) -> None:
        self.target = end.topic
        self._end = end
        try:
            self._security = security_of(reach)
        except CannotBegin as fault:
            raise CannotBegin(f"--to {end}: {fault}") from None

    def lasting(self, text: str) -> str:
        return text.replace(f"{self._end.host}:{self._end.port}", "")

    def check_target(self, name: str) -> None:
        check_topic(name)

    def check_delayed(self) -> None:
        pass

    def convert(self, message: Stored) -> object:
        return for_rocketmq(message, _ANY_UNIQUE_ID)

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        speed, window, patience_s, makes_topics = options
        await send(run, SendOptions(self._end, makes_topics, speed, window, patience_s, security=self._security))

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        return (
            f"{count} messages were unacknowledged when the last run ended: sent again with the same unique ids, so "
            "some may be duplicated"
        )
