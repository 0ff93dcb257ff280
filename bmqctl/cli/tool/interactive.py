"""The interactive mode: executes each typed line, and prints events from the broker.

Source of commands, output lines and their order: `m_bmqtool::Interactive`, `m_bmqtool::Application`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import trio

from bmqctl.cli.tool.commands import (
    COMMANDS,
    HELP,
    BatchPost,
    CloseQueue,
    Command,
    ConfigureQueue,
    Confirm,
    ListMessages,
    LoadPost,
    OpenQueue,
    Post,
    Start,
    Stop,
    Subscription,
    parse_flags,
    properties_of,
    stream_options,
    subscription_faults,
)
from bmqctl.cli.tool.grammar import CommandError, decode, parse_line, show
from bmqctl.cli.tool.log import Log, Severity
from bmqctl.cli.tool.message_file import MessageFileError, parse_message_file
from bmqctl.cli.tool.poster import HIGH_WATERMARK, Plan, Poster
from bmqctl.cli.tool.printing import ascii_dump, print_properties
from bmqctl.cli.tool.results import GenericResult
from bmqctl.cli.tool.session import Outcome, PackError, ToolQueue, ToolSession, next_number
from bmqctl.client.protocol.message import Message
from formats.bmq.guid import format_guid, parse_guid
from formats.bmq.uri import parse_uri
from formats.bmq.wire.properties import decode_properties
from formats.errors import FormatError

__all__ = ["Interactive", "Lines", "Refusal"]

CATEGORY: Final = "BMQTOOL.INTERACTIVE"
START_TIMEOUT_S: Final = 5.0
LISTED_BYTES_MAX: Final = 32
# The newer encoding of properties, as brokers dump it.
_SCHEMA_ID: Final = 1


class Lines(Protocol):
    """A source of commands."""

    async def next_line(self) -> str | None:
        """Read a line without its end; None after the last one."""


class Refusal(Exception):
    """A command that cannot be carried out; the text is the reason."""


class Interactive:
    """Carries out commands on `session`, and keeps received messages until they are confirmed."""

    def __init__(self, session: ToolSession, log: Log, *, quiet: bool) -> None:
        self._session = session
        self._log = log
        self._quiet = quiet
        # Unconfirmed messages by queue and GUID, in order of arrival.
        self._unconfirmed: dict[str, dict[bytes, tuple[ToolQueue, Message]]] = {}

    async def run(self, lines: Lines) -> None:
        while (line := await lines.next_line()) is not None:
            line = line.strip()
            if line in ("bye", "quit", "q"):
                break
            if line == "help":
                self._info(HELP)
            elif line:
                await self._run_line(line)
        await self._session.stop()

    def keep(self, queue: ToolQueue, message: Message) -> None:
        self._unconfirmed.setdefault(queue.uri, {})[message.guid] = (queue, message)

    async def _run_line(self, line: str) -> None:
        verb = line.split(maxsplit=1)[0]
        if verb not in COMMANDS:
            self._error(f"Unknown command: {verb}")
            return
        try:
            _, values = parse_line(line)
            command: Command = decode(COMMANDS[verb], values)
            await self._carry_out(command)
        except CommandError as fault:
            self._error(f"Unable to decode: {line[len(verb) :].strip()}\n{fault}")
        except Refusal as fault:
            self._error(str(fault))
        except PackError as fault:
            self._error(f"Failed to pack message. rc: {fault}")

    async def _carry_out(self, command: Command) -> None:
        match command:
            case Start():
                await self._start(command)
            case Stop():
                await self._stop(command)
            case OpenQueue():
                await self._open(command)
            case ConfigureQueue():
                await self._configure(command)
            case CloseQueue():
                await self._close(command)
            case Post():
                self._post(command)
            case LoadPost():
                self._load_post(command)
            case BatchPost():
                await self._batch_post(command)
            case ListMessages():
                self._list(command)
            case Confirm():
                self._confirm(command)

    # The session

    async def _start(self, command: Start) -> None:
        self._info(f"--> Starting session: {show(command)}")
        if command.async_:
            result = self._session.start_async(START_TIMEOUT_S)
        else:
            result = await self._session.start(START_TIMEOUT_S)
        self._result(result == 0, f"<-- session.start({START_TIMEOUT_S}) => {result.name} ({result.value})")

    async def _stop(self, command: Stop) -> None:
        self._info(f"--> Stopping session: {show(command)}")
        if command.async_:
            self._session.stop_async()
        else:
            await self._session.stop()
        self._unconfirmed.clear()
        self._info("<-- session.stop()")

    # Queues

    async def _open(self, command: OpenQueue) -> None:
        self._check_uri(command.uri)
        try:
            flags = parse_flags(command.flags)
        except CommandError as fault:
            raise Refusal(str(fault)) from None
        self._info(f"--> Opening queue: {show(command)}")
        self._check_subscriptions(command.subscriptions)
        options = stream_options(command)

        def done(outcome: Outcome) -> None:
            if outcome.ok:
                self._unconfirmed.setdefault(command.uri, {})

        await self._request(
            "openQueue",
            "OPEN_QUEUE_RESULT",
            command.async_,
            done,
            lambda callback: self._session.open(command.uri, flags, options, callback),
        )

    async def _configure(self, command: ConfigureQueue) -> None:
        self._check_uri(command.uri)
        queue = self._queue(command.uri)
        options = stream_options(command)
        self._info(f"--> Configuring queue: {show(command)}")
        self._check_subscriptions(command.subscriptions)
        await self._request(
            "configureQueue",
            "CONFIGURE_QUEUE_RESULT",
            command.async_,
            lambda _: None,
            lambda callback: self._session.configure(queue, options, callback),
        )

    async def _close(self, command: CloseQueue) -> None:
        if not command.uri:
            raise Refusal("'uri' is mandatory")
        queue = self._queue(command.uri)
        self._info(f"--> Closing queue: {show(command)}")

        def done(outcome: Outcome) -> None:
            if outcome.ok:
                # They come again if the queue is reopened.
                self._unconfirmed.pop(command.uri, None)

        await self._request(
            "closeQueue",
            "CLOSE_QUEUE_RESULT",
            command.async_,
            done,
            lambda callback: self._session.close(queue, callback),
        )

    async def _request(
        self,
        name: str,
        event: str,
        is_async: bool,
        done: Callable[[Outcome], None],
        ask: Callable[[Callable[[Outcome], None]], object],
    ) -> None:
        """Make a request, print its outcome, and wait for it unless `is_async`."""
        ended = trio.Event()

        def callback(outcome: Outcome) -> None:
            if is_async and not self._quiet:
                self._info(f"==> {event} received: {outcome}")
            way = "Async" if is_async else "Sync"
            self._result(outcome.ok, f"<-- session.{name}{way}() => {outcome.result.name} ({outcome})")
            done(outcome)
            ended.set()

        ask(callback)
        if not is_async:
            await ended.wait()

    def _queue(self, uri: str) -> ToolQueue:
        try:
            return self._session.queues[uri]
        except KeyError:
            raise Refusal(f"unknown queue '{uri}'") from None

    def _check_subscriptions(self, subscriptions: tuple[Subscription, ...]) -> None:
        if faults := subscription_faults(subscriptions):
            for fault in faults:
                self._error(f"#INVALID_SUBSCRIPTION {fault}")
            raise Refusal("Invalid subscriptions")

    def _check_uri(self, uri: str) -> None:
        if not uri:
            raise Refusal("'uri' is mandatory")
        try:
            parse_uri(uri)
        except FormatError as fault:
            raise Refusal(f"The uri ('{uri}') is not valid: {fault.reason}") from None

    # Messages

    def _post(self, command: Post) -> None:
        if not command.uri:
            raise Refusal("'uri' is mandatory")
        queue = self._queue(command.uri)
        self._info(f"--> Posting message: {show(command)}")
        algorithm = command.compression_algorithm_type.upper()
        if algorithm not in ("NONE", "ZLIB"):
            self._log.write(
                Severity.WARN,
                CATEGORY,
                f"'{command.compression_algorithm_type}' is not a valid compression type, "
                "message will be sent uncompressed.",
            )
        properties = properties_of(command.message_properties)
        if not command.payload:
            self._posted(GenericResult.INVALID_ARGUMENT)
            return
        for payload in command.payload:
            data = _bytes_of(payload)
            self._session.post(queue, data, properties, compress=algorithm == "ZLIB", number=_number(queue))
        self._posted(GenericResult.SUCCESS)

    def _load_post(self, command: LoadPost) -> None:
        for name in ("uri", "file"):
            if not getattr(command, name):
                raise Refusal(f"'{name}' is mandatory")
        queue = self._queue(command.uri)
        self._info(f"--> Loading and posting message: {show(command)}")
        try:
            area, payload = parse_message_file(Path(command.file).read_bytes())
        except OSError as fault:
            raise Refusal(f"Failed to load message from file: {fault}") from None
        except MessageFileError as fault:
            raise Refusal(f"Failed to load message from file: {command.file}: {fault}") from None
        try:
            properties = decode_properties(area, _SCHEMA_ID) if area else []
        except FormatError as fault:
            raise Refusal(f"Failed to streamIn message properties: {fault}") from None
        self._session.post(queue, payload, properties, number=_number(queue))
        self._posted(GenericResult.SUCCESS)

    async def _batch_post(self, command: BatchPost) -> None:
        queue = self._queue(command.uri)
        plan = Plan(
            events=command.events_count,
            event_size=command.event_size,
            rate=command.post_rate,
            interval_ms=command.post_interval,
            msg_size=command.msg_size,
            payloads=tuple(_bytes_of(payload) for payload in command.payload),
            auto_incremented=command.auto_incremented,
        )
        poster = Poster(self._session, queue, plan)
        due = trio.current_time()
        while poster.pending:
            poster.post_round()
            await self._session.drained(HIGH_WATERMARK)
            due += plan.interval_ms / 1000
            if poster.pending:
                await trio.sleep_until(due)
        self._info("All messages have been posted")

    def _posted(self, result: GenericResult) -> None:
        self._result(result == 0, f"<-- session.post() => {result.name} ({result.value})")

    def _list(self, command: ListMessages) -> None:
        if command.uri is None:
            kept = [each for messages in self._unconfirmed.values() for each in messages.values()]
        elif command.uri in self._unconfirmed:
            kept = list(self._unconfirmed[command.uri].values())
        else:
            raise Refusal(f"unknown queue '{command.uri}'")
        lines = [f"Unconfirmed message listing: {len(kept)} messages"]
        for index, (queue, message) in enumerate(kept, 1):
            text = ascii_dump(message.payload[:LISTED_BYTES_MAX])
            line = f"  #{index:3d}  [{format_guid(message.guid)}] Queue: '{queue}' = '{text}'"
            if properties := message.typed_properties:
                line += f", with properties: {print_properties(properties)}"
            lines.append(line)
        self._info("\n".join(lines))

    def _confirm(self, command: Confirm) -> None:
        if not command.guid:
            raise Refusal("'guid' is mandatory")
        self._check_uri(command.uri)
        queue = self._queue(command.uri)
        messages = self._unconfirmed.setdefault(command.uri, {})
        chosen = _choose(command.guid, list(messages))
        if not chosen:
            self._info("No messages to confirm")
        for guid in chosen:
            self._info(f"--> Confirming message with GUID {format_guid(guid)}")
            result = self._session.confirm(queue, guid)
            self._result(result == 0, f"<-- session.confirmMessage() => {result.name} ({result.value})")
            del messages[guid]

    # Printing

    def _info(self, text: str) -> None:
        self._log.write(Severity.INFO, CATEGORY, text, depth=2)

    def _error(self, text: str) -> None:
        self._log.write(Severity.ERROR, CATEGORY, text, depth=2)

    def _result(self, ok: bool, text: str) -> None:
        self._log.write(Severity.INFO if ok else Severity.ERROR, CATEGORY, text, depth=2)


def _bytes_of(text: str) -> bytes:
    """Encode as UTF-8; invalid bytes that were typed are kept."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _number(queue: ToolQueue) -> int | None:
    return next_number() if queue.ack else None


def _choose(wanted: str, guids: list[bytes]) -> list[bytes]:
    """Choose GUIDs: `*` for all, `+n` for the first, `-n` for the last, or one by its name."""
    if wanted == "*":
        return guids
    if wanted[0] in "+-":
        try:
            count = int(wanted)
        except ValueError:
            raise Refusal(f"'{wanted}' is not a valid GUID") from None
        return guids[:count] if count > 0 else guids[max(len(guids) + count, 0) :]
    try:
        guid = parse_guid(wanted)
    except FormatError:
        raise Refusal(f"'{wanted}' is not a valid GUID") from None
    if guid not in guids:
        raise Refusal(f"'{wanted}' NOT found")
    return [guid]
