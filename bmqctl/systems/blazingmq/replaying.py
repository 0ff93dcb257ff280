"""Queues of BlazingMQ, as the places that the messages of a replay go to."""

from __future__ import annotations

from bmqctl.carrying.bridge.carrying import CannotBegin
from bmqctl.carrying.bridge.ends import BlazingEnd
from bmqctl.carrying.messages.ends import Reach
from bmqctl.carrying.replay.destination import ReplayOptions
from bmqctl.carrying.replay.messages import Stored
from bmqctl.carrying.replay.names import check_queue
from bmqctl.carrying.replay.outgoing import for_blazingmq
from bmqctl.carrying.replay.post import PostOptions, post
from bmqctl.carrying.replay.run import Run
from bmqctl.client.posting import PostingOptions
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.client.session import RequestFailed, SessionLost, SessionOptions
from formats.bmq.uri import parse_uri

__all__ = ["QueueReplay"]


class QueueReplay:
    """A queue, or a broker at which each message keeps its queue. Raises `CannotBegin` for an app of a queue."""

    def __init__(self, end: BlazingEnd, reach: Reach) -> None:
        self.target = end.uri
        self._end = end
        if end.uri and parse_uri(end.uri).app_id:
            raise CannotBegin(f"--to {end}: messages are posted to a queue, not to one of its apps")
        self._session = SessionOptions(
            process_name=reach.name,
            resume=True,
            credentials=Credentials(reach.mechanism, reach.data.encode()) if reach.mechanism else None,
            tls_authority=reach.authority,
        )

    def lasting(self, text: str) -> str:
        return text

    def check_target(self, name: str) -> None:
        check_queue(name)

    def check_delayed(self) -> None:
        raise CannotBegin("--delayed: BlazingMQ has no delays; such messages can go to RocketMQ only, with --to")

    def convert(self, message: Stored) -> object:
        return for_blazingmq(message)

    async def carry_out(self, run: Run, options: ReplayOptions) -> None:
        host, port, _ = self._end
        posting = PostingOptions(options.window, options.patience_s)
        try:
            await post(run, PostOptions(host, port, self._session, options.speed, posting))
        except OSError as error:
            raise CannotBegin(f"no broker at {host}:{port}: {error.strerror or error}") from None
        except (SessionLost, RequestFailed) as error:
            raise CannotBegin(str(error)) from None

    def about_repeated(self, run: Run, count: int, silent_s: float) -> str | None:
        if run.deduplication_time_ms is None:
            return None
        known_s = run.deduplication_time_ms / 1000
        late = f"; that was {silent_s:.0f} s ago, so some may be duplicated" if silent_s > known_s else ""
        return (
            f"{count} messages were unacknowledged when the last run ended: posted again with the same GUIDs, which "
            f"the broker remembers for {known_s:g} s{late}"
        )
