"""Requests that a controller decides about, as frames (source: ControllerRequestProcessor).

The texts of failures are the original's, for brokers log them and administrators see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.rocketmq.controller.decisions import Decision, Decisions
from formats.errors import FormatError
from formats.rocketmq.remoting import fastjson
from formats.rocketmq.remoting.bodies.controllers import SYNC_STATE_SET
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.headers.table import HEADERS

__all__ = ["answer_frame", "decider"]

NAMES_MAX: Final = 10_000


def _alter(decisions: Decisions, header: Any, request: Frame) -> Callable[[], Decision]:
    wanted = SYNC_STATE_SET.read(request.body)
    return lambda: decisions.alter_members(header, wanted)


def _sync_state(decisions: Decisions, header: Any, request: Frame) -> Callable[[], Decision]:
    try:
        text = str(request.body, "utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("names", error.start, "is not UTF-8") from None
    names = fastjson.loads(text) if text else []
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise FormatError("names", 0, "is no list of names")
    if len(names) > NAMES_MAX:
        raise FormatError("names", 0, f"has {len(names)}, more than {NAMES_MAX}")
    return lambda: decisions.sync_state(dict.fromkeys(names))


_WAYS: Final[dict[int, Callable[[Decisions, Any, Frame], Callable[[], Decision]]]] = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: _alter,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: _sync_state,
    RequestCode.CONTROLLER_ELECT_MASTER: lambda decisions, header, _: lambda: decisions.elect(header),
    RequestCode.CONTROLLER_REGISTER_BROKER: lambda decisions, header, _: lambda: decisions.register(header),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: lambda decisions, header, _: lambda: decisions.replica_info(header),
    RequestCode.CLEAN_BROKER_DATA: lambda decisions, header, _: lambda: decisions.clean(header),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: lambda decisions, header, _: lambda: decisions.next_id(header),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: lambda decisions, header, _: lambda: decisions.apply_id(header),
}


def decider(decisions: Decisions, request: Frame) -> Callable[[], Decision] | None:
    """Read a request; return what decides about it, or None if it is of another kind. Raises `FormatError`.

    The request's body is no longer needed.
    """
    way = _WAYS.get(request.code)
    if way is None:
        return None
    codecs = HEADERS.get(request.code)
    header = codecs.request.read(request.ext_fields) if codecs is not None and codecs.request is not None else None
    return way(decisions, header, request)


def answer_frame(request_code: int, decision: Decision) -> Frame:
    """Make the answer to a request that was decided about."""
    codecs = HEADERS.get(request_code)
    fields = None
    if decision.header is not None and codecs is not None and codecs.response is not None:
        fields = codecs.response.write(decision.header)
    code = ResponseCode(decision.code)
    return Frame(code, 0, remark=decision.remark, ext_fields=fields, body=decision.body)
