"""Requests to store messages: the captured ones make the records that the original made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from broker.rocketmq.consuming.lite.placing import LitePlaces
from broker.rocketmq.consuming.pulling import Puller
from broker.rocketmq.sending.arrivals import Arrivals
from broker.rocketmq.sending.sending import Sender, read_header
from broker.rocketmq.sending.sending_back import SendingBack
from broker.rocketmq.store.errors import DiskFull
from broker.rocketmq.store.message_store import MessageStore, StoreOptions
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.runs import Run
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.clients import Clients
from broker.rocketmq.tables.groups import Groups
from broker.rocketmq.tables.locks import Locks
from broker.rocketmq.tables.names import DELAY_TOPIC, fault_of_group
from broker.rocketmq.tables.offsets import Offsets
from broker.rocketmq.tables.options import DELAY_LEVELS, BrokerOptions, parse_delay_levels
from broker.rocketmq.tables.services import Services
from broker.rocketmq.tables.statistics import Statistics
from broker.rocketmq.tables.topics import Topics
from formats.rocketmq.files.record import Record
from formats.rocketmq.hosts import Host
from formats.rocketmq.java import hash_map_order
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.properties import decode_properties, encode_properties
from formats.rocketmq.remoting.batch import BatchMessage, encode_batch
from formats.rocketmq.remoting.bodies.routes import Permission, TopicConfig
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, next_frame
from tests.broker.rocketmq.folders import MemoryFolder
from tests.golden.rocketmq.captures import CAPTURES, streams
from tests.golden.rocketmq.stores import records, unpack

PORT = 20911
"""The golden broker's."""

OPTIONS = BrokerOptions(
    "GoldenCluster",
    "broker-g",
    address=Host("127.0.0.1", PORT),
    delay_levels_ms=parse_delay_levels(DELAY_LEVELS),
    message_bytes_max=4096,
)
PRODUCER = Host("127.0.0.1", 5555)
CAPTURED = {"02-producer": 721, "03-compress": 6, "04-batch": 10, "05-ordered": 14, "06-delay": 3, "15-retry": 1}
"""How many messages are sent in captures without transactions, timers and replies."""


class Broker:
    """A sender over a store in memory, with the golden broker's topics or a broker's first."""

    def __init__(self, options: BrokerOptions = OPTIONS, topics: bytes = b"") -> None:
        self.folder = MemoryFolder()
        sizes = StoreOptions(1 << 20, 6000, 50, 400)
        self.store: MessageStore = open_store(self.folder, sizes, lambda ms: f"{ms:017d}")
        self.kept: list[bytes] = []
        self.topics = Topics(options, topics, self.kept.append)
        groups = Groups(b"", lambda _: None)
        services = Services(options, self.topics, groups, Offsets(b""), Clients(), self.store, Statistics("c", 0))
        back = SendingBack(services, Locks(), Writer(self.store), lambda below: below - 1, lambda *request: None)
        arrivals = Arrivals(self.store, Puller(services, lambda connection, error: None), services.statistics)
        self.sender = Sender(
            options, self.topics, arrivals, back, lambda below: below - 1, lambda: "MADE", LitePlaces(self.store)
        )

    def send(
        self, *, topic: str = "t", body: bytes = b"body", code: int = 310, properties: str = "", **fields: Any
    ) -> Frame:
        """Send a message by the short header; `fields` are its letters."""
        header = {"a": "g", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0, "i": properties, "j": 0}
        header.update({"k": "false", "m": "false", **fields})
        request = Frame(code, 1, ext_fields={name: str(value) for name, value in header.items()}, body=body)
        return self.sender.send(request, PRODUCER, 1_000_000)

    def stored(self, answer: Frame) -> list[Record]:
        """The records that an answer names."""
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields is not None
        ids = [OffsetId.parse(text) for text in answer.ext_fields["msgId"].split(",")]
        return [self.store.log.read(each.physical_offset).record for each in ids]


def captured_requests(name: str) -> Iterator[tuple[int, Frame]]:
    for capture in (each for each in CAPTURES if each.startswith(f"pcap/{name}")):
        for stream in streams(capture):
            view, at = memoryview(stream.data), 0
            while stream.target == PORT and (found := next_frame(view, at, len(view))) is not None:
                frame, at = found
                if frame.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                    yield stream.source, frame


@pytest.mark.slow
def test_captured_messages_become_the_records_of_the_original(tmp_path: Path) -> None:
    (golden,) = unpack("store", tmp_path, without=("timerwheel", "timerlog"))
    theirs: dict[tuple[str, str, bytes], list[Record]] = {}
    for _, record in records(golden):
        if isinstance(record, Record):
            key = decode_properties(record.properties).get("UNIQ_KEY", "")
            theirs.setdefault((record.topic, key, bytes(record.body)), []).append(record)
    broker = Broker(replace(OPTIONS, message_bytes_max=4 << 20), (golden / "config" / "topics.json").read_bytes())
    compared: Counter[str] = Counter()
    for name in CAPTURED:
        for port, request in captured_requests(name):
            answer = broker.sender.send(request, Host("127.0.0.1", port), 1_000_000)
            header = read_header(request)
            for ours in broker.stored(answer):
                key = decode_properties(ours.properties)["UNIQ_KEY"]
                expected = next(
                    record
                    for record in theirs[ours.topic, key, bytes(ours.body)]
                    if header.queue_id < 0 or record.queue_id == ours.queue_id
                )
                same = expected._replace(
                    queue_id=ours.queue_id,
                    queue_offset=ours.queue_offset,
                    physical_offset=ours.physical_offset,
                    stored_ms=ours.stored_ms,
                )
                assert ours == same
                compared[name] += 1
    assert compared == CAPTURED


def test_answer_says_where_the_message_is() -> None:
    broker = Broker()
    answer = broker.send(properties="UNIQ_KEY\x01ID\x02TAGS\x01a\x02")
    assert answer.ext_fields == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": "7F000001000051AF0000000000000000",
        "queueId": "0",
        "queueOffset": "0",
        "transactionId": "ID",
    }
    again = broker.send(e=-1)
    assert again.ext_fields is not None
    assert (again.ext_fields["queueId"], again.ext_fields["transactionId"]) == ("3", "MADE")


def test_topic_is_made_after_the_example_of_another() -> None:
    broker = Broker()
    assert broker.send(topic="new", d=100).code == ResponseCode.SUCCESS
    made = broker.topics.get("new")
    assert made == TopicConfig("new", 8, 8, 6)
    assert Topics(OPTIONS, broker.kept[-1], lambda _: None).get("new") == made
    strict = Broker(replace(OPTIONS, auto_create_topic=False))
    answer = strict.send(topic="new")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("topic[new] not exist, apply first please!\nSee https://")


def test_retry_topic_is_made_for_whoever_sends_to_it() -> None:
    broker = Broker(replace(OPTIONS, auto_create_topic=False))
    assert broker.send(topic="%RETRY%g").code == ResponseCode.SUCCESS
    assert broker.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


def test_topic_that_cannot_be_kept_is_not_made() -> None:
    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    topics = Topics(OPTIONS, b"", full)
    with pytest.raises(OSError, match="No space left"):
        topics.put(TopicConfig("t"), 5)
    assert topics.get("t") is None
    assert topics.version.counter == 0


def test_delayed_message_waits_in_the_queue_of_its_level() -> None:
    broker = Broker()
    (record,) = broker.stored(broker.send(properties="DELAY\x013\x02", e=2))
    assert (record.topic, record.queue_id) == (DELAY_TOPIC, 2)
    properties = decode_properties(record.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["DELAY"]) == ("t", "2", "3")
    (record,) = broker.stored(broker.send(properties="DELAY\x0199\x02"))
    assert (record.queue_id, decode_properties(record.properties)["DELAY"]) == (17, "18")


def test_messages_of_a_batch_are_stored_with_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    runs: list[Run] = []
    put = broker.store.put

    def watched(run: Run) -> None:
        runs.append(run)
        put(run)

    monkeypatch.setattr(broker.store, "put", watched)
    batch = [BatchMessage(number, b"body%d" % number, encode_properties({"KEYS": f"k{number}"})) for number in range(3)]
    answer = broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch(batch), m="true")
    stored = broker.stored(answer)
    assert [(record.flag, bytes(record.body), record.properties) for record in stored] == batch
    assert [record.queue_offset for record in stored] == [0, 1, 2]
    assert len(runs) == 1


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (BatchMessage(0, b"x" * (OPTIONS.message_bytes_max + 1), b""), "message body size exceeded"),
        (BatchMessage(0, b"x", b"a\x01" + b"b" * 0x7FFD), "message body size exceeded"),
        # The separator that the broker adds after a zero has no room.
        (BatchMessage(0, b"x", b"a\x01" + b"b" * 0x7FFC + b"\0"), "the message is illegal"),
    ],
)
def test_nothing_of_a_batch_is_stored_if_one_message_is_refused(odd: BatchMessage, words: str, place: int) -> None:
    broker = Broker(replace(OPTIONS, message_bytes_max=1 << 16 if words.startswith("the") else 4096))
    batch = [BatchMessage(0, b"%d" % number, encode_properties({"KEYS": "k"})) for number in range(3)]
    batch[place] = odd
    answer = broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch(batch), m="true")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in str(answer.remark)
    assert not list(broker.store.log.records(0))


def test_a_batch_is_no_larger_than_a_message_may_be() -> None:
    broker = Broker()
    batch = [BatchMessage(0, b"x" * 2000, b"") for _ in range(2)]
    answer = broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch(batch), m="true")
    assert len(broker.stored(answer)) == 2
    answer = broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch([*batch, batch[0]]), m="true")
    assert (answer.code, answer.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "message body size exceeded: the batch has 6066 bytes, more than 4096",
    )


def test_a_batch_is_in_one_file_of_the_log() -> None:
    broker = Broker(replace(OPTIONS, message_bytes_max=1 << 19))
    for _ in range(2):
        broker.stored(broker.send(body=b"x" * 510_000))
    batch = encode_batch([BatchMessage(0, b"y" * 10_000, b"") for _ in range(3)])
    first, second, third = broker.stored(broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=batch, m="true"))
    assert first.physical_offset == 1 << 20
    assert first.physical_offset < second.physical_offset < third.physical_offset
    assert [record.queue_offset for record in (first, second, third)] == [2, 3, 4]


def test_a_batch_that_fits_into_no_file_is_refused() -> None:
    broker = Broker(replace(OPTIONS, message_bytes_max=4 << 20))
    batch = encode_batch([BatchMessage(0, b"y" * 400_000, b"") for _ in range(3)])
    answer = broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=batch, m="true")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert not list(broker.store.log.records(0))


def test_a_batch_without_room_on_the_disk_is_refused_and_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()

    def full(run: Run) -> NoReturn:
        raise DiskFull("no room")

    batch = encode_batch([BatchMessage(0, b"y", b"") for _ in range(3)])
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", full)
        answer = broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=batch, m="true")
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: no room")
    again = broker.stored(broker.send(code=RequestCode.SEND_BATCH_MESSAGE, body=batch, m="true"))
    assert [record.queue_offset for record in again] == [0, 1, 2]


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ({"topic": " "}, ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
        ({"topic": "t" * 128}, ResponseCode.INVALID_PARAMETER, "is longer than topic max length: 127"),
        ({"topic": "%DLQ%" + "t" * 251}, ResponseCode.INVALID_PARAMETER, "longer than topic max length: 255"),
        ({"topic": DELAY_TOPIC}, ResponseCode.NO_PERMISSION, f"Sending message to topic[{DELAY_TOPIC}] is forbidden."),
        ({"e": 4}, ResponseCode.INVALID_PARAMETER, "request queueId[4] is illegal, topic t has 4 queues"),
        ({"body": b"x" * 4097}, ResponseCode.MESSAGE_ILLEGAL, "msg body length limit 4096B"),
        ({"properties": "a\x01" + "b" * 32768}, ResponseCode.MESSAGE_ILLEGAL, "msg properties length limit 32KB"),
        ({"m": "true", "body": b"xx"}, ResponseCode.MESSAGE_ILLEGAL, "needs 20 bytes, 2 left"),
        ({"m": "true", "body": b""}, ResponseCode.MESSAGE_ILLEGAL, "the batch has no message"),
        (
            {"m": "true", "topic": "%RETRY%g"},
            ResponseCode.MESSAGE_ILLEGAL,
            "batch request does not support retry group",
        ),
        (
            {"properties": "TIMER_DELAY_SEC\x01259201\x02"},
            ResponseCode.MESSAGE_ILLEGAL,
            "not be bigger than the max delay 259200000ms",
        ),
        ({"properties": "TIMER_DELAY_MS\x01x\x02"}, ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
    ],
)
def test_message_is_refused_with_the_original_s_code(fields: dict[str, Any], code: ResponseCode, text: str) -> None:
    broker = Broker()
    broker.topics.put(TopicConfig("t", 4, 4), 0)
    answer = broker.send(**fields)
    assert (answer.code, text in (answer.remark or "")) == (code, True), answer.remark
    assert broker.store.log.end == 0


def test_broker_or_topic_that_is_not_writable_refuses() -> None:
    broker = Broker(replace(OPTIONS, permission=Permission.READ))
    assert broker.send().code == ResponseCode.NO_PERMISSION
    broker = Broker()
    broker.topics.put(TopicConfig("t", 4, 4, perm=4), 0)
    answer = broker.send()
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending message is forbidden",
    )


def test_full_disk_refuses() -> None:
    broker = Broker()
    broker.send()
    broker.folder.folder("commitlog").free = 0
    answer = broker.send()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "no disk space for" in (answer.remark or "")


def test_delay_levels_are_read_or_refused() -> None:
    assert parse_delay_levels("1s 2m 1h 1d") == (1000, 120_000, 3_600_000, 86_400_000)
    with pytest.raises(ValueError, match="'1w' is no delay; write a number and s, m, h or d"):
        parse_delay_levels("1s 1w")


def test_names_of_groups() -> None:
    assert fault_of_group("g") is None
    assert fault_of_group("g" * 121) == f"The specified group: {'g' * 121}, is longer than group max length: 120"


def test_order_of_a_hash_map_that_has_grown() -> None:
    """97 entries do not fit into 128 buckets: the map has 256 then, and gives them in another order."""
    entries = {f"name{number}": number for number in range(97)}
    del entries["name96"]
    before = list(hash_map_order(entries))
    entries["name96"] = 96
    after = [name for name in hash_map_order(entries) if name != "name96"]
    assert sorted(before) == sorted(after)
    assert before != after
