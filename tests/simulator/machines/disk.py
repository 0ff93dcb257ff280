"""The disk of a simulated machine, after a killed process, a power loss, a torn write or rot.

See docs/contribute/fault-model.md: what a process wrote into a mapped page is the kernel's, and outlives the process.
It outlives the machine only if it was written back, which happens in units of a sector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from broker.bmq.partition.stored_partition import StoredPartition
from broker.bmq.replication.positions import last_position
from formats.bmq.disk.files import FileType, open_file, parse_file_name
from formats.bmq.disk.numbers import RecordNumber
from formats.errors import FormatError
from tests.broker.fakes import MemoryDirectory
from tests.simulator.faults.rotting import Written
from tests.simulator.judges.invariants import Violation

__all__ = ["CAPACITY", "Disk"]

CAPACITY = 1 << 40
# Disk that a file takes at a time: all limits are met exactly. Events are taken at once only if it is more.
DISK_CHUNK = 1
SECTOR_BYTES = 512
ROT_TRIES_MAX = 30
RUNNING_TRIES_MAX = 8


@dataclass
class Disk:
    """`directory` is the running process's view, and the platter's part of it."""

    random: Random
    directory: MemoryDirectory = field(default_factory=lambda: MemoryDirectory(chunk=DISK_CHUNK))
    term: int = 0  # of elections, in a file that is flushed before any peer hears of it
    rotten: tuple[str, int, int] | None = None
    # Bits that have rotted under a running process: file, offset, the byte since then, and the bit.
    running_rot: list[tuple[str, int, int, int]] = field(default_factory=list)
    # Where the last process was in each partition, between two steps, as far as nothing has been lost since.
    ended: dict[int, RecordNumber] = field(default_factory=dict)
    is_unsure: bool = False  # something was lost in any order, or has rotted
    has_rotted: bool = False  # a bit has ever rotted: a rollover may have copied it

    def write_back(self) -> None:
        """Let the kernel write everything back."""
        self.directory.unflushed.clear()
        self.directory.platter = {name: bytes(content.data) for name, content in self.directory.files.items()}

    def process_died(self) -> None:
        """End the process: all that it wrote is there, nothing is open."""
        self.directory = self.directory.after_crash()

    def step_torn(self, before: MemoryDirectory) -> None:
        """End the process between two bytes of what it wrote since `before`, if those were records.

        Records come after the payloads that they name; cuts go the other way round, and are left whole.
        """
        if before.names() == self.directory.names() and self._has_appended(before):
            self.directory = self.directory.torn_since(before, self.random.randrange(1200))
        else:
            self.process_died()

    def _has_appended(self, before: MemoryDirectory) -> bool:
        """Return whether everything written since `before` replaced nothing."""
        for name, content in self.directory.files.items():
            new, old = np.frombuffer(content.data, np.uint8), np.frombuffer(before.files[name].data, np.uint8)
            if len(new) != len(old) or np.any((new != old) & (old != 0)):
                return False
        return True

    def power_lost(self, *, in_order: bool = False, keeps_folders: bool = True) -> None:
        """Keep some sectors of what was not written back, and drop others.

        With `keeps_folders` the creation and removal of files is durable at once. With `in_order` the sectors written
        first are kept. Otherwise a node may refuse to start: damage amid its records looks the same, whatever made it,
        and only an operator can tell.
        """
        if not in_order:
            self._lose()
        torn = self.directory.after_crash()
        if not keeps_folders:
            torn.undo(self.random.randint(0, len(torn.unflushed)))
        torn.unflushed.clear()
        at_risk = []
        # Journals and the ledger name the contents of the others.
        files = list(torn.files.items())
        if in_order:
            files.sort(key=lambda item: item[0].endswith(("journal", "csl")))
        for name, content in files:
            old = torn.platter.get(name, b"").ljust(len(content.data), b"\0")
            new = bytes(content.data)
            if old[: len(new)] == new:
                continue
            at_risk += [
                (content.data, at, old[at : at + SECTOR_BYTES][: len(new) - at])
                for at in range(0, len(new), SECTOR_BYTES)
                if new[at : at + SECTOR_BYTES] != old[at : at + SECTOR_BYTES]
            ]
        kept = self.random.randint(0, len(at_risk)) if in_order else 0
        for data, at, old in at_risk[kept:]:
            if in_order or self.random.random() < 0.5:
                data[at : at + SECTOR_BYTES] = old
        self.directory = torn

    def wipe(self) -> None:
        self.directory = MemoryDirectory(chunk=DISK_CHUNK)
        self.rotten = None
        self.ended = {}
        self.is_unsure = False

    def rot(self) -> bool:
        """Flip one bit in a payload at rest, which checksums find. Returns False if there is none."""
        names = [
            name
            for name in self.directory.names()
            if (parsed := parse_file_name(name)) and parsed.file_type is FileType.DATA
        ]
        if not names:
            return False
        name = self.random.choice(names)
        data = self.directory.files[name].data
        try:
            first = open_file(data, FileType.DATA).first_record_offset
        except FormatError:
            return False
        end = len(data.rstrip(b"\0"))
        if end <= first:
            return False
        at, mask = self.random.randrange(first, end), 1 << self.random.randrange(8)
        self._flip(name, at, mask)
        self.rotten = (name, at, mask)
        return True

    def rot_file(self, extension: str, notices: Callable[[MemoryDirectory], bool]) -> bool:
        """Flip one written bit, which the node `notices`, of a file at rest with this extension.

        Without a checksum some bits rot without a trace (`formats/bmq/disk/CHECKSUMS.md`), and cannot be healed.
        Returns False if there is nothing to rot.
        """
        names = [name for name in self.directory.names() if name.endswith(extension)]
        ends = {name: len(self.directory.files[name].data.rstrip(b"\0")) for name in names}
        for _ in range(ROT_TRIES_MAX if any(ends.values()) else 0):
            name = self.random.choice([name for name, end in ends.items() if end])
            flip = (name, self.random.randrange(ends[name]), 1 << self.random.randrange(8))
            self._flip(*flip)
            if notices(self.directory.after_crash()):
                return True
            self._flip(*flip)
        return False

    def rot_running(
        self, random: Random, notices: Callable[[MemoryDirectory], bool], spared: Iterable[Written] = ()
    ) -> bool:
        """Flip one bit of a payload, which a process may have mapped, if the node `notices` when it starts.

        No bit of what is `spared`, which is still in memory.
        """
        names = [name for name in self.directory.names() if name.endswith("data")]
        ends = {name: len(self.directory.files[name].data.rstrip(b"\0")) for name in names}
        for _ in range(RUNNING_TRIES_MAX if any(ends.values()) else 0):
            name = random.choice([name for name, end in ends.items() if end])
            at, mask = random.randrange(ends[name]), 1 << random.randrange(8)
            if any(name == file and start <= at < end for file, start, end in spared):
                continue
            self._flip(name, at, mask)
            if notices(self.directory.after_crash()):
                self.running_rot.append((name, at, self.directory.files[name].data[at], mask))
                return True
            self._flip(name, at, mask)
        return False

    def mend_what_is_gone(self) -> None:
        """Mend rot in payloads that are no longer wanted, which is no fault of the store's."""
        for name, at, rotten, mask in self.running_rot:
            # A file that was cut may end before the bit.
            if name in self.directory.files and self.directory.files[name].data[at : at + 1] == bytes((rotten,)):
                self._flip(name, at, mask)

    @property
    def is_damaged(self) -> bool:
        return bool(self.damage)

    def mend(self) -> None:
        """Restore the rotten bit, as an operator does from a backup."""
        if self.rotten is not None:
            self._flip(*self.rotten)
            self.rotten = None

    def _lose(self) -> None:
        self.ended = {}
        self.is_unsure = True

    @property
    def damage(self) -> frozenset[str]:
        """The notes of parts of the store that were found damaged, and are not healed."""
        return frozenset(name for name in self.directory.names() if name.endswith(".damaged"))

    def check_start(self, partitions: Iterable[StoredPartition], damage: frozenset[str]) -> None:
        """Check that a process begins where the last one was, and finds new damage only if there may be any."""
        if not self.is_unsure and self.damage - damage:
            raise Violation(f"{min(self.damage - damage)}: nothing was lost, and yet the store is damaged")
        for partition in partitions:
            position, was = last_position(partition.files), self.ended.get(partition.partition_id)
            if was is not None and position != was and not partition.damage.is_there:
                raise Violation(
                    f"partition {partition.partition_id} begins at {position}, and the last process was at {was}"
                )
        self.ended = {}
        self.is_unsure = False

    def _flip(self, name: str, at: int, mask: int) -> None:
        """Flip bits of the platter: every later read returns them flipped."""
        self._lose()
        self.has_rotted = True
        self.directory.flip(name, at, mask)
        platter = bytearray(self.directory.platter.get(name, b""))
        if at < len(platter):
            platter[at] ^= mask
            self.directory.platter[name] = bytes(platter)
