"""Faults planted in the RocketMQ broker and its store."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.planted import Mutant

__all__ = ["ROCKETMQ"]


def _mutant(name: str, says: str, module: str, old: str, new: str, hidden: str = "", unit: str = "") -> Mutant:
    return Mutant(f"rocketmq-{name}", "rocketmq", says, f"broker.rocketmq.{module}", ((old, new),), hidden, unit)


ROCKETMQ = (
    _mutant(
        "rollback-stored",
        "A transaction that is rolled back is stored as if it were committed.",
        "core.transactions",
        "        if header.transaction == Transaction.COMMIT:\n",
        "        if header.transaction:\n",
    ),
    _mutant(
        "ended-twice",
        "A transaction that has ended is committed again.",
        "core.transactions",
        "        if record.queue_offset in self._ended or record.queue_offset in self._passed:\n            # It was ended while",
        "        if False:\n            # It was ended while",
    ),
    _mutant(
        "end-not-known",
        "A committed message is not among those that have ended until the next start.",
        "core.transactions",
        "            self._ended.add(offset)\n            if offset >= begin:\n",
        "            if offset >= begin:\n",
    ),
    _mutant(
        "copy-goes-on",
        "A commit ends the prepared message that was asked about, and not its copies.",
        "core.transactions",
        "        return [first, *copies]\n",
        "        return [offset]\n",
    ),
    _mutant(
        "delay-early",
        "A delayed message is given out half a second early.",
        "core.delays",
        "            if now_ms < entry.tags_code <= now_ms + delay_ms:\n",
        "            if now_ms + 500 < entry.tags_code <= now_ms + delay_ms:\n",
    ),
    _mutant(
        "timer-early",
        "A timer message is given out at the beginning of its second.",
        "core.timer_messages",
        "self._waiting[0][0] + PRECISION_MS <= now_ms",
        "self._waiting[0][0] <= now_ms",
    ),
    _mutant(
        "recall-ignored",
        "A message is given out though it was recalled.",
        "core.timer_messages",
        '            if (properties.get("REAL_TOPIC", ""), properties.get("UNIQ_KEY", "")) in self._recalled:\n'
        "                return True\n",
        "",
    ),
    _mutant(
        "log-not-flushed",
        "Answers do not wait for the disk.",
        "store.message_store",
        "        def wait() -> None:\n            for file in files:\n",
        "        def wait() -> None:\n            for file in ():\n",
    ),
    _mutant(
        "file-before-log",
        "How far delayed messages were given out is on the disk before these are.",
        "core.broker",
        "            self._world.flush_log()\n            keep(data)\n",
        "            keep(data)\n",
        hidden="Power must fail in the step that wrote the file, and nobody may have been answered since: none of the first 60 worlds shows it.",
        unit="tests/broker/rocketmq/test_pop.py::test_log_is_on_the_disk_before_a_file_says_what_was_done",
    ),
    _mutant(
        "folders-not-flushed",
        "The folders of a new store are not flushed.",
        "store.opening",
        "    root.flush()\n    drop_cut_note(root)\n",
        "    drop_cut_note(root)\n",
    ),
    _mutant(
        "cuts-not-flushed",
        "What recovery cuts off the queues is not flushed.",
        "store.message_store",
        "            if queue.cut_log(end) or not is_certain:\n",
        "            if queue.cut_log(end) and False:\n",
        hidden="Entries must come back with the power after the log has grown over their place: none of 300 worlds shows it.",
        unit="tests/broker/rocketmq/test_message_store.py::test_what_recovery_has_cut_does_not_come_back_once_the_log_has_grown_over_it",
    ),
    _mutant(
        "mark-ahead",
        "The mark says that what was written during a flush is on the disk, too.",
        "store.message_store",
        "write_mark(self._mark, flush.stored_ms, flush.queues_end)",
        "write_mark(self._mark, flush.stored_ms, self.log.end)",
    ),
    _mutant(
        "record-unchecked",
        "What a crash has left of a record is taken for one.",
        "store.commit_log",
        "                    _check_record(record, place, offset)\n            except FormatError as error:\n",
        "                    pass\n            except FormatError as error:\n",
        hidden="300 worlds, which lose a log from some place on, do not show it; the unit test tears a record",
        unit="tests/broker/rocketmq/test_message_store.py::test_torn_record_at_the_start_of_a_file_is_cut_off",
    ),
    _mutant(
        "index-not-mended",
        "After a crash messages are not entered into the index again.",
        "store.opening",
        "index=found.offset > indexed if crashed else found.offset >= begin",
        "index=not crashed and found.offset >= begin",
    ),
    _mutant(
        "index-noted-ahead",
        "The checkpoint says that index files which were filled during a flush are on the disk, too.",
        "store.message_store",
        "index_ms=flush.index_ms)",
        "index_ms=self.index.full_ms)",
        hidden="Power must fail after a checkpoint, behind an index file that was filled during the flush before it.",
        unit="tests/broker/rocketmq/test_message_store.py::test_index_files_filled_during_a_flush_are_made_again_after_a_loss_of_power",
    ),
    _mutant(
        "refused-and-stored",
        "Nobody looks whether the queue has room before the message is in the log.",
        "store.message_store",
        "                queue_offset = queue.end\n                queue.make_room()\n",
        "                queue_offset = queue.end\n",
    ),
    _mutant(
        "batch-without-room",
        "Nobody looks whether the queues have room before messages are in the log together.",
        "store.batches",
        "        if not self._has_room(offset - begin, runs):\n            return None\n",
        "",
    ),
    _mutant(
        "batch-entries-swapped",
        "Of messages that are stored together, each is entered into its queue with the offset of the one behind it.",
        "store.batches",
        "pack_entry(offset, size, tags_code)",
        "pack_entry(offset + size, size, tags_code)",
    ),
    _mutant(
        "offsets-not-kept",
        "Offsets are written only when the node stops.",
        "core.broker",
        "            self._kept_ms = now_ms\n            self.keep_offsets()\n",
        "            self._kept_ms = now_ms\n",
    ),
    _mutant(
        "message-skipped",
        "A long answer to a pull says to go on one message too far.",
        "core.pulling",
        'return Found("FOUND" if messages else "NO_MATCHED_MESSAGE", number, begin',
        'return Found("FOUND" if messages else "NO_MATCHED_MESSAGE", min(end, number + len(messages) // 4), begin',
    ),
    _mutant(
        "arrival-not-told",
        "Who waits for messages is not told that some have come.",
        "core.arrivals",
        "                self._puller.arrived(topic, queue_id, now_ms)\n",
        "",
    ),
    _mutant(
        "times-not-counted",
        "A message that was given back does not count how often.",
        "core.sending_back",
        "encode(properties), is_retried=True)",
        "encode(properties))",
    ),
    _mutant(
        "retry-at-once",
        "A message that was given back comes again after a second, whatever its level.",
        "core.sending_back",
        'properties["DELAY"] = str(header.delay_level or _FIRST_LEVEL + record.reconsume_times)',
        'properties["DELAY"] = "1"',
    ),
    _mutant(
        "no-dead-letters",
        "A message is retried for ever.",
        "core.sending_back",
        "        is_dead = record.reconsume_times >= most or header.delay_level < 0\n",
        "        is_dead = header.delay_level < 0\n",
    ),
    _mutant(
        "pop-without-checkpoint",
        "Popped messages are not noted.",
        "core.pop.popping",
        "            self._log.put_checkpoint(popped.revive_queue, point, popped.now_ms)\n",
        "            pass\n",
    ),
    _mutant(
        "ack-not-noted",
        "Acknowledgements of popped messages are not noted.",
        "core.pop.acks",
        "        self._log.put_ack(receipt.revive_queue, note, receipt.visible_ms, now_ms)\n",
        "        pass\n",
    ),
    _mutant(
        "checkpoints-alike",
        "A message that is hidden anew in the millisecond of its pop has the same checkpoint twice.",
        "core.pop.acks",
        "        popped_ms = now_ms + (now_ms == receipt.popped_ms)\n",
        "        popped_ms = now_ms\n",
    ),
    _mutant(
        "revived-nowhere",
        "Popped messages for which there is no room are not put back later.",
        "core.pop.revival",
        "            if not self._put_all(point, offsets, now_ms):\n                return left\n",
        "            self._put_all(point, offsets, now_ms)\n",
    ),
)
