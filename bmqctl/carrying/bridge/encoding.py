"""RocketMQ messages as bytes for BlazingMQ, mostly without intermediate property objects.

Most messages of a topic have the same names of properties. Each set of names has one plan, the order of BlazingMQ's
names and their bytes, so that a message needs only its values. Messages without a plan, such as any that were in
BlazingMQ before, go through `to_blazingmq`, which defines the result of both.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from bmqctl.carrying.bridge.mapping import Unfit, body_of, to_blazingmq
from bmqctl.carrying.bridge.names import (
    CACHED_LENGTH_MAX,
    FLAG,
    RAW,
    ROCKETMQ_ID,
    ROCKETMQ_OFFSET,
    ROCKETMQ_QUEUE,
    TYPES,
    UNIQUE_KEY,
    is_system_name,
    to_blazingmq_name,
)
from formats.bmq.codes import PROPERTIES_MAX
from formats.bmq.wire.properties import AreaPlan, PropertyType, encode_properties
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from formats.schema import Buffer

__all__ = ["Encoded", "encode_for_blazingmq"]

_NEWER_ENCODING: Final = 1
_PLANS: Final = 1024
_offset_bytes = struct.Struct(">q").pack
_MARKS: Final = frozenset({ROCKETMQ_ID, ROCKETMQ_OFFSET, ROCKETMQ_QUEUE, FLAG})
_OWN: Final = frozenset({RAW, TYPES})


class Encoded(NamedTuple):
    """A message for BlazingMQ: its payload, and its properties area."""

    payload: Buffer
    area: bytes


class _Plan(NamedTuple):
    """A plan for messages with the same property names: the area's plan, and RocketMQ's names in its order.

    In place of the marks are their own names, which no such message has as properties.
    """

    area: AreaPlan
    names: tuple[str, ...]


def encode_for_blazingmq(record: Record, broker_name: str) -> Encoded:
    """Encode a message for BlazingMQ. Raises `Unfit`."""
    properties = decode_properties(record.properties)
    if record.flag or len(record.properties) > 8 * CACHED_LENGTH_MAX or not all(properties.values()):
        return _encode(record, broker_name)
    names = tuple(properties)
    plan = _plan(names) if sum(map(len, names)) <= CACHED_LENGTH_MAX else None
    if plan is None:
        return _encode(record, broker_name)
    values = {name: text.encode() for name, text in properties.items()}
    values[ROCKETMQ_QUEUE] = _queue_mark(record.topic, broker_name, record.queue_id)
    values[ROCKETMQ_OFFSET] = _offset_bytes(record.queue_offset)
    if UNIQUE_KEY in values:
        values[ROCKETMQ_ID] = values[UNIQUE_KEY]
    return Encoded(body_of(record), plan.area.encode([values[name] for name in plan.names]))


def _encode(record: Record, broker_name: str) -> Encoded:
    posted = to_blazingmq(record, broker_name)
    try:
        return Encoded(posted.payload, encode_properties(posted.properties, _NEWER_ENCODING))
    except ValueError as fault:
        raise Unfit(str(fault)) from None


@lru_cache(_PLANS)
def _plan(names: tuple[str, ...]) -> _Plan | None:
    """Make the plan for messages with these names; None if some need more than a string of that name."""
    wanted = {ROCKETMQ_QUEUE: ROCKETMQ_QUEUE, ROCKETMQ_OFFSET: ROCKETMQ_OFFSET}
    if UNIQUE_KEY in names:
        wanted[ROCKETMQ_ID] = ROCKETMQ_ID
    for name in names:
        if not name or name in _OWN:
            return None
        if is_system_name(name):
            continue
        made = to_blazingmq_name(name)
        if made in _MARKS or made in wanted:
            return None
        wanted[made] = name
    if len(wanted) > PROPERTIES_MAX:
        return None
    kinds = dict.fromkeys(wanted, PropertyType.STRING) | {ROCKETMQ_OFFSET: PropertyType.INT64}
    area = AreaPlan(list(kinds.items()))
    return _Plan(area, tuple(wanted[name] for name in area.names))


@lru_cache(_PLANS)
def _queue_mark(topic: str, broker_name: str, queue_id: int) -> bytes:
    return f"{topic}/{broker_name}/{queue_id}".encode()
