"""The durability policies of a real node: it waits for the disk as often as it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bmqctl.testing import NodeProcess
from tests.rigs.cluster_processes import ClusterProcesses
from tests.rigs.official import Client, queue_name
from tests.waiting import eventually

MESSAGES = 300

# Counts in the node itself: a tracer is not on every machine.
COUNTING = """
import os
from broker.shell.host.calls import HOST
real = HOST.flush_data
def count(fd):
    real(fd)
    with open(os.environ["SYNCS"], "a") as out:
        out.write(os.readlink(f"/proc/self/fd/{fd}").rpartition(".")[2] + "\\n")
HOST.flush_data = count
from bmqctl.app import main
main()
"""


@pytest.mark.parametrize("policy", ["never", "50", "always"])
def test_acked_messages_are_synced_as_the_policy_says(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = tmp_path / "syncs"
    monkeypatch.setenv("SYNCS", str(syncs))

    def synced() -> list[str]:
        return syncs.read_text().split() if syncs.exists() else []

    uri = queue_name()
    node = NodeProcess(tmp_path / "data", command=(sys.executable, "-c", COUNTING), options=("--fsync", policy))
    with node, Client(node.uri) as client:
        client.open(uri, read=True, write=True)
        eventually(lambda: policy == "never" or synced().count("bmq_journal") >= 1)
        before = synced()
        acks = client.post_all(uri, [b"payload"] * MESSAGES)
        after = synced()
        if policy == "50":
            eventually(lambda: len(synced()) > len(before))
        assert all(ack.status.name == "SUCCESS" for ack in acks)
        client.wait_for_messages(MESSAGES)
        node.kill()
        match policy:
            case "never":
                assert after == []
            case "always":
                new = after[len(before) :]
                assert 1 <= new.count("bmq_journal") <= 2 * MESSAGES
                assert "bmq_data" in new
                # DATA before the journal that names what is in it.
                assert new.index("bmq_data") < new.index("bmq_journal")
        node.start()
        assert f"messages: {MESSAGES}" in node.ready_line


def test_a_strong_ack_follows_the_syncs_of_a_majority(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    for number, node in cluster.nodes.items():
        cluster.nodes[number] = NodeProcess(
            node.data_dir,
            config_dir=node.config_dir,
            port=node.port,
            command=("env", f"SYNCS={tmp_path / f'syncs-{number}'}", sys.executable, "-c", COUNTING),
            options=("--fsync", "always"),
        )

    def synced() -> dict[int, int]:
        return {number: (tmp_path / f"syncs-{number}").read_text().count("bmq_data") for number in cluster.nodes}

    with cluster:
        cluster.wait_available()
        uri = queue_name("bmq.test.persistent.priority.sc")
        with Client(cluster.nodes[cluster.leader()].uri) as client:
            client.open(uri, write=True)
            for number in range(20):
                before = synced()
                (ack,) = client.post_all(uri, [number.to_bytes(8, "big")])
                after = synced()
                assert ack.status.name == "SUCCESS"
                # DATA changes with messages only.
                assert sum(after[each] > before[each] for each in after) >= 2
