"""The SyncStateSet at its master: its members, proposals to change it, and the confirmed offset of the log.

Source: AutoSwitchHAService. The controller decides on the set; a master proposes changes. Until a proposal is answered,
the members of both sets count: nothing is confirmed that a member of either lacks.
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
    """A connected slave: the end of its log (-1 if unknown), and when it last had everything."""

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
    """Return the members that should be in the set.

    A connected member stays if it had everything at `caught_up_since_ms` or later. Another slave is added once its log
    ends at `least` or later: at the confirmed offset and in this master's epoch.
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
    """Return the offset up to which all counted brokers have a log with that end.

    It is at least `confirmed`, and no more if a counted broker is not connected.
    """
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

    `propose` asks the controller for another set; later, `appoint` gets the controller's set, and then `answered` is
    called. `moved` is called when more is confirmed or acknowledged. `reach` returns the offset up to which this broker
    counts as having the log: what is on the disk, if senders wait for the disk. `confirmed` is the confirmed offset at
    the start. `now_ms` is a clock that never goes back.
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
        # The members of all proposed sets that may have been accepted, and whether an answer is expected.
        self._pending: frozenset[int] = frozenset()
        self._is_asking = False
        # The members proposed before the last proposal.
        self._unanswered: frozenset[int] = frozenset()
        # The set refused last, which is not proposed again at once.
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
        return self.members | self._pending

    def appoint(self, members: frozenset[int], epoch: int) -> None:
        """Set the controller's set, unless it is older than the known one.

        The known set again says nothing about a proposal, which may be on its way.
        """
        if epoch > self.epoch:
            self.members, self.epoch = members, epoch
            self._proposed, self._refused = None, None
            self._pending = self._unanswered = frozenset()
            self.advance()
            self._moved()

    def answered(self, *, is_refused: bool = False) -> None:
        """Note that the proposal was answered, or will not be; `appoint` sets the set.

        A proposal that was neither accepted nor refused may be accepted later, and counts until then.
        """
        self._is_asking = False
        if is_refused:
            # The controller may have refused this one because it has accepted an earlier one, unanswered.
            self._refused, self._proposed, self._pending = self._proposed, None, self._unanswered
            self.advance()
            self._moved()
        else:
            self._unanswered = self._pending

    # -- the slaves

    def joined(self, broker_id: int, owner: object, *, is_learner: bool) -> None:
        """Note a slave on a connection, which replaces its earlier ones."""
        self._owners[broker_id] = owner
        self.slaves[broker_id] = SlaveProgress(is_learner, self._now_ms())

    def acknowledged(self, broker_id: int, owner: object, offset: int) -> None:
        slave = self._of(broker_id, owner)
        if slave is not None:
            slave.acknowledged = offset
            self.advance()
            self._moved()
            if broker_id not in self.counted:
                self._suggest()

    def caught_up(self, broker_id: int, owner: object, ms: int) -> None:
        """Note a time in ms at which a slave had everything."""
        slave = self._of(broker_id, owner)
        if slave is not None:
            slave.caught_up_ms = max(slave.caught_up_ms, ms)

    def left(self, broker_id: int, owner: object) -> None:
        if self._of(broker_id, owner) is not None:
            del self.slaves[broker_id], self._owners[broker_id]
            if broker_id in self.members:
                self._suggest()

    def _of(self, broker_id: int, owner: object) -> SlaveProgress | None:
        return self.slaves.get(broker_id) if self._owners.get(broker_id) is owner else None

    # -- decisions

    @property
    def size(self) -> int:
        """Return the number of brokers, this one included, in the set or the proposed one, whichever is larger."""
        return max(len(self.members), len(self._proposed or ()))

    def acknowledged_by(self, replicas: int) -> int:
        """Return the offset up to which `replicas` brokers have the log, this one included; -1 if there are fewer."""
        if replicas <= 1:
            return _EVERYTHING
        found = sorted((slave.acknowledged for slave in self.slaves.values()), reverse=True)
        return found[replicas - 2] if len(found) >= replicas - 1 else -1

    def acknowledged_by_all(self) -> int:
        """Return the offset up to which all counted brokers have the log; -1 if one is not connected.

        For a broker that is alone it is the confirmed offset: a slave that lacks the rest may still be added during a
        flush.
        """
        others = [self.slaves.get(each) for each in self.counted if each != self.own_id]
        return min((-1 if each is None else each.acknowledged for each in others), default=self.confirmed)

    def advance(self) -> None:
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
        """Propose to remove slaves that lag, and repeat unanswered proposals."""
        now_ms = self._now_ms()
        if now_ms - self._checked_ms >= self._options.check_ms:
            self._checked_ms = now_ms
            self._suggest(again=True)
