"""A producer of a replica group some of whose messages are delayed or belong to transactions.

Each acknowledged message comes in the end, under any master; the master asks for the outcome of a transaction
until it knows it. Nobody gets a message whose transaction was not committed.
"""

from __future__ import annotations

from random import Random
from typing import Any

from formats.rocketmq.flags import Transaction
from formats.rocketmq.message_ids import OffsetId
from formats.rocketmq.remoting.codes import RequestCode
from formats.rocketmq.remoting.frame import Frame
from tests.broker.rocketmq.answers import records_of
from tests.simulator.controllers.clients import ClientWorld, GroupClient, Link
from tests.simulator.controllers.judge import Judge
from tests.simulator.controllers.machines import Machine
from tests.simulator.judges.invariants import Violation
from tests.simulator.rocketmq.wire import name_of

__all__ = ["LateClient"]

GROUP = "p"
LEVELS = (1, 1, 2)
# The part of the messages that are delayed, and that of transactions.
DELAYED_PART, PREPARED_PART = 0.15, 0.15
COMMITTED_PART = 0.6
# The parts of the outcomes that the producer reports unasked, and in answer to a question.
TOLD_PART, ANSWERED_PART = 0.6, 0.8
BEAT_MS = 30_000


class LateClient(GroupClient):
    """The producer and the reader of a group; `own` decides on what is late."""

    def __init__(self, world: ClientWorld, judge: Judge, own: Random) -> None:
        super().__init__(world, judge)
        self._own = own
        # By message: whether its transaction is to be committed once it is acknowledged.
        self._prepared: dict[str, bool] = {}
        self._committed: set[str] = set()
        self._beaten_ms: dict[Link, int] = {}

    def tick(self) -> None:
        """Connect where it is not connected, and say that it is there."""
        super().tick()
        now_ms = self.world.now_ms
        self._beaten_ms = {link: self._beaten_ms.get(link, -BEAT_MS) for link in self.links.values()}
        for link, beaten_ms in self._beaten_ms.items():
            if now_ms - beaten_ms >= BEAT_MS:
                self._beaten_ms[link] = now_ms
                body = b'{"clientID":"%b","producerDataSet":[{"groupName":"%b"}]}' % (GROUP.encode(), GROUP.encode())
                link.ask(RequestCode.HEART_BEAT, body, {}, _nothing, _nothing)

    def _properties(self, name: str) -> dict[str, str]:
        found = super()._properties(name)
        luck = self._own.random()
        if luck < DELAYED_PART:
            found["DELAY"] = str(self._own.choice(LEVELS))
        elif luck < DELAYED_PART + PREPARED_PART:
            self._prepared[name] = self._own.random() < COMMITTED_PART
            self.unowed.add(name)
            found |= {"TRAN_MSG": "true", "PGROUP": GROUP}
        return found

    def _taken(self, link: Link, name: str, fields: dict[str, str]) -> None:
        if name not in self._prepared:
            return
        if self._prepared[name]:
            self.unowed.discard(name)
        if self._own.random() < TOLD_PART:
            place = OffsetId.parse(fields["msgId"]).physical_offset
            self._end(link, name, int(fields["queueOffset"]), place, is_asked=False)

    def asked(self, link: Link, frame: Frame) -> None:
        """Answer a question about a transaction, mostly."""
        if frame.code != RequestCode.CHECK_TRANSACTION_STATE or self._own.random() >= ANSWERED_PART:
            return
        fields = frame.ext_fields or {}
        (record,) = records_of(frame)
        offset, place = int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])
        self._end(link, name_of(record.body), offset, place, is_asked=True)

    def _end(self, link: Link, name: str, offset: int, place: int, *, is_asked: bool) -> None:
        # Nothing has come of what was not acknowledged.
        is_commit = self._prepared[name] and name not in self.unowed
        if is_commit:
            self._committed.add(name)
        else:
            # It stays rolled back, though an acknowledgment may come later.
            self._prepared[name] = False
        fields: dict[str, Any] = {
            "producerGroup": GROUP,
            "tranStateTableOffset": offset,
            "commitLogOffset": place,
            "commitOrRollback": int(Transaction.COMMIT if is_commit else Transaction.ROLLBACK),
            "fromTransactionCheck": str(is_asked).lower(),
            "msgId": f"U{name}",
        }
        link.ask(RequestCode.END_TRANSACTION, b"", fields, _nothing, _nothing)

    def _told(self, machine: Machine, queue_id: int, begin: int, answer: Frame | None) -> None:
        super()._told(machine, queue_id, begin, answer)
        names = {name_of(record.body) for record in records_of(answer)} if answer is not None and answer.body else set()
        wrong = names & self._prepared.keys() - self._committed
        if wrong:
            raise Violation(f"{machine.key} gives {min(wrong)} to a reader, whose transaction was not committed")


def _nothing(answer: Frame | None) -> None:
    """Take an answer that says nothing."""
