"""Faults planted in replication, recovery and rollover."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["COPIES"]

# Why no world shows what is wrong with `broker.bmq.partition.tight`.
_NO_BRIM = (
    "Primaries of worlds are ours, which keep room for what is due: only the reference's fill a partition to the brim."
)

COPIES = (
    Mutant(
        "auto-confirm-frees-room",
        "room",
        "An automatic confirm counts as one that was due.",
        "broker.bmq.partition.records",
        (
            (
                "            self.due += len(messages) * ref_count\n",
                "            self.due += len(messages) * (ref_count - len(auto_confirms))\n",
            ),
        ),
    ),
    Mutant(
        "added-apps-not-carried",
        "rollover",
        "A rollover leaves out the records of added apps.",
        "broker.bmq.store.rollover",
        (
            (
                "op.queue_op_type in (*MAKING, QueueOpType.PURGE)",
                "op.queue_op_type in (QueueOpType.CREATION, QueueOpType.PURGE)",
            ),
        ),
    ),
    Mutant(
        "one-alone-waits",
        "replication",
        "A receipt is counted only if it is not for one message alone: that waits for the next one.",
        "broker.bmq.replication.replication",
        (
            (
                "position = position\n        self.count()\n",
                "position = position\n        if len(self._partition.kept.awaiting) > 1:\n            self.count()\n",
            ),
        ),
    ),
    Mutant(
        "receipts-of-all-wanted",
        "replication",
        "Receipts are counted only when all replicas of the primary have sent one under its lease.",
        "broker.bmq.replication.replication",
        (("        if len(numbers) >= others:\n", "        if len(numbers) == len(self.followers):\n"),),
    ),
    Mutant(
        "one-copy-too-few",
        "replication",
        "A message counts as kept with one copy too few.",
        "broker.bmq.replication.replication",
        (
            (
                "lease_id, others = stored.primary_lease_id, stored.kept.copies_wanted - 1",
                "lease_id, others = stored.primary_lease_id, stored.kept.copies_wanted - 2",
            ),
        ),
    ),
    Mutant(
        "furthest-follower-decides",
        "replication",
        "With five nodes, one follower's receipt is enough.",
        "broker.bmq.replication.replication",
        (("numbers[others - 1] if others", "numbers[0] if others"),),
        unit="tests/broker/bmq/member/test_fencing.py::test_with_five_nodes_the_receipts_of_two_replicas_are_waited_for",
    ),
    Mutant(
        "receipts-of-any-lease",
        "replication",
        "A receipt counts whichever lease it is of.",
        "broker.bmq.replication.partition",
        (
            (
                "self.is_primary and receipt.primary_lease_id == self.primary_lease_id:\n",
                "self.is_primary:\n",
            ),
        ),
        hidden="A receipt goes to who is primary, over a link that a replica's older receipts have left before it heard of the lease.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_receipt_of_an_older_lease_counts_for_nothing",
    ),
    Mutant(
        "gathered-stays",
        "replication",
        "Confirms and deletions that wait for a message are not sent when none comes.",
        "broker.bmq.member.member",
        (
            (
                "            partition.flush()\n        return bool(gathering)\n",
                "            pass\n        return False\n",
            ),
        ),
        hidden="The next step sends them, that of the clock at the latest.",
        unit="tests/broker/bmq/member/test_resting.py::test_confirms_are_replicated_before_a_node_rests",
    ),
    Mutant(
        "gathered-before-lease-ends",
        "replication",
        "A primary that resigns keeps back what waits for a message.",
        "broker.bmq.replication.partition_base",
        (
            (
                "                self.stream.flush()\n            for",
                "                self.stream.flush(gathers=True)\n            for",
            ),
        ),
        hidden="Confirms that a primary has not sent when it resigns are those of messages delivered twice.",
        unit="tests/broker/bmq/replication/test_gathering.py::test_deletions_go_before_the_lease_ends",
    ),
    Mutant(
        "highest-is-self",
        "replication",
        "A new primary does not look whether a replica has more.",
        "broker.bmq.replication.primary_actions",
        (("        if highest_id == own_id:\n", "        if own_id >= 0:\n"),),
    ),
    Mutant(
        "positions-of-too-few",
        "replication",
        "A new primary asks one node too few how far it is.",
        "broker.bmq.replication.primary_actions",
        (
            (
                "        if told >= self.quorum or covers(told, damaged, nodes, wanted):\n",
                "        if told >= self.quorum - 1 or covers(told, damaged, nodes, wanted):\n",
            ),
        ),
    ),
    Mutant(
        "serves-before-copies",
        "replication",
        "A primary serves before a majority has what it has.",
        "broker.bmq.replication.primary_actions",
        (("        if len(self.healed) >= self.quorum:\n", "        if len(self.healed) >= 1:\n"),),
    ),
    Mutant(
        "storage-of-any-node",
        "replication",
        "A replica writes what a node sends that is not its primary.",
        "broker.bmq.replication.partition",
        (
            (
                "        if node_id == self.primary_id:\n            if self.stored.damage",
                "        if node_id >= 0:\n            if self.stored.damage",
            ),
        ),
        hidden="Links keep the order of what is sent, and a record must follow the last one here: none of an older lease fits behind the sync point that the new primary begins with.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_replica_takes_records_of_its_primary_alone",
    ),
    Mutant(
        "records-of-any-lease",
        "replication",
        "A replica writes records of a lease that it has not heard of.",
        "broker.bmq.replication.partition_base",
        (("        self.copy.records.lease_id_max = fact.lease_id\n", "        pass\n"),),
        hidden="Links keep the order of what is sent, and a record must follow the last one here: none of an older lease fits behind the sync point that the new primary begins with.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_replica_takes_no_record_of_a_lease_that_it_does_not_know",
    ),
    Mutant(
        "requests-of-any-lease",
        "replication",
        "A replica answers its primary under whichever lease it asks.",
        "broker.bmq.replication.partition",
        (
            (
                "        if (asked.node_id, lease_id) == (self.primary_id, self.primary_lease_id):\n",
                "        if asked.node_id == self.primary_id:\n",
            ),
        ),
        hidden="A primary cancels what it has asked when its lease ends, and its requests come in order, before those of its next lease.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_replica_obeys_its_primary_under_the_lease_that_it_knows_alone",
    ),
    Mutant(
        "waits-across-leases",
        "replication",
        "An old primary goes on waiting for copies under its next lease.",
        "broker.bmq.partition.stored_partition",
        (
            (
                "        self.kept.forget_awaiting()\n        self.forget_restored()\n",
                "        self.forget_restored()\n",
            ),
        ),
    ),
    Mutant(
        "cut-one-too-many",
        "recovery",
        "A replica that is ahead cuts one record too many.",
        "broker.bmq.replication.copying.replica_files",
        (
            (
                "        behind = offset_behind(files, position_until(files, position))\n",
                "        behind = offset_behind(files, position_until(files, position))\n        behind = behind and behind - 60\n",
            ),
        ),
        hidden="It is sent the record again when it asks from where it is then.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_cut_keeps_the_last_record_that_both_have",
    ),
    Mutant(
        "ahead-stays",
        "recovery",
        "A replica that is ahead within a lease keeps what the primary does not have.",
        "broker.bmq.replication.divergence",
        (
            (
                "k.own_end_of_lease is not None, SyncAction.TRUNCATE, _end_of_lease)",
                "k.own_end_of_lease is not None, SyncAction.SEND, _end_of_lease)",
            ),
        ),
    ),
    Mutant(
        "other-lease-stays",
        "recovery",
        "A replica keeps what it has under a lease that the primary has nothing of.",
        "broker.bmq.replication.divergence",
        (("lambda k: True, SyncAction.TRUNCATE, _older)", "lambda k: True, SyncAction.SEND, _older)"),),
        hidden="A primary serves once a majority has its lease's first record. So that record, a sync point, is all that the next one may have nothing of; and none of the first 300 worlds shows that it stays.",
        unit="tests/broker/bmq/replication/test_divergence.py::test_the_cases",
    ),
    Mutant(
        "missed-rollover-pushed",
        "recovery",
        "A replica that missed a rollover is sent only what follows its last record.",
        "broker.bmq.replication.divergence",
        (
            (
                '    Case("missed a rollover", lambda k: k.sync_point != k.own_sync_point, SyncAction.RESET, _nowhere),\n',
                "",
            ),
        ),
        hidden="Nothing is sent from a place, or cut to one, before the first sync point behind a rollover: then everything is sent.",
        unit="tests/broker/bmq/replication/test_divergence.py::test_the_cases",
    ),
    Mutant(
        "rollover-waits-for-primary",
        "rollover",
        "A replica that has not been told what follows a rollover does not finish it.",
        "broker.bmq.replication.copying.copy_rollovers",
        (
            (
                "        if rolling.begins is None and not rolling.begin_tail(rolling.fresh.ends):\n",
                "        if rolling.begins is None:\n",
            ),
        ),
        hidden="It receives the partition anew from the next primary, with all that was acknowledged.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_rollover_is_finished_though_the_primary_dies_before_its_first_record_behind_it",
    ),
    Mutant(
        "answers-before-healed",
        "recovery",
        "A replica says that it has what it was sent, whether or not it has.",
        "broker.bmq.replication.replica_actions",
        (
            (
                "        if fact.end == self.copy.records.position:\n            self._answer_data(fact.asked, ReplicaDataType.PUSH",
                "        if fact.end:\n            self._answer_data(fact.asked, ReplicaDataType.PUSH",
            ),
        ),
    ),
    Mutant(
        "healed-too-early",
        "recovery",
        "A node takes itself for healed with the first that it gets.",
        "broker.bmq.replication.replica_actions",
        (("        if self.copy.records.position == receiving.end:\n", "        if receiving.end:\n"),),
    ),
    Mutant(
        "healing-skips-one",
        "recovery",
        "A replica is sent what follows but for the first record.",
        "broker.bmq.replication.primary_actions",
        (
            (
                "        end = stream.follow(node_id, position, start)\n",
                "        end = stream.follow(node_id, position, min(start + 60, files.journal_end))\n",
            ),
        ),
    ),
    Mutant(
        "lease-written-before",
        "recovery",
        "A primary writes under a lease that it has written under before it lost records.",
        "broker.bmq.replication.primary_actions",
        (
            (
                "        if self.primary_lease_id <= self.copy.records.position.primary_lease_id and not self._is_begun:\n",
                "        if self.primary_lease_id < 0:\n",
            ),
            (
                "        if self._is_begun or self.primary_lease_id <= self.copy.records.position.primary_lease_id:\n",
                "        if self._is_begun:\n",
            ),
        ),
        hidden="Without its lease's first record it does not serve either; most leaders give another lease at once.",
        unit="tests/broker/bmq/replication/test_partition.py::test_a_lease_is_not_written_under_twice",
    ),
    Mutant(
        "payload-unchecked",
        "replication",
        "A replica writes a payload whose checksum is not its own.",
        "broker.bmq.replication.copying.record_runs",
        (("        or crc32c(data[begin : end - padding]) != checksum\n", ""),),
        hidden="Links lose bytes, and do not change them.",
        unit="tests/broker/bmq/member/test_fencing.py::test_a_replica_takes_no_payload_with_another_checksum",
    ),
    Mutant(
        "followers-of-the-past",
        "replication",
        "A replica that is gone still counts as one that has copies.",
        "broker.bmq.replication.partition",
        (("            self.stream.forget(node_id)\n        self.healed.discard(node_id)\n", "            pass\n"),),
    ),
    Mutant(
        "journal-before-data",
        "recovery",
        "With --fsync always the journal is on the disk before the data that it names.",
        "broker.bmq.node.durability",
        (
            (
                "        if is_other or before is None or before.data_end != now.data_end:\n            found.append(files.data)\n",
                "        found.append(files.journal)\n        if is_other or before is None or before.data_end != now.data_end:\n            found.append(files.data)\n",
            ),
        ),
    ),
    Mutant(
        "data-not-synced",
        "recovery",
        "With --fsync always payloads are not waited for.",
        "broker.bmq.node.durability",
        (("            found.append(files.data)\n", "            pass\n"),),
    ),
    Mutant(
        "folder-not-synced",
        "recovery",
        "With --fsync always new files are not waited for in their folder.",
        "broker.bmq.node.durability",
        (("            found.append(files.directory)\n", "            pass\n"),),
        hidden="Whoever makes files syncs their folder itself. It takes a process that is killed before that, and power that fails in the next one's first step, before the ledger's file is synced, in the same folder.",
        unit="tests/broker/bmq/node/test_durability.py::test_the_first_time_all_there_is_and_the_folder_before_the_journal",
    ),
    Mutant(
        "journal-not-synced",
        "recovery",
        "With --fsync always the journal is not waited for.",
        "broker.bmq.node.durability",
        (("        found.append(files.journal)\n", "        pass\n"),),
    ),
    Mutant(
        "new-set-not-synced",
        "rollover",
        "A rollover's header says that all is there before it is.",
        "broker.bmq.partition.file_sets",
        (
            (
                "            fresh.flush()\n",
                "            pass\n",
            ),
        ),
        hidden="It takes a power failure after a rollover's last flush and before the files' next one.",
        unit="tests/broker/bmq/store/test_power_failures.py::test_a_rollover_waits_for_all_and_the_folder_then_for_its_header",
    ),
    Mutant(
        "new-folder-not-synced",
        "rollover",
        "A rollover's files replace others before the folder has them.",
        "broker.bmq.partition.file_sets",
        (("            fresh.directory.flush()\n", "            pass\n"),),
        hidden="It takes a power failure after a rollover's last flush and before the folder's next one.",
        unit="tests/broker/bmq/store/test_power_failures.py::test_a_rollover_waits_for_all_and_the_folder_then_for_its_header",
    ),
    Mutant(
        "receipt-before-whole",
        "rollover",
        "A replica says that it keeps what follows a rollover before its new files are whole.",
        "broker.bmq.replication.partition",
        (("        position = min(due, self.copy.rollovers.kept)\n", "        position = due\n"),),
    ),
    Mutant(
        "rollover-drops-confirms",
        "rollover",
        "A rollover leaves out confirms of messages alive.",
        "broker.bmq.store.rollover",
        (
            (
                "np.array(self._confirms(records) + self._queue_ops(records), np.int64)",
                "np.array(self._queue_ops(records), np.int64)",
            ),
        ),
    ),
    Mutant(
        "rollover-drops-apps",
        "rollover",
        "A rollover leaves out what became of single apps.",
        "broker.bmq.store.rollover",
        (
            (
                "    return op.queue_op_type in (*MAKING, QueueOpType.PURGE) or op.app_key != NULL_KEY\n",
                "    return op.queue_op_type in MAKING\n",
            ),
        ),
        hidden="The ledger and the domain say which apps there are: one that the journal brings back is removed again, and the app that comes and goes in worlds is owed nothing.",
        unit="tests/broker/bmq/store/test_rollover.py::test_removals_of_single_apps_are_remembered",
    ),
    Mutant(
        "sliced-drops-confirms",
        "rollover",
        "A rollover in slices leaves out confirms of messages alive.",
        "broker.bmq.store.moving",
        (("[found.rows, self._confirms(part), self._removals", "[found.rows, self._removals"),),
    ),
    Mutant(
        "sliced-drops-removals",
        "rollover",
        "A rollover in slices leaves out that messages which it carried over were removed meanwhile.",
        "broker.bmq.store.moving",
        (("self._confirms(part), self._removals(part), self", "self._confirms(part), self"),),
    ),
    Mutant(
        "sliced-drops-apps",
        "rollover",
        "A rollover in slices leaves out what became of single apps.",
        "broker.bmq.store.moving",
        (
            (
                "            if op.queue_key in self._made and (is_new or is_kept_operation(op)):\n",
                "            if op.queue_key in self._made and (makes or is_new):\n",
            ),
        ),
        hidden="The ledger and the domain say which apps there are: one that the journal brings back is removed again, and the app that comes and goes in worlds is owed nothing.",
        unit="tests/broker/bmq/partition/test_sliced_rollover.py::test_removals_of_single_apps_are_carried_over",
    ),
    Mutant(
        "sliced-drops-held",
        "rollover",
        "Records that are held back during a rollover in slices are not written behind it.",
        "broker.bmq.partition.records",
        (
            (
                "            self.sequence_number = held.append_to(self.files, number)\n",
                "            self.sequence_number = number\n",
            ),
        ),
    ),
    Mutant(
        "rollover-without-header",
        "rollover",
        "A rollover's new files never say that they are whole.",
        "broker.bmq.partition.file_sets",
        (("        write_header()\n", "        pass\n"),),
    ),
    Mutant(
        "tight-beyond-size",
        "rollover",
        "A partition that is full to the brim writes beyond its size.",
        "broker.bmq.partition.tight",
        (("        count = max(0, min(self._room, count_max))\n", "        count = count_max\n"),),
        hidden=_NO_BRIM,
        unit="tests/broker/bmq/partition/test_tight.py::test_it_is_drained_within_its_files_and_takes_messages_again",
    ),
    Mutant(
        "tight-drops-confirms",
        "rollover",
        "A partition that is full to the brim forgets confirms of one app among several.",
        "broker.bmq.partition.tight",
        (("            self._others += others\n", "            pass\n"),),
        hidden=_NO_BRIM,
        unit="tests/broker/bmq/partition/test_tight.py::test_confirms_of_some_apps_do_not_take_the_room_that_removals_need",
    ),
    Mutant(
        "tight-keeps-no-reserve",
        "rollover",
        "Confirms of single apps take the room that a full partition needs for removals.",
        "broker.bmq.partition.tight",
        (
            (
                "        return self._write_others(self._room - messages - REMOVED_MIN, messages)\n",
                "        return self._write_others(self._room, messages)\n",
            ),
        ),
        hidden=_NO_BRIM,
        unit="tests/broker/bmq/partition/test_tight_rollover.py::test_records_that_wait_are_written_a_few_at_a_time",
    ),
    Mutant(
        "tight-writes-meanwhile",
        "rollover",
        "Records are added to the files of a full partition while these are carried over.",
        "broker.bmq.partition.tight",
        (("        return self._rolling is not None and not self._rolling.is_changed\n", "        return False\n"),),
        hidden=_NO_BRIM,
        unit="tests/broker/bmq/partition/test_tight_rollover.py::test_nothing_is_added_to_the_files_while_they_are_carried_over",
    ),
    Mutant(
        "tight-not-placed",
        "rollover",
        "After the rollover of a full partition its messages are looked for where they were.",
        "broker.bmq.partition.tight_rollover",
        (
            (
                "                    message.offset = partition.records.offsets_from + start\n",
                "                    pass\n",
            ),
        ),
        hidden=_NO_BRIM,
        unit="tests/broker/bmq/partition/test_tight_rollover.py::test_confirms_go_on_and_whoever_dies_has_lost_nothing",
    ),
    Mutant(
        "one-app-too-few",
        "recovery",
        "A message counts as done with when all apps but one have confirmed it.",
        "broker.bmq.store.recovery",
        (("    if len(done) >= max(1, ref_count):\n", "    if len(done) >= max(1, ref_count - 1):\n"),),
    ),
    Mutant(
        "confirms-not-read",
        "recovery",
        "Confirms are not read when a partition is recovered.",
        "broker.bmq.store.recovery",
        (
            (
                "        if since.get(key, -1) < index and purged.get(key[:KEY_SIZE], -1) < index:\n",
                "        if key is None:\n",
            ),
        ),
    ),
    Mutant(
        "deletions-not-read",
        "recovery",
        "Deletions are not read when a partition is recovered.",
        "broker.bmq.store.recovery",
        (
            (
                "    is_alive[rows[is_its_own]] = False\n",
                "",
            ),
        ),
    ),
    Mutant(
        "purges-not-read",
        "recovery",
        "Purges are not read when a partition is recovered.",
        "broker.bmq.store.recovery",
        (
            (
                "    for app_key, purged_at in purged:\n",
                "    for app_key, purged_at in ():\n",
            ),
        ),
    ),
    Mutant(
        "pushes-overtake",
        "relays",
        "A push may overtake the record that it is of.",
        "broker.bmq.replication.partition",
        (
            (
                "        return self.stream is not None and self.stream.has_fallen_behind(node_id)\n",
                "        return False\n",
            ),
        ),
        hidden="No link of a world takes less than is written, and a hop that is pushed what it has no record of opens the queue anew.",
        unit="tests/broker/bmq/member/test_member.py::test_a_replica_that_lags_is_pushed_nothing_before_its_records",
    ),
    Mutant(
        "removals-swapped",
        "deduplication",
        "A node that receives removed messages takes their age for their time.",
        "broker.bmq.replication.removals",
        (("Told(last_s, age_ms, bytes(body))", "Told(age_ms, last_s, bytes(body))"),),
    ),
    Mutant(
        "held-queue-misplaced",
        "rollover",
        "A queue's record that is held back during a rollover keeps the place that it has among those held back.",
        "broker.bmq.partition.held_records",
        (
            (
                "                offset = op.queue_uri_record_offset_words + base // WORD\n",
                "                offset = op.queue_uri_record_offset_words\n",
            ),
        ),
    ),
    Mutant(
        "old-lease-counts",
        "copies",
        "What a replica had of earlier leases counts as a copy of this lease's records with lesser numbers.",
        "broker.bmq.replication.replication",
        (
            (
                "            if each.position.primary_lease_id == lease_id\n",
                "            if each.position.primary_lease_id <= lease_id\n",
            ),
        ),
    ),
    Mutant(
        "purged-app-empties-copy",
        "copies",
        "A replica removes all messages of a queue when one of its apps is purged.",
        "broker.bmq.replication.copying.replica_files",
        (("QueueOpType.DELETION) and app_key == NULL_KEY:\n", "QueueOpType.DELETION):\n"),),
    ),
    Mutant(
        "half-a-set-is-left",
        "files",
        "The first files of a set are left when the next one cannot be opened.",
        "broker.bmq.store.partition_files",
        (
            (
                "            except OSError:\n                _remove(directory, opened)\n",
                "            except OSError:\n",
            ),
        ),
    ),
    Mutant(
        "set-without-room-is-left",
        "files",
        "A file that has no room for its head is left, with those before it.",
        "broker.bmq.store.partition_files",
        (
            (
                "            if not file.reserve(len(head)):\n                _remove(directory, opened)\n",
                "            if not file.reserve(len(head)):\n",
            ),
        ),
    ),
)
