"""`bmqctl journal summary` beside a model in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmqctl.stores.blazingmq.build import build_store
from tests.bmqctl.stores.blazingmq.summary.summaries import FANOUT, PRIORITY, START_S, built, small_chunks, summary
from tests.families import examples


@dataclass
class Message:
    queue: str
    apps: frozenset[str]
    sequence_number: int
    confirmed: set[str] = field(default_factory=set)
    automatic: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)

    @property
    def waiting(self) -> set[str]:
        return set(self.apps) - self.confirmed - self.automatic - self.purged


class Model:
    """A partition that takes events, writes the lines of them, and keeps their counts."""

    APPS = ("foo", "bar", "baz")

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.apps = {FANOUT: ["foo", "bar"], PRIORITY: ["__default"]}
        self.alive: list[tuple[str, Message]] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.by_app: Counter[tuple[str, str, str]] = Counter()
        for uri, apps in self.apps.items():
            self.lines.append({"type": "QUEUE_OP", "queue_uri": uri, "apps": list(apps)})

    def message(self, uri: str, automatic: bool) -> None:
        guid = f"40{len(self.lines):030X}"
        # The sync point that opens a journal is number 1.
        apps = frozenset(self.apps[uri])
        automatic = automatic and len(apps) > 1
        message = Message(uri, apps, len(self.lines) + automatic + 2)
        if automatic:
            app = min(apps)
            message.automatic.add(app)
            self.by_app["automatic", uri, app] += 1
            self.lines.append(
                {"type": "CONFIRM", "queue_uri": uri, "guid": guid, "app_id": app, "reason": "AUTO_CONFIRMED"}
            )
        refs = len(apps) - len(message.automatic)
        self.lines.append({"type": "MESSAGE", "queue_uri": uri, "guid": guid, "ref_count": refs, "payload": "hello"})
        self.counts["messages", uri] += 1
        self.alive.append((guid, message))

    def confirm(self, pick: int, app_pick: int, rejected: bool) -> None:
        """An app confirms; the last one of a message by its deletion."""
        if not self.alive:
            return
        guid, message = self.alive[pick % len(self.alive)]
        waiting = sorted(message.waiting)
        if not waiting:
            return
        app = waiting[app_pick % len(waiting)]
        message.confirmed.add(app)
        self.by_app["confirmed", message.queue, app] += 1
        line = {"queue_uri": message.queue, "guid": guid}
        if not message.waiting:
            self.alive.remove((guid, message))
            end = "purged" if message.purged and self._done_by_records(message, app) else "confirmed"
            self.counts[end, message.queue] += 1
            self.lines.append({"type": "DELETION", **line})
            return
        self.by_app["rejected", message.queue, app] += rejected
        reason = "REJECTED" if rejected else "CONFIRMED"
        self.lines.append({"type": "CONFIRM", **line, "app_id": app, "reason": reason})

    @staticmethod
    def _done_by_records(message: Message, last: str) -> bool:
        return not (set(message.apps) - (message.confirmed - {last}) - message.automatic - message.purged)

    def expire(self, pick: int) -> None:
        if self.alive:
            guid, message = self.alive.pop(pick % len(self.alive))
            self.counts["expired", message.queue] += 1
            self.lines.append(
                {"type": "DELETION", "queue_uri": message.queue, "guid": guid, "deletion_flag": "TTL_EXPIRATION"}
            )

    def purge(self, uri: str) -> None:
        self.lines.append({"type": "QUEUE_OP", "queue_uri": uri, "queue_op_type": "PURGE"})
        self.counts["purged", uri] += sum(message.queue == uri for _, message in self.alive)
        self.alive = [(guid, message) for guid, message in self.alive if message.queue != uri]

    def purge_app(self, app_pick: int, remove: bool) -> None:
        """Take the fanout's messages from an app; delete those no other app wants; with `remove`, remove the app."""
        apps = self.apps[FANOUT]
        if not apps or (remove and len(apps) == 1):
            return
        app = apps[app_pick % len(apps)]
        line = {"type": "QUEUE_OP", "queue_uri": FANOUT, "app_id": app}
        wanted = [message.sequence_number for _, message in self.alive if app in message.waiting]
        if wanted:
            start = {"start_primary_lease_id": 1, "start_sequence_number": min(wanted)}
            self.lines.append({**line, "queue_op_type": "PURGE", **start})
        for guid, message in [each for each in self.alive if each[1].queue == FANOUT]:
            if app in message.waiting:
                message.purged.add(app)
                self.by_app["purged", FANOUT, app] += 1
                if not message.waiting:
                    self.alive.remove((guid, message))
                    self.counts["purged", FANOUT] += 1
                    self.lines.append({"type": "DELETION", "queue_uri": FANOUT, "guid": guid})
        if remove:
            self.lines.append({**line, "queue_op_type": "DELETION"})
            apps.remove(app)

    def add_app(self) -> None:
        """The next app that was never there: one that comes back has another key."""
        known = {app for line in self.lines if line.get("queue_uri") == FANOUT for app in line.get("apps", ())}
        new = next((app for app in self.APPS if app not in known), None)
        if new is not None:
            self.lines.append({"type": "QUEUE_OP", "queue_uri": FANOUT, "queue_op_type": "ADDITION", "apps": [new]})
            self.apps[FANOUT].append(new)


picks = st.integers(0, 50)
acts = st.one_of(
    st.tuples(st.just("message"), st.sampled_from((FANOUT, FANOUT, PRIORITY)), st.booleans()),
    st.tuples(st.just("message"), st.just(FANOUT), st.just(False)),
    st.tuples(st.just("confirm"), picks, picks, st.booleans()),
    st.tuples(st.just("confirm"), picks, picks, st.just(False)),
    st.tuples(st.just("expire"), picks),
    st.tuples(st.just("purge"), st.sampled_from((FANOUT, PRIORITY))),
    st.tuples(st.just("purge_app"), picks, st.booleans()),
    st.tuples(st.just("add_app")),
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(acts, max_size=60), st.sampled_from((1, 5, 1000)))
def test_is_the_model(steps: list[tuple[Any, ...]], chunk_records: int) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        small_chunks(patch, chunk_records)
        build_store(map(json.dumps, model.lines), Path(directory), START_S)
        found = summary(Path(directory))
    for uri, queue in found.items():
        alive = [message for _, message in model.alive if message.queue == uri]
        assert queue.messages == model.counts["messages", uri]
        assert queue.ended == {
            end: model.counts[end, uri] for end in ("confirmed", "expired", "no_quorum", "purged", "queue_deleted")
        }
        assert queue.outstanding == len(alive)
        assert queue.partially_confirmed == sum(bool(message.confirmed or message.purged) for message in alive)
        for app in queue.apps:
            app_id = app.app_id or ""
            assert app.outstanding == sum(app_id in message.waiting for message in alive), app_id
            for name in ("confirmed", "rejected", "automatic", "purged"):
                assert getattr(app, name) == model.by_app[name, uri, app_id], (name, app_id)


def test_a_purge_takes_nothing_from_an_app_that_has_confirmed(tmp_path: Path) -> None:
    model = Model()
    for _ in range(2):
        model.message(FANOUT, False)
    model.confirm(1, 1, False)
    assert model.alive[1][1].confirmed == {"foo"}
    model.purge_app(0, False)
    found = summary(built(tmp_path / "store", model.lines))[FANOUT]
    foo, bar = found.apps
    assert (foo.confirmed, foo.purged, foo.outstanding) == (1, 1, 0)
    assert (bar.confirmed, bar.purged, bar.outstanding) == (0, 0, 2)
    assert (found.outstanding, found.partially_confirmed) == (2, 2)
