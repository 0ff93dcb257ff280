"""The table of what a SYNC_MASTER or ASYNC_MASTER answers, row by row as it was observed with the original.

Source: the captured tables ha-classic/table.txt and ha-classic/table-sam.txt, whose rows are named here. Rows with a
controller are in test_controlled.py, those of a late disk in test_flush_gate.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker.rocketmq.replication.master import C, ReplicationMaster
from broker.rocketmq.replication.options import ReplicationOptions, Role
from broker.rocketmq.replication.role import BrokerRole
from broker.rocketmq.replication.streams.connection import ReplicationSession
from broker.rocketmq.store.opening import open_store
from broker.rocketmq.store.writing import Writer
from broker.rocketmq.tables.options import BrokerOptions
from formats.rocketmq.hosts import Host
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from formats.rocketmq.remoting.frame import Frame
from formats.rocketmq.remoting.replication import REPORT, Report
from tests.broker.rocketmq.folders import MemoryFolder
from tests.broker.rocketmq.replication.role_rig import STORED, Sender, sent
from tests.broker.rocketmq.replication.streams.ends import Clock
from tests.broker.rocketmq.store.message_store_rig import SMALL, make_message

OK = (ResponseCode.SUCCESS, 0, True)
LATE = (ResponseCode.FLUSH_SLAVE_TIMEOUT, 3_000, True)
TOO_FEW = (ResponseCode.SYSTEM_ERROR, 0, False)
NO_WAIT = "WAIT\x01false\x02"


class Group:
    """A master with slaves. `alive` is what nameservers say; None without an acting master."""

    def __init__(self, slaves: int, alive: int | None, **options: Any) -> None:
        self.clock = Clock()
        self.alive = alive
        self.options = ReplicationOptions(
            **{"role": Role.SYNC_MASTER, "has_acting_master": alive is not None, **options}
        )
        self.store = open_store(MemoryFolder(chunk=64), SMALL, lambda ms: f"{ms:017d}")
        self.master = ReplicationMaster(
            self.store,
            self.options,
            self._open,
            lambda session: None,
            lambda: self.clock.ms,
            lambda: self.store.log.end,
            None if alive is None else lambda: self.alive or 0,
        )
        in_sync = None if alive is None else self.master.in_sync
        self.role = BrokerRole(
            self.options, BrokerOptions(), lambda: self.store.log.end, self.master.waiting, None, in_sync
        )
        self.slaves: list[ReplicationSession] = []
        self._count = 0
        for _ in range(slaves):
            self.add_slave()

    def _open(self, peer: str, make: Callable[[int, Host], C]) -> C:
        return make(len(self.slaves), Host("10.0.0.2", 40_000 + len(self.slaves)))

    def add_slave(self) -> None:
        self.slaves.append(self.master.connect("10.0.0.2:1", frozenset))
        self.report(0)

    def report(self, offset: int) -> None:
        """Have all slaves take what they are sent, and say that they are at an offset."""
        for slave in self.slaves:
            slave.take_output()
            slave.receive(memoryview(REPORT.pack(Report(offset))))

    def put(self) -> None:
        Writer(self.store).put(make_message(self._count), 1000 + self._count)
        self._count += 1
        self.master.end_step()

    def send(self, properties: str = "", *, is_silent: bool = False) -> tuple[int, int, bool]:
        """Send a message: the code of the answer, how long it took, and whether the message is stored.

        Slaves have it at once unless they are silent.
        """
        request, began, end, sender = sent(properties), self.clock.ms, self.store.log.end, Sender()
        answer = self.role.refuse(request)
        if answer is None:
            self.put()
            answer = None if self.role.hold(request, sender, STORED) else STORED
        if not is_silent and self.store.log.end > end:
            self.report(self.store.log.end)
        while answer is None:
            answer = sender.answers[0] if sender.answers else None
            if answer is None:
                self.clock.ms += 100
                self.master.waiting.tick()
        return answer.code, self.clock.ms - began, self.store.log.end > end


class Row(NamedTuple):
    """A row of the table."""

    name: str
    options: dict[str, Any]
    slaves: int
    expected: tuple[int, int, bool]
    properties: str = ""
    is_silent: bool = False
    alive: int | None = None


ASYNC = {"role": Role.ASYNC_MASTER}
TWO, THREE = {"in_sync_replicas": 2}, {"in_sync_replicas": 3}
AUTO = {"auto_in_sync": True}
MIN_TWO = {"in_sync_replicas_min": 2}

CLASSIC = [
    Row("1 SYNC_MASTER, defaults, no slave", {}, 0, OK),
    Row("2 inSyncReplicas=2, no slave", TWO, 0, LATE),
    Row("2b the same, waitStoreMsgOK=false", TWO, 0, OK, NO_WAIT),
    Row("3 inSyncReplicas=2, slave in sync", TWO, 1, OK),
    Row("4 slave stands still", TWO, 1, LATE, is_silent=True),
    Row("4b slave stands still, enableAutoInSyncReplicas", TWO | AUTO, 1, LATE, is_silent=True),
    Row("6 inSyncReplicas=3, one slave", THREE, 1, LATE),
    Row("8 enableAutoInSyncReplicas, no slave", TWO | AUTO, 0, LATE),
    Row("9 minInSyncReplicas=2, inSyncReplicas=1, no slave", MIN_TWO, 0, OK),
    Row("12 ASYNC_MASTER, inSyncReplicas=2, no slave", TWO | ASYNC, 0, OK),
    Row("13 ASYNC_MASTER, inSyncReplicas=2, slave stands still", TWO | ASYNC, 1, OK, is_silent=True),
    Row("slaveTimeout", TWO | {"slave_timeout_ms": 500}, 0, (ResponseCode.FLUSH_SLAVE_TIMEOUT, 500, True)),
]
ACTING = [
    Row("S1 inSyncReplicas=2, no slave", TWO, 0, TOO_FEW, alive=1),
    Row("S1 the same, waitStoreMsgOK=false", TWO, 0, OK, NO_WAIT, alive=1),
    Row("S2 auto, minInSyncReplicas=1, no slave", TWO | AUTO, 0, OK, alive=1),
    Row("S3 auto, minInSyncReplicas=2, no slave", TWO | AUTO | MIN_TWO, 0, TOO_FEW, alive=1),
    Row("S4 auto, minInSyncReplicas=2, slave unknown to nameservers", TWO | AUTO | MIN_TWO, 1, TOO_FEW, alive=1),
    Row("S4 the same, slave known", TWO | AUTO | MIN_TWO, 1, OK, alive=2),
    Row("S5 auto, inSyncReplicas=3, minInSyncReplicas=2", THREE | AUTO | MIN_TWO, 1, OK, alive=2),
    Row("S6 inSyncReplicas=3, one slave", THREE, 1, TOO_FEW, alive=2),
    Row("inSyncReplicas=2, slave in sync", TWO, 1, OK, alive=2),
    Row("inSyncReplicas=2, slave stands still", TWO, 1, LATE, is_silent=True, alive=2),
    Row("slave known to nameservers and not connected", TWO, 0, TOO_FEW, alive=2),
    Row("ASYNC_MASTER, inSyncReplicas=2, no slave", TWO | ASYNC, 0, OK, alive=1),
    Row("inSyncReplicas=1, no slave", {}, 0, OK, alive=1),
]


@pytest.mark.parametrize("row", CLASSIC + ACTING, ids=lambda row: row.name)
def test_row(row: Row) -> None:
    group = Group(row.slaves, row.alive, **row.options)
    assert group.send(row.properties, is_silent=row.is_silent) == row.expected


def test_slave_that_goes_on_releases_who_waits() -> None:
    """Row 5."""
    group = Group(1, None, in_sync_replicas=2)
    assert group.send(is_silent=True) == LATE
    assert group.send() == OK


def test_slave_that_is_gone_is_no_copy() -> None:
    """Row 7."""
    group = Group(1, None, in_sync_replicas=2)
    assert group.send() == OK
    group.slaves.pop().end()
    assert group.send() == LATE


@pytest.mark.parametrize("gap", [4_000, 400])
def test_slave_that_is_too_far_behind_is_not_in_sync(gap: int) -> None:
    """Count by haMaxGapNotInSync, as only a group with an acting master does."""
    group = Group(1, 2, in_sync_replicas=2, gap_bytes_max=gap)
    while group.store.log.end < 800:
        group.put()
    assert group.send(is_silent=True) == (LATE if gap == 4_000 else TOO_FEW)
    group.options.auto_in_sync = True
    # Sends do not wait for slaves that are not in sync.
    assert group.send(is_silent=True) == (LATE if gap == 4_000 else OK)


def test_gap_does_not_matter_without_an_acting_master() -> None:
    group = Group(1, None, in_sync_replicas=2, gap_bytes_max=1)
    group.put()
    group.put()
    assert group.send() == OK


def test_number_is_adapted_to_those_who_are_there_when_a_message_comes() -> None:
    group = Group(0, 1, in_sync_replicas=2, auto_in_sync=True)
    found = [group.role.takes_plain]
    assert group.send() == OK
    group.add_slave()
    group.alive = 2
    found.append(group.role.takes_plain)
    assert found == [True, False]
    assert group.send(is_silent=True) == LATE
    group.alive = 1
    assert group.send(is_silent=True) == OK


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION]
)
def test_all_that_store_are_refused_where_too_few_are_in_sync(code: RequestCode) -> None:
    group = Group(0, 1, in_sync_replicas=2)
    answer = group.role.refuse(Frame(code, 1))
    assert answer is not None
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
    assert not group.role.takes_plain
    assert group.role.refuse(Frame(RequestCode.PULL_MESSAGE, 1)) is None
