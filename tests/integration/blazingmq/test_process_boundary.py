"""A broker short of descriptors, and one with a fault in itself: real processes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bmqctl.testing import NodeProcess
from formats.bmq.control import ber
from formats.bmq.control.messages import AdminCommand, AdminCommandResponse, ClientType, ControlMessage
from formats.bmq.wire.event import EventType, build_schema_event
from tests.broker.bmq.rig import ACK, WRITE, guid, put_event
from tests.rigs.raw import Raw, identity, open_request

URI = "bmq://bmq.test.persistent.priority/boundary"
DESCRIPTORS = 200
RUN = "from bmqctl.app import main; main()"

# A broker whose third message cannot be written to the journal.
FAULTY = f"""
import broker.bmq.partition.records as partition
pack, count = partition.pack_message, 0
def fail(*args):
    global count
    count += 1
    if count == 3:
        raise OverflowError("a fault of the test")
    pack(*args)
partition.pack_message = fail
{RUN}
"""


def command(peer: Raw, line: str) -> str:
    message = ControlMessage(r_id=1, choice=AdminCommand(command=line))
    peer.send(build_schema_event(ber.encode(message)))
    answer = peer.control().choice
    assert isinstance(answer, AdminCommandResponse)
    return answer.text


def administrator(node: NodeProcess) -> Raw:
    peer = Raw(node, identified=False)
    peer.send(identity(ClientType.TCPADMIN))
    peer.event()
    return peer


def post(peer: Raw, number: int) -> None:
    peer.send(put_event(1, guid(number), b"payload"))
    while peer.event()[0] != EventType.ACK:
        pass


def test_many_connections_take_nothing_from_the_store(tmp_path: Path) -> None:
    limited = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", sys.executable, "-c", RUN)
    with NodeProcess(tmp_path / "store", command=limited) as node:
        client, admin = Raw(node), administrator(node)
        client.send(open_request(URI, 1, WRITE | ACK))
        client.control()
        idle = [Raw(node, identified=False) for _ in range(DESCRIPTORS)]
        # Connections that have asked for nothing make room for new ones.
        node.wait_for("#TCP_CONNECTION_CLOSED")
        post(client, 1)
        journals = sorted((tmp_path / "store").glob("*.bmq_journal"))
        answer = command(admin, "CLUSTERS CLUSTER local STORAGE PARTITION ALL ROLLOVER")
        assert "failed" not in answer.lower(), answer
        assert sorted((tmp_path / "store").glob("*.bmq_journal")) != journals
        post(client, 2)
        for each in (*idle, client, admin):
            each.sock.close()
        assert node.stop() == 0


def test_a_change_that_is_cut_short_ends_the_process_by_name_and_loses_nothing(tmp_path: Path) -> None:
    data_dir = tmp_path / "store"
    with NodeProcess(data_dir, command=(sys.executable, "-c", FAULTY)) as node:
        with Raw(node) as client:
            client.send(open_request(URI, 1, WRITE | ACK))
            client.control()
            post(client, 1)
            post(client, 2)
            client.send(put_event(1, guid(3), b"payload"))
            client.rest()
        assert node.wait() == 3
        output = node.output
    last = output.rstrip().splitlines()[-1]
    assert re.fullmatch(
        r"bmqctl: the broker terminated deliberately: writing messages to partition \d was interrupted by "
        r"OverflowError: a fault of the test; start it again",
        last,
    ), output
    assert "PANIC [NODE_INCONSISTENT]" in output
    with NodeProcess(data_dir) as again:
        assert "messages: 2" in again.ready_line
