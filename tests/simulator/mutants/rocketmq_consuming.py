"""Faults planted in what RocketMQ's consumers are given, over remoting and gRPC."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["ROCKETMQ_CONSUMING"]


def _mutant(name: str, says: str, module: str, old: str, new: str, hidden: str = "", unit: str = "") -> Mutant:
    return Mutant(f"rocketmq-{name}", "rocketmq", says, f"broker.rocketmq.{module}", ((old, new),), hidden, unit)


ROCKETMQ_CONSUMING = (
    _mutant(
        "message-skipped",
        "A long answer to a pull says to go on one message too far.",
        "consuming.pulling",
        'return Found("FOUND" if messages else "NO_MATCHED_MESSAGE", number, begin',
        'return Found("FOUND" if messages else "NO_MATCHED_MESSAGE", min(end, number + len(messages) // 4), begin',
    ),
    _mutant(
        "pop-without-checkpoint",
        "Popped messages are not noted.",
        "consuming.pop.popping",
        "            self._log.put_checkpoint(popped.revive_queue, point, popped.now_ms)\n",
        "            pass\n",
    ),
    _mutant(
        "ack-not-noted",
        "Acknowledgements of popped messages are not noted.",
        "consuming.pop.service",
        "        self._log.put_ack(receipt.revive_queue, note, receipt.visible_ms, now_ms)\n",
        "        pass\n",
    ),
    _mutant(
        "checkpoints-alike",
        "A message that is hidden again in the millisecond of its pop has the same checkpoint twice.",
        "consuming.pop.service",
        "        popped_ms = now_ms + (now_ms == receipt.popped_ms)\n",
        "        popped_ms = now_ms\n",
    ),
    _mutant(
        "revived-nowhere",
        "Popped messages for which there is no room are not put back later.",
        "consuming.pop.revival",
        "            if not self._put_all(point, offsets, now_ms):\n                return left\n",
        "            self._put_all(point, offsets, now_ms)\n",
    ),
    _mutant(
        "revived-attempt-not-counted",
        "A message that is revived does not count the attempt.",
        "consuming.pop.revival",
        "again(record, topic, queue_id, packed, is_retried=True)",
        "again(record, topic, queue_id, packed)",
    ),
    _mutant(
        "beginning-not-chosen",
        "A group that would choose its beginning begins at the start of a queue in memory.",
        "consuming.consumers",
        "        if header.set_zero_if_not_found is False:",
        "        if header.set_zero_if_not_found is None and False:",
    ),
    _mutant(
        "revived-again",
        "After a start the last checkpoint that was dealt with is dealt with again.",
        "consuming.pop.revival",
        "first = 0 if done is None else done + 1",
        "first = 0 if done is None else done",
    ),
    _mutant(
        "revive-offset-ahead",
        "The offset of the revive log is where it was read, and open checkpoints before it are forgotten by a start.",
        "consuming.pop.revival",
        "REVIVE_GROUP, queue_id, revive_offset)",
        "REVIVE_GROUP, queue_id, queue.next_offset - 1)",
    ),
    _mutant(
        "revive-offset-forgotten",
        "After a start the revive log is gone through from its beginning.",
        "consuming.pop.revival",
        "first = 0 if done is None else done + 1",
        "first = 0",
    ),
    _mutant(
        "revived-before-acks",
        "Checkpoints do not wait for acknowledgements that come into the log with them.",
        "consuming.pop.revival",
        "if now_ms - known.visible_ms <= _WAIT_MS:",
        "if now_ms < known.visible_ms:",
    ),
    _mutant(
        "revived-in-part",
        "Of the messages of a checkpoint, those after one that was acknowledged are not revived.",
        "consuming.pop.revival",
        "known.acked |= 1 << offsets.index(each)",
        "known.acked |= -1 << offsets.index(each)",
    ),
    _mutant(
        "disabled-group-pulls",
        "A group that may not consume goes on with its pulls.",
        "consuming.pulling",
        '        if not group.consume_enable:\n            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no',
        '        if not group.consume_enable and not header.queue_offset:\n            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no',
    ),
    _mutant(
        "grpc-topic-kept",
        "The gRPC service keeps the first form of a topic.",
        "grpc.brokers.local",
        "if known is None or known[0] is not config:",
        "if known is None:",
    ),
    _mutant(
        "grpc-limit-passed-once",
        "A message is received once more than the limit of its group.",
        "grpc.consuming.receiving",
        "elif attempts > config.retry_max_times:",
        "elif attempts > config.retry_max_times + 1:",
    ),
    _mutant(
        "grpc-buried-and-left",
        "A message that goes to the dead letters is not acknowledged.",
        "grpc.consuming.receiving",
        "                self._ask_ack(asked, group, topic, handle, lambda _: None)\n            done(frame)",
        "                pass\n            done(frame)",
    ),
    _mutant(
        "grpc-attempts-not-told",
        "A message is always received for the first time.",
        "grpc.conversion",
        "system.delivery_attempt = attempts + 1",
        "system.delivery_attempt = 1",
    ),
    _mutant(
        "order-passes-open",
        "An acknowledgement in order passes over earlier messages that are under way.",
        "consuming.pop.order",
        "                return each\n        return offsets[-1] + 1",
        "                return offset + 1\n        return offsets[-1] + 1",
    ),
    _mutant(
        "order-free-early",
        "A queue in order is free as soon as one of its messages is to be seen again.",
        "consuming.pop.order",
        "return max(times, default=0)",
        "return min(times, default=0)",
    ),
    _mutant(
        "order-other-time-unknown",
        "A queue in order does not heed that a message is hidden for longer.",
        "consuming.pop.order",
        "changed.get(offset, usual) for",
        "usual for",
    ),
    _mutant(
        "batch-acked-in-part",
        "An acknowledgement of several messages counts for the first one.",
        "consuming.pop.revival",
        "note.ack_offsets if isinstance",
        "note.ack_offsets[:1] if isinstance",
    ),
    _mutant(
        "free-with-first",
        "A queue in order is free once the first of its messages is to be seen again.",
        "consuming.pop.order",
        "    return max(times, default=0)",
        "    return min(times, default=0)",
    ),
    _mutant(
        "lite-offset-stays",
        "The acknowledgment of the message at a group's offset in a lite topic is taken for an old one.",
        "consuming.lite.service",
        "        if offset < (self._services.offsets.get(queue, group, QUEUE_ID) or 0):\n            return success()",
        "        if offset <= (self._services.offsets.get(queue, group, QUEUE_ID) or 0):\n            return success()",
    ),
    _mutant(
        "held-pull-commits-again",
        "A pull that waited commits its offset once more, though the group has committed a later one since.",
        "consuming.pulling",
        "            if is_new and header.system_flags & _COMMIT_OFFSET and",
        "            if header.system_flags & _COMMIT_OFFSET and",
    ),
    _mutant(
        "lite-taken-back",
        "A client that repeats its subscriptions takes back a lite topic that another one has taken over.",
        "consuming.lite.service",
        "            queues = [each for each in queues if mine.issuperset(self._registry.members(each, change.group))]\n",
        "            queues = [each for each in queues if mine]\n",
    ),
    _mutant(
        "lite-assignment-outlives-subscription",
        "A client gets messages that were assigned to it before it lost its subscription.",
        "consuming.lite.popping",
        "            if subscriber.takes_all or queue in subscriber.queues:\n",
        "            if True:\n",
    ),
    _mutant(
        "order-old-handle-counts",
        "A handle of an earlier pop changes the time for which a message of the present one is hidden.",
        "consuming.pop.order",
        "record.popped_ms == popped_ms and offset in _offsets(record)",
        "offset in _offsets(record)",
    ),
    _mutant(
        "grpc-buried-unstored",
        "A message that could not be stored with the dead letters is acknowledged.",
        "grpc.consuming.receiving",
        "            if frame.code == ResponseCode.SUCCESS:\n                self._ask_ack(asked, group, topic, handle, lambda _: None)\n            done(frame)",
        "            self._ask_ack(asked, group, topic, handle, lambda _: None)\n            done(frame)",
    ),
    _mutant(
        "waiting-pop-unfiltered",
        "A pop that has waited gets messages that its filter leaves out.",
        "consuming.pop.popping",
        "self._filter(asked.header) if asked.wanted is None else asked.wanted",
        "self._filter(asked.header._replace(expression=None))",
    ),
    _mutant(
        "changed-acked-first",
        "A message whose time is changed is acknowledged before its new checkpoint is stored.",
        "consuming.pop.service",
        "        self._log.put_checkpoint(receipt.revive_queue, point, now_ms)\n        self._note(topic, group, queue_id, offset, receipt, now_ms)\n",
        "        self._note(topic, group, queue_id, offset, receipt, now_ms)\n        self._log.put_checkpoint(receipt.revive_queue, point, now_ms)\n",
    ),
    _mutant(
        "order-counts-lost",
        "Pops of a message in order are not counted.",
        "consuming.pop.order",
        "                known = set(_offsets(old))\n",
        "                known = set(before)\n",
    ),
    _mutant(
        "renewed-handle-forgotten",
        "After a renewal a client's message keeps its first handle.",
        "grpc.consuming.renewals",
        "            held.handle, held.failures = handle, 0\n",
        "            held.failures = 0\n",
    ),
    _mutant(
        "checkpoint-from-first",
        "A checkpoint counts its messages from the first that the filter takes, not from where the pop began.",
        "consuming.pop.popping",
        "        differences = [each - offset for each in offsets]\n",
        "        differences = [each - offsets[0] for each in offsets]\n",
    ),
    _mutant(
        "popped-before-noted",
        "The offset of a group moves past messages before the checkpoint that brings them back is stored.",
        "consuming.pop.popping",
        "        try:\n            self._log.put_checkpoint(popped.",
        "        services.offsets.commit(topic, group, queue_id, next_offset)\n        try:\n            self._log.put_checkpoint(popped.",
    ),
    _mutant(
        "grpc-attempt-less",
        "Consumers over gRPC are told one attempt less than their group's messages have.",
        "grpc.clients",
        "backoff.max_attempts = config.retry_max_times + 1",
        "backoff.max_attempts = config.retry_max_times",
    ),
    _mutant(
        "upper-case-refused",
        "A call is refused whose signature is written in upper case, as Java's clients do.",
        "grpc.access.credentials",
        "credential.signature.lower().encode",
        "credential.signature.encode",
    ),
)
