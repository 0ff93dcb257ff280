"""The judge of a replica group; any contradiction to its promises is a `Violation`.

One master writes to an epoch, and a record that it writes at an offset is the same in all logs that have it. The
confirmed part is the front of the log of every later master, is never cut off, and is all that readers see.
An acknowledged message is on the disks of as many brokers as are configured.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from broker.rocketmq.replication.lifecycles import MemberState
from broker.rocketmq.replication.streams.epochs import cut_epochs, drop_epochs, epoch_of, last_epoch
from broker.rocketmq.store.message_store import MessageStore
from broker.rocketmq.store.runs import Run
from formats.rocketmq.files.epochs import EpochEntry, decode_epochs
from formats.rocketmq.files.record import Record
from tests.simulator.controllers.machines import FLEETING, Machine, Setup
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.process import STORE
from tests.simulator.rocketmq.wire import name_of

__all__ = ["Confirmed", "Judge"]

EPOCHS_FILE = "epochFileCheckpoint"
# The end of what a slave is said to have is compared with its disk.
COMPARED_BYTES = 64


class Confirmed(NamedTuple):
    """A confirmed record: where it ends, its checksum, and the message that it is."""

    end: int
    crc: int
    name: str
    queue_id: int
    queue_offset: int


class Acknowledged(NamedTuple):
    """A message that was acknowledged, with the checksum and the size of its record."""

    name: str
    crc: int
    size: int


class JudgeWorld(Protocol):
    """The surroundings of a judge."""

    now_ms: int

    def note(self, text: str) -> None: ...


class Judge:
    """The judge of one group."""

    def __init__(self, world: JudgeWorld, name: str, setup: Setup) -> None:
        self._world = world
        self.name = name
        self.setup = setup
        # Whether what is confirmed lasts: not where a broker that is not in sync may be elected, or all lose power.
        self.keeps_confirmed = True
        self.machines: list[Machine] = []
        # The offset at which each epoch begins, as its master has it.
        self._begins: dict[int, int] = {}
        # The confirmed messages by offset, in the order of the log, and the end of the last.
        self.truth: dict[int, Confirmed] = {}
        self._offsets: list[int] = []
        self.end = 0
        # The acknowledged messages by offset, where they have to outlive elections.
        self.acked: dict[int, Acknowledged] = {}
        # The checksum of what a master wrote, by epoch and offset; and when, by offset and checksum.
        self._written: dict[tuple[int, int], int] = {}
        self._written_ms: dict[tuple[int, int], int] = {}
        self._writers: dict[int, str] = {}
        self._masters: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._looked: dict[str, int] = {}
        self._leading: set[str] = set()
        self._members: dict[str, tuple[MemberState, int]] = {}
        # How far each slave was, as its master counted it last, and the life in which that was checked.
        self._counted: dict[tuple[str, int], tuple[int, object]] = {}
        self._entries: tuple[bytes, list[EpochEntry]] = (b"", [])
        # By machine, the ends of its log up to which it has certainly removed a topic's messages, and perhaps.
        self._removed: dict[str, tuple[int, int]] = {}
        # By machine and queue of that topic, the offset at which the queue started over, kept over losses of power.
        self._begun: dict[tuple[str, int], int] = {}

    def epochs(self, machine: Machine) -> list[EpochEntry]:
        """Read the epochs of a machine's log from its disk."""
        data = machine.disk.files.get(EPOCHS_FILE, b"")
        if data != self._entries[0]:
            self._entries = data, decode_epochs(data) if data else []
        return self._entries[1]

    # -- what processes do

    def opened(self, machine: Machine) -> None:
        """Judge a store as it is opened, and watch what becomes of it."""
        assert machine.process is not None
        store = machine.process.store
        self._members.pop(machine.key, None)
        self._leading.discard(machine.key)
        self._looked[machine.key] = store.log.begin
        self._look_at_confirmed(machine, store, is_master=False)
        self._check_removed(machine, store)
        self._watch(machine, store)

    def _check_removed(self, machine: Machine, store: MessageStore) -> None:
        """Check that the queues of a topic have again what came to the log since the topic was removed, and no more.

        A master that has removed it starts its queues over, and so do its slaves.
        """
        log = store.log
        sure, maybe = (min(end, log.end) for end in self._removed.get(machine.key, (0, 0)))
        self._removed[machine.key] = sure, maybe
        queues = [store.get(*key, queue.begin, queue.end) for key, queue in store.queues.items() if key[0] == FLEETING]
        entered = {entry.physical_offset for queue in queues for entry in queue}
        next_offsets: dict[int, int] = {}
        for found in reversed([found for found in log.records(log.begin) if found.record.topic == FLEETING]):
            record = found.record
            is_last = record.queue_offset < next_offsets.get(record.queue_id, record.queue_offset + 1)
            next_offsets[record.queue_id] = min(next_offsets.get(record.queue_id, 1 << 62), record.queue_offset)
            if found.offset < sure and found.offset in entered:
                raise Violation(f"{machine.key} has {name_of(record.body)} again, whose topic was removed")
            begin = max(maybe, self._begun.get((machine.key, record.queue_id), 0))
            is_owed = is_last and begin <= found.offset and found.offset + found.size <= store.confirmed
            if is_owed and found.offset not in entered:
                raise Violation(f"{machine.key} has {name_of(record.body)} no longer, which was not removed")

    def _watch(self, machine: Machine, store: MessageStore) -> None:
        put, truncate, delete_topic = store.put, store.truncate, store.delete_topic

        def watched(run: Run, confirmed: int | None = None) -> None:
            for part in run.parts:
                if part.topic == FLEETING and not part.first:
                    self._begun[machine.key, part.queue_id] = run.offset
            put(run, confirmed)
            note = self._wrote if confirmed is None else self._copied
            data, at = memoryview(run.data), 0
            while at < len(data):
                end = at + int.from_bytes(data[at : at + 4], "big")
                note(machine, run.offset + at, crc32(data[at:end]))
                at = end

        def cut(offset: int) -> None:
            self._cuts(machine, store, offset)
            truncate(offset)
            sure, maybe = self._removed[machine.key]
            self._removed[machine.key] = min(sure, offset), min(maybe, offset)
            for key, begin in self._begun.items():
                if key[0] == machine.key:
                    self._begun[key] = min(begin, offset)

        def removed(topic: str) -> None:
            if topic == FLEETING:
                self._removed[machine.key] = self._removed[machine.key][0], store.log.end
            delete_topic(topic)
            if topic == FLEETING:
                self._removed[machine.key] = store.log.end, store.log.end

        vars(store).update(put=watched, truncate=cut, delete_topic=removed)

    def _wrote(self, machine: Machine, offset: int, crc: int) -> None:
        assert machine.process is not None
        epoch = last_epoch(self.epochs(machine))
        self._begins[epoch] = self.epochs(machine)[-1].start_offset if epoch >= 0 else 0
        if not machine.process.is_master:
            raise Violation(f"{machine.key} writes at {offset}, and is no master")
        writer = self._writers.setdefault(epoch, machine.key)
        if writer != machine.key:
            raise Violation(f"{machine.key} writes to epoch {epoch}, to which {writer} has written")
        self._written_ms[offset, crc] = self._world.now_ms
        before = self._written.get((epoch, offset), crc)
        self._written[epoch, offset] = crc
        if before != crc:
            raise Violation(f"{machine.key} writes at {offset} of epoch {epoch} for the second time")

    def _copied(self, machine: Machine, offset: int, crc: int) -> None:
        entry = epoch_of(self.epochs(machine), offset)
        epoch = -1 if entry is None else entry.epoch
        if entry is not None and entry.start_offset != self._begins.get(epoch):
            begin = self._begins.get(epoch)
            raise Violation(f"{machine.key} has {epoch=} from {entry.start_offset} on, and its master from {begin} on")
        known = self._written.get((epoch, offset))
        if known != crc:
            what = "nothing" if known is None else "another message"
            raise Violation(f"{machine.key} copies a message to {offset}, and {what} was written there in {epoch=}")

    def _cuts(self, machine: Machine, store: MessageStore, offset: int) -> None:
        """A log may be cut where it differs from the confirmed part, or after that."""
        if not self.keeps_confirmed:
            return
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets):
            return
        first = self._offsets[at]
        known = self.truth[first]
        if known.end <= store.log.end and crc32(store.log.data(first, known.end - first)) == known.crc:
            raise Violation(f"{machine.key} cuts its log at {offset}, and what is at {first} was confirmed")

    # -- what they say

    def look(self, machine: Machine) -> None:
        """Look at a process after a step."""
        process = machine.process
        assert process is not None
        member = process.membership
        state = member.state, member.epoch
        if state != self._members.get(machine.key):
            self._look_at_role(machine, self._members.get(machine.key, (MemberState.NAMELESS, 0)))
            self._members[machine.key] = state
        if process.store.confirmed != self._looked[machine.key]:
            # It may have been deposed in the midst of the step.
            was_master = machine.key in self._leading
            self._look_at_confirmed(machine, process.store, is_master=process.is_master or was_master)
        if process.is_master:
            self._look_at_counted(machine)
            self._leading.add(machine.key)
        else:
            self._leading.discard(machine.key)

    def _look_at_role(self, machine: Machine, before: tuple[MemberState, int]) -> None:
        assert machine.process is not None
        member = machine.process.membership
        if member.state not in (MemberState.NAMELESS, MemberState.APPLYING):
            owner = self._ids.setdefault(member.broker_id, machine.key)
            if owner != machine.key:
                raise Violation(f"{machine.key} and {owner} have one id, {member.broker_id}")
        if member.state is MemberState.LEADING and before != (member.state, member.epoch):
            self._world.note(f"{machine.key}, id {member.broker_id}, leads epoch {member.epoch}")
            self._mastered(machine, member.epoch, member.broker_id)
            if self.keeps_confirmed:
                self._check_master(machine)

    def _look_at_counted(self, machine: Machine) -> None:
        """Check that each slave has on its disk what its master counts.

        A count is checked as it rises, and again once the slave has connected in another life: until then a master may
        count what power failed on.
        """
        assert machine.process is not None
        if machine.process.membership.epoch < max(self._masters, default=0):
            return
        for broker_id, end in machine.process.counted.items():
            slave = next((each for each in self.machines if each.process and each.process.broker_id == broker_id), None)
            if slave is None or slave.process is None:
                continue
            counted, life = self._counted.get((machine.key, broker_id), (0, None))
            is_agreed = slave.process.agreed_with == f"{machine.address}:{machine.process.config.port}"
            if is_agreed and life is not slave.life:
                self._check_whole(machine, slave, end)
            if end > counted or (is_agreed and life is not slave.life):
                self._check_counted(machine, slave, end)
                self._counted[machine.key, broker_id] = end, slave.life

    def _check_counted(self, machine: Machine, slave: Machine, end: int) -> None:
        assert machine.process is not None
        log = machine.process.store.log
        size = min(COMPARED_BYTES, end - log.begin, (end - 1) % STORE.commit_log_file_bytes + 1)
        if size <= 0:
            return
        data = bytes(log.data(end - size, size)) if end <= log.end else None
        if slave.written(end - size, size, is_flushed=self.setup.is_sync) != data:
            raise Violation(f"{machine.key} counts the log of {slave.key} up to {end}, which its disk does not have")

    def _check_whole(self, machine: Machine, slave: Machine, end: int) -> None:
        """Check that the log of a slave that has connected in another life is its master's up to an offset."""
        assert machine.process is not None
        assert slave.process is not None
        begin = max(machine.process.store.log.begin, slave.process.store.log.begin)
        if machine.written_all(begin, end) != slave.written_all(begin, end):
            raise Violation(f"{machine.key} counts {slave.key} up to {end}, and their logs differ before that")

    def _mastered(self, machine: Machine, epoch: int, master: int) -> None:
        known = self._masters.setdefault(epoch, master)
        if known != master:
            raise Violation(f"epoch {epoch} has two masters, {known} and {master}, as {machine.key} was told")

    def _check_master(self, machine: Machine) -> None:
        assert machine.process is not None
        log = machine.process.store.log
        lacks = [
            name
            for offset, (name, crc) in [
                *((offset, (known.name, known.crc)) for offset, known in self.truth.items()),
                *((offset, (known.name, known.crc)) for offset, known in self.acked.items()),
            ]
            if self._crc(log, offset) != crc
        ]
        if lacks:
            raise Violation(f"{machine.key} leads, and lacks {', '.join(lacks[:3])}, confirmed or acknowledged before")

    @staticmethod
    def _crc(log: Any, offset: int) -> int | None:
        if offset + 4 > log.end or offset < log.begin:
            return None
        size = int.from_bytes(log.data(offset, 4), "big")
        return crc32(log.data(offset, size)) if 0 < size <= log.end - offset else None

    def _look_at_confirmed(self, machine: Machine, store: MessageStore, *, is_master: bool) -> None:
        begin, end = self._looked[machine.key], store.confirmed
        self._looked[machine.key] = end
        if end <= begin or not self.keeps_confirmed:
            return
        for found in store.log.records(begin):
            if found.offset + found.size > end:
                # In the midst of a record: that is looked at again.
                self._looked[machine.key] = found.offset
                break
            self._confirmed(machine, found.offset, found.size, found.record, is_master=is_master)

    def _confirmed(self, machine: Machine, offset: int, size: int, record: Record, *, is_master: bool) -> None:
        assert machine.process is not None
        crc = crc32(machine.process.store.log.data(offset, size))
        known = self.truth.get(offset)
        if known is None:
            if not is_master or offset < self.end:
                raise Violation(f"{machine.key} takes what is at {offset} for confirmed, which it was nowhere")
            name = name_of(record.body)
            self.truth[offset] = Confirmed(offset + size, crc, name, record.queue_id, record.queue_offset)
            self._offsets.append(offset)
            self.end = offset + size
        elif known.crc != crc:
            raise Violation(
                f"{machine.key} takes {name_of(record.body)} at {offset} for confirmed, and it was {known.name}"
            )

    # -- answers to clients

    def answered(self, machine: Machine, name: str, offset: int) -> None:
        """Judge the acknowledgment of a message, as it is said."""
        assert machine.process is not None
        log = machine.process.store.log
        crc = self._crc(log, offset)
        if crc is None:
            raise Violation(f"{machine.key} acknowledges {name} at {offset}, where nothing is")
        if not self.keeps_confirmed:
            return
        size = int.from_bytes(log.data(offset, 4), "big")
        data = bytes(log.data(offset, size))
        stored_ms = self._written_ms[offset, crc]
        have = sum(
            each.written(offset, size, is_flushed=self.setup.is_sync) == data or each.lost_ms >= stored_ms
            for each in self.machines
        )
        if have < self.setup.copies:
            raise Violation(
                f"{machine.key} acknowledges {name}, which {have} have, and {self.setup.copies} should have"
            )
        if self.setup.replication.all_in_sync:
            self.acked[offset] = Acknowledged(name, crc, size)

    def check_same(self) -> None:
        """Check, in the end, that all logs are the same, and their epochs."""
        stores = {each.key: each.process.store for each in self.machines if each.process is not None}
        begin = max(store.log.begin for store in stores.values())
        found: dict[tuple[int, tuple[EpochEntry, ...]], str] = {}
        for machine in self.machines:
            log = stores[machine.key].log
            crc = crc32(machine.written_all(begin, log.end))
            entries = drop_epochs(cut_epochs(self.epochs(machine), log.end), begin)
            # An epoch without a record may be unknown to brokers that were not there.
            ends = [*(entry.start_offset for entry in entries), log.end][1:]
            known = tuple(entry for entry, end in zip(entries, ends, strict=True) if end > entry.start_offset)
            found.setdefault((crc, known), machine.key)
        if len(found) > 1:
            raise Violation(f"the logs of {' and '.join(found.values())} differ from {begin} on: {[*found]}")

    def needs_operator(self) -> bool:
        """Return whether a log has no epoch in common with the master's: it is refused until its store is emptied."""
        masters = [each for each in self.machines if each.process is not None and each.process.is_master]
        known = {entry for each in masters for entry in self.epochs(each)}
        return bool(masters) and not all(known.intersection(self.epochs(each)) for each in self.machines)

    def check_disks(self) -> None:
        """Check that what was acknowledged is on a disk, where no broker that has it may be elected."""
        for offset, (name, crc, size) in self.acked.items():
            if all(crc32(each.written(offset, size)) != crc for each in self.machines):
                raise Violation(f"{name} was acknowledged, and is on no disk of {self.name}")

    def read(self, machine: Machine, record: Record) -> None:
        """Judge a message that a reader is given, as it is given."""
        if not self.keeps_confirmed:
            return
        known, name = self.truth.get(record.physical_offset), name_of(record.body)
        if known is None or known[2:] != (name, record.queue_id, record.queue_offset):
            raise Violation(
                f"{machine.key} gives {name} at {record.physical_offset} to a reader, and it is not confirmed"
            )
        if machine.process is not None and machine.process.store.confirmed < known.end:
            confirmed = machine.process.store.confirmed
            raise Violation(
                f"{machine.key} gives {name} at {record.physical_offset} to a reader, from behind {confirmed=}"
            )
