"""Messages of RocketMQ as the bytes that BlazingMQ is sent, without a property object in between where it can be.

Most messages of a topic have the same names of properties. For each set of names there is one plan, the order of
BlazingMQ's names and their bytes, so that a message needs its values only. A message without a plan, such as
one that has been in BlazingMQ before, goes through `to_blazingmq`, which is the definition of both.
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
    """A message for BlazingMQ: its payload, and the area with its properties."""

    payload: Buffer
    area: bytes


class _Plan(NamedTuple):
    """The properties of messages with the same names: the area's plan, and the names in RocketMQ in its order.

    In the place of the marks are the names of the marks, of which no property of such a message has one.
    """

    area: AreaPlan
    names: tuple[str, ...]


def encode_for_blazingmq(record: Record, broker_name: str) -> Encoded:
    """Make the bytes for BlazingMQ. Raises `Unfit`."""
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
    """Make the plan for messages with these names; None if some of them mean more than a string of that name."""
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
