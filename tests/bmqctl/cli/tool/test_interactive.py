"""Commands and the lines that they print; the reference's own suite waits for the same expressions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from bmqctl.cli.tool.printing import hex_dump
from formats.bmq.control.messages import CloseQueue, ConfigureStream, OpenQueue, Status, StatusCategory
from formats.bmq.wire.properties import Property, PropertyType, encode_properties
from tests.bmqctl.cli.tool.typing_user import interact
from tests.bmqctl.client.fakes import FakeBroker
from tests.bmqctl.client.serving import serving

pytestmark = pytest.mark.trio

URI = "bmq://bmq.test.mem.priority/orders"
OPEN = f'open uri="{URI}" flags="read,write,ack"'
REFUSAL = Status(category=StatusCategory.REFUSED, code=-6, message="not here")


def found(pattern: str, text: str) -> list[str]:
    return [match[1] for match in re.finditer(pattern, text)]


async def test_a_session_from_start_to_end() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", OPEN, f'post uri="{URI}" payload=["one"]', "?PUSH #0", "list", f'confirm uri="{URI}" guid="*"',
             f'list uri="{URI}"', f'close uri="{URI}"', "stop", "quit"],
        )  # fmt: skip
    assert found(r"session.start.*\((-?\d+)\)", text) == ["0"]
    for name in ("openQueue", "closeQueue"):
        assert found(rf"<--.*{name}.*uri = {re.escape(URI)}.*\((-?\d+)\)", text) == ["0"]
    assert found(r"<--.*post.*\((-?\d+)\)", text) == ["0"]
    (ack,) = found(rf"(ACK #.* type = ACK.*queue = \[ uri = {re.escape(URI)} .*)", text)
    assert "status = SUCCESS correlationId = [ autoValue = " in ack
    assert found(r"Unconfirmed message listing: (-?\d+) messages", text) == ["1", "0"]
    listed = re.search(
        r"\[([0-9a-fA-F]+)\] Queue: '\[ uri = (\S+) correlationId = \[ autoValue = (-?\d+) \] \]' = '([^']*)'", text
    )
    assert listed is not None
    assert (listed[2], listed[4]) == (URI, "one")
    assert found(r"<--.*confirmMessage.*\((-?\d+)\)", text) == ["0"]
    assert [guid.hex().upper() for _, guid, _ in server.broker.confirmed] == [listed[1]]
    assert re.search(r"<--.*stop\(\)", text)
    assert found(r"EVENT received: \[ type = \"SESSION\" sessionEventType = (\w+) ", text) == [
        "CONNECTED",
        "DISCONNECTED",
    ]
    assert re.search(r'EVENT received: \[ type = "MESSAGE" rawEventType = PUSH', text)
    assert text.index("openQueueSync") < text.index("rawEventType")


async def test_asynchronous_requests_do_not_wait() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start async=true", "?CONNECTED", OPEN + " async=true", "?<-- session.openQueueAsync",
             f'configure uri="{URI}" async=true maxUnconfirmedMessages=3', "?<-- session.configureQueueAsync",
             f'close uri="{URI}" async=true', "?<-- session.closeQueueAsync", "stop async=true", "?DISCONNECTED"],
        )  # fmt: skip
    for name, event in (("openQueue", "OPEN"), ("configureQueue", "CONFIGURE"), ("closeQueue", "CLOSE")):
        assert f"==> {event}_QUEUE_RESULT received: [ queueId = [ uri = {URI} " in text
        assert f"<-- session.{name}Async() => SUCCESS ([ queueId = [ uri = {URI} " in text
    assert text.count('result = "SUCCESS (0)"') == 6


async def test_a_stream_is_configured() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", f'open uri="{URI}" flags="read" consumerPriority=2 '
             'subscriptions=[{"expression": "x > 1", "correlationId": 7, "consumerPriority": 5}, {}]',
             f'configure uri="{URI}" maxUnconfirmedMessages=9', "stop"],
        )  # fmt: skip
    assert found(rf"<--.*configureQueue.*uri = {re.escape(URI)}.*\((-?\d+)\)", text) == ["0"]
    first, second = [each for each in server.broker.asked if isinstance(each, ConfigureStream)][:2]
    asked = [
        [
            (each.expression.text, each.consumers[0].max_unconfirmed_messages, each.consumers[0].consumer_priority)
            for each in request.stream_parameters.subscriptions
        ]
        for request in (first, second)
    ]
    # Without new subscriptions the old ones stay.
    assert asked == [[("x > 1", 1024, 5), ("", 1024, 2)], [("x > 1", 9, 5), ("", 9, 0)]]


async def test_a_push_is_printed_with_its_subscription_and_properties() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", f'open uri="{URI}" flags="read,write" '
             'subscriptions=[{"expression": "x > 1", "correlationId": 7}]',
             f'post uri="{URI}" payload=["{"z" * 20}"] compressionAlgorithmType="ZLIB" '
             'messageProperties=[{"name": "x", "value": "10", "type": "E_INT"}, {"name": "s", "value": "y"}]',
             "?with properties", "list", "?with properties"],
        )  # fmt: skip
    push = text[text.index("PUSH #0") :]
    assert f"PUSH #0: [ type = PUSH queue = [ uri = {URI} correlationId = [ autoValue = " in push
    assert (
        "correlationId = [ numeric = 7 ] subscriptionHandle = [ id = 1 CorrelationId = [ numeric = 7 ] ] GUID = "
        in push
    )
    assert f'\n{hex_dump(b"z" * 20)} ] with properties: [ s (STRING) = "y" x (INT32) = 10 ]' in push
    assert f"= '{'z' * 20}', with properties: [ s (STRING)" in push
    # Without the ack flag there is no correlation id, and no ack is asked for.
    assert "ACK #" not in text


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [("+1", "bcd"), ("+9", ""), ("-1", "abc"), ("-3", "a"), ("-9", ""), ("*", ""), ("+0", "abcd")],
)
async def test_messages_are_confirmed_by_their_order(wanted: str, kept: str) -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", OPEN, f'post uri="{URI}" payload=["a", "b", "c", "d"]', *["?PUSH #0"] * 4,
             f'confirm uri="{URI}" guid="{wanted}"', "list"],
        )  # fmt: skip
    assert "".join(found(r"\] \]' = '(\w)'", text)) == kept
    assert ("No messages to confirm" in text) is (wanted == "+0")


async def test_a_message_is_confirmed_by_its_name() -> None:
    async with serving() as server:
        script = ["start", OPEN, f'post uri="{URI}" payload=["a"]', "?PUSH #0"]
        wrong = ["0" * 32, "xyz", "+x", ""]
        text = await interact(server, [*script, *(f'confirm uri="{URI}" guid="{guid}"' for guid in wrong)])
    assert f"ERROR '{'0' * 32}' NOT found" in text
    assert "ERROR 'xyz' is not a valid GUID" in text
    assert "ERROR '+x' is not a valid GUID" in text
    assert "ERROR 'guid' is mandatory" in text
    assert server.broker.confirmed == []
    (guid,) = [guid.hex().upper() for guid, _ in server.broker.posted]
    async with serving() as server:
        text = await interact(server, script)
    assert guid not in text


async def test_mistakes_are_reported() -> None:
    async with serving() as server:
        text = await interact(
            server,
            [f'open uri="{URI}" flags="read"', "start", 'open uri="bmq:/x" flags="read"', "open", 'open uri="x"',
             f'open uri="{URI}" flags="read,wrong,bad"', f'open uri="{URI}" flags="admin"',
             f'open uri="{URI}" flags=""', f'open uri="{URI}?id=app" flags="write"',
             f'open uri="{URI}" flags="read" maxUnconfirmedMessages=-1',
             f'open uri="{URI}" flags="read" consumerPriority=2000000000',
             f'open uri="{URI}" flags="read" subscriptions=[{{"expression": ""}}]',
             f'configure uri="{URI}"', f'close uri="{URI}"', "close", f'post uri="{URI}" payload=["x"]', "post",
             f'batch-post uri="{URI}"', f'list uri="{URI}"', f'confirm uri="{URI}" guid="*"', "load-post", "sing",
             'load-post uri="x"', "open uri=x", "help", ""],
        )  # fmt: skip
    assert f"NOT_CONNECTED ([ queueId = [ uri = {URI} correlationId" in text
    assert 'errorDescription = "Not connected" ])' in text
    assert "ERROR The uri ('bmq:/x') is not valid: Invalid scheme" in text
    assert text.count("ERROR 'uri' is mandatory") == 4
    assert "ERROR Invalid flag(s) 'wrong','bad'" in text
    assert found(r'result = "(\w+) \((?:-7|-101)\)"', text) == [
        "INVALID_FLAGS", "INVALID_FLAGS", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ]  # fmt: skip
    assert "ERROR #INVALID_SUBSCRIPTION Expression validation failed" in text
    assert "ERROR Invalid subscriptions" in text
    assert text.count(f"ERROR unknown queue '{URI}'") == 6
    assert "ERROR 'file' is mandatory" in text
    assert "ERROR Unknown command: sing" in text
    assert "ERROR Unable to decode: uri=x\n'x' is no value" in text
    assert "batch-post uri=" in text


async def test_refusal_of_the_broker_is_reported() -> None:
    async with serving(FakeBroker(refuse_queues=REFUSAL)) as server:
        text = await interact(server, ["start", OPEN, OPEN])
    assert found(r"<--.*openQueue.*\((-?\d+)\)", text) == ["-6", "-6"]
    assert 'result = "REFUSED (-6)" errorDescription = "not here"' in text


async def test_a_queue_is_opened_once() -> None:
    async with serving() as server:
        text = await interact(server, ["start", OPEN, OPEN, f'close uri="{URI}"', OPEN])
    assert found(r"<--.*openQueue.*\((-?\d+)\)", text) == ["0", "100", "0"]


async def test_while_a_request_is_under_way_others_are_refused() -> None:
    async with serving(FakeBroker(mute=(OpenQueue,))) as server:
        text = await interact(
            server, ["start", OPEN + " async=true", OPEN, f'configure uri="{URI}"', f'close uri="{URI}"', "stop"]
        )
    assert "ALREADY_IN_PROGRESS (101)" in text
    assert found(r"<--.*(?:configure|close)Queue.*\((-?\d+)\)", text) == ["-5", "-5"]
    # Requests under way when the session ends end with it.
    assert "openQueueAsync() => NOT_CONNECTED" in text


async def test_a_broker_that_does_not_answer() -> None:
    for mute, command in ((OpenQueue, "open"), (ConfigureStream, "open"), (CloseQueue, "close")):
        async with serving() as server:
            script = ["start", *([OPEN] if command == "close" else [])]
            await interact(server, script)
            server.broker = FakeBroker(mute=(mute,))
            text = await interact(
                server, [*script, f'close uri="{URI}"' if command == "close" else OPEN], timeout_s=1.0
            )
        assert found(rf"<--.*{command}Queue.*\((-?\d+)\)", text) == ["-2"]
        assert "CONNECTION_LOST" in text


async def test_refused_connection_is_reported() -> None:
    async with serving() as server:
        with trio.socket.socket() as closed:
            await closed.bind(("127.0.0.1", 0))
            server.port = closed.getsockname()[1]
            text = await interact(server, ["start async=true", "stop", "list"])
    assert "CONNECTED" not in text
    assert "<-- session.stop()" in text


async def test_a_lost_connection_is_replaced() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", OPEN, "!", "?CONNECTION_LOST", f'post uri="{URI}" payload=["x"]', f'confirm uri="{URI}" guid="*"',
             "?STATE_RESTORED", "?ACK #0"],
        )  # fmt: skip
    types = found(r"sessionEventType = (\w+) ", text)
    assert types == [
        "CONNECTED",
        "CONNECTION_LOST",
        "RECONNECTED",
        "QUEUE_REOPEN_RESULT",
        "STATE_RESTORED",
        "DISCONNECTED",
    ]
    assert "correlationId = [ autoValue = " in text
    assert re.search(rf"QUEUE_REOPEN_RESULT statusCode = 0 result = SUCCESS .* queue = {re.escape(URI)} \]", text)
    assert "ACK #0: [ type = ACK status = SUCCESS" in text


async def test_a_broker_that_falls_silent_is_named_so() -> None:
    async with serving(FakeBroker(heartbeat_interval_ms=20, max_missed_heartbeats=2)) as server:
        text = await interact(server, ["start", "~", "?WARN #TCP_DEAD_CHANNEL", "?CONNECTION_LOST", "stop"])
    assert "<-- session.stop()" in text


async def test_nacks_are_faults() -> None:
    async with serving(FakeBroker(ack_status=1)) as server:
        text = await interact(server, ["start", OPEN, f'post uri="{URI}" payload=["a", "b"]', *["?ACK #0"] * 2])
    assert re.search("ERROR.*Failed ACK.*LIMIT_MESSAGES", text)
    assert "status = LIMIT_MESSAGES" in text


async def test_post_without_an_ack_at_the_end_is_nacked() -> None:
    async with serving(FakeBroker(mute_puts=True)) as server:
        text = await interact(server, ["start", OPEN, f'post uri="{URI}" payload=["a"]', "stop"])
    assert "ACK #0: [ type = ACK status = UNKNOWN" in text
    assert text.index("status = UNKNOWN") < text.index("DISCONNECTED")


async def test_a_post_that_cannot_be_made() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", f'open uri="{URI}" flags="read"', f'post uri="{URI}" payload=["x"]', f'post uri="{URI}"',
             f'close uri="{URI}"', OPEN, f'post uri="{URI}" payload=[""]',
             f'post uri="{URI}" payload=["x"] messageProperties=[{{"name": "n", "value": "x", "type": "E_INT"}}]',
             f'post uri="{URI}" payload=["x"] compressionAlgorithmType="LZ4"', "?ACK"],
        )  # fmt: skip
    assert "ERROR Failed to pack message. rc: QUEUE_READONLY" in text
    assert "ERROR <-- session.post() => INVALID_ARGUMENT (-7)" in text
    assert "ERROR Failed to pack message. rc: PAYLOAD_EMPTY" in text
    assert "'x' is no integer" in text
    assert "WARN 'LZ4' is not a valid compression type, message will be sent uncompressed." in text
    assert len(server.broker.posted) == 1


async def test_a_batch_is_posted_by_the_clock() -> None:
    async with serving() as server:
        text = await interact(
            server,
            ["start", OPEN, f'batch-post uri="{URI}" msgSize=30 eventSize=2 eventsCount=3 postInterval=1 postRate=2 '
             'autoIncremented="n"', "?n (INT64) = 5"],
            dump=True,
        )  # fmt: skip
    assert "INFO All messages have been posted" in text
    assert found(r"n \(INT64\) = (\d+)", text) == [str(number) for number in range(6)]
    assert b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCD" in server.broker.posted[0][1]


async def test_a_dumped_message_is_posted(tmp_path: Path) -> None:
    area = encode_properties([Property("x", PropertyType.INT32, 5)], 1)
    good, bad, worse = tmp_path / "good", tmp_path / "bad", tmp_path / "worse"
    text = f"Message Properties:\n\n[ ]\n\n\nMessage Properties hexdump:\n\n{hex_dump(area)}\n\nMessage Payload:\n\n"
    good.write_text(text + hex_dump(b"payload"))
    bad.write_text("nothing")
    worse.write_text(text.replace(hex_dump(area), hex_dump(b"\xff" * 30)) + hex_dump(b"payload"))
    async with serving() as server:
        script = [f'load-post uri="{URI}" file="{path}"' for path in (good, bad, worse, tmp_path / "none")]
        output = await interact(server, ["start", OPEN, *script, "?PUSH #0"])
    assert "x (INT32) = 5" in output
    assert "|payload         |" in output
    assert output.count("ERROR Failed to load message from file") == 2
    assert "ERROR Failed to streamIn message properties" in output
    assert len(server.broker.posted) == 1


async def test_all_is_written_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with serving() as server:
        await interact(
            server, ["start", OPEN, f'post uri="{URI}" payload=["msg1"]', "?ACK #0"], path=path, confirm=True
        )
    lines = path.read_text()
    for kind in ("SESSION CONNECTED", f"ACK {URI}|[ autoValue", f"PUSH {URI}|", f"CONFIRM {URI}|"):
        assert kind in lines
    assert len(server.broker.confirmed) == 1


async def test_quiet_means_results_only() -> None:
    async with serving() as server:
        text = await interact(server, ["start", OPEN + " async=true", "?<--"], quiet=True, dump=False)
    assert "==>" not in text
    assert "<-- session.start" in text


async def test_the_session_can_be_started_again() -> None:
    async with serving() as server:
        text = await interact(server, ["start", OPEN, "stop", "start", OPEN, "start"])
    assert found(r"session.start.*\((-?\d+)\)", text) == ["0", "0", "0"]
    assert found(r"<--.*openQueue.*\((-?\d+)\)", text) == ["0", "0"]
