"""The captured scenarios, played again: what clients sent to the original is sent to our broker, at the same times.

The answers have to be the same, and so has what is stored, up to times and places: the original carries out requests of
one connection in threads, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.rocketmq.sending.transactions import TransactionTimes
from broker.rocketmq.store.commit_log import Message
from broker.rocketmq.store.message_store import StoreOptions
from broker.rocketmq.store.writing import Writer
from formats.rocketmq.files.record import Record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame, next_frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import OPTIONS, Peer, Rig
from tests.golden.rocketmq.captures import CAPTURES, streams
from tests.golden.rocketmq.stores import records, unpack

PORT = 20911
# Where the captures have a gap: these messages were sent, and nobody saw it.
LOST_TOPIC, LOST_OFFSET, LOST_BEFORE = "GFifo", 1496656, "pcap/06"

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
# Places in a log whose messages are in another order, and times.
_VARYING = {"msgId", "queueOffset", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset", "timestamp", "version"}
# How far a queue had come depends on how much earlier or later a message was stored.
_PULL_VARYING = {"nextBeginOffset", "maxOffset"}


class Event(NamedTuple):
    """A frame between a client and the broker."""

    ms: int
    capture: str
    port: int
    is_request: bool
    frame: Frame


def events() -> list[Event]:
    """Every frame that the captures of the scenarios have, in order."""
    found: list[tuple[int, Event]] = []
    for capture in (each for each in CAPTURES if each.startswith("pcap/")):
        for stream in streams(capture):
            if PORT not in (stream.source, stream.target):
                continue
            to_broker = stream.target == PORT
            port = stream.source if to_broker else stream.target
            view, at = memoryview(stream.data), 0
            while (parsed := next_frame(view, at, len(view))) is not None:
                frame, at = parsed
                time = stream.time_of(at)
                found.append((time, Event(time // 1000, capture, port, to_broker, frame)))
    return [event for _, event in sorted(found, key=lambda each: each[0])]


class Replay:
    """A broker, and all clients of the captures; `pairs` are requests with the original's answers and ours."""

    def __init__(self, golden: list[tuple[int, Record]]) -> None:
        options = replace(OPTIONS, trace_topic="RMQ_SYS_TRACE_TOPIC")
        self.rig = Rig(options, TransactionTimes(5_000, 2_000, 15), StoreOptions(262_144, 6_000, 500, 400))
        self.pairs: list[tuple[Frame, Frame, Frame | None]] = []
        self._golden = golden
        self._by_offset = dict(golden)
        self._peers: dict[tuple[str, int], Peer] = {}
        self._ours: dict[tuple[str, int, int], Frame] = {}

    def run(self) -> None:
        requests: list[tuple[tuple[str, int, int], Frame]] = []
        theirs: dict[tuple[str, int, int], Frame] = {}
        told = events()
        self.rig.wall_ms = told[0].ms
        is_filled = False
        for event in told:
            if event.capture >= LOST_BEFORE and not is_filled:
                is_filled = True
                self._fill()
            key = (event.capture, event.port, event.frame.opaque)
            if event.is_request and not event.frame.is_response:
                self._pass_time(event.ms)
                requests.append((key, event.frame))
                self._ask(event)
            elif event.frame.is_response and not event.is_request:
                theirs[key] = event.frame
        self.rig.pass_time(20_000)
        self._collect()
        self.pairs = [(request, theirs[key], self._ours.get(key)) for key, request in requests if key in theirs]

    def _pass_time(self, ms: int) -> None:
        self.rig.pass_time(max(0, ms - self.rig.wall_ms))
        self._collect()

    def _ask(self, event: Event) -> None:
        key = (event.capture, event.port)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = self.rig.peer()
        peer.session.receive(memoryview(encode_frame(self._translated(event.frame))))
        while self.rig.broker.end_step():
            pass
        self._collect()

    def _collect(self) -> None:
        for (capture, port), peer in self._peers.items():
            if peer.session.output_size():
                for opaque, frame in peer.take_answers().items():
                    self._ours[capture, port, opaque] = frame
                for asked in [each for each in peer.asked if not each.is_one_way]:
                    peer.asked.remove(asked)
                    answer = Frame(ResponseCode.SUCCESS, asked.opaque, FrameFlag.RESPONSE)
                    peer.session.receive(memoryview(encode_frame(answer)))

    def _translated(self, frame: Frame) -> Frame:
        """A request with the places of our log for those of the original's."""
        fields = dict(frame.ext_fields or {})
        name = {RequestCode.CONSUMER_SEND_MSG_BACK: "offset", RequestCode.END_TRANSACTION: "commitLogOffset"}.get(
            RequestCode(frame.code) if frame.code in RequestCode._value2member_map_ else RequestCode.HEART_BEAT
        )
        if name is None:
            return frame
        theirs = self._by_offset[int(fields[name])]
        copies = [record for _, record in self._golden if _identity(record) == _identity(theirs)]
        number = [record.physical_offset for record in copies].index(theirs.physical_offset)
        same = [record for record in self._stored() if _identity(record) == _identity(theirs)]
        ours = same[min(number, len(same) - 1)]
        fields[name] = str(ours.physical_offset)
        if "tranStateTableOffset" in fields:
            fields["tranStateTableOffset"] = str(ours.queue_offset)
        return frame._replace(ext_fields=fields)

    def _fill(self) -> None:
        for offset, record in self._golden:
            if record.topic == LOST_TOPIC and offset >= LOST_OFFSET:
                Writer(self.rig.store).put(_message(record), record.stored_ms)

    def _stored(self) -> Iterator[Record]:
        """Yield all records of our log."""
        log = self.rig.store.log
        for found in type(log).recover(log, log.begin):
            yield found.record

    def stored(self) -> list[Record]:
        return [record._replace(body=bytes(record.body)) for record in self._stored()]


def _message(record: Record) -> Message:
    return Message(
        record.topic,
        record.queue_id,
        record.flag,
        record.system_flags,
        record.born_ms,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        0,
        bytes(record.body),
        record.properties,
    )


def _identity(record: Record) -> tuple[str, str]:
    return record.topic, decode_properties(record.properties).get("UNIQ_KEY", "")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, Record]]:
    """Every message of the golden store, by its offset."""
    (root,) = unpack("store", tmp_path_factory.mktemp("golden"), without=("timerwheel", "timerlog"))
    return [(offset, record) for offset, record in records(Path(root)) if isinstance(record, Record)]


@pytest.fixture(scope="module")
def replay(golden: list[tuple[int, Record]]) -> Replay:
    replay = Replay(golden)
    replay.run()
    return replay


def _is_of_empty_queue(request: Frame, theirs: Frame, ours: Frame) -> bool:
    """Return whether a new group asks for its offset in an empty queue: ours says 0, so that it misses no message."""
    is_refused = request.code == RequestCode.QUERY_CONSUMER_OFFSET and theirs.code == ResponseCode.QUERY_NOT_FOUND
    return is_refused and ours.code == ResponseCode.SUCCESS and ours.ext_fields == {"offset": "0"}


@pytest.mark.slow
def test_answers_are_those_of_the_original(replay: Replay) -> None:
    compared: Counter[str] = Counter()
    for request, theirs, ours in replay.pairs:
        name = RequestCode(request.code).name
        assert ours is not None, (name, request.ext_fields)
        if _is_of_empty_queue(request, theirs, ours):
            continue
        assert ours.code == theirs.code, (name, request.ext_fields, ours.remark)
        if ours.code != ResponseCode.SUCCESS and not (theirs.remark or "").startswith("NO_M"):
            assert ours.remark == theirs.remark
        varying = _VARYING | _PULL_VARYING if request.code in PULLS else _VARYING
        assert _steady(ours, varying) == _steady(theirs, varying), (name, request.ext_fields)
        if request.code in PULLS and ours.code == ResponseCode.SUCCESS:
            both = min(len(records_of(ours)), len(records_of(theirs)))
            assert both > 0
        else:
            assert bool(ours.body) == bool(theirs.body)
        compared[name] += 1
    assert compared.total() > 850
    assert {"CONSUMER_SEND_MSG_BACK", "SEND_REPLY_MESSAGE_V2", "RECALL_MESSAGE", "LOCK_BATCH_MQ"} <= set(compared)


def _steady(frame: Frame, varying: set[str]) -> dict[str, Any]:
    return {name: value for name, value in (frame.ext_fields or {}).items() if name not in varying}


# Written by the broker itself: times and places.
_TIMES = {"TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "BORN_TIMESTAMP", "ORIGIN_MESSAGE_ID", "TRANSACTION_CHECK_TIMES"}


def _content(record: Record) -> Any:
    """The content of a record without times and places."""
    properties = [item for item in decode_properties(record.properties).items() if item[0] not in _TIMES]
    body = bytes(record.body)
    return (record.topic, record.queue_id, record.flag, record.system_flags, record.reconsume_times, properties, body)


def test_store_has_what_the_original_stored(replay: Replay, golden: list[tuple[int, Record]]) -> None:
    """Copies of prepared messages are left out: the original checks again the ones that it has just heard of."""
    without = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
    theirs = [_content(record) for _, record in golden if record.topic not in without]
    ours = [_content(record) for record in replay.stored() if record.topic not in without]
    missing = [each for each in theirs if each not in ours]
    extra = [each for each in ours if each not in theirs]
    assert missing == []
    assert extra == []
    assert len(theirs) > 780
