"""The SyncStateSet at its master: who is in it, who should be, and up to where the log is confirmed.

Source: AutoSwitchHAService. The set is the controller's: a master proposes another one, and as long as it has no answer
it counts the members of both, so that nothing is confirmed that a member of either lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.rocketmq.replication.options import ReplicationOptions
from broker.rocketmq.replication.streams.epochs import EpochBook

__all__ = ["InSyncSet", "SlaveProgress", "confirmed_by", "members_wanted"]

log = logging.getLogger("broker.rocketmq.replication")

# No log is longer.
_EVERYTHING: Final = 1 << 63


@dataclass(slots=True)
class SlaveProgress:
    """The state of a connected slave: how far it is, -1 before it has said so, and when it last had everything."""

    is_learner: bool
    caught_up_ms: int
    acknowledged: int = -1


def members_wanted(
    own_id: int,
    members: frozenset[int],
    slaves: Mapping[int, SlaveProgress],
    least: int,
    caught_up_since_ms: int,
) -> frozenset[int]:
    """The set as it should be.

    A member stays while it is connected and had everything at `caught_up_since_ms` or later. Another slave comes in
    once its log ends at `least` or behind it: what is confirmed, and the begin of this master's epoch.
    """
    staying = {each for each in members if each in slaves and slaves[each].caught_up_ms >= caught_up_since_ms}
    coming = {
        each
        for each, slave in slaves.items()
        if each not in members and not slave.is_learner and slave.acknowledged >= least
    }
    return frozenset({own_id, *staying, *coming})


def confirmed_by(
    own_id: int, counted: frozenset[int], slaves: Mapping[int, SlaveProgress], end: int, confirmed: int
) -> int:
    """The offset up to which all who count have a log with that end. It never goes back, and stays if one is away."""
    least = end
    for each in counted:
        if each != own_id:
            slave = slaves.get(each)
            if slave is None or slave.acknowledged < 0:
                return confirmed
            least = min(least, slave.acknowledged)
    return max(confirmed, least)


class InSyncSet:
    """The set of one master in one epoch.

    `propose` asks the controller for another set; later, `appoint` is called with what it has, and then `answered`.
    `moved` is called when more is confirmed, or a slave has got further. `reach` tells how much of the log this broker
    counts as having: where senders wait for the disk, what is there. `confirmed` is what was so before. `now_ms` is a
    clock that never goes back.
    """

    def __init__(
        self,
        own_id: int,
        reach: Callable[[], int],
        epochs: EpochBook,
        options: ReplicationOptions,
        propose: Callable[[frozenset[int], int], None],
        moved: Callable[[], None],
        now_ms: Callable[[], int],
        confirmed: int = -1,
    ) -> None:
        self.own_id = own_id
        self.members = frozenset({own_id})
        self.epoch = 0
        self.confirmed = confirmed
        self.slaves: dict[int, SlaveProgress] = {}
        self._proposed: frozenset[int] | None = None
        # The members of all sets that were proposed and may have been taken, and whether an answer is expected.
        self._pending: frozenset[int] = frozenset()
        self._is_asking = False
        # Those of them that were proposed before the last one.
        self._unanswered: frozenset[int] = frozenset()
        # What was refused, and is not proposed again at once.
        self._refused: frozenset[int] | None = None
        self._owners: dict[int, object] = {}
        self._reach = reach
        self._epochs = epochs
        self._options = options
        self._propose = propose
        self._moved = moved
        self._now_ms = now_ms
        self._checked_ms = now_ms()

    @property
    def counted(self) -> frozenset[int]:
        """The members of the set, and of those that were proposed."""
        return self.members | self._pending

    def appoint(self, members: frozenset[int], epoch: int) -> None:
        """Take the set that the controller has. One that is older than the known one is ignored.

        That it has the known one says nothing of a proposal, which may be on its way.
        """
        if epoch > self.epoch:
            self.members, self.epoch = members, epoch
            self._proposed, self._refused = None, None
            self._pending = self._unanswered = frozenset()
            self.advance()
            self._moved()

    def answered(self, *, is_refused: bool = False) -> None:
        """Take note that there is an answer to what was proposed, or will be none; `appoint` takes the set itself.

        What was neither taken nor refused may be taken later, and counts until then.
        """
        self._is_asking = False
        if is_refused:
            # That says nothing of earlier proposals without an answer: one that was taken has this one refused.
            self._refused, self._proposed, self._pending = self._proposed, None, self._unanswered
            self.advance()
            self._moved()
        else:
            self._unanswered = self._pending

    # -- the slaves

    def joined(self, broker_id: int, owner: object, *, is_learner: bool) -> None:
        """Take note of a slave on a connection, which is the only one that counts from here on."""
        self._owners[broker_id] = owner
        self.slaves[broker_id] = SlaveProgress(is_learner, self._now_ms())

    def acknowledged(self, broker_id: int, owner: object, offset: int) -> None:
        """Take note of how far a slave is."""
        slave = self._of(broker_id, owner)
        if slave is not None:
            slave.acknowledged = offset
            self.advance()
            self._moved()
            if broker_id not in self.counted:
                self._suggest()

    def caught_up(self, broker_id: int, owner: object, ms: int) -> None:
        """Take note of a time at which a slave had everything."""
        slave = self._of(broker_id, owner)
        if slave is not None:
            slave.caught_up_ms = max(slave.caught_up_ms, ms)

    def left(self, broker_id: int, owner: object) -> None:
        """Forget a slave whose connection is closed."""
        if self._of(broker_id, owner) is not None:
            del self.slaves[broker_id], self._owners[broker_id]
            if broker_id in self.members:
                self._suggest()

    def _of(self, broker_id: int, owner: object) -> SlaveProgress | None:
        return self.slaves.get(broker_id) if self._owners.get(broker_id) is owner else None

    # -- decisions

    @property
    def size(self) -> int:
        """Return how many brokers are in sync, by the set or by the one that was proposed, this one included."""
        return max(len(self.members), len(self._proposed or ()))

    def acknowledged_by(self, replicas: int) -> int:
        """Return up to where so many brokers have the log, this one included; -1 if there are not so many."""
        if replicas <= 1:
            return _EVERYTHING
        found = sorted((slave.acknowledged for slave in self.slaves.values()), reverse=True)
        return found[replicas - 2] if len(found) >= replicas - 1 else -1

    def acknowledged_by_all(self) -> int:
        """Return up to where all have the log that count; -1 if one is away.

        Alone, that is what is confirmed: a slave may still come in without the rest, while the disk is at work.
        """
        others = [self.slaves.get(each) for each in self.counted if each != self.own_id]
        return min((-1 if each is None else each.acknowledged for each in others), default=self.confirmed)

    def advance(self) -> None:
        """Confirm what everyone who counts has."""
        confirmed = confirmed_by(self.own_id, self.counted, self.slaves, self._reach(), self.confirmed)
        if confirmed != self.confirmed:
            self.confirmed = confirmed
            self._moved()

    def _suggest(self, *, again: bool = False) -> None:
        entries = self._epochs.entries
        least = max(self.confirmed, entries[-1].start_offset if entries else 0)
        since_ms = self._now_ms() - self._options.behind_ms_max
        wanted = members_wanted(self.own_id, self.members, self.slaves, least, since_ms)
        if self._is_asking or wanted == self.members or (not again and wanted in (self._proposed, self._refused)):
            return
        log.info("%s should be in sync, and %s are", sorted(wanted), sorted(self.members))
        self._proposed, self._pending, self._is_asking = wanted, self._pending | wanted, True
        self._propose(wanted, self.epoch)

    def tick(self) -> None:
        """Look after slaves that are behind, and propose again what has no answer."""
        now_ms = self._now_ms()
        if now_ms - self._checked_ms >= self._options.check_ms:
            self._checked_ms = now_ms
            self._suggest(again=True)
