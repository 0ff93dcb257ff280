"""Messages in the formats of `--output`."""

from __future__ import annotations

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.carrying.messages.browsing import Shown
from bmqctl.carrying.messages.content import read_message
from bmqctl.carrying.messages.ends import CannotBegin
from bmqctl.carrying.messages.framing import Frame, Framer
from bmqctl.carrying.messages.received import QUEUE_PLACE, TOPIC_PLACE, Received, Undecodable, to_text
from bmqctl.cli.messages.message_formats import LETTER_PLACE, frame_of
from bmqctl.common.decoding.decoder import Format, Wanted, make_decoder
from bmqctl.common.render import OutputFormat
from formats.bmq.wire.properties import Property, PropertyType

OF_QUEUE = Received("40", {"guid": "40"}, b'{"a": 1}', [Property("n", PropertyType.INT32, 3)])
OF_TOPIC = Received(
    "7F",
    {
        "message_id": "7F",
        "topic": "t",
        "broker": "b",
        "queue": 1,
        "offset": 2,
        "attempt": 1,
        "born_at": "2026-11-26",
        "original_topic": "o",
        "dead_since": "2026-11-27",
        "sent_again": [{"to": "o", "at": "2026-11-28"}],
    },
    b"one\r\ntwo,\xc3\xa4",
    [],
    "paid",
    ["k-1", "k-2"],
)


def output(frame: Frame, *pieces: list[Received]) -> str:
    """Print messages that come in pieces, as a command does."""
    framer = Framer(frame)
    parts = [framer.begin(), *(framer.join(map(frame.form, piece)) for piece in pieces), framer.end()]
    return b"".join(parts).decode()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_nothing_is_printed_before_the_first_message_unless_it_is_asked_for() -> None:
    frame = Frame(to_text, b"[", b",", b"\n]\n")
    assert [Framer(frame).join([]), Framer(frame).join([b"1\n"]), Framer(frame).end()] == [b"", b"[\n1", b"[\n]\n"]
    framer = Framer(frame)
    assert [framer.begin(), framer.begin(), framer.join([b"1\n"]), framer.end()] == [b"[", b"", b"\n1", b"\n]\n"]


def test_an_output_that_ends_early_is_complete_as_far_as_it_goes() -> None:
    framer = Framer(Frame(to_text, b"[", b",", b"\n]\n"))
    assert framer.cut() == b""
    assert json.loads(framer.join([b"1\n", b"2\n"]) + framer.cut()) == [1, 2]


@pytest.mark.parametrize("count", [0, 2])
def test_browse_completes_its_list_when_a_broker_is_lost(
    count: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def lost(end: object, opening: object, options: object, shown: Shown) -> None:
        await shown.show([OF_TOPIC] * count)
        raise CannotBegin("the broker is gone")

    monkeypatch.setattr("bmqctl.carrying.messages.browsing._browse", lost)
    result = CliRunner().invoke(app, ["browse", "rocketmq://mq:9876/t", "--output", "json"])
    assert (result.exit_code, result.stderr) == (2, "bmqctl browse: the broker is gone\n")
    text = capfd.readouterr().out
    assert [each["tag"] for each in json.loads(text or "[]")] == ["paid"] * count


@pytest.mark.parametrize("pieces", [[], [[OF_QUEUE]], [[OF_QUEUE, OF_QUEUE], [], [OF_QUEUE]]])
def test_json_is_one_list_of_what_the_lines_are(pieces: list[list[Received]]) -> None:
    count = sum(map(len, pieces))
    lines = output(frame_of(OutputFormat.JSONL, to_text, QUEUE_PLACE, None), *pieces)
    assert [read_message(line).payload for line in lines.encode().splitlines()] == [OF_QUEUE.payload] * count
    found = output(frame_of(OutputFormat.JSON, to_text, QUEUE_PLACE, None), *pieces)
    assert json.loads(found) == [json.loads(line) for line in lines.splitlines()]
    # A line is whole when its message has come, so that a reader has it before the next one.
    assert len(found.splitlines()) == count + 2
    assert found.endswith("\n]\n")


def test_csv_has_a_column_for_each_field_that_may_be() -> None:
    text = output(frame_of(OutputFormat.CSV, to_text, QUEUE_PLACE, None), [OF_QUEUE._replace(payload=b"\xff")])
    (row,) = rows_of(text)
    assert row == {
        "guid": "40",
        "payload": "",
        "payload_base64": "/w==",
        "properties": '{"n": {"type": "INT32", "value": 3}}',
    }
    (row,) = rows_of(output(frame_of(OutputFormat.CSV, to_text, TOPIC_PLACE, None), [OF_TOPIC]))
    assert (row["payload"], row["payload_base64"]) == ("one\r\ntwo,ä", "")
    assert (row["tag"], row["keys"], row["sharding_key"]) == ("paid", '["k-1", "k-2"]', "")
    assert "sent_again" not in row
    text = output(frame_of(OutputFormat.CSV, to_text, LETTER_PLACE, None), [], [OF_TOPIC], [OF_TOPIC])
    assert [json.loads(row["sent_again"])[0]["at"] for row in rows_of(text)] == ["2026-11-28"] * 2
    assert output(frame_of(OutputFormat.CSV, to_text, QUEUE_PLACE, None)) == "guid,payload,payload_base64,properties\n"


def test_csv_has_the_decoded_payload() -> None:
    frame = frame_of(OutputFormat.CSV, to_text, QUEUE_PLACE, make_decoder(Wanted(Format.JSON)))
    (row,) = rows_of(output(frame, [OF_QUEUE]))
    assert (row["payload"], json.loads(row["decoded"])) == ('{"a": 1}', {"a": 1})
    with pytest.raises(Undecodable):
        frame.form(OF_TOPIC)
    frame = frame_of(OutputFormat.CSV, to_text, QUEUE_PLACE, make_decoder(Wanted(Format.HEX)))
    assert rows_of(output(frame, [OF_QUEUE]))[0]["decoded"] == OF_QUEUE.payload.hex()


def test_csv_has_names_that_are_no_text_escaped() -> None:
    row = output(frame_of(OutputFormat.CSV, to_text, TOPIC_PLACE, None), [OF_TOPIC._replace(tag="a\ud800")])
    assert "a\\ud800" in row
