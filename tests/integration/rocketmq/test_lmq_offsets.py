"""A store keeps its groups' offsets when it changes between brokers with `enableLmq` and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmqctl.systems.node_process import RocketProcess
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.messages_at_hand import run
from tests.rigs.remoting import Remote

PLACE = {"topic": "orders", "consumerGroup": "readers", "queueId": "0"}
USUAL, LMQ = "consumerOffset.json", "lmqConsumerOffset.json"


@pytest.mark.parametrize("begins_with", ["true", "false"])
def test_offsets_are_taken_over(tmp_path: Path, begins_with: str) -> None:
    config, store = tmp_path / "broker.conf", tmp_path / "store"
    values = [begins_with, "false" if begins_with == "true" else "true", begins_with]
    for number, value in enumerate(values):
        config.write_text(f"enableLmq={value}\n")
        with RocketProcess(store, config_file=config, grpc_port=0) as node, Remote(node.port) as remote:
            at = ("--nameserver", node.nameserver)
            if number == 0:
                run("topic", "create", "orders", "--queues", "1", *at)
                run("group", "create", "readers", *at)
                run("post", f"rocketmq://{node.nameserver}/orders", "--lines", stdin=b"one\ntwo\nthree\n")
            else:
                found = remote.call(RequestCode.QUERY_CONSUMER_OFFSET, b"", **PLACE)
                assert (found.ext_fields or {}).get("offset") == str(number), found
            answer = remote.call(RequestCode.UPDATE_CONSUMER_OFFSET, b"", **PLACE, commitOffset=str(number + 1))
            assert answer.code == ResponseCode.SUCCESS, answer
        assert (store / "config" / (LMQ if value == "true" else USUAL)).exists()
