"""A broker with full commit log files, for tests of retention."""

from __future__ import annotations

from broker.rocketmq.store.message_store import StoreOptions
from tests.broker.rocketmq.rig import Rig


def files_of(rig: Rig) -> int:
    return len(rig.store.log.files.files)


def commit(rig: Rig, offset: int, *, group: str = "g", topic: str = "t") -> None:
    """Let a group of this name exist, and commit an offset."""
    rig.broker.services.groups.find(group, rig.wall_ms)
    rig.broker.services.offsets.commit(topic, group, 0, offset)


def rig_of(files: int) -> Rig:
    """Return a broker whose log has files with a message each."""
    rig = Rig(store=StoreOptions(4096, 200, 50, 400))
    peer = rig.peer()
    while files_of(rig) < files:
        peer.send(b"x" * 3_000)
    return rig
