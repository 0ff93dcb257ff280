"""Progress of a replay: one byte per message, in memory or in a file that outlives the process.

The file is mapped, and a message's byte is written before and after the message, so the file keeps a killed process's
state. The head identifies the replay; no other replay may use the file, nor two processes at once.

    line 1   `bmqctl-replay 1 SIZE`: SIZE is that of the head in bytes, a multiple of 4096
    line 2   JSON: the replay's parameters, and the seed of the new GUIDs; then spaces
    SIZE     a byte for each message, in the plan's order: `ReplayStep`

A message in flight when a process was killed may have reached the broker. It is posted again with the same GUID or
unique id, derived from the seed and the message's number, by which BlazingMQ's broker recognises it, and RocketMQ's
consumers may.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import secrets
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from broker.shell.host.calls import HOST
from formats.bmq.guid import CLIENT_ID_SIZE, GUID, GUID_VERSION, GuidFields
from formats.rocketmq.message_ids import UniqueId

__all__ = ["Head", "Progress", "ReplayStep", "StateFault", "open_state", "read_head", "replay_guid", "replay_unique_id"]

_MAGIC = "bmqctl-replay"
_VERSION = 1
_PAGE = 4096
_LINE_MAX = 64
_HEAD_MAX = 1 << 26


class StateFault(Exception):
    """An unusable state file; one line."""


class ReplayStep(IntEnum):
    """The state of a message in the replay."""

    NEW = 0
    SENT = 1  # and not answered
    POSTED = 2  # and acked by the broker
    REFUSED = 3  # by the broker
    UNREADABLE = 4  # damaged in the store
    UNFIT = 5  # cannot be posted: too large with the added properties


class Head(NamedTuple):
    """The head of a state. `seed` is `CLIENT_ID_SIZE` bytes, `ends` is the plan's, `about` are the fixed parameters."""

    seed: bytes
    digest: str
    messages: int
    ends: dict[str, int]
    about: dict[str, Any]

    @classmethod
    def new(cls, digest: str, messages: int, ends: dict[str, int], about: dict[str, Any]) -> Head:
        return cls(secrets.token_bytes(CLIENT_ID_SIZE), digest, messages, ends, about)

    def encode(self) -> bytes:
        text = json.dumps({**self._asdict(), "seed": self.seed.hex()})
        size = -(-(_LINE_MAX + len(text) + 1) // _PAGE) * _PAGE
        line = f"{_MAGIC} {_VERSION} {size}\n"
        return f"{line}{text}".encode().ljust(size - 1) + b"\n"


def replay_guid(seed: bytes, number: int) -> bytes:
    """The new GUID of the plan's message `number`, the same in every run of a replay."""
    return GUID.pack(GuidFields(GUID_VERSION, 0, number >> 16, number & 0xFFFF, seed))


def replay_unique_id(seed: bytes, number: int) -> str:
    """The new unique id of the plan's message `number`, the same in every run of a replay.

    Its time is the start of a month, never later than the message's storing time: searches for the id begin there.
    """
    address = ".".join(map(str, seed[:4]))
    return str(UniqueId(address, int.from_bytes(seed[4:6], "big"), number >> 16 & 0xFFFFFFFF, 0, number & 0xFFFF))


class Progress:
    """The state of a replay, a context manager; `steps` (uint8) has a `ReplayStep` for each message."""

    def __init__(self, head: Head, steps: NDArray[np.uint8], mapped: mmap.mmap | None = None, descriptor: int = -1):
        self.head = head
        self.steps = steps
        self._mapped = mapped
        self._descriptor = descriptor

    @classmethod
    def in_memory(cls, head: Head, steps: NDArray[np.uint8] | None = None) -> Progress:
        """Make a state that ends with the process, from a copy of `steps`."""
        return cls(head, np.zeros(head.messages, np.uint8) if steps is None else steps.copy())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mapped is not None:
            self._mapped.flush()
            # The mapping has its own descriptor and lasts as long as `steps` is referenced; the lock does not.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._mapped = None

    def sync(self) -> None:
        if self._mapped is not None:
            self._mapped.flush()


def read_head(path: Path) -> Head | None:
    """Read the head of the state file at `path`; None if there is none. Raises `StateFault` if it is another file."""
    try:
        with path.open("rb") as file:
            return _read_head(path, file.fileno())[0]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateFault(f"{path}: {error.strerror}") from None


def _read_head(path: Path, descriptor: int) -> tuple[Head, int]:
    line = os.pread(descriptor, _LINE_MAX, 0).partition(b"\n")[0]
    words = line.split()
    if len(words) != 3 or words[0] != _MAGIC.encode() or not words[2].isdigit():
        raise StateFault(f"{path} is not the state of a replay")
    if words[1] != str(_VERSION).encode():
        raise StateFault(f"{path} is of another version of bmqctl ({words[1].decode('latin-1')})")
    size = int(words[2])
    try:
        if not _PAGE <= size <= _HEAD_MAX:
            raise ValueError(size)
        found = json.loads(os.pread(descriptor, size, 0)[len(line) + 1 :])
        head = Head(bytes.fromhex(found["seed"]), found["digest"], found["messages"], found["ends"], found["about"])
        if len(head.seed) != CLIENT_ID_SIZE or os.fstat(descriptor).st_size != size + head.messages:
            raise ValueError(head)
        if not (isinstance(head.ends, dict) and isinstance(head.about, dict)):
            raise ValueError(head)
        if any(type(number) is not int or number < 0 for number in (head.messages, *head.ends.values())):
            raise ValueError(head)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateFault(f"{path} is damaged: its header cannot be read, or its length is wrong") from None
    return head, size


def open_state(path: Path, head: Head) -> Progress:
    """Open or create the state file at `path`. Raises `StateFault` if it belongs to another replay than `head`.

    An empty plan gets one in memory.
    """
    if not head.messages:
        return Progress.in_memory(head)
    try:
        if not path.exists():
            _create(path, head)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise StateFault(f"{path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateFault(f"{path} is in use by another replay") from None
        found, size = _read_head(path, descriptor)
        different = _difference(found, head)
        if different is not None:
            raise StateFault(f"{path} belongs to another replay: {different}")
        mapped = mmap.mmap(descriptor, 0)
        steps: NDArray[np.uint8] = np.frombuffer(mapped, np.uint8, head.messages, size)
        if steps.max() > max(ReplayStep):
            raise StateFault(f"{path} is damaged: message {int(steps.argmax())} has no state")
    except BaseException:
        os.close(descriptor)
        raise
    return Progress(found, steps, mapped, descriptor)


def _create(path: Path, head: Head) -> None:
    """Create the file atomically and at full size: on a full disk, writing to the mapping would kill the process."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        content = head.encode()
        os.pwrite(descriptor, content, 0)
        HOST.allocate(descriptor, 0, len(content) + head.messages)
        os.fsync(descriptor)
        made.rename(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _difference(found: Head, wanted: Head) -> str | None:
    for name, value in wanted.about.items():
        if found.about.get(name) != value:
            return f"{name} was {_shown(found.about.get(name))}, and is {_shown(value)}"
    if (found.digest, found.messages) != (wanted.digest, wanted.messages):
        return f"of {found.messages} messages, and these are {wanted.messages} others"
    return None


def _shown(value: object) -> str:
    if value in (None, []):
        return "not given"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
