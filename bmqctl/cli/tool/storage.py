"""The storage mode: looking into the files of a store, a record at a time.

Source of commands and lines: `m_bmqtool::StorageInspector`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bmqctl.cli.tool.grammar import CommandError, parse_line
from bmqctl.cli.tool.interactive import Lines
from bmqctl.cli.tool.log import Log, Severity
from bmqctl.cli.tool.store_files import Cursor, DataCursor, JournalCursor, QlistCursor
from bmqctl.cli.tool.store_print import (
    aligned,
    kind_of,
    print_data,
    print_headers,
    print_journal,
    print_queue,
    print_record,
)
from bmqctl.stores.blazingmq.read.files import NotAStoreFile
from formats.bmq.disk.files import FileType
from formats.bmq.disk.journal import JournalOpRecord, MessageRecord
from formats.bmq.disk.padding import DWORD
from formats.bmq.disk.qlist import QueueRecord
from formats.errors import FormatError

__all__ = ["StorageInspector"]

CATEGORY: Final = "STORAGEINSPECTOR"
KEY_DIGITS: Final = 10
_RECORD_TYPES: Final = {
    "message": "MESSAGE",
    "confirm": "CONFIRM",
    "delete": "DELETION",
    "qop": "QUEUE_OP",
    "jop": "JOURNAL_OP",
}

HELP = """
Commands:
  open path=""
  close
  queues
  metadata
  dump uri="" (key="")
  help
  quit
  bye

Data Commands:
  d n/next=1
  d p/prev=1
  d r/record=1
  d l/list=1

Qlist Commands:
  q n/next=1
  q p/prev=1
  q r/record=1
  q l/list=1

Journal Commands:
  j n/next=1
  j p/prev=1
  j r/record=1
  j l/list=1
  j type={"message", "confirm", "delete", "qop", "jop"}
  j dump="payload"

A path is that of a file, or what its files' names have in common, with '*' for the rest.
"""


class Complaint(Exception):
    """A command that cannot be carried out; the text says why."""


class StorageInspector:
    """Cursors on up to three files of one set."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._data: DataCursor | None = None
        self._journal: JournalCursor | None = None
        self._qlist: QlistCursor | None = None
        self._commands: dict[str, Callable[[dict[str, Any]], None]] = {
            "open": self._open,
            "close": self._close,
            "queues": self._queues,
            "metadata": self._metadata,
            "dump": self._dump,
            "d": lambda values: self._walk(self._need(self._data, "data"), values),
            "q": lambda values: self._walk(self._need(self._qlist, "qlist"), values),
            "j": self._walk_journal,
        }

    async def run(self, lines: Lines, path: str = "") -> None:
        """Carry out commands until the user leaves; first open `path`, if given."""
        self._info(
            "Welcome to the BlazingMQ tool storage inspector.\n"
            "Type 'help' to see the list of commands supported by storage inspector. Ctrl-D to quit."
        )
        if path:
            self._carry_out("open", lambda: self._open({"path": path}))
        while (line := await lines.next_line()) is not None:
            line = line.strip()
            verb, _, rest = line.partition(" ")
            if verb in ("bye", "quit", "help") and rest:
                self._error(f"'{verb}' takes no arguments.")
            elif verb in ("bye", "quit"):
                break
            elif verb == "help":
                self._info(HELP)
            elif verb:
                self._run_line(verb, line)
        self._forget()

    def _run_line(self, verb: str, line: str) -> None:
        if verb not in self._commands:
            self._error(f"Unknown command: '{verb}'.  Try 'help'.")
            return
        self._carry_out(line, lambda: self._commands[verb](parse_line(line)[1]))

    def _carry_out(self, line: str, command: Callable[[], None]) -> None:
        try:
            command()
        except CommandError as fault:
            self._error(f"Unable to decode: {line}\n{fault}")
        except (Complaint, FormatError, NotAStoreFile) as fault:
            self._error(str(fault))
        except OSError as fault:
            self._error(f"{fault.filename}: {fault.strerror}")

    # Files

    def _open(self, values: dict[str, Any]) -> None:
        if self._cursors():
            raise Complaint("A storage is already open.")
        path = _text(values, "path")
        if len(path) < 3:
            raise Complaint("Invalid path provided in command.")
        kinds = (FileType.DATA, FileType.JOURNAL, FileType.QLIST)
        if path.endswith("*"):
            stem = path[:-1].removesuffix(".")
            paths = {kind: Path(stem + kind.extension) for kind in kinds}
            if not paths[FileType.QLIST].exists():
                # A broker in FSM mode keeps its queues in the ledger only.
                del paths[FileType.QLIST]
        else:
            paths = {kind: Path(path) for kind in kinds if path.endswith(kind.extension)}
            if not paths:
                raise Complaint(f"Invalid file extension in specified path [{path}]")
        try:
            self._data = DataCursor(paths[FileType.DATA]) if FileType.DATA in paths else None
            self._journal = JournalCursor(paths[FileType.JOURNAL]) if FileType.JOURNAL in paths else None
            self._qlist = QlistCursor(paths[FileType.QLIST]) if FileType.QLIST in paths else None
        except BaseException:
            self._forget()
            raise
        self._info(" ".join(f"{kind.name.capitalize()} file: [{path}]" for kind, path in paths.items()))

    def _close(self, values: dict[str, Any]) -> None:
        if not self._cursors():
            raise Complaint("No storage is open")
        self._forget()

    def _forget(self) -> None:
        for cursor in self._cursors():
            cursor.close()
        self._data = self._journal = self._qlist = None

    def _cursors(self) -> list[Cursor[Any]]:
        return [cursor for cursor in (self._data, self._qlist, self._journal) if cursor is not None]

    def _metadata(self, values: dict[str, Any]) -> None:
        for cursor in self._cursors():
            name = cursor.opened.file_type.name.lower()
            self._info(f"Details of {name} file: \n{print_headers(cursor)}")

    # Queues

    def _records(self) -> list[QueueRecord]:
        """The queues of the QLIST file, each once, with apps added later."""
        qlist = self._need(self._qlist, "qlist")
        place = qlist.index
        found: dict[tuple[str, bytes], QueueRecord] = {}
        qlist.rewind()
        while qlist.forward():
            record = qlist.record()
            known = found.setdefault((record.uri, record.queue_key), record)
            new = tuple(app for app in record.apps if app not in known.apps)
            found[record.uri, record.queue_key] = known._replace(apps=known.apps + new)
        qlist.index = place
        return [found[name] for name in sorted(found)]

    def _queues(self, values: dict[str, Any]) -> None:
        if self._qlist is None:
            self._info("Qlist file is not open.")
            return
        records = self._records()
        self._info(f"Total number of queue instances: {len(records)}")
        for number, record in enumerate(records, 1):
            fields = [("Queue URI", record.uri), ("QueueKey", record.queue_key.hex().upper())]
            text = f"Queue #{number}\n{aligned([*fields, ('Number of AppIds', len(record.apps))])}"
            for index, app in enumerate(record.apps, 1):
                text += f"        AppId #{index}\n"
                text += aligned([("AppId", app.app_id), ("AppKey", app.app_key.hex().upper())], indent=8)
            self._info(text + "\n")

    def _dump(self, values: dict[str, Any]) -> None:
        uri, key = _text(values, "uri"), _text(values, "key")
        if not uri:
            raise Complaint("'uri' is mandatory")
        if key and len(key) != KEY_DIGITS:
            raise Complaint(f"'key' length must be {KEY_DIGITS} characters.")
        if self._data is None or self._qlist is None or self._journal is None:
            raise Complaint("All three files need to be opened.")
        keys = [record.queue_key for record in self._records() if record.uri == uri]
        if not keys:
            raise Complaint("Queue URI not found")
        if key and key.upper() not in [each.hex().upper() for each in keys]:
            raise Complaint("Queue URI/Key combo not found")
        queue_key = bytes.fromhex(key) if key else keys[0]
        if not key and len(keys) > 1:
            self._write(
                Severity.WARN,
                "Several records with different queue keys exist for the specified queue uri. "
                f"Choosing record with queueKey [{queue_key.hex().upper()}].",
            )
        self._info(f"Printing all records for queue [{uri}] and queueKey [{queue_key.hex().upper()}].")
        self._dump_records(self._journal, self._data, queue_key)

    def _dump_records(self, journal: JournalCursor, data: DataCursor, queue_key: bytes) -> None:
        journal.rewind()
        data.rewind()
        while journal.forward():
            record = journal.record()
            if isinstance(record, JournalOpRecord) or record.queue_key != queue_key:
                continue
            self._info(f"{_TITLES[kind_of(record)]}: \n{print_record(record)}")
            if isinstance(record, MessageRecord):
                if data.seek(record.message_offset_dwords * DWORD):
                    self._info(print_data(data))
                else:
                    self._error("Failed to retrieve message from DATA file")

    # Records

    def _walk_journal(self, values: dict[str, Any]) -> None:
        journal = self._need(self._journal, "journal")
        if "dump" in values:
            self._dump_payload(journal, _text(values, "dump"))
        elif "type" in values:
            wanted = _RECORD_TYPES.get(_text(values, "type"))
            if wanted is None:
                raise Complaint(f"Invalid record type: {values['type']}")
            while True:
                if not journal.forward():
                    raise Complaint("Ran out of records while iterating.")
                if kind_of(journal.record()) == wanted:
                    break
            self._info(print_journal(journal))
        else:
            self._walk(journal, values)

    def _dump_payload(self, journal: JournalCursor, what: str) -> None:
        if what != "payload":
            raise Complaint(f"Unknown dump option: {what}")
        record = journal.record() if journal.index >= 0 else None
        if not isinstance(record, MessageRecord):
            kind = "UNDEFINED" if record is None else kind_of(record)
            raise Complaint(f"Only printing message is supported (received {kind})")
        data = self._need(self._data, "data")
        if not data.seek(record.message_offset_dwords * DWORD):
            raise Complaint("Failed to iterate data file")
        self._info(print_data(data))

    def _walk(self, cursor: Cursor[Any], values: dict[str, Any]) -> None:
        """Move by or to a number of records, and print the result; or print all on the way, in short."""
        name, count = next(iter(values.items()), ("", 0))
        if name not in ("n", "next", "p", "prev", "r", "record", "l", "list"):
            raise CommandError("one of n, next, p, prev, r, record, l and list is needed")
        if not isinstance(count, int) or (count < 0 and name not in ("l", "list")):
            raise CommandError(f"'{name}' must be a number")
        if name in ("r", "record"):
            count -= cursor.index
        elif name in ("p", "prev"):
            count = -count
        passed: list[str] = []
        move = cursor.forward if count > 0 else cursor.backward
        for _ in range(abs(count)):
            if not move():
                if passed and name in ("l", "list"):
                    self._info("".join(passed))
                self._info("Ran out of records while iterating.")
                return
            if name in ("l", "list"):
                passed.append(_summary(cursor))
        if cursor.index < 0:
            raise Complaint("Cannot print record as it is a header.")
        self._info("".join(passed) if name in ("l", "list") else _print(cursor))

    def _need(self, cursor: Any, name: str) -> Any:
        if cursor is None:
            raise Complaint(f"You must open a {name} file to use that command.")
        return cursor

    # Printing

    def _info(self, text: str) -> None:
        self._write(Severity.INFO, text)

    def _error(self, text: str) -> None:
        self._write(Severity.ERROR, text)

    def _write(self, severity: Severity, text: str) -> None:
        self._log.write(severity, CATEGORY, text, depth=3)


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str):
        raise CommandError(f"'{name}' must be of type string")
    return value


def _print(cursor: Cursor[Any]) -> str:
    match cursor:
        case JournalCursor():
            return print_journal(cursor)
        case DataCursor():
            return print_data(cursor)
        case QlistCursor():
            return print_queue(cursor)
    raise AssertionError(cursor)


def _summary(cursor: Cursor[Any]) -> str:
    record = cursor.record()
    match cursor:
        case JournalCursor():
            what = f"Record Type: {kind_of(record)}"
        case DataCursor():
            what = f"Size: {record.app_data_size} bytes"
        case _:
            what = f"Queue Uri: {record.uri}, Queue Key: {record.queue_key.hex().upper()}"
    return f"\nRecord Index: {cursor.index}, {what}"


_TITLES: Final = {
    "MESSAGE": "MessageRecord",
    "CONFIRM": "ConfirmRecord",
    "DELETION": "DeletionRecord",
    "QUEUE_OP": "QueueOpRecord",
}
