"""Pulling and committing, against a broker that answers as the tests say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from bmqctl.client.remoting.client import RequestRefused
from bmqctl.client.remoting.consuming import QueuePuller, read_messages, read_records
from bmqctl.client.remoting.link import dial
from bmqctl.client.remoting.sending import Sender
from formats.errors import FormatError
from formats.rocketmq.files.record import Magic, Record, body_crc, encode_record
from formats.rocketmq.properties import decode_properties
from formats.rocketmq.remoting.batch import BatchMessage, CompressedMessage, iter_batch
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame, FrameFlag, encode_frame, next_frame
from tests.waiting import WAIT_S

HOST = b"\x7f\0\0\1\0\0\0\0"


def stored(offset: int, body: bytes = b"body", crc: int | None = None) -> bytes:
    found = body_crc(body) if crc is None else crc
    record = Record(Magic.V1, found, 0, 5, offset, 0, 0, 0, HOST, 0, HOST, 0, 0, body, "t", b"a\x01b\x02")
    return encode_record(record)


PULLED = {"suggestWhichBrokerId": "0", "nextBeginOffset": "9", "minOffset": "0", "maxOffset": "9"}


def talk(answers: list[Frame], story: Callable[[QueuePuller], Awaitable[None]]) -> list[Frame]:
    """Let a puller meet a broker with these answers; return what it asked."""
    asked: list[Frame] = []

    async def serve(stream: trio.abc.Stream) -> None:
        held = b""
        while data := await stream.receive_some(65536):
            held += bytes(data)
            while (found := next_frame(memoryview(held), 0, len(held))) is not None:
                frame, end = found
                held = held[end:]
                answer = answers[len(asked)]
                asked.append(frame)
                await stream.send_all(encode_frame(answer._replace(opaque=frame.opaque, flag=int(FrameFlag.RESPONSE))))

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            link = await dial("127.0.0.1", listener.socket.getsockname()[1], 5.0)
            nursery.start_soon(link.run)
            with trio.fail_after(WAIT_S):
                await story(QueuePuller(link, "g", "t", 3, 5.0))
            nursery.cancel_scope.cancel()

    trio.run(run)
    return asked


def test_records_are_pulled_and_nothing_is_committed_before_it_is_said() -> None:
    async def story(puller: QueuePuller) -> None:
        assert await puller.seek_committed()
        assert puller.offset == 7
        found = await puller.pull_records(32)
        assert [(each.queue_offset, each.flag, each.properties) for each in found] == [
            (7, 5, b"a\x01b\x02"),
            (8, 5, b"a\x01b\x02"),
        ]
        assert puller.offset == 9
        await puller.commit(8)

    asked = talk(
        [
            Frame(ResponseCode.SUCCESS, 0, ext_fields={"offset": "7"}),
            Frame(ResponseCode.SUCCESS, 0, ext_fields=PULLED, body=stored(7) + stored(8)),
            Frame(ResponseCode.SUCCESS, 0),
        ],
        story,
    )
    query, pull, commit = (frame.ext_fields or {} for frame in asked)
    assert (asked[0].code, query["queueId"]) == (RequestCode.QUERY_CONSUMER_OFFSET, "3")
    # Without the flag that lets the pull commit, whose bit is the lowest.
    assert (pull["sysFlag"], pull["queueOffset"], pull["maxMsgNums"]) == ("6", "7", "32")
    assert (asked[2].code, commit["commitOffset"]) == (RequestCode.UPDATE_CONSUMER_OFFSET, "8")


def test_a_group_without_an_offset_begins_where_the_queue_does() -> None:
    async def story(puller: QueuePuller) -> None:
        assert not await puller.seek_committed()
        await puller.seek_begin()
        assert puller.offset == 4
        assert await puller.pull_records(32) == []
        assert puller.offset == 9

    talk(
        [
            Frame(ResponseCode.QUERY_NOT_FOUND, 0),
            Frame(ResponseCode.SUCCESS, 0, ext_fields={"offset": "4"}),
            Frame(ResponseCode.PULL_OFFSET_MOVED, 0, ext_fields=PULLED),
        ],
        story,
    )


def test_refusal_of_the_broker_is_reported() -> None:
    async def story(puller: QueuePuller) -> None:
        with pytest.raises(RequestRefused, match="no offset of g in t/3: SYSTEM_ERROR, ill"):
            await puller.seek_committed()
        with pytest.raises(RequestRefused, match="no beginning of t/3: SYSTEM_ERROR, ill"):
            await puller.seek_begin()
        with pytest.raises(RequestRefused, match="pull of t/3 at 0: SYSTEM_ERROR, ill"):
            await puller.pull_records(1)
        with pytest.raises(RequestRefused, match="commit of t/3 at 5: SYSTEM_ERROR, ill"):
            await puller.commit(5)

    talk([Frame(ResponseCode.SYSTEM_ERROR, 0, remark="ill")] * 4, story)


def test_a_damaged_message_is_noticed() -> None:
    damaged = stored(1) + stored(2, crc=1)
    assert [record.is_body_sound for record in read_records(damaged)] == [True, False]
    with pytest.raises(FormatError, match="the checksum of message 2 differs"):
        read_messages(damaged)
    with pytest.raises(FormatError):
        read_records(stored(1)[:-1])


def test_messages_that_have_their_properties_are_sent_with_them() -> None:
    sender = Sender("g", "t")
    first = BatchMessage(7, b"one", b"UNIQ_KEY\x01ID1\x02a\x01b\x02")
    second = BatchMessage(8, b"two", b"UNIQ_KEY\x01ID2\x02")
    fields, body = sender.encoded(3, 99, first)
    assert (fields["e"], fields["g"], fields["h"], body) == ("3", "99", "7", b"one")
    assert decode_properties(fields["i"].encode()) == {"UNIQ_KEY": "ID1", "a": "b", "WAIT": "true"}
    fields, body = sender.encoded_batch(3, 99, [first, second])
    assert (fields["e"], fields["m"]) == ("3", "true")
    assert [message._replace(body=bytes(message.body)) for message in iter_batch(body)] == [first, second]


def test_a_body_that_is_compressed_is_sent_alone_with_its_flags() -> None:
    packed = CompressedMessage(0, b"packed", b"UNIQ_KEY\x01ID1\x02", 1 | 1 << 8)
    sender = Sender("g", "t")
    assert sender.encoded(3, 99, packed)[0]["f"] == "257"
    assert sender.encoded(3, 99, BatchMessage(*packed[:3]))[0]["f"] == "0"


@pytest.mark.parametrize(
    ("body", "following"),
    [
        (stored(3), "3"),
        (stored(3) + stored(4), "4"),
        (stored(3), "1"),
        (stored((1 << 63) - 1), "4"),
        (stored(3) + stored(-1), "4"),
    ],
)
def test_an_offset_that_is_not_behind_the_messages_is_an_error(body: bytes, following: str) -> None:
    async def story(puller: QueuePuller) -> None:
        puller.offset = 3
        for pull in (puller.pull, puller.pull_records):
            with pytest.raises(FormatError, match="nextBeginOffset"):
                await pull(32)
            assert puller.offset == 3

    talk([Frame(ResponseCode.SUCCESS, 0, ext_fields={**PULLED, "nextBeginOffset": following}, body=body)] * 2, story)
