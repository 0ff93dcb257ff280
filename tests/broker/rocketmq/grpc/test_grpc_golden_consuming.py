"""The captured runs of the Python and Node clients, played again at their times: what they received and acknowledged.

A message is known by its group, its id and its attempt. Each must come to the same group as often, and be the same up
to times, receipt handles and its place in a queue; answers to acknowledgements must be the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from formats.rocketmq.grpc.codes import Code, MessageType
from formats.rocketmq.grpc.messages import Message, decode
from tests.broker.rocketmq.grpc.grpc_golden_rig import first_answer, first_request, prepared
from tests.broker.rocketmq.grpc.served import Served
from tests.golden.rocketmq.grpc_calls import GRPC_CAPTURES, Call, calls

STEP_MS: Final = 20
# After the last call: a poll takes 20 s at most.
END_MS: Final = 25_000
SETTLING: Final = ("AckMessage", "ChangeInvisibleDuration")


class Key(NamedTuple):
    """A delivery of a message."""

    group: str
    message_id: str
    attempt: int


class Played:
    """A capture played to a broker: what was received and settled there, and in the capture."""

    def __init__(self, capture: str) -> None:
        found = [call for call in calls(capture) if call.requests]
        self.served: Served = prepared([call for call in found if call.answers])
        self.calls = sorted(found, key=lambda call: call.began_us)
        self.sent = {
            message.system_properties.message_id
            for call in found
            if call.method == "SendMessage"
            for message in first_request(call).messages
        }
        self.theirs: dict[Key, Message] = {}
        self.their_handles: dict[str, Key] = {}
        for call in self.calls:
            if call.method == "ReceiveMessage":
                for key, message in _received(call, [decode("ReceiveMessageResponse", each) for each in call.answers]):
                    # The topics had messages of an earlier run, which nobody captured.
                    if key.message_id in self.sent:
                        self.theirs[key] = message
                        self.their_handles[message.system_properties.receipt_handle] = key
        self.ours: dict[Key, Message] = {}
        self.answered: list[tuple[Call, Message]] = []
        self._polls: dict[int, Call] = {}
        self._waiting: list[Call] = []
        self._play()

    def _play(self) -> None:
        begin_us = self.calls[0].began_us
        begin_ms = self.served.rig.wall_ms
        for call in self.calls:
            while self.served.rig.wall_ms - begin_ms < (call.began_us - begin_us) // 1_000:
                self._pass_time()
            if call.method in SETTLING:
                if _handle(call) in self.their_handles:
                    self._waiting.append(call)
                self._settle()
            elif call.method == "ReceiveMessage":
                self._polls[self._begin(call, call.requests[0])] = call
                self._take()
            else:
                self._begin(call, call.requests[0])
        end_ms = self.served.rig.wall_ms + END_MS
        while self.served.rig.wall_ms < end_ms:
            self._pass_time()

    def _pass_time(self) -> None:
        self.served.rig.pass_time(STEP_MS)
        self.served.ms += STEP_MS
        self.served.client.ms += STEP_MS
        self.served.service.tick()
        self.served.step()
        self._take()

    def _begin(self, call: Call, request: bytes) -> int:
        """Make a call as its client did; its stream."""
        headers = {name: text for name, text in call.headers.items() if name.startswith("x-mq-")}
        if "grpc-timeout" in call.headers:
            headers["grpc-timeout"] = call.headers["grpc-timeout"]
        client = self.served.client
        stream = client.open(call.method, **headers)
        client.send(stream, request)
        if call.method != "Telemetry":
            client.http.end_stream(stream)
        client.exchange()
        self.served.step()
        return stream

    def _take(self) -> None:
        """Take in what polls have brought, and settle what waited for it."""
        for stream, call in list(self._polls.items()):
            if self.served.client.status(stream) is not None:
                del self._polls[stream]
                for key, message in _received(call, self.served.answers("ReceiveMessage", stream)):
                    assert key not in self.ours, key
                    self.ours[key] = message
        self._settle()

    def _settle(self) -> None:
        """Make the calls that name a message which has come: it may come in another order than to them."""
        for call in list(self._waiting):
            message = self.ours.get(self.their_handles[_handle(call)])
            if message is None:
                continue
            self._waiting.remove(call)
            request = first_request(call)
            _named(request).receipt_handle = message.system_properties.receipt_handle
            stream = self._begin(call, request.SerializeToString())
            (answer,) = self.served.answers(call.method, stream)
            self.answered.append((call, answer))

    @property
    def unsettled(self) -> int:
        """The number of acknowledgements that had no message."""
        return len(self._waiting)


def _named(request: Message) -> Message:
    """The part of a request to settle a message, or of its answer, that names it."""
    (entry,) = getattr(request, "entries", [request])
    return entry


def _handle(call: Call) -> str:
    handle: str = _named(first_request(call)).receipt_handle
    return handle


def _received(call: Call, answers: list[Message]) -> list[tuple[Key, Message]]:
    group = first_request(call).group.name
    messages = [each.message for each in answers if each.WhichOneof("content") == "message"]
    return [
        (Key(group, each.system_properties.message_id, each.system_properties.delivery_attempt), each)
        for each in messages
    ]


def _comparable(message: Message) -> Message:
    """The message without what another run makes different."""
    system = message.system_properties
    assert system.receipt_handle
    assert system.HasField("store_timestamp")
    for name in ("receipt_handle", "store_timestamp", "queue_offset"):
        system.ClearField(name)
    if system.message_type != MessageType.FIFO:
        system.ClearField("queue_id")
    return message


def _in_groups(received: dict[Key, Message]) -> dict[str, list[bytes]]:
    """The bodies of each message group, in the order in which they came."""
    found: dict[str, list[bytes]] = {}
    for message in received.values():
        system = message.system_properties
        if system.message_type == MessageType.FIFO:
            found.setdefault(system.message_group, []).append(message.body)
    return found


@pytest.fixture(scope="module", params=GRPC_CAPTURES)
def played(request: pytest.FixtureRequest) -> Played:
    return Played(request.param)


def test_every_message_is_received_as_it_was(played: Played) -> None:
    assert played.ours.keys() == played.theirs.keys()
    assert len(played.theirs) > 40
    assert max(key.attempt for key in played.theirs) == 2
    assert _in_groups(played.ours) == _in_groups(played.theirs) != {}
    for key, message in played.theirs.items():
        assert _comparable(played.ours[key]) == _comparable(message)


def test_everything_is_settled_as_it_was(played: Played) -> None:
    assert played.unsettled == 0
    seen = set()
    for call, ours in played.answered:
        theirs = first_answer(call)
        for answer in (ours, theirs):
            named = _named(answer)
            assert named.receipt_handle
            named.receipt_handle = ""
        assert ours == theirs
        assert ours.status.code == Code.OK
        seen.add(call.method)
    assert seen == set(SETTLING)
