"""Random histories of a store, with crashes anywhere: what was acked is there, what was confirmed is not.

A model says what must be there. A crash in the midst of a step may leave the state before or after it: no client had an
answer. After every restart, and after every step that rolled over, the validator must find no error in the files.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.bmq.core.messages import Full
from broker.bmq.node.changes import reconfigure
from broker.bmq.partition.room import SPARE_RECORDS_MAX
from broker.bmq.queue.purges import purge, purge_app
from broker.bmq.store.partition_files import PartitionLimits
from formats.bmq.codes import AckStatus
from formats.bmq.disk.files import JOURNAL_RECORD_SIZE
from tests.broker.bmq.rig import ACK, APPS, DOMAINS, READ, WRITE, Client, Rig, guid, start, store_faults
from tests.broker.fakes import Crash, MemoryDirectory
from tests.families import examples, sweep

FANOUT = "bmq://fanout/c"
# All apps that a queue may have; the last of the fanout comes and goes, and so may the others.
QUEUES = {"bmq://priority/a": ("",), "bmq://priority/b": ("",), FANOUT: (*APPS, "quux")}
URIS = list(QUEUES)
GUIDS = 40
PLENTY = 1 << 40

# A rollover every 60 records or every 4 KB of payloads, so that a short history has several.
# GUIDs come again once their messages are gone.
FORGETFUL = [replace(config, deduplication_time_ms=0) for config in DOMAINS.values()]

LIMITS = PartitionLimits(journal=(SPARE_RECORDS_MAX + 100) * JOURNAL_RECORD_SIZE, data=8 << 10, qlist=1 << 10)


@dataclass(frozen=True)
class Step:
    """One thing that happens: `what` to queue `uri`; `number` and `size` as it needs them."""

    what: str
    uri: str
    number: int
    size: int


# Posts and confirms are most of what happens to a store.
RARE = ["tick", "crash", "crash in", "torn", "stop", "disk full", "disk free", "purge", "purge app", "apps", "apps"]
WHAT = ["post"] * 8 + ["confirm"] * 8 + RARE
STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(WHAT),
        st.sampled_from(URIS),
        st.integers(0, GUIDS - 1),
        st.integers(0, 600),
    ),
    min_size=30,
    max_size=120,
)

Messages = dict[bytes, tuple[bytes, frozenset[str]]]
State = dict[str, Messages]


def payload(step: Step) -> bytes:
    return b"%d." % step.number + bytes(at % 251 for at in range(step.size))


@dataclass
class History:
    """A node, the clients that work on it, and the model: by queue and GUID, the payload and who still wants it."""

    rig: Rig = field(default_factory=lambda: start(limits=LIMITS, domains=FORGETFUL))
    state: State = field(default_factory=lambda: {uri: {} for uri in QUEUES})
    producer: Client = field(init=False)
    rollovers: int = 0
    apps: dict[str, tuple[str, ...]] = field(default_factory=lambda: {**QUEUES, FANOUT: APPS})

    def __post_init__(self) -> None:
        self.connect()

    def connect(self) -> None:
        """Clients that post to and confirm in all queues, and receive nothing."""
        self.producer = self.rig.connect()
        for number, (uri, apps) in enumerate(QUEUES.items()):
            self.producer.open(number, uri, WRITE | ACK)
            for sub_id, app in enumerate(apps):
                self.producer.open(number, uri, READ, app, sub_id)

    def restart(self, directory: MemoryDirectory | None = None, before: State | None = None) -> None:
        directory = directory or self.rig.directory.after_crash()
        directory.free = PLENTY
        errors = store_faults(directory) if all_whole(directory) else []
        assert not errors
        self.rollovers += len(self.rig.directory.archived) // 3
        directory.archived.clear()
        self.rig = self.rig.restart(directory)
        self.adopt(before)
        self.connect()
        assert not self.rig.faults()

    # -- steps

    def apply(self, step: Step) -> None:
        if step.what in ("post", "confirm"):
            self.write(step)
        elif step.what == "tick":
            self.rig.wait(1000)
        elif step.what in ("purge", "purge app", "apps"):
            self.change(step)
        elif step.what == "disk full":
            self.rig.directory.free = step.size
        elif step.what == "disk free":
            self.rig.directory.free = PLENTY
        elif step.what == "crash":
            self.restart()
            self.check()
        elif step.what == "stop":
            self.rig.stop()
            self.restart(self.rig.directory)
            self.check()
        else:
            self.crash_in(step)

    def write(self, step: Step) -> None:
        """Post or confirm; what the node answers is what the model takes in."""
        archived = len(self.rig.directory.archived)
        messages, id, number = self.state[step.uri], guid(step.number), URIS.index(step.uri)
        if step.what == "post":
            status = self.producer.post(number, id, payload(step))
            assert status in (AckStatus.SUCCESS, AckStatus.STORAGE_FAILURE)
            if status is AckStatus.SUCCESS and id not in messages:
                messages[id] = (payload(step), frozenset(self.apps[step.uri]))
        elif messages:
            id = list(messages)[step.number % len(messages)]
            data, apps = messages[id]
            app = sorted(apps)[step.size % len(apps)]
            self.producer.confirm(number, id, sub_id=QUEUES[step.uri].index(app))
            messages[id] = (data, apps - {app})
            if len(apps) == 1:
                del messages[id]
        if len(self.rig.directory.archived) > archived:
            assert not self.rig.faults()
        self.count()

    def count(self) -> None:
        """A record for every app that has yet to confirm, the last of which is the deletion, is set aside."""
        due = sum(len(apps) for messages in self.state.values() for _, apps in messages.values())
        assert self.rig.node.partitions[0].records.due == due

    def change(self, step: Step) -> None:
        """Apply an operation from outside, which a full partition may refuse."""
        node, messages = self.rig.node, self.state[step.uri]
        queue = node.queues[step.uri]
        if step.what == "purge":
            with suppress(Full):
                purge(queue)
                messages.clear()
        elif step.what == "purge app":
            app_id = self.apps[step.uri][step.number % len(self.apps[step.uri])]
            with suppress(Full):
                purge_app(queue, queue.apps[app_id or "__default"])
                take_from(messages, {app_id})
        else:
            toggled = QUEUES[FANOUT][step.number % len(QUEUES[FANOUT])]
            app_ids = set(self.apps[FANOUT]) ^ {toggled} or {toggled}
            domain = node.domains["fanout"]
            config = replace(domain.config, app_ids=tuple(sorted(app_ids)))
            self.rig.domains = {**self.rig.domains, "fanout": config}
            with suppress(Full):
                reconfigure(node, domain, config)
            self.adopt()
        self.count()

    def adopt(self, before: State | None = None) -> None:
        """The model's fanout queue has the apps of the real one, and so it had `before`."""
        real = self.rig.node.queues[FANOUT].apps
        for state in (self.state, before or {}):
            take_from(state.get(FANOUT, {}), set(self.apps[FANOUT]) - set(real))
        self.apps[FANOUT] = tuple(real)

    def crash_in(self, step: Step) -> None:
        """The process dies somewhere in a post or a confirm: between two calls to the folder, or between two bytes."""
        inner = Step("post" if step.number % 2 else "confirm", step.uri, step.number // 2, step.size)
        before = deepcopy(self.state)
        directory = self.rig.directory
        folder = directory.after_crash()
        if step.what == "crash in":
            directory.steps_left = step.size % 20
        try:
            self.write(inner)
        except Crash:
            self.restart(before=before)
            self.check(before)
            return
        if step.what == "torn" and folder.names() == directory.names():
            # 60 bytes of journal, and up to 620 of payload before them.
            self.restart(directory.torn_since(folder, step.size + step.number), before)
            self.check(before)
            return
        self.restart()
        self.check()

    # -- what must be there

    def check(self, before: State | None = None) -> None:
        """The node has what the model has, or had `before`; the model goes on from there."""
        found = self.read()
        assert list_of(found) in [list_of(self.state), *([list_of(before)] if before is not None else [])]
        self.state = found

    def read(self) -> State:
        """All that consumers get, in the order in which they get it."""
        found: State = {uri: {} for uri in QUEUES}
        for uri, apps in QUEUES.items():
            orders = []
            for app in self.apps[uri] if uri == FANOUT else apps:
                client = self.rig.connect()
                client.read(0, uri, app)
                pushes = client.pushes()
                client.drop()
                orders.append([push.guid for push in pushes])
                for push in pushes:
                    data, wanted = found[uri].setdefault(push.guid, (push.payload, frozenset()))
                    assert data == push.payload
                    found[uri][push.guid] = (data, wanted | {app})
            # A reader of all apps sees one order.
            merged = [id for id in self.rig.node.queues[uri].messages if id in found[uri]]
            assert set(merged) == set(found[uri])
            assert all(order == [id for id in merged if id in set(order)] for order in orders)
            found[uri] = {id: found[uri][id] for id in merged}
        return found


def take_from(messages: Messages, app_ids: set[str]) -> None:
    """Remove these apps from all messages."""
    for id, (data, apps) in list(messages.items()):
        messages[id] = (data, apps - app_ids)
        if not apps - app_ids:
            del messages[id]


def list_of(state: State) -> list[object]:
    """A state with the order of its messages."""
    return [(uri, list(messages.items())) for uri, messages in state.items()]


def all_whole(directory: MemoryDirectory) -> bool:
    """Return True if no file set is being made or removed."""
    return len(directory.names()) == 4


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(STEPS)
def test_histories(steps: list[Step]) -> None:
    history = History()
    for step in steps:
        history.apply(step)
    history.restart()
    history.check()


@pytest.mark.parametrize("seed", sweep(range(8), 0))
def test_long_histories(seed: int) -> None:
    """Thousands of steps, so that files are rolled over many times and GUIDs come again and again."""
    history = History()
    word = seed + 1
    for _ in range(3000):
        word = word * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        rare = word >> 60 == 0
        what = RARE[(word >> 20) % len(RARE)] if rare and not (word >> 55) % 5 else WHAT[(word >> 33) % 16]
        history.apply(Step(what, URIS[(word >> 25) % 3], (word >> 40) % GUIDS, (word >> 12) % 300))
    history.restart()
    history.check()
    assert history.rollovers >= 3
