"""Plain messages take a way of their own: the answers and the store are the same as without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.rocketmq.sending.plain_sending import FORMS_MAX, WAYS_MAX
from broker.rocketmq.store.message_store import StoreOptions
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, HeaderEncoding, encode_frame, next_frame
from tests.broker.rocketmq.answers import records_of
from tests.broker.rocketmq.rig import OPTIONS, Rig
from tests.families import examples

SMALL = replace(OPTIONS, message_bytes_max=64, region="100%")
STORE = StoreOptions(commit_log_file_bytes=4096, consume_queue_file_bytes=400, index_slots=7, index_entries=20)


class NoWay:
    """Leaves all messages to the general way, instead of `PlainSender`."""

    def send(self, *_: object) -> None:
        return None

    def disconnected(self, _: object) -> None:
        pass


class Way:
    """A broker and one producer. Without `fast`, requests are taken as frames; without `plain`, by the general way.

    `read` counts frames, and `checked` what took the general way.
    """

    def __init__(self, *, fast: bool = True, plain: bool = True, topics: dict[str, TopicConfig] | None = None) -> None:
        self.rig = Rig(SMALL, store=STORE)
        self.rig.put_topics(*(topics or {"t": TopicConfig("t", 3, 2)}).values())
        self.read = self.checked = 0
        broker: Any = self.rig.broker
        receive = broker.receive
        if not (fast and plain):
            broker.take = lambda data, at, end, session: at
        if not plain:
            broker._plain = NoWay()
        send = broker._sender.send

        def check(*words: Any) -> Frame:
            self.checked += 1
            answer: Frame = send(*words)
            return answer

        broker._sender.send = check

        def count(frame: Frame, session: Any) -> None:
            self.read += 1
            receive(frame, session)

        broker.receive = count
        self.session = self.rig.peer().session

    def send(self, *frames: Frame) -> bytes:
        """Have frames delivered at once; the bytes that are sent back."""
        data = memoryview(b"".join(map(encode_frame, frames)))
        assert self.session.receive(data) == len(data)
        while self.rig.broker.end_step():
            pass
        return bytes(self.session.take_output())

    def answers(self, *frames: Frame) -> list[Frame]:
        data, at, found = memoryview(self.send(*frames)), 0, []
        while (parsed := next_frame(data, at, len(data))) is not None:
            frame, at = parsed
            found.append(frame)
        return found

    @property
    def stored(self) -> dict[str, bytes]:
        return self.rig.folder.contents()


def frame(number: int, body: bytes = b"body", properties: str = "UNIQ_KEY\1ID\2WAIT\1true\2", **changes: Any) -> Frame:
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "17", "h": "0", "i": properties}
    fields.update(j="0", k="false", m="false", n="broker-g")
    kind = {name: changes.pop(name) for name in ("flag", "encoding") if name in changes}
    fields = {name: value for name, value in {**fields, **changes}.items() if value is not None}
    return Frame(RequestCode.SEND_MESSAGE_V2, number, ext_fields=fields, body=body, version=493, **kind)


NAMES = [
    "UNIQ_KEY",
    "WAIT",
    "KEYS",
    "TAGS",
    "user",
    "100%",
    "MSG_REGION",
    "TRACE_ON",
    "CLUSTER",
    "POP_CK",
    "REAL_TOPIC",
]
SPECIAL = ["DELAY", "TRAN_MSG", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS"]
VALUES = ["true", "1", "k1 k2", "7F000001000000000000000000000001", "7F000001000000000000000000000002", "%b%", "x" * 70]
ODD_VALUES = ["", '"', "\\", "\u00e9", "a\1b", "no\2end"]
properties_text = st.one_of(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6),
    st.lists(st.tuples(st.sampled_from(NAMES + SPECIAL), st.sampled_from(VALUES + ODD_VALUES)), max_size=4),
).map(lambda pairs: "".join(f"{name}\1{value}\2" for name, value in pairs))
with_id = st.builds(lambda text: f"UNIQ_KEY\1ID{len(text)}\2{text}", properties_text)
changes = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["t", "u", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "closed", "new", "a b"]),
        "e": st.sampled_from(["1", "2", "3", "-1", "x"]),
        "f": st.sampled_from(["0", "1", "4", "8", "12", "16", "48"]),
        "g": st.sampled_from(["1700000000123", "-5"]),
        "h": st.sampled_from(["5", "-5"]),
        "j": st.sampled_from([None, "3"]),
        "l": st.sampled_from(["16"]),
        "m": st.sampled_from([None, "true"]),
        "flag": st.sampled_from([FrameFlag.ONE_WAY]),
        "encoding": st.sampled_from(list(HeaderEncoding)),
    },
)
bodies = st.sampled_from([b"", b"body", b"x" * 64, b"x" * 65])
sent = st.tuples(bodies, st.one_of(with_id, with_id, properties_text), changes)
TOPICS = {
    "t": TopicConfig("t", 3, 2),
    "u": TopicConfig("u", 1, 1, topic_filter_type="MULTI_TAG"),
    "closed": TopicConfig("closed", 1, 1, int(Permission.READ)),
}


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(sent, max_size=4), max_size=5))
def test_outcome_is_that_of_the_general_way(steps: list[list[tuple[bytes, str, dict[str, Any]]]]) -> None:
    plain, framed, general = Way(topics=TOPICS), Way(fast=False, topics=TOPICS), Way(plain=False, topics=TOPICS)
    number = 0
    for step in steps:
        frames = []
        for body, text, changed in step:
            number += 1
            frames.append(frame(number, body, text, **changed))
        assert plain.send(*frames) == framed.send(*frames) == general.send(*frames)
    assert plain.stored == framed.stored == general.stored


@pytest.mark.parametrize("encoding", list(HeaderEncoding))
def test_plain_messages_are_not_read_one_by_one(encoding: HeaderEncoding) -> None:
    way = Way()
    frames = [frame(number, properties=f"UNIQ_KEY\1{number}\2", encoding=encoding) for number in range(40)]
    answers = way.answers(*frames)
    assert way.read == 0
    assert [each.opaque for each in answers] == list(range(40))
    assert [record.properties.partition(b"UNIQ_KEY\1")[2].partition(b"\2")[0] for record in way.rig.messages("t")] == [
        b"%d" % number for number in range(40)
    ]


def test_plain_messages_in_frames_are_not_looked_at_one_by_one() -> None:
    way = Way(fast=False)
    frames = [frame(number, properties=f"UNIQ_KEY\1{number}\2") for number in range(40)]
    answers = way.answers(*frames)
    assert (way.read, way.checked) == (40, 0)
    assert [each.opaque for each in answers] == list(range(40))
    (special,) = way.answers(frame(40, properties="UNIQ_KEY\1x\2DELAY\0011\2"))
    assert (special.code, way.checked) == (ResponseCode.SUCCESS, 1)


def test_messages_that_nobody_wants_an_answer_to_get_none() -> None:
    way = Way()
    assert way.send(frame(1, flag=FrameFlag.ONE_WAY), frame(2, flag=FrameFlag.ONE_WAY)) == b""
    assert len(way.rig.messages("t")) == 2
    assert way.read == 0


def test_order_of_answers_is_that_of_the_requests() -> None:
    way = Way()
    frames = [frame(1), frame(2, properties=""), frame(3), frame(4, body=b"x" * 65), frame(5)]
    answers = way.answers(*frames)
    assert [each.opaque for each in answers] == [1, 2, 3, 4, 5]
    assert way.read == 2
    assert [each.code for each in answers] == [0, 0, 0, ResponseCode.MESSAGE_ILLEGAL, 0]


def test_topic_that_changes_is_looked_at_again() -> None:
    way = Way()
    (before,) = way.answers(frame(1))
    way.rig.topics.put(TopicConfig("t", 1, 1, int(Permission.READ)), way.rig.wall_ms)
    (refused,) = way.answers(frame(2))
    way.rig.topics.put(TopicConfig("t", 9, 9), way.rig.wall_ms)
    (after,) = way.answers(frame(3, e="8"))
    assert [each.code for each in (before, refused, after)] == [0, ResponseCode.NO_PERMISSION, 0]


def test_full_disk_is_told_once_and_nothing_is_stored() -> None:
    way = Way()
    way.send(frame(1))
    way.rig.folder.free = 0
    for folder in (way.rig.folder, *way.rig.folder.inside.values()):
        folder.free = 0
    stored = len(way.rig.messages("t"))
    codes = [each.code for number in range(60) for each in way.answers(frame(number + 2))]
    refused = codes.count(ResponseCode.SERVICE_NOT_AVAILABLE)
    assert refused > 0
    assert len(way.rig.messages("t")) == stored + 60 - refused


def test_connections_with_more_than_the_maximum_of_ways_are_served() -> None:
    way = Way()
    for number in range(WAYS_MAX + 3):
        (answer,) = way.answers(frame(number, a=f"p{number}", properties=f"UNIQ_KEY\1x\2n{number}\1v\2"))
        assert answer.code == ResponseCode.SUCCESS
    (long,) = way.answers(frame(WAYS_MAX + 3, a="p" * 10_000, properties=f"UNIQ_KEY\1x\2{'n' * 2_000}\1v\2"))
    assert long.code == ResponseCode.SUCCESS
    plain: Any = way.rig.broker
    assert max(len(part) for rest in plain._plain._known[way.session].ways for part in rest) < 10_000
    assert sum(len(known.ways) for known in plain._plain._known.values()) <= WAYS_MAX
    way.rig.broker.disconnected(way.session)
    assert not plain._plain._known


def test_consumers_get_plain_messages() -> None:
    way = Way()
    consumer = way.rig.peer()
    waiting = consumer.pull("t", sysFlag=6)
    assert consumer.answer(waiting) is None
    way.send(frame(1), frame(2))
    answer = consumer.answer(waiting)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert [bytes(record.body) for record in records_of(answer)] == [b"body", b"body"]


def alike(number: int, **changes: Any) -> Frame:
    """A message that differs from others in its unique id, its queue and its body only."""
    text = f"KEYS\1k\2UNIQ_KEY\1ID{number:08d}\2TAGS\1even\2"
    return frame(number, **{"e": str(number % 3), "properties": text, "body": b"%d" % number, **changes})


def test_outcome_of_messages_that_are_alike_is_that_of_the_general_way() -> None:
    plain, framed, general = Way(topics=TOPICS), Way(fast=False, topics=TOPICS), Way(plain=False, topics=TOPICS)
    ways = (plain, framed, general)
    forms: Any = plain.rig.broker
    numbers = iter(range(1_000))
    for changes in (
        {},
        {"body": b"x" * 65},
        {"e": "3"},
        {"flag": FrameFlag.ONE_WAY},
        {"b": "u", "e": "0"},
        {"encoding": HeaderEncoding.BINARY},
        {"properties": "UNIQ_KEY\1ID\2DELAY\0011\2"},
    ):
        frames = [alike(next(numbers)) for _ in range(5)]
        frames += [alike(next(numbers), **changes), *(alike(next(numbers)) for _ in range(3))]
        first, *others = [way.send(*frames) for way in ways]
        assert others == [first, first]
        (known,) = forms._plain._known.values()
        assert 0 < len(known.forms) <= FORMS_MAX
    for way in ways:
        way.rig.topics.put(TopicConfig("t", 1, 1), way.rig.wall_ms)
    frames = [alike(next(numbers)) for _ in range(9)]
    assert len({way.send(*frames) for way in ways}) == 1
    assert plain.stored == framed.stored == general.stored


def test_full_disk_is_told_of_messages_that_are_alike() -> None:
    way = Way()
    way.send(*(alike(number, e="0") for number in range(3)))
    for folder in (way.rig.folder, *way.rig.folder.inside.values()):
        folder.free = 0
    stored = len(way.rig.messages("t"))
    codes = [each.code for each in way.answers(*(alike(number + 3, e="0") for number in range(60)))]
    refused = codes.count(ResponseCode.SERVICE_NOT_AVAILABLE)
    assert 0 < refused < 60
    assert codes == [0] * (60 - refused) + [ResponseCode.SERVICE_NOT_AVAILABLE] * refused
    assert len(way.rig.messages("t")) == stored + 60 - refused
