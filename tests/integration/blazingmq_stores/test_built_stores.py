"""A store written by `bmqctl journal build` is a store: a node serves what it says is outstanding."""

from __future__ import annotations

import json
from pathlib import Path

from bmqctl.stores.blazingmq.build import build_store
from bmqctl.testing import NodeProcess
from tests.rigs.official import Connect

FANOUT = "bmq://bmq.test.persistent.fanout/built"
PRIORITY = "bmq://bmq.test.persistent.priority/built"
GUID = "40000000000000000000000000000001"

LINES = [
    {"type": "QUEUE_OP", "queue_uri": FANOUT, "apps": ["foo", "bar", "baz"]},
    {"type": "MESSAGE", "queue_uri": FANOUT, "guid": GUID, "payload": "first", "properties": {"n": 1}},
    {"type": "MESSAGE", "queue_uri": FANOUT, "payload": "b" * 3000, "compression": "ZLIB"},
    {"type": "CONFIRM", "queue_uri": FANOUT, "guid": GUID, "app_id": "foo"},
    {"type": "MESSAGE", "queue_uri": PRIORITY, "payload": "alone"},
]


def test_a_node_serves_it(tmp_path: Path, connect: Connect) -> None:
    build_store(map(json.dumps, LINES), tmp_path, 1_767_225_600)
    with NodeProcess(tmp_path) as node:
        client = connect(node)
        wanted = {f"{FANOUT}?id=foo": [b"b" * 3000], f"{FANOUT}?id=bar": [b"first", b"b" * 3000], PRIORITY: [b"alone"]}
        for uri in wanted:
            client.open(uri, read=True)
        client.wait_for_messages(4)
        client.barrier()
        assert {uri: [message.data for message, _ in client.of(uri)] for uri in wanted} == wanted
        (first, _), _ = client.of(f"{FANOUT}?id=bar")
        assert first.properties == {"n": 1}
        client.stop()
        assert node.stop() == 0
