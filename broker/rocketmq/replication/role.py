"""The effect of replication on requests: a slave refuses some, and a master's senders wait for copies.

Source: SendMessageProcessor, EndTransactionProcessor, RecallMessageProcessor, PullMessageProcessor, CommitLog.handleHA.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.rocketmq.remoting.requests import Handlers, Peer, failure, with_body
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.waiting import WaitingSenders, replicas_needed
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.bodies.replication import HA_RUNTIME, HaRuntime
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame

__all__ = ["BrokerRole"]

_SENDING: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_PULLING: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
# Requests that only masters carry out: they store something.
_STORING: Final = _SENDING | {
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.POP_MESSAGE,
    RequestCode.POP_LITE_MESSAGE,
    RequestCode.LITE_SUBSCRIPTION_CTL,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
}
_FORBIDDEN: Final = {
    RequestCode.END_TRANSACTION: None,
    RequestCode.RECALL_MESSAGE: "recall failed, broker service not available",
}
_WAITING: Final = _SENDING | {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}

_NOT_HERE: Final = (
    "service not available now. It may be caused by one of the following reasons: messages are put to the slave, "
    "which this broker is"
)
_TOO_FEW: Final = "in-sync replicas not enough"
_RETURNING: Final = "this master has not taken the consumer offsets of the other brokers yet"
_BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"


class BrokerRole:
    """The role of a broker. `waiting` has a master's senders; `status` describes its replication.

    `log_end` returns the end of the commit log. `in_sync` returns the number of brokers in sync, if senders are refused
    when those are too few. With a controller the role changes, and `advance` confirms what those in sync have.
    `handlers` carry out the other requests of such a broker.
    """

    def __init__(
        self,
        options: ReplicationOptions,
        broker: BrokerOptions,
        log_end: Callable[[], int],
        waiting: WaitingSenders | None = None,
        status: Callable[[], HaRuntime] | None = None,
        in_sync: Callable[[], int] | None = None,
        advance: Callable[[], None] = lambda: None,
        handlers: Handlers | None = None,
    ) -> None:
        self.options = options
        self._broker = broker
        self._log_end = log_end
        self._waiting = waiting
        self._status = status or (lambda: HaRuntime(True, log_end()))
        self._in_sync = in_sync
        self.advance = advance
        # True for a master that has yet to request the consumer offsets of the slave that acted for it.
        self.is_returning = False
        self.handlers: Handlers = {
            RequestCode.GET_BROKER_HA_STATUS: lambda request: with_body(HA_RUNTIME.write(self._status())),
            **(handlers or {}),
        }

    @property
    def is_slave(self) -> bool:
        return self.options.role is Role.SLAVE

    @property
    def takes_plain(self) -> bool:
        """True if messages may be stored and acknowledged without asking this object."""
        if self.is_slave or self._is_short:
            return False
        return self._waiting is None or not self._waiting.is_wanted

    @property
    def lacks(self) -> str | None:
        """Return what keeps a master from serving senders, in one line for people; None if nothing does."""
        if not self._is_short:
            return None
        return f"too few brokers are in sync for senders: {self._in_sync() if self._in_sync else 0}"

    @property
    def _is_short(self) -> bool:
        options = self.options
        if self._in_sync is None or options.role is not Role.SYNC_MASTER:
            return False
        in_sync = self._in_sync()
        if options.is_controlled:
            return in_sync < options.in_sync_replicas_min
        return replicas_needed(options, in_sync) > in_sync

    def refuse(self, request: Frame) -> Frame | None:
        """Return the answer to a request that this broker refuses; None for others."""
        code = request.code
        if not self.is_slave:
            if code in _WAITING and self._is_short and _waits(request):
                return failure(ResponseCode.SYSTEM_ERROR, _TOO_FEW)
            if code == RequestCode.GET_ALL_CONSUMER_OFFSET and self.is_returning:
                return failure(ResponseCode.SYSTEM_BUSY, _RETURNING)
            return None
        if code in _STORING:
            return failure(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_HERE)
        if code in _FORBIDDEN:
            return Frame(ResponseCode.SLAVE_NOT_AVAILABLE, 0, remark=_FORBIDDEN[RequestCode(code)])
        if code in _PULLING and not self._broker.slave_read:
            return failure(ResponseCode.SYSTEM_BUSY, _BUSY)
        return None

    def hold(self, request: Frame, peer: Peer, answer: Frame) -> bool:
        """Send an answer once there are enough copies of the message; False if that is not needed."""
        waiting = self._waiting
        if waiting is None or not waiting.is_wanted or answer.code != ResponseCode.SUCCESS:
            return False
        if request.code not in _WAITING or request.is_one_way or not _waits(request):
            return False
        waiting.wait(self._log_end(), peer, partial(_answer, request.bare, peer, answer))
        return True

    def disconnected(self, peer: Peer) -> None:
        if self._waiting is not None:
            self._waiting.forget(peer)


def _waits(request: Frame) -> bool:
    """Return whether a sender waits for copies, as it does unless the message's properties refuse it."""
    fields = request.ext_fields or {}
    text = fields.get("i" if request.code != RequestCode.SEND_MESSAGE else "properties") or ""
    return "WAIT" not in text or decode_properties(text.encode()).get("WAIT", "true").lower() == "true"


def _answer(request: Frame, peer: Peer, answer: Frame, is_copied: bool) -> None:
    # The message is stored in any case.
    peer.answer(request, answer if is_copied else answer._replace(code=ResponseCode.FLUSH_SLAVE_TIMEOUT))
