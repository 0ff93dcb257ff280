"""Faults planted in sessions and relays."""

# ruff: noqa: E501 - what is changed stands here as it stands in the source.

from __future__ import annotations

from tests.simulator.mutants.planted import Mutant

__all__ = ["RELAYS"]

RELAYS = (
    Mutant(
        "sent-confirms-lost",
        "relays",
        "Confirms that were sent are not sent to the next upstream.",
        "broker.bmq.relay.confirms",
        (
            (
                "        return [(guid, app_id) for sent_ms, guid, app_id in self._sent if sent_ms >= since_ms]\n",
                "        return [(guid, app_id) for sent_ms, guid, app_id in self._sent if sent_ms < 0 < since_ms]\n",
            ),
        ),
    ),
    Mutant(
        "unsent-confirms-lost",
        "relays",
        "Confirms that could not be sent are forgotten.",
        "broker.bmq.relay.confirms",
        (("        confirms += [(guid, app_id) for _, guid, app_id in self._unsent]\n", ""),),
    ),
    Mutant(
        "posts-not-resent",
        "relays",
        "Posts without an answer are not sent to the next upstream.",
        "broker.bmq.relay.relay",
        (("        posts.begin_resending()\n", ""),),
    ),
    Mutant(
        "taken-twice-by-a-hop",
        "relays",
        "A hop takes a message that it has once more.",
        "broker.bmq.relay.arrivals",
        (
            (
                "        if message.outstanding & app.bit:\n            # It came before",
                "        if message.outstanding < 0:\n            # It came before",
            ),
        ),
    ),
    Mutant(
        "deaths-elsewhere-unheard",
        "attempts",
        "A hop whose consumer holds a message hears of no attempts at it elsewhere.",
        "broker.bmq.relay.arrivals",
        (("counter < app.attempts.get(guid, counter + 1)", "counter < 0"),),
        hidden="It takes a hop that has lost its primary while a consumer there holds a message, and deaths of that consumer and of one elsewhere: world 20261140343 of BlazingMQ comes to that, and few before it.",
        unit="tests/broker/bmq/relay/test_relay_primaries.py::test_a_hop_counts_the_deaths_elsewhere_for_a_message_that_its_consumer_has_kept",
    ),
    Mutant(
        "posts-not-handed-over",
        "relays",
        "A hop that becomes the primary forgets the posts that it was to send up.",
        "broker.bmq.relay.handover",
        (("        _post(new, guid, put)\n", "        pass\n"),),
    ),
    Mutant(
        "confirms-not-handed-over",
        "relays",
        "A hop that becomes the primary forgets the confirms that it was to send up.",
        "broker.bmq.relay.handover",
        (("            root.confirm(Stream(root.apps[app_id], Nobody(), 0, 0), (guid,))\n", "            pass\n"),),
    ),
    Mutant(
        "waiting-not-handed-over",
        "relays",
        "A primary that becomes a hop forgets the posts that wait for copies.",
        "broker.bmq.relay.handover",
        (("            new.posts.adopt(guid, content, posters)\n", "            pass\n"),),
    ),
    Mutant(
        "held-handed-out-again",
        "relays",
        "What a consumer holds is handed out by a new primary to others as well.",
        "broker.bmq.relay.takeover",
        (
            (
                "                holder.unconfirmed.add(message.guid, (message, subscription))\n",
                "                holder.unconfirmed.add(message.guid, (message, subscription))\n"
                "                app.redelivery.append(message)\n",
            ),
        ),
    ),
    Mutant(
        "hop-keeps-what-waits",
        "relays",
        "A hop keeps what waits for consumers when it loses its upstream.",
        "broker.bmq.relay.relay",
        (
            (
                "        for app in self.apps.values():\n            self._unsettled.forgetting.forget_waiting(app)\n        # Another",
                "        # Another",
            ),
        ),
    ),
    Mutant(
        "hop-confirms-not-sent",
        "relays",
        "A hop does not pass confirms on.",
        "broker.bmq.relay.relay",
        (("            if known or has_room:\n", "            if False:\n"),),
    ),
    Mutant(
        "downstream-stays",
        "relays",
        "What a broker below held stays with it when its link is lost.",
        "broker.bmq.relay.downstream",
        (("        self.requests.drop()\n", "        pass\n"),),
    ),
    Mutant(
        "known-posts-passed-on",
        "relays",
        "A hop passes a post on, though it waits for the answer to the same.",
        "broker.bmq.relay.posts",
        (("                    or guid in known\n", ""),),
        hidden="It takes a client that is back at the same hop, and posts again there what that hop still waits for an answer to, while its upstream is there: worlds seldom come to that.",
        unit="tests/broker/bmq/proxy/test_bulk.py::test_a_whole_event_that_comes_again_while_it_waits_is_kept_once",
    ),
    Mutant(
        "not-ready-told",
        "relays",
        "A client receives the refusal of a hop whose root was not ready.",
        "broker.bmq.relay.posts",
        (("            if status != AckStatus.NOT_READY:\n", "            if status >= 0:\n"),),
    ),
    Mutant(
        "confirms-end-at-unknown",
        "delivery",
        "The confirms of an event count up to one for a sub-queue id that is not open.",
        "broker.bmq.session.posting",
        (
            (
                'which is not open")\n                        continue\n',
                'which is not open")\n                        return\n',
            ),
        ),
    ),
    Mutant(
        "sub-ids-confirmed-together",
        "delivery",
        "Confirms of one event count for the app of the first.",
        "broker.bmq.session.posting",
        (("queue_id != run_id or sub_queue_id != run_sub_id:\n", "queue_id != run_id:\n"),),
    ),
    Mutant(
        "lost-like-closed",
        "delivery",
        "The death of a consumer counts as no attempt.",
        "broker.bmq.session.session",
        (
            (
                "        self.client.requests.drop(lost=lost)\n",
                "        self.client.requests.drop()\n",
            ),
        ),
    ),
    Mutant(
        "posts-overtake-refused",
        "relays",
        "A post overtakes earlier ones that the root was not ready for.",
        "broker.bmq.relay.posts",
        (
            (
                "        if self._refused:\n"
                "            # An earlier post of the same client may be among those.\n"
                "            self._refused.update(posts)\n"
                "        else:\n"
                "            self._send(posts.values())\n",
                "        self._send(posts.values())\n",
            ),
        ),
    ),
    Mutant(
        "refused-never-resent",
        "relays",
        "Posts that the root was not ready for are not sent again.",
        "broker.bmq.relay.posts",
        (
            (
                "        if not self._refused:\n"
                "            self._resend_refused_later()\n"
                "        self._refused.add(guid)\n",
                "        self._refused.add(guid)\n"
                "        if not self._refused:\n"
                "            self._resend_refused_later()\n",
            ),
        ),
    ),
    Mutant(
        "refused-forgotten",
        "relays",
        "Posts that the root was not ready for are forgotten.",
        "broker.bmq.relay.posts",
        (
            (
                "            self._resend_refused_later()\n        self._refused.add(guid)\n",
                "            self._resend_refused_later()\n"
                "        self._refused.add(guid)\n"
                "        self.room.give(self.unacknowledged.pop(guid).size)\n",
            ),
        ),
    ),
    Mutant(
        "late-refusal-overtaken",
        "relays",
        "A post overtakes one whose refusal by a root that was not ready is still on its way.",
        "broker.bmq.relay.posts",
        (
            (
                "        later = dropwhile(lambda item: item[0] not in refused, self.unacknowledged.items())\n",
                "        later = [item for item in self.unacknowledged.items() if item[0] in refused]\n",
            ),
        ),
    ),
    Mutant(
        "attempts-lost-in-takeover",
        "attempts",
        "Messages that consumers hold when a relay becomes the root have all their attempts again.",
        "broker.bmq.relay.takeover",
        (
            (
                "                holder.unconfirmed.add(message.guid, (message, subscription))\n                _move_attempts(attempts, app, message.guid)\n",
                "                holder.unconfirmed.add(message.guid, (message, subscription))\n",
            ),
        ),
    ),
    Mutant(
        "forwarded-schemas-alike",
        "schemas",
        "A hop that forwards posts unchanged gives shapes of their properties the numbers that its producers gave them.",
        "broker.bmq.relay.posts",
        (("_pack_schema_id(queue.schemas.translate(number, schema_id))", "_pack_schema_id(schema_id)"),),
    ),
    Mutant(
        "certificate-not-asked",
        "users",
        "A client that has proven to be somebody may not do what a name in its certificate may.",
        "broker.bmq.session.authorization",
        (
            (
                "        if auth.principal is not None and allows(action, Who(auth.principal, auth.mechanism)):\n            return True\n",
                "        if auth.principal is not None:\n            return allows(action, Who(auth.principal, auth.mechanism))\n",
            ),
        ),
    ),
    Mutant(
        "writes-by-readers",
        "users",
        "Who may not write opens a queue for writing.",
        "broker.bmq.session.authorization",
        (("parameters.flags & QueueFlag.WRITE or", "parameters.flags & QueueFlag.READ or"),),
    ),
    Mutant(
        "proof-not-pending",
        "users",
        "A session ends for the age of its proof while another is looked at.",
        "broker.bmq.session.entrance",
        (("        auth.pending = True\n", ""),),
    ),
    Mutant(
        "proofs-live-for-ever",
        "users",
        "A session goes on after its proof is too old.",
        "broker.bmq.session.session",
        (("        if self.entrance.has_expired:\n", "        if self.entrance.has_expired and self._is_admin:\n"),),
    ),
    Mutant(
        "first-deadline-kept",
        "users",
        "A second proof lets a session last no longer.",
        "broker.bmq.session.authentication",
        (
            (
                "        self.deadline_ms = None if outcome",
                "        self.deadline_ms = self.deadline_ms if self.deadline_ms else None if outcome",
            ),
        ),
    ),
    Mutant(
        "becomes-another",
        "users",
        "A session proves to be another user than before.",
        "broker.bmq.session.authentication",
        (("self.principal != outcome.principal", "self.mechanism != mechanism.upper()"),),
    ),
)
