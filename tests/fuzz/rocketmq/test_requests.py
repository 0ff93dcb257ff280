"""The actions of the fuzzer of RocketMQ's ports: made of a seed, they reach every code, field, property and call."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from formats.errors import FormatError
from formats.rocketmq.grpc.declarations import MESSAGES, METHODS
from formats.rocketmq.grpc.messages import decode
from formats.rocketmq.remoting import raft
from formats.rocketmq.remoting.bodies.codec import BodyCodec
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import next_frame
from formats.rocketmq.remoting.headers.table import HEADERS
from formats.rocketmq.reserved_names import RESERVED_NAMES
from tests.fuzz.rocketmq.ports import STORIES, grpc_message
from tests.fuzz.rocketmq.requests import BODIES, CODES, Case, Requests, cases, frame_of
from tests.fuzz.rocketmq.run import NAMES, PORTS, Session, mixed
from tests.fuzz.rocketmq.stories import Story
from tests.fuzz.rocketmq.values import FAMILIES, HOSTILE, OWN_TOPICS, PROPERTIES, Values
from tests.fuzz.rocketmq.wire import Action, Answers, load, save

pytestmark = pytest.mark.unit
NOW_MS = 1_700_000_000_000


def requests_of(port: str, seed: int = 1) -> Requests:
    return Requests(Values(Random(seed), NOW_MS), port)


def unanswered(story: Story) -> Iterator[Action]:
    try:
        yield next(story)
        while True:
            yield story.send(Answers())
    except StopIteration:
        return


def actions(port: str, seed: str) -> list[Action]:
    """The first actions of some sessions, without answers."""
    sessions = [Session(port, f"{seed}-{number}", mixed_cases(port), NOW_MS) for number in range(6)]
    return [action for session in sessions for action in islice(unanswered(session.actions()), 20)]


def mixed_cases(port: str) -> deque[Case]:
    return deque(first_cases(port)) if port in CODES else deque()


@cache
def first_cases(port: str) -> list[Case]:
    return mixed(cases(port), Random(3))[:600]


@pytest.mark.parametrize("port", PORTS)
def test_actions_follow_from_the_seed(port: str) -> None:
    assert actions(port, "a") == actions(port, "a")
    assert actions(port, "a") != actions(port, "b")


def test_every_code_is_sent_to_a_port() -> None:
    assert {code for codes in CODES.values() for code in codes} == {*map(int, RequestCode), raft.CODE}
    assert set(BODIES) <= {code for codes in CODES.values() for code in codes}


def test_every_field_is_tried_with_every_value() -> None:
    tried: dict[tuple[int, str], set[str]] = defaultdict(set)
    for port in CODES:
        for case in cases(port):
            tried[case.code, case.name].add(case.value)
    for code, headers in HEADERS.items():
        for field in headers.request.fields if headers.request is not None else ():
            assert tried[code, field.wire_name] == {*HOSTILE, "<absent>", "<doubled>"}, (code, field)


def test_every_property_is_tried_with_every_value_and_in_every_topic() -> None:
    every = cases("broker")
    tried: dict[str, set[str]] = defaultdict(set)
    topics: dict[str, set[str]] = defaultdict(set)
    for case in every:
        if not case.code:
            tried[case.name].add(case.value)
            topics[case.topic].add(case.name)
    assert set(PROPERTIES) >= RESERVED_NAMES
    assert set(tried) == {*PROPERTIES, *(name for names in FAMILIES.values() for name in names)}
    assert all(values == set(HOSTILE) for values in tried.values())
    assert set(topics) >= {*OWN_TOPICS, *FAMILIES}
    for topic, names in FAMILIES.items():
        assert topics[topic] >= set(names)


def test_a_case_has_what_it_says_in_its_frame() -> None:
    requests = requests_of("broker")
    for case in cases("broker")[::97]:
        action = requests.case(case)
        ((data, times),) = action.pieces
        assert times == 1
        try:
            found = next_frame(memoryview(data), 0, len(data))
        except FormatError:
            # Half of a surrogate pair, or a value that is no text: in the body of a field.
            continue
        assert found is not None
        frame, end = found
        assert end == len(data)
        fields = frame.ext_fields or {}
        if case.code and case.value in HOSTILE:
            assert frame.code == case.code
            assert fields[case.name] == case.value if case.name else True
        elif case.value == "<absent>":
            assert case.name not in fields


def test_a_doubled_field_stands_there_twice() -> None:
    data = frame_of(10, [("topic", "a"), ("topic", "b")])
    assert data.count(b'"topic"') == 2
    found = next_frame(memoryview(data), 0, len(data))
    assert found is not None
    assert found[0].ext_fields == {"topic": "b"}


def test_bodies_are_as_declared_and_are_changed() -> None:
    values = Values(Random(0), NOW_MS)
    for cls in BODIES.values():
        codec = BodyCodec(cls)
        plain = {values.body(cls, 0) for _ in range(6)}
        for text in plain:
            codec.read(text.encode())
        assert {values.body(cls, 3) for _ in range(6)} - plain


def test_every_member_of_grpc_messages_is_set_at_some_time() -> None:
    values = Values(Random(5), NOW_MS)
    for method in METHODS.values():
        seen: set[str] = set()
        for _ in range(80):
            message = grpc_message(values, method.request)
            decode(method.request, message.SerializeToString())
            seen.update(field.name for field, _ in message.ListFields())
        assert seen == {field.name for field in MESSAGES[method.request]}, method


def test_stories_have_names_by_which_they_are_left_out() -> None:
    for port, stories in STORIES.items():
        names = [story.__name__ for story in stories]
        assert set(names) <= NAMES
        session = Session(port, "x", mixed_cases(port), NOW_MS, names)
        if port not in CODES:
            assert list(session.actions()) == []


def test_actions_are_written_and_read_again(tmp_path: Path) -> None:
    told = [action for port in PORTS for action in actions(port, "c")[:40]]
    save(tmp_path / "file", {"shape": "node"}, told)
    assert load(tmp_path / "file") == ({"shape": "node"}, told)


def test_a_code_that_is_left_out_is_not_sent() -> None:
    requests = Requests(Values(Random(1), NOW_MS), "broker", ["UPDATE_BROKER_CONFIG"])
    told = [requests.any().what for _ in range(2_000)]
    assert not [what for what in told if "UPDATE_BROKER_CONFIG" in what]
    assert [what for what in told if "UPDATE_NAMESRV_CONFIG" in what]
