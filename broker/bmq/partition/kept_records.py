# Compiled by mypyc: docs/contribute/compiled-modules.md has the rules.
"""The records of a lease that enough nodes have, and the messages that wait for that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.bmq.core.messages import Message
from broker.bmq.core.thrown import throw_away
from broker.bmq.core.work import UNIT_BYTES_BITS, Task, Work
from broker.bmq.partition.unkept_confirms import UnkeptPurges
from broker.common.clock import Now
from broker.common.faults import Inconsistent

__all__ = ["Awaiting", "KeptRecords"]

# A named tuple's own constructor is interpreted.
_new: Final = tuple.__new__


class Awaiting(NamedTuple):
    """A message to be replicated before it is acknowledged or delivered; `sequence_number` is its record's."""

    sequence_number: int
    message: Message
    action: Callable[[Sequence[Message]], None]


class KeptRecords:
    """The records of the current lease that enough nodes have.

    A record counts as stored when `copies_wanted` nodes, this one included, have it. `awaiting` are the messages that
    wait for that, in the order of their records. `copied_number` is the last such record, `kept_number` the last that a
    majority has. `is_copied` is True if other nodes write the same records; `is_cut_off` if too few nodes can be
    reached. Long tasks are done with `work`, at once without it.
    """

    __slots__ = (
        "_now",
        "_partition_id",
        "_tells",
        "awaiting",
        "copied_number",
        "copies_wanted",
        "is_copied",
        "is_cut_off",
        "kept_number",
        "purges",
        "unkept_before",
        "work",
    )

    def __init__(self, partition_id: int, now: Now) -> None:
        self._partition_id = partition_id
        self._now = now
        self.work: Work | None = None
        self.copies_wanted = 1
        self.is_copied = self.is_cut_off = False
        self.awaiting: deque[Awaiting] = deque()
        self.copied_number = self.kept_number = 0
        self._tells = False  # a task runs the actions of replicated messages
        self.unkept_before = b""  # records after `kept_number` in files before those in use
        self.purges = UnkeptPurges()

    def begin_lease(self) -> None:
        self.copied_number = self.kept_number = 0
        self.unkept_before = b""
        self.purges.clear()

    def await_copies(self, sequence_number: int, message: Message, action: Callable[[Sequence[Message]], None]) -> None:
        """Call `action` when enough nodes have the message's record `sequence_number`, the last one.

        Consecutive messages with the same action are given to it together.
        """
        self.awaiting.append(_new(Awaiting, (sequence_number, message, action)))
        if self.copies_wanted <= 1:
            # It only follows earlier ones, of which more copies were wanted, and needs no receipt.
            self.copied_number = sequence_number
            if not self._tells and self.work is not None:
                self._tells = True
                self.work.add(self._tell_of_copies(self.work))

    def copied(self, sequence_number: int, kept_number: int | None = None) -> None:
        """Note that enough nodes have all records of this lease up to this one; waiting actions follow in slices.

        A majority has the records up to `kept_number`, if that is another.
        """
        self.copied_number = sequence_number
        self.kept_number = sequence_number if kept_number is None else kept_number
        awaiting = self.awaiting
        if self._tells or not awaiting or awaiting[0].sequence_number > sequence_number:
            return
        self._tells = True
        if self.work is None:
            at_once = Work(self._now, 1 << 40)
            at_once.complete(self._tell_of_copies(at_once))
        else:
            self.work.start(self._tell_of_copies(self.work))

    def _tell_of_copies(self, work: Work) -> Task:
        awaiting = self.awaiting
        try:
            # Another lease begins with other messages.
            while self.awaiting is awaiting and awaiting and awaiting[0].sequence_number <= self.copied_number:
                if work.left <= 0 and not work.may_go_on():
                    yield
                    continue
                _, message, action = awaiting.popleft()
                work.left -= 1 + (message.size >> UNIT_BYTES_BITS)
                run = [message]
                while (
                    work.left > 0
                    and awaiting
                    and awaiting[0].action is action
                    and awaiting[0].sequence_number <= self.copied_number
                ):
                    message = awaiting.popleft().message
                    work.left -= 1 + (message.size >> UNIT_BYTES_BITS)
                    run.append(message)
                action(run)
        except Exception as error:
            raise Inconsistent(
                f"the actions after the replication of messages of partition {self._partition_id}", error
            ) from error
        if self.awaiting is awaiting:
            self._tells = False

    def forget_awaiting(self) -> None:
        thrown, self.awaiting = self.awaiting, deque()
        self._tells = False
        if thrown and self.work is not None:
            self.work.start(throw_away(self.work, [thrown]))
