"""The manifest of an export: the files written and the positions read, and its atomic update.

A run writes its files in a hidden directory, below `KEPT`, and then a `Commit`, the list of remaining steps, which
makes the run effective. The steps (moves of files, deletions, entries of Delta logs, and last the new manifest) can be
repeated from the start after any interruption. `settle` does so before anything else reads the output.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from bmqctl.pipeline.export.checksums import add_checksums
from bmqctl.pipeline.export.output import KEPT, Output, OutputError
from bmqctl.pipeline.export.table_files import FileFormat
from formats.bmq.disk.numbers import RecordNumber

__all__ = [
    "MANIFEST",
    "Commit",
    "Manifest",
    "Run",
    "Table",
    "WrittenFile",
    "coming_manifest",
    "is_unsettled",
    "need_manifest",
    "read_manifest",
    "run_directory",
    "settle",
]

FORMAT_VERSION = 1
MANIFEST = f"{KEPT}/manifest.json"
_COMMIT = f"{KEPT}/commit.json"
_RUNS = f"{KEPT}/run-"


@dataclass(frozen=True)
class WrittenFile:
    """A file of a table. `path` is relative to the output; `checksum` is of its rows (`pipeline.checksums`).

    `pending` counts rows that may still change: messages that some app has yet to confirm.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    checksum: int
    pending: int = 0


@dataclass(frozen=True)
class Table:
    """A table's files, oldest first."""

    files: tuple[WrittenFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def checksum(self) -> int:
        return add_checksums(*(file.checksum for file in self.files))


@dataclass(frozen=True)
class Run:
    """One export: its start time, the rows added by table, the rows replaced, and the records missed.

    `accounts` has what was read of the store, damaged and missing, by table (`journal.read.account`). `missed` counts
    records written after the previous run that left the store (by rollovers) before this one; of RocketMQ's logs, whose
    files are deleted, bytes.
    """

    number: int
    began: str
    added: dict[str, int]
    replaced: int
    missed: int
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The state of an export. `positions` and `journals` are by partition id (as text: JSON's keys).

    A position is the number of the last exported record. For RocketMQ, a partition is a broker by its place in
    `brokers`, and a number is the offset of the last byte of its log.
    """

    export_id: str
    format: str
    stores: tuple[str, ...]
    file_sets: str
    tables: dict[str, Table] = field(default_factory=dict)
    positions: dict[str, RecordNumber] = field(default_factory=dict)
    journals: dict[str, str] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    brokers: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON; totals of each table are included for people who read the manifest."""
        content = asdict(self)
        content["positions"] = {partition: number._asdict() for partition, number in self.positions.items()}
        for name, table in self.tables.items():
            files = [{**asdict(file), "checksum": f"{file.checksum:016x}"} for file in table.files]
            content["tables"][name] = {
                "rows": table.rows,
                "bytes": table.bytes,
                "checksum": f"{table.checksum:016x}",
                "files": files,
            }
        return {"format_version": FORMAT_VERSION, **content}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Manifest:
        """Parse JSON. Raises KeyError, TypeError or ValueError if it is not a manifest."""
        if content["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version {content['format_version']} is unknown")
        tables = {
            name: Table(
                tuple(WrittenFile(**{**file, "checksum": int(file["checksum"], 16)}) for file in table["files"])
            )
            for name, table in content["tables"].items()
        }
        return cls(
            export_id=content["export_id"],
            format=FileFormat(content["format"]).value,
            stores=tuple(content["stores"]),
            file_sets=content["file_sets"],
            tables=tables,
            positions={partition: RecordNumber(**where) for partition, where in content["positions"].items()},
            journals=dict(content["journals"]),
            runs=tuple(Run(**run) for run in content["runs"]),
            brokers=tuple(content.get("brokers", ())),
        )


@dataclass(frozen=True)
class Commit:
    """The steps from the output of one run to the next; see the module. `logs` are whole files by name."""

    manifest: Manifest
    moves: dict[str, str]
    deletes: tuple[str, ...]
    logs: dict[str, str]

    def write(self, output: Output) -> None:
        """Write the commit: from here on the run has happened."""
        content = {
            "manifest": self.manifest.as_json(),
            "moves": self.moves,
            "deletes": self.deletes,
            "logs": self.logs,
        }
        output.write(_COMMIT, json.dumps(content).encode())


def run_directory(number: int) -> str:
    return f"{_RUNS}{number:06}"


def read_manifest(output: Output) -> Manifest | None:
    """Read the manifest; None without an export. Raises OutputError if it cannot be parsed."""
    content = output.read(MANIFEST)
    return None if content is None else _parsed(output, MANIFEST, content)


def coming_manifest(output: Output) -> Manifest | None:
    content = output.read(_COMMIT)
    return read_manifest(output) if content is None else _parsed(output, _COMMIT, content)


def _parsed(output: Output, name: str, content: bytes) -> Manifest:
    try:
        parsed = json.loads(content)
        return Manifest.from_json(parsed["manifest"] if name == _COMMIT else parsed)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as fault:
        raise OutputError(f"{output.url(name)}: not a bmqctl manifest ({fault})") from None


def need_manifest(output: Output) -> Manifest:
    """Read the manifest. Raises OutputError without an export."""
    manifest = read_manifest(output)
    if manifest is None:
        raise OutputError(f"{output.uri}: not an export ({MANIFEST} is missing)")
    return manifest


def is_unsettled(output: Output) -> bool:
    return output.read(_COMMIT) is not None


def settle(output: Output) -> None:
    """Complete a committed but interrupted run; discard the files of an uncommitted one."""
    content = output.read(_COMMIT)
    if content is not None:
        _parsed(output, _COMMIT, content)
        _carry_out(output, _checked(output, json.loads(content)))
    for name in output.directories(KEPT):
        if name.startswith(_RUNS):
            output.delete_tree(name)


def _checked(output: Output, commit: dict[str, Any]) -> dict[str, Any]:
    """Return a commit whose steps all concern files of the output. Raises OutputError for any other."""
    moves, deletes, logs = commit.get("moves"), commit.get("deletes"), commit.get("logs")
    if not (isinstance(moves, dict) and isinstance(deletes, list) and isinstance(logs, dict)):
        raise OutputError(f"{output.url(_COMMIT)}: has no moves, deletes and logs")
    for name in (*moves, *moves.values(), *deletes, *logs):
        output.path(str(name))
    return commit


def _carry_out(output: Output, commit: dict[str, Any]) -> None:
    for source, target in commit["moves"].items():
        output.move(source, target)
    # Between these two steps readers of plain files see replaced rows twice.
    for name in commit["deletes"]:
        output.delete(name)
    for name, text in commit["logs"].items():
        there = output.read(name)
        if there is not None and there != text.encode():
            raise OutputError(f"{output.url(name)}: another process has changed the table in the meantime")
        output.write(name, text.encode())
    output.delete_empty({name.rpartition("/")[0] for name in commit["deletes"]})
    output.write(MANIFEST, json.dumps(commit["manifest"], indent=1).encode())
    output.delete(_COMMIT)
