"""Faults planted in queues and deduplication."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["MESSAGES"]

MESSAGES = (
    Mutant(
        "turns-never-again",
        "routing",
        "After its first turn a consumer's turns are not set again, so that it stays the first.",
        "broker.bmq.queue.routing",
        (("                    candidate.turns_left = candidate.count\n", ""),),
    ),
    Mutant(
        "first-subscription-only",
        "routing",
        "Of the subscriptions of a consumer only the first gets messages.",
        "broker.bmq.queue.routing",
        (("for each in stream.subscriptions]\n", "for each in stream.subscriptions[:1]]\n"),),
    ),
    Mutant(
        "first-subscription-named",
        "routing",
        "Messages for each subscription of a consumer name the first of them.",
        "broker.bmq.queue.delivery",
        (
            (
                "data, subscription.subscription_id, schema_id)\n        except Exception as error:\n            stream.sink.fail(error)\n\n    def send_run",
                "data, stream.subscriptions[0].subscription_id, schema_id)\n        except Exception as error:\n            stream.sink.fail(error)\n\n    def send_run",
            ),
        ),
    ),
    Mutant(
        "freed-counted-twice",
        "routing",
        "A subscription that is configured while it is full counts what was freed since as held.",
        "broker.bmq.queue.routing",
        (
            (
                "        self.messages_left = other.messages_left - self.holds\n        self.bytes_left = other.bytes_left - self.holds_bytes\n        self.messages_freed = self.bytes_freed = 0\n",
                "        self.messages_freed = self.bytes_freed = 0\n        self.messages_left = other.messages_left - self.holds\n        self.bytes_left = other.bytes_left - self.holds_bytes\n",
            ),
        ),
    ),
    Mutant(
        "expired-room-unused",
        "routing",
        "Consumers get nothing for the room that expired messages have left, until something else happens.",
        "broker.bmq.queue.upkeep",
        (
            (
                "            for app in queue.apps.values():\n                queue.deliver(app)\n        queue.work.left -= len(expired)\n",
                "            pass\n        queue.work.left -= len(expired)\n",
            ),
        ),
    ),
    Mutant(
        "open-not-given-back",
        "relay",
        "An open that is answered after its client has gone is not given back.",
        "broker.bmq.queue.queue_requests",
        (("                give_back(outcome, parameters)\n                return\n", "                return\n"),),
    ),
    Mutant(
        "one-delivery-too-many",
        "attempts",
        "The messages of a lost consumer get one attempt more than the limit.",
        "broker.bmq.queue.rejects",
        (
            (
                "            if left > 0:\n                app.attempts[message.guid] = left\n            else:\n                self.give_up(app, sub_queue_id, message, attempts_max)\n            return left > 0\n",
                "            if left >= 0:\n                app.attempts[message.guid] = left\n            else:\n                self.give_up(app, sub_queue_id, message, attempts_max)\n            return left >= 0\n",
            ),
        ),
    ),
    Mutant(
        "waiting-retry-acked",
        "dedup",
        "A retransmission of a post that waits for copies is acknowledged at once.",
        "broker.bmq.queue.root_queue",
        (
            (
                "        if posters is None:\n            return DUPLICATE\n",
                "        if posters is None or guid:\n            return DUPLICATE\n",
            ),
        ),
    ),
    Mutant(
        "removed-not-remembered",
        "dedup",
        "A message that is gone is not remembered.",
        "broker.bmq.queue.queue",
        (("            history.add(guid, now_ms)\n", ""),),
    ),
    Mutant(
        "refused-remembered",
        "dedup",
        "A post that was refused is remembered as one that was kept.",
        "broker.bmq.queue.queue",
        (
            (
                "                if not is_confirmed:\n                    continue\n            history.add(guid, now_ms)\n",
                "            history.add(guid, now_ms)\n",
            ),
        ),
    ),
    Mutant(
        "waited-long-not-seen",
        "dedup",
        "A message that waited for longer than the deduplication time is not known once it is removed.",
        "broker.bmq.core.history",
        (
            (
                "            if ticks > latest:\n                self._latest[producer] = ticks\n        elif self.window_ms:\n",
                "        elif self.window_ms:\n",
            ),
        ),
        hidden="Its producer must post nothing else for two deduplication times, and then repeat it: none of the first 40 worlds shows it.",
        unit="tests/broker/bmq/core/test_history.py::test_one_that_waited_for_longer_than_the_window_is_known_once_it_is_gone",
    ),
    Mutant(
        "seen-for-a-moment",
        "dedup",
        "The greatest GUIDs of producers are forgotten at each turn, rather than at the second.",
        "broker.bmq.core.history",
        (("= {}, self._latest, now_ms", "= {}, {}, now_ms"),),
    ),
    Mutant(
        "purged-not-remembered",
        "dedup",
        "Purged messages are not remembered by the node that purged them.",
        "broker.bmq.queue.purges",
        (("                history.add(guid, queue.now.ms)\n", "                pass\n"),),
    ),
    Mutant(
        "history-not-restored",
        "dedup",
        "A new primary does not know what was removed before.",
        "broker.bmq.node.restoring",
        (("            queue.history.restore(guids, self._since_ms)\n", "            pass\n"),),
    ),
    Mutant(
        "here-taken-again",
        "dedup",
        "A retransmission of a message that is here is taken for another.",
        "broker.bmq.queue.root_queue",
        (
            (
                "if guid in newest or (backlog.older and guid in backlog) or not self.history.is_new(guid):\n",
                "if not self.history.is_new(guid):\n",
            ),
        ),
    ),
    Mutant(
        "packed-not-known",
        "dedup",
        "A retransmission of a message that is packed is taken for another.",
        "broker.bmq.queue.backlog",
        (
            (
                "        if known is None or key[TICKS_AT:PRODUCER_AT] > known[0]:\n",
                "        if known is None or key[TICKS_AT:PRODUCER_AT] <= known[0]:\n",
            ),
        ),
    ),
    Mutant(
        "packed-confirms-lost",
        "delivery",
        "All messages that are packed together are wanted by the apps that want the first.",
        "broker.bmq.core.packed",
        (("            self._outstanding.values,\n", "            [self._outstanding.first] * self.count,\n"),),
    ),
    Mutant(
        "packed-copies",
        "delivery",
        "An app gets copies of packed messages, which are not those of the queue.",
        "broker.bmq.queue.routing",
        (("reversed(part.unpack().values()) if", "reversed(part.peek()) if"),),
    ),
    Mutant(
        "packed-in-passing",
        "delivery",
        "Messages are packed though an app that wants them does not wait for them.",
        "broker.bmq.queue.packing",
        (
            (
                "        if wanted & app.bit and not _waits_for(app, part):\n            return False\n",
                "        pass\n",
            ),
            ("    if _count_free(messages, waits=False) < len(messages):\n        return False\n", ""),
        ),
    ),
    Mutant(
        "cut-off-acks-eventual",
        "replication",
        "A node that is cut off acknowledges messages of eventual consistency.",
        "broker.bmq.queue.root_queue",
        (
            (
                "(self.config.strong or self.log.is_cut_off) and self.log.wants_copies",
                "self.config.strong and self.log.wants_copies",
            ),
        ),
    ),
    Mutant(
        "waiting-overtaken",
        "replication",
        "A message overtakes one that waits for copies.",
        "broker.bmq.queue.root_queue",
        (
            (
                "            awaits = self._awaits_copies or bool(awaiting.newest or awaiting.older)\n",
                "            awaits = self._awaits_copies\n",
            ),
        ),
        hidden="A domain must become eventual while a message waits for copies, and the next post must come before these: none of the first 300 worlds shows it.",
        unit="tests/broker/bmq/queue/test_consistency.py::test_later_posts_do_not_overtake_when_the_domain_becomes_eventual",
    ),
    Mutant(
        "delivered-before-copies",
        "replication",
        "A message is handed out before it has its copies.",
        "broker.bmq.queue.root_queue",
        (
            (
                "                self.log.when_copied(messages, self._on_copied)\n                return PENDING\n",
                "                self.log.when_copied(messages, self._on_copied)\n"
                "                for app in self.apps.values():\n"
                "                    subscription = app.only.choose() if app.only is not None else None\n"
                "                    if subscription is not None:\n"
                "                        self.delivery.send(subscription, message, payloads[0])\n"
                "                return PENDING\n",
            ),
        ),
    ),
    Mutant(
        "copied-in-any-order",
        "replication",
        "A message that has its copies overtakes those before it.",
        "broker.bmq.queue.root_queue",
        (
            (
                "            if app.pending or app.redelivery or app.is_behind or has_waited:\n",
                "            if has_waited:\n",
            ),
        ),
        unit="tests/broker/bmq/queue/test_consistency.py::"
        "test_a_payload_that_has_rotted_while_its_message_waited_for_copies_is_not_delivered",
    ),
    Mutant(
        "heirs-hold-nothing",
        "delivery",
        "What a consumer holds counts against no limit once it has other parameters.",
        "broker.bmq.queue.routing",
        (
            (
                "        self.messages_left = other.messages_left - self.holds\n",
                "        self.messages_left = other.messages_left\n",
            ),
        ),
    ),
    Mutant(
        "lower-priorities-in-turn",
        "delivery",
        "Consumers of all priorities receive by turns.",
        "broker.bmq.queue.routing",
        (
            (
                "            if subscription.priority == group.priority:\n"
                "                group.subscriptions.append(subscription)\n",
                "            group.subscriptions.append(subscription)\n",
            ),
        ),
    ),
    Mutant(
        "lower-when-full",
        "delivery",
        "A consumer of a lower priority receives what one of a higher priority has no room for.",
        "broker.bmq.queue.delivery",
        (
            (
                "                    matched.append(group)\n            if matched:\n                break\n",
                "                    matched.append(group)\n",
            ),
        ),
    ),
    Mutant(
        "one-attempt-more",
        "delivery",
        "A message is delivered once more than its domain allows after its consumers have died.",
        "broker.bmq.queue.rejects",
        (
            (
                "            left = self.count(app, message.guid, attempts_max)\n"
                "            if left > 0:\n"
                "                app.attempts[message.guid] = left\n"
                "            else:\n"
                "                self.give_up(app, sub_queue_id, message, attempts_max)\n"
                "            return left > 0\n",
                "            left = self.count(app, message.guid, attempts_max)\n"
                "            if left >= 0:\n"
                "                app.attempts[message.guid] = left\n"
                "            else:\n"
                "                self.give_up(app, sub_queue_id, message, attempts_max)\n"
                "            return left >= 0\n",
            ),
        ),
    ),
    Mutant(
        "one-attempt-less",
        "delivery",
        "A message is removed one death of a consumer too early.",
        "broker.bmq.queue.rejects",
        (
            (
                "            left = self.count(app, message.guid, attempts_max)\n"
                "            if left > 0:\n"
                "                app.attempts[message.guid] = left\n"
                "            else:\n"
                "                self.give_up(app, sub_queue_id, message, attempts_max)\n"
                "            return left > 0\n",
                "            left = self.count(app, message.guid, attempts_max)\n"
                "            if left > 1:\n"
                "                app.attempts[message.guid] = left\n"
                "            else:\n"
                "                self.give_up(app, sub_queue_id, message, attempts_max)\n"
                "            return left > 1\n",
            ),
        ),
    ),
    Mutant(
        "attempts-begin-again",
        "delivery",
        "The death of a consumer counts as the first of a message, whichever it is.",
        "broker.bmq.queue.rejects",
        (
            (
                "            left = self.count(app, message.guid, attempts_max)\n"
                "            if left > 0:\n"
                "                app.attempts[message.guid] = left\n",
                "            left = attempts_max - 1\n"
                "            if left > 0:\n"
                "                app.attempts[message.guid] = left\n",
            ),
        ),
    ),
    Mutant(
        "put-aside-not-carried",
        "routing",
        "Groups that are built again forget the messages put aside for them.",
        "broker.bmq.queue.routing",
        (
            (
                "            for text, group in self.groups.items():\n                group.waiting = before[text].waiting\n            return\n",
                "            return\n",
            ),
        ),
    ),
    Mutant(
        "one-consumer-too-many",
        "admission",
        "A domain admits one consumer of an app more than its limit.",
        "broker.bmq.queue.handles",
        (("parameters.read_count + readers > config.consumers_max", "readers > config.consumers_max"),),
    ),
    Mutant(
        "runs-not-counted",
        "capacity",
        "The posts of a whole event do not count against the limits of their domain.",
        "broker.bmq.queue.capacity",
        (
            (
                "            if count >= usage.messages_rise_at or held >= usage.bytes_rise_at:\n                usage._update()\n            usage = usage.parent\n",
                "            if count >= usage.messages_rise_at or held >= usage.bytes_rise_at:\n                usage._update()\n            usage = usage.parent if messages == 1 else None\n",
            ),
        ),
    ),
    Mutant(
        "moved-queues-counted",
        "capacity",
        "A domain counts messages of queues that nobody had open here when another node became their primary.",
        "broker.bmq.member.queues",
        (
            (
                "            else:\n                retire(queue)\n        self._connect(partition_id)\n",
                "        self._connect(partition_id)\n",
            ),
        ),
    ),
    Mutant(
        "waiting-bytes-leak",
        "capacity",
        "Posts that were let in after a rollover still count against the room of the waiting ones.",
        "broker.bmq.partition.waiting_posts",
        (("            self._bytes -= size\n", ""),),
    ),
    Mutant(
        "readded-app-keeps-key",
        "apps",
        "An app that was removed and added again in the meantime is taken for the former one.",
        "broker.bmq.node.changes",
        (("if wanted.get(app.app_id) != app.key]", "if app.app_id not in wanted]"),),
    ),
    Mutant(
        "recorded-without-room",
        "apps",
        "A node records a change of apps in its ledger before it knows that its journal has room for it.",
        "broker.bmq.node.changes",
        (("    _make_room(partition, queue, added, removed)\n    holder.", "    holder."),),
    ),
    Mutant(
        "history-first-time",
        "deduplication",
        "A part of the removed messages is forgotten by the time of its first one.",
        "broker.bmq.core.history",
        (
            (
                "            if now_ms - self._chunks[0].until_ms <= self.window_ms:\n",
                "            if now_ms - self._chunks[0].since_ms <= self.window_ms:\n",
            ),
        ),
    ),
    Mutant(
        "given-up-early",
        "relays",
        "A hop gives posts up long before their repetition might be taken for another message.",
        "broker.bmq.relay.posts",
        (
            (
                "oldest.posted_ms + self._queue.config.deduplication_time_ms, self._expire)",
                "oldest.posted_ms + self._queue.config.deduplication_time_ms // 4, self._expire)",
            ),
            (
                "limit_ms = self._queue.now.ms - self._queue.config.deduplication_time_ms\n",
                "limit_ms = self._queue.now.ms - self._queue.config.deduplication_time_ms // 4\n",
            ),
        ),
    ),
    Mutant(
        "handed-over-and-kept",
        "relays",
        "A hop that becomes the root keeps its posts too, and gives them up in time.",
        "broker.bmq.relay.relay",
        (("        self.openings.finish()\n        self.posts.forget_all()\n", "        self.openings.finish()\n"),),
    ),
    Mutant(
        "run-not-emptied",
        "posting",
        "The posts of an event before one with a wrong checksum are posted twice.",
        "broker.bmq.session.posting",
        (
            (
                '                        messages, payloads, size = [], [], 0\n                    what = "without a GUID"',
                '                        size = 0\n                    what = "without a GUID"',
            ),
        ),
    ),
    Mutant(
        "limit-one-less",
        "capacity",
        "A queue is full one message before its limit is exceeded.",
        "broker.bmq.queue.capacity",
        (("if limit and usage.messages > limit:", "if limit and usage.messages >= limit:"),),
    ),
    Mutant(
        "freed-bytes-counted-again",
        "routing",
        "The bytes that a full consumer has freed are counted again each time.",
        "broker.bmq.queue.routing",
        (("self.bytes_left, self.bytes_freed = left, 0", "self.bytes_left = left"),),
    ),
    Mutant(
        "rejects-of-another-app",
        "attempts",
        "A reject of a broker below counts for the sub-queue of the queue's own number.",
        "broker.bmq.relay.downstream",
        (
            (
                "stream = handle.streams.get(sub_queue_id) if handle else None",
                "stream = handle.streams.get(queue_id) if handle else None",
            ),
        ),
    ),
    Mutant(
        "leaving-opens-unanswered",
        "ledger",
        "Clients that open a queue which is about to be removed get no answer.",
        "broker.bmq.member.removals",
        (("        for opening in removal.openings:\n            opening()\n", ""),),
    ),
    Mutant(
        "lost-answers-refuse-removals",
        "ledger",
        "A queue is opened again when the answer to the request for its removal is lost.",
        "broker.bmq.member.removals",
        (("    if refusal.status.category is not StatusCategory.REFUSED:\n        return False\n", ""),),
        hidden="About one world in 750 removes a queue at such a moment: none of the first 400 does.",
        unit="tests/broker/bmq/member/test_queue_upkeep.py::test_a_queue_stays_closed_until_its_recorded_removal_is_decided",
    ),
    Mutant(
        "restored-queues-replace-others",
        "ledger",
        "A restored queue takes the place of the queue to which the cluster has given its name since.",
        "broker.bmq.member.restoring",
        (("        elif info is not None or other is not None:\n", "        elif False:\n"),),
        hidden="About one world in 750 removes a queue at such a moment: none of the first 400 does.",
        unit="tests/broker/bmq/member/test_queue_upkeep.py::test_a_restored_queue_does_not_take_the_place_of_the_next_of_its_name",
    ),
    Mutant(
        "queues-of-the-ledger-unknown",
        "ledger",
        "A node that starts does not learn that a queue of its ledger's file is removed.",
        "broker.bmq.consensus.metadata",
        (("KnownQueues(ledger.state.queues)", "KnownQueues({})"),),
        hidden="About one world in 750 removes a queue at such a moment: none of the first 400 does.",
        unit="tests/broker/bmq/consensus/test_metadata_faults.py::test_random_histories",
    ),
    Mutant(
        "restored-young",
        "expiry",
        "The age of restored messages starts at zero.",
        "broker.bmq.node.restoring",
        (
            (
                "            arrived_ms = self._since_ms - self._about.wall_ms + timestamp * 1000\n",
                "            arrived_ms = self._since_ms\n",
            ),
        ),
    ),
    Mutant(
        "stored-number-given-away",
        "schemas",
        "A shape of properties gets a number that messages of another shape have which were there at the start.",
        "broker.bmq.queue.root_queue",
        (("        self.schemas.keep(message.schema_id)\n", ""),),
    ),
    Mutant(
        "recycled-keeps-number",
        "schemas",
        "A shape of properties for which its producer uses an old number again has the old shape's number in its queue.",
        "broker.bmq.core.schemas",
        (
            (
                "        if known is not None and not wire_id & 1:\n            return known << 1\n",
                "        if known is not None:\n            return known << 1 | wire_id & 1\n",
            ),
        ),
    ),
    Mutant(
        "numbers-used-twice",
        "schemas",
        "A queue that has used all numbers of shapes begins with the first one again.",
        "broker.bmq.core.schemas",
        (
            (
                "            self._ids.pop(source, None)\n            return 1  # no number is left: readers parse the shape each time\n",
                "            self._ids.clear()\n            number = self._next = 1\n",
            ),
        ),
    ),
    Mutant(
        "latest-not-raised",
        "deduplication",
        "A message that is removed long after it was posted does not count as its producer's last.",
        "broker.bmq.core.history",
        (
            (
                "            if ticks > latest:\n                self._latest[producer] = ticks\n        elif",
                "        elif",
            ),
        ),
    ),
    Mutant(
        "restored-without-domain",
        "limits",
        "Restored messages do not count in their domain.",
        "broker.bmq.queue.capacity",
        (
            (
                "                usage._take_bounds()\n            usage = usage.parent",
                "                usage._take_bounds()\n            usage = None",
            ),
        ),
    ),
    Mutant(
        "first-queue-renewed",
        "apps",
        "A single node gives the apps that its domain names to the domain's first queue only.",
        "broker.bmq.node.single",
        (
            (
                "                sync_apps(self._node, queue, config)\n",
                "                sync_apps(self._node, queue, config)\n                break\n",
            ),
        ),
    ),
    Mutant(
        "copies-listed-short",
        "commands",
        "A part of a replica's copy of a queue is listed up to the number of messages asked for, from its beginning.",
        "broker.bmq.replication.copying.places",
        (("islice(queue.places.items(), first, first + count)", "islice(queue.places.items(), first, count)"),),
    ),
    Mutant(
        "listed-for-all-apps",
        "commands",
        "The messages of one app are listed as those of its queue.",
        "broker.bmq.admin.domains",
        (
            (
                "    bits, total = -1, len(queue.messages)\n    if",
                "    bits, total = -1, len(queue.messages)\n    if False and",
            ),
        ),
    ),
    Mutant(
        "one-app-purges-all",
        "commands",
        "A command that purges one app purges its queue.",
        "broker.bmq.admin.domains",
        (("purge_app(queue, app) if app else purge(queue)", "purge(queue)"),),
    ),
    Mutant(
        "packed-listed-from-their-first",
        "commands",
        "The messages that are packed together are listed from the first on, wherever the list begins.",
        "broker.bmq.queue.backlog",
        (("            offset -= count\n", "            offset = 0\n"),),
    ),
    Mutant(
        "older-repetitions-not-seen",
        "bounds",
        "A repetition of a message that is not in the newest dictionary is taken as another message.",
        "broker.bmq.queue.root_queue",
        (("elif guid in newest or (backlog.older and guid in backlog) or not", "elif guid in newest or not"),),
    ),
    Mutant(
        "newest-dictionary-dropped",
        "bounds",
        "A mapping of several dictionaries forgets the newest when it begins another.",
        "broker.bmq.store.chunked",
        (("            older.append(self.newest)\n", ""),),
    ),
)
