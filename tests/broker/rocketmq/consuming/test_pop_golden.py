"""Popping as it was recorded with the original, played again: the same answers, and the same notes in the store."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from broker.rocketmq.store.message_store import StoreOptions
from formats.rocketmq.files.record import Record, decode_record
from formats.rocketmq.hosts import Host
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, encode_frame, next_frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig
from tests.golden.rocketmq.captures import HERE

REVIVE = "rmq_sys_REVIVE_LOG_GoldenCluster"
RETRY = "%RETRY%GP_GPop"
# From there on it depends on when the original looked at its log which message it revived first.
REVIVED = ("GPop", "4000")

_MS = re.compile(r"1795357\d{6}")
_PEER = re.compile(r"/127\.0\.0\.1:\d+")


class Event(NamedTuple):
    """A frame between a client and the broker."""

    ms: int
    peer: int
    is_request: bool
    frame: Frame


def lines() -> Iterator[dict[str, Any]]:
    for line in lzma.decompress((HERE / "pop.jsonl.xz").read_bytes()).decode().splitlines():
        yield json.loads(line)


def events() -> list[Event]:
    """The frames up to where messages are revived."""
    found: list[Event] = []
    for line in lines():
        if line["kind"] in ("request", "answer"):
            parsed = next_frame(memoryview(bytes.fromhex(line["frame"])), 0, len(line["frame"]) // 2)
            assert parsed is not None
            frame = parsed[0]._replace(body=bytes(parsed[0].body))
            fields = frame.ext_fields or {}
            if frame.code == RequestCode.POP_MESSAGE and (fields["topic"], fields["invisibleTime"]) == REVIVED:
                break
            found.append(Event(line["ms"], line["peer"], line["kind"] == "request", frame))
    return found


def stored() -> list[Record]:
    """Decode the records that the original stored."""
    found = [decode_record(bytes.fromhex(line["record"])) for line in lines() if line["kind"] == "record"]
    return [record._replace(body=bytes(record.body)) for record in found if isinstance(record, Record)]


class Replay:
    """A broker, and the two clients. Times at which the original popped are translated to those at which ours did."""

    def __init__(self) -> None:
        options = replace(OPTIONS, address=Host("127.0.0.1", 23911))
        self.rig = Rig(options, store=StoreOptions(1 << 20, 6_000, 500, 400))
        self.pairs: list[tuple[Frame, Frame, Frame | None]] = []
        self._peers: dict[int, Peer] = {}
        self._ours: dict[int, Frame] = {}
        self._times: dict[str, str] = {}

    def run(self) -> None:
        told = events()
        self.rig.wall_ms = told[0].ms
        requests: dict[int, Frame] = {}
        for event in told:
            self.rig.pass_time(max(0, event.ms - self.rig.wall_ms))
            self._collect()
            if event.is_request:
                requests[event.frame.opaque] = event.frame
                self._ask(event)
            else:
                ours = self._ours.get(event.frame.opaque)
                self.pairs.append((requests[event.frame.opaque], event.frame, ours))
                self._learn(event.frame, ours)
        self.end_ms = self.rig.wall_ms

    def _ask(self, event: Event) -> None:
        if event.peer not in self._peers:
            self._peers[event.peer] = self.rig.peer()
        frame = event.frame
        fields = {name: self.translated(value) for name, value in (frame.ext_fields or {}).items()}
        fields["bornTime"] = (frame.ext_fields or {}).get("bornTime", "0")
        body = self.translated(bytes(frame.body).decode()).encode()
        data = encode_frame(frame._replace(ext_fields=fields, body=body))
        assert self._peers[event.peer].session.receive(memoryview(data)) == len(data)
        while self.rig.broker.end_step():
            pass
        self._collect()

    def _collect(self) -> None:
        for peer in self._peers.values():
            self._ours.update(peer.take_answers())

    def _learn(self, theirs: Frame, ours: Frame | None) -> None:
        name = "popTime"
        if ours is not None and (theirs.ext_fields or {}).get(name, "0") != "0" and (ours.ext_fields or {}).get(name):
            self._times[(theirs.ext_fields or {})[name]] = (ours.ext_fields or {})[name]

    def translated(self, text: str) -> str:
        return _MS.sub(lambda found: self._times.get(found[0], found[0]), text)

    def notes(self) -> list[Record]:
        """The notes and what was revived, as we have stored them."""
        keys = sorted(key for key in self.rig.store.queues if key[0].startswith(("rmq_sys", "%RETRY%")))
        return [record for topic, queue_id in keys for record in self.rig.messages(topic, queue_id)]


@pytest.fixture(scope="module")
def replay() -> Replay:
    made = Replay()
    made.run()
    return made


def without_times(text: str) -> str:
    return _PEER.sub("/peer", _MS.sub("TIME", text))


def told(frame: Frame) -> dict[str, str]:
    fields = {name: value for name, value in (frame.ext_fields or {}).items() if name not in ("msgId", "popTime")}
    if fields.get("reviveQid") == "999" and fields.get("startOffsetInfo") is None:
        # For how long a message is hidden that is consumed in order, counted from when it was popped.
        fields["invisibleTime"] = fields["invisibleTime"][:2]
    return fields


def test_answers_are_the_originals(replay: Replay) -> None:
    compared = 0
    for request, theirs, ours in replay.pairs:
        name = RequestCode(request.code).name
        assert ours is not None, (name, request.ext_fields)
        if name == "POP_MESSAGE" and "SQL92" in (request.ext_fields or {}).values():
            # Its compiler takes that for an expression.
            assert ours.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            continue
        assert ours.code == theirs.code, (name, request.ext_fields, ours.remark)
        if ours.code != ResponseCode.SYSTEM_ERROR:
            assert without_times(ours.remark or "") == without_times(theirs.remark or ""), name
        assert told(ours) == told(theirs), (name, request.ext_fields)
        if name in ("POP_MESSAGE", "PEEK_MESSAGE"):
            assert [r.body for r in records_of(ours)] == [r.body for r in records_of(theirs)], name
        else:
            assert bytes(ours.body) == bytes(theirs.body), (name, request.body)
        compared += 1
    assert compared > 45


def test_notes_are_the_originals(replay: Replay) -> None:
    def shape(record: Record) -> tuple[Any, ...]:
        properties = decode_properties(record.properties)
        names = {name: value for name, value in properties.items() if not name.startswith(("TIMER_", "1ST"))}
        flags = (record.system_flags, record.flag, record.reconsume_times)
        queue = properties.get("REAL_QID", str(record.queue_id))
        told = without_times(str((list(properties), names, record.body)))
        return (record.topic, queue, flags, told, record.born_host, record.store_host)

    def order(shape: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(map(str, shape))

    begin_ms = max(record.born_ms for record in stored() if record.body == b"order 4")
    theirs = [record for record in stored() if record.topic == "rmq_sys_wheel_timer" and record.stored_ms < begin_ms]
    ours = [record for record in replay.notes() if record.topic == "rmq_sys_wheel_timer"]
    assert sorted(map(shape, ours), key=order) == sorted(map(shape, theirs), key=order)
    assert len(ours) == 9
    replay.rig.pass_time(30_000)
    wanted = [record for record in stored() if record.topic == RETRY and record.reconsume_times == 1]
    revived = [record for record in replay.notes() if record.topic == RETRY]
    assert sorted(map(shape, revived), key=order) == sorted(map(shape, wanted), key=order)
    assert len(revived) == 2
    known = {shape(record) for record in stored() if record.topic == REVIVE}
    notes = [shape(record) for record in replay.notes() if record.topic == REVIVE]
    assert len(notes) == 9
    assert known.issuperset(notes)


def test_files_are_the_originals(replay: Replay) -> None:
    assert json.loads(replay.rig.files["modes"]) == {
        "messageRequestModeMap": {
            "GPop": {"GP": {"consumerGroup": "GP", "mode": "POP", "popShareQueueNum": 0, "topic": "GPop"}}
        }
    }
    replay.rig.broker.keep_offsets()
    text = replay.rig.files["orders"].decode()
    assert text.startswith('{\n\t"orderedConsumptionLevel":"QUEUE",\n\t"table":{\n\t\t"GOrd@GO":{\n\t\t\t0:{\n')
    assert '"a":"four",\n\t\t\t\t"cm":0,\n\t\t\t\t"i":3000,' in text
