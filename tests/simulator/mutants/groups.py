"""Faults planted in the brokers of RocketMQ's replica groups: masters, slaves, and the stores that they copy."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["GROUPS"]


def _mutant(name: str, says: str, module: str, *edits: tuple[str, str], hidden: str = "", unit: str = "") -> Mutant:
    return Mutant(f"groups-{name}", "groups", says, f"broker.rocketmq.{module}", edits, hidden, unit)


GROUPS = (
    # -- who has what is acknowledged
    _mutant(
        "acknowledged-at-once",
        "A message is acknowledged before others have it.",
        "replication.waiting",
        ("        if self._copies.acknowledged_by(replicas) >= end:\n", "        if replicas:\n"),
    ),
    _mutant(
        "one-copy-less",
        "A message is acknowledged with one copy less than is configured.",
        "replication.streams.in_sync",
        (
            "        return found[replicas - 2] if len(found) >= replicas - 1 else -1\n",
            "        return found[replicas - 3] if len(found) >= replicas - 1 and replicas > 2 else _EVERYTHING\n",
        ),
    ),
    _mutant(
        "all-but-one",
        "A message is acknowledged once the first of all that are in sync has it.",
        "replication.streams.in_sync",
        ("        return min((-1 if each is None else", "        return max((-1 if each is None else"),
    ),
    _mutant(
        "alone-at-once",
        "A master that is alone in sync lets a sender go before it has confirmed the message.",
        "replication.streams.in_sync",
        ("for each in others), default=self.confirmed)\n", "for each in others), default=_EVERYTHING)\n"),
        hidden="A master must be killed that took messages alone, while the slave that came in during their flush lacks them: world 885 shows it, and none of the first 25.",
        unit="tests/broker/rocketmq/replication/control/test_controlled.py::test_message_that_a_lone_master_has_yet_to_flush_waits_for_who_comes_in_meanwhile",
    ),
    _mutant(
        "too-few-left",
        "A message is acknowledged though fewer are in sync by then than have to be.",
        "replication.control.controlled",
        (
            "        return -1 if is_short else in_sync",
            "        return -1 if is_short and not in_sync.counted else in_sync",
        ),
    ),
    _mutant(
        "topic-unknown",
        "A new master has messages of a topic that it knows nothing of, and says so: slaves remove their queues.",
        "replication.metadata",
        (
            "        if store.next_offset(queue) > queue.begin:\n",
            "        if store.next_offset(queue) < queue.begin:\n",
        ),
        hidden="A topic must be created at a master that is lost before its slaves ask for it: none of the first 200 worlds shows it.",
        unit="tests/broker/rocketmq/assembly/test_role_changes.py::test_topics_with_messages_are_counted_also_while_these_may_not_be_read",
    ),
    _mutant(
        "anyone-followed",
        "A slave takes the topics of whoever is at its master's address, also of an empty broker in its place.",
        "replication.control.terms",
        ("        if self._slave.is_agreed:\n", "        if self._slave is not None:\n"),
    ),
    # -- what a master counts of its slaves
    _mutant(
        "count-kept",
        "A slave that connects again counts as it did on its old connection, until its first report.",
        "replication.streams.in_sync",
        (
            "        self.slaves[broker_id] = SlaveProgress(is_learner, self._now_ms())\n",
            "        self.slaves.setdefault(broker_id, SlaveProgress(is_learner, self._now_ms()))\n",
        ),
    ),
    _mutant(
        "old-end-counts",
        "The end of a slave's old connection removes it from the count, though it has a new one.",
        "replication.streams.in_sync",
        (
            "        return self.slaves.get(broker_id) if self._owners.get(broker_id) is owner else None\n",
            "        return self.slaves.get(broker_id)\n",
        ),
    ),
    _mutant(
        "sent-counts",
        "A master counts what it has sent to a slave once the slave reports anything.",
        "replication.streams.epoch_copy",
        (
            "        self._in_sync.acknowledged(self.broker_id, self, offset)\n",
            "        self._in_sync.acknowledged(self.broker_id, self, self.next_offset)\n",
        ),
    ),
    _mutant(
        "report-before-cut",
        "A slave is counted up to the end of its log as it was before the slave cut it.",
        "replication.streams.epoch_slave",
        (
            "        end = max(end, self.reported)\n        self.reported,",
            "        end = max(end, self.reported, self._confirmed)\n        self.reported,",
        ),
    ),
    # -- what is confirmed
    _mutant(
        "confirmed-alone",
        "A master confirms what it has, whoever is in sync.",
        "replication.streams.in_sync",
        ("confirmed_by(self.own_id, self.counted, self.slaves", "confirmed_by(self.own_id, frozenset(), self.slaves"),
    ),
    _mutant(
        "proposed-forgotten",
        "A master confirms without those whom it has proposed, and the controller may have taken.",
        "replication.streams.in_sync",
        ("        return self.members | self._pending\n", "        return self.members\n"),
    ),
    _mutant(
        "silence-refuses",
        "A master takes a proposal without an answer for a refused one.",
        "replication.streams.in_sync",
        (
            "        self._is_asking = False\n        if is_refused:\n",
            "        self._is_asking = False\n        if self._proposed:\n",
        ),
    ),
    _mutant(
        "older-set",
        "A master takes a set of brokers that is older than the one that it has.",
        "replication.streams.in_sync",
        (
            "        if epoch > self.epoch:\n            self.members",
            "        if epoch != self.epoch:\n            self.members",
        ),
        hidden="An answer must be late by more than a whole change of the set: none of the first 25 worlds shows it.",
        unit="tests/broker/rocketmq/replication/streams/test_epoch_stream.py::test_set_of_an_older_epoch_is_ignored",
    ),
    _mutant(
        "in-sync-too-early",
        "A slave comes into the set before it has what is confirmed.",
        "replication.streams.in_sync",
        (
            "not slave.is_learner and slave.acknowledged >= least\n",
            "not slave.is_learner and slave.acknowledged >= 0\n",
        ),
    ),
    _mutant(
        "progress-too-early",
        "A slave takes its master's progress in messages before its own log has what was done with them.",
        "replication.metadata",
        ("if code not in self._early and self._kept.store.flushed >= end:\n", "if code not in self._early:\n"),
    ),
    _mutant(
        "slave-confirms",
        "A slave takes all for confirmed that it has.",
        "replication.streams.epoch_slave",
        ("        self._confirmed = head.confirm_offset\n", "        self._confirmed = 1 << 62\n"),
    ),
    _mutant(
        "all-shown",
        "Readers are shown what is not confirmed.",
        "store.holding",
        (" and messages[0].offset + messages[0].size <= self.confirmed:\n", ":\n"),
    ),
    _mutant(
        "unnoted-shown",
        "A process takes all for confirmed if the one before has noted nothing.",
        "replication.control.controlled",
        ("hold_back(entries[0].start_offset if entries else None)", "hold_back(None)"),
    ),
    # -- the disk
    _mutant(
        "reported-unflushed",
        "A slave reports what is not on its disk, though senders wait for that.",
        "replication.streams.epoch_slave",
        (
            "        end = self._reach()\n        if (end < self._store.log.end and self.reported < 0)",
            "        end = self._store.log.end\n        if (end < self._store.log.end and self.reported < 0)",
        ),
    ),
    _mutant(
        "counted-unflushed",
        "A master counts what is not on its own disk.",
        "replication.control.terms",
        (
            "            own_id,\n            shared.reach,\n",
            "            own_id,\n            lambda: shared.store.log.end,\n",
        ),
    ),
    # -- epochs
    _mutant(
        "cut-by-end",
        "A slave cuts its log by its end only, and not where the epochs part.",
        "replication.streams.epoch_slave",
        (
            "            point = consistent_point(LogSpan(self._epochs.entries, end), LogSpan(theirs, their_end))\n",
            "            point = min(end, their_end)\n",
        ),
    ),
    _mutant(
        "epoch-behind-records",
        "A slave notes an epoch behind its first record.",
        "replication.streams.epoch_slave",
        (
            "        self._replace(cut_epochs(theirs, max(self._store.log.end + 1, head.offset + len(body))))\n",
            "        self.master_epochs = theirs\n",
        ),
        (
            "            self._taker.take(self._confirmed)\n",
            "            self._taker.take(self._confirmed)\n            self._replace(cut_epochs(self.master_epochs or [], self._store.log.end + 1))\n",
        ),
    ),
    _mutant(
        "epoch-unnoted",
        "A master writes to an epoch that is not in its file.",
        "replication.control.controlled",
        (
            "                book.replace(begin_epoch(book.entries, epoch, store.log.end))\n",
            "                begin_epoch(book.entries, epoch, store.log.end)\n",
        ),
    ),
    _mutant(
        "beginnings-unlooked",
        "Epochs of one number are taken for the same, though they begin at different offsets.",
        "replication.streams.epochs",
        (
            "        if starts.get(entry.epoch) == entry.start_offset:\n",
            "        if entry.epoch in starts:\n",
        ),
        hidden="Two logs must have an epoch of one number from different offsets on, which no controller that keeps its entries leads to: none of the first 60 worlds shows it.",
        unit="tests/broker/rocketmq/replication/streams/test_epochs.py",
    ),
    _mutant(
        "begins-early",
        "A slave has an epoch that its master begins meanwhile from the begin of the log on.",
        "replication.streams.epoch_slave",
        (
            "            theirs = self.master_epochs = begin_epoch(theirs, head.epoch, head.epoch_offset)\n",
            "            theirs = self.master_epochs = begin_epoch(theirs, head.epoch, self._store.log.begin)\n",
        ),
    ),
    _mutant(
        "begun-early",
        "A master notes its epoch from where its confirmed records end, not from the end of its log.",
        "replication.control.controlled",
        (
            "book.replace(begin_epoch(book.entries, epoch, store.log.end))\n",
            "book.replace(begin_epoch(book.entries, epoch, store.confirmed))\n",
        ),
    ),
    # -- masters
    _mutant(
        "deposed-goes-on",
        "A master goes on in the epoch of another.",
        "replication.control.membership",
        (
            "        elif appointment.master_id != self.broker_id:\n",
            "        elif appointment.master_id != self.broker_id and self.state is not MemberState.LEADING:\n",
        ),
    ),
    _mutant(
        "cut-by-our-end",
        "Where logs part, the end of the epoch in the master's log is not looked at.",
        "replication.streams.epochs",
        (
            "            return min(_end(ours, entry.epoch), _end(theirs, entry.epoch))\n",
            "            return _end(ours, entry.epoch)\n",
        ),
    ),
    _mutant(
        "old-words",
        "A broker obeys a word of the controller's that is older than what it knows.",
        "replication.control.membership",
        ("        elif appointment.epoch > self.epoch:\n", "        elif appointment.epoch != self.epoch:\n"),
        hidden="Words come in order over one connection, and late ones are of a controller that leads no longer: none of the first 12 worlds shows it.",
        unit="tests/broker/rocketmq/replication/control/test_membership.py::test_roles_change_with_higher_epochs_only",
    ),
    _mutant(
        "leads-again",
        "A broker that was started again goes on at once in its epoch, of which it may have lost a part.",
        "replication.control.membership",
        (
            "        if appointment.epoch > self._roles.log_state.epoch:\n",
            "        if appointment.epoch >= self._roles.log_state.epoch:\n",
        ),
    ),
    _mutant(
        "leads-lost-epoch",
        "A master goes on at once in its epoch if it has lost all records of that.",
        "replication.control.membership",
        ("appointment.epoch > self._roles.log_state.epoch:\n", "appointment.epoch > self._roles.log_state.written:\n"),
    ),
    _mutant(
        "leads-alone-again",
        "A broker that was alone in sync goes on in its epoch after a start, though a slave may have more of it.",
        "replication.control.membership",
        (
            "        if appointment.epoch > self._roles.log_state.epoch:\n",
            "        if appointment.epoch > self._roles.log_state.epoch or appointment.in_sync.members == {self.broker_id}:\n",
        ),
    ),
    _mutant(
        "goes-on-after-pause",
        "A master that was started again goes on in its epoch once others had time to be elected.",
        "replication.control.membership",
        (
            "                pause_ms // 1000,\n            )\n        return False\n",
            "                pause_ms // 1000,\n            )\n        return self._now_ms() >= self._waiting_ms\n",
        ),
    ),
    _mutant(
        "slave-takes",
        "A slave takes messages.",
        "replication.role",
        ("        if code in _STORING:\n", "        if code in _STORING and not self.options.is_controlled:\n"),
    ),
    # -- acting masters
    _mutant(
        "back-unasked",
        "A master that comes back registers before its slaves have said which offsets they have.",
        "replication.returning",
        ("        if others is not None and not missing:\n", "        if others is not None:\n"),
    ),
    _mutant(
        "back-at-once",
        "A master that comes back registers at once, and asks for offsets afterwards.",
        "assembly.group",
        (
            "            nameservers.is_silent = role.is_returning = True\n",
            "            role.is_returning = True\n",
        ),
    ),
    _mutant(
        "tells-too-early",
        "A master that comes back tells slaves its old offsets before it has asked for theirs.",
        "replication.role",
        (
            "            if code == RequestCode.GET_ALL_CONSUMER_OFFSET and self.is_returning:\n",
            "            if False:\n",
        ),
    ),
    _mutant(
        "offsets-not-followed",
        "A slave takes the offsets of its master only where it has none.",
        "tables.offsets",
        (
            "            if self._table.get(key) != queues:\n                self._replace(key, queues)\n\n    def note",
            "            if key not in self._table:\n                self._replace(key, queues)\n\n    def note",
        ),
    ),
    _mutant(
        "acting-gives-out",
        "A slave gives out delayed messages.",
        "broker.broker",
        (
            "        if not self._role.is_slave:\n            self._tick_as_master",
            "        if True:\n            self._tick_as_master",
        ),
    ),
    _mutant(
        "acting-takes",
        "An acting master takes messages.",
        "replication.role",
        ("        if code in _STORING:\n", "        if code in _STORING and not self.options.has_acting_master:\n"),
    ),
    _mutant(
        "plain-sent-counts",
        "A master without a controller counts what it has sent to a slave.",
        "replication.streams.copies",
        ("        self.acknowledged = offset\n", "        self.acknowledged = self.next_offset\n"),
    ),
    _mutant(
        "plain-copy-less",
        "A master without a controller acknowledges with one copy less than is configured.",
        "replication.streams.copies",
        (
            "        return found[replicas - 2] if len(found) >= replicas - 1 else -1\n",
            "        return found[replicas - 2] if len(found) >= replicas - 1 else self._log.end\n",
        ),
    ),
    _mutant(
        "last-acts",
        "The slave with the greatest id is taken for the acting master.",
        "nameserver.routes",
        ("        least = min(addresses)\n        others", "        least = max(addresses)\n        others"),
    ),
    _mutant(
        "acting-written",
        "The queues of an acting master that registers again may be written to.",
        "nameserver.routes",
        (
            "                    self._enter(told.name, config, read_only=is_prime_slave and brokers.acting_master)\n",
            "                    self._enter(told.name, config, read_only=False)\n",
        ),
    ),
    _mutant(
        "slave-unflushed",
        "A slave without a controller reports what is not on its disk, though senders wait for that.",
        "replication.streams.slave",
        (
            "        end = self._reach()\n        if end < self._store.log.end and self.reported < 0:\n",
            "        end = self._store.log.end\n        if end < self._store.log.end and self.reported < 0:\n",
        ),
        (
            "self._store.log.end > self.reported and self._reach() > self.reported:\n",
            "self._store.log.end > self.reported:\n",
        ),
    ),
    _mutant(
        "cut-keeps-next-offsets",
        "After a cut, queues go on at the offsets behind the messages that were cut.",
        "store.holding",
        (
            "        self._last = {each.queue: each for each in messages if each.queue is not None}",
            "        return",
        ),
    ),
    _mutant(
        "older-offsets-taken",
        "A master that returns takes the offsets of a broker that stood in for it though its own are newer.",
        "tables.offsets",
        (
            "        if _order(file.data_version) < _order(self._version):\n            return False\n        self._take",
            "        self._take",
        ),
    ),
    # -- topics that were deleted
    _mutant(
        "deletion-outlives-cut",
        "The note of a deletion covers the messages that take the place of those which were cut off.",
        "store.deletions",
        ("            elif noted > end:\n                self.note(topic, end)\n", ""),
    ),
    _mutant(
        "mark-older-than-checkpoint",
        "A flush with an earlier time than the checkpoint's is marked at once, so that no mark counts until the next one.",
        "store.message_store",
        ("            if flush.stored_ms < self.checkpoint.commit_log_ms:\n", "            if False:\n"),
    ),
    _mutant(
        "checkpoint-behind-note",
        "The note of a cut is on the disk before the checkpoint whose time it has.",
        "store.message_store",
        ("        self._checkpoint.flush()  # or a start after a loss", "        # or a start after a loss"),
        hidden="Power must fail in the midst of a cut.",
        unit="tests/broker/rocketmq/store/test_truncating.py::test_loss_of_power_in_a_cut_leaves_it_to_the_next_start",
    ),
    _mutant(
        "proposed-once",
        "A set of brokers in sync whose proposal was not answered is not proposed again.",
        "replication.streams.in_sync",
        ("(not again and wanted in (self._proposed, self._refused))", "wanted in (self._proposed, self._refused)"),
    ),
    _mutant(
        "silent-master-registers",
        "A master that comes back registers before it has the offsets of the slave that has acted for it.",
        "administration.registration",
        ("        if self.is_silent:\n            return None\n        first, rest", "        first, rest"),
    ),
)
