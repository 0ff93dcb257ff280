"""Silence on a link: a peer that answers heartbeats stays, one that does not goes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from blazingmq.session_events import Connected

from bmqctl.testing import NodeProcess
from formats.bmq.wire.event import EventType
from tests.rigs.config_files import BROKER, spoil, write_config
from tests.rigs.official import Connect
from tests.rigs.raw import Raw

INTERVAL_MS = 100
MISSED_MAX = 2


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that soon loses patience: it looks once a second, and waits for two answers."""
    folder = tmp_path_factory.mktemp("hasty")
    config = write_config(folder / "etc")
    network = json.loads(json.dumps(BROKER))["appConfig"]["networkInterfaces"]
    network["heartbeats"]["client"] = MISSED_MAX
    network["tcpInterface"]["heartbeatIntervalMs"] = INTERVAL_MS
    spoil(config, "bmqbrkrcfg.json", "appConfig", "networkInterfaces", value=network)
    with NodeProcess(folder / "store", config_dir=config) as node:
        yield node


def test_the_official_client_stays_though_it_says_nothing(hasty: NodeProcess, connect: Connect) -> None:
    client = connect(hasty)
    with Raw(hasty) as raw:
        # By the time that this one is gone, the other has been idle for as long.
        assert raw.event()[0] == EventType.HEARTBEAT_REQ
        raw.rest()
    client.barrier()
    assert [type(event) for event in client.events] == [Connected]


def test_a_peer_that_answers_nothing_is_let_go(hasty: NodeProcess) -> None:
    started = time.monotonic()
    with Raw(hasty) as raw:
        requests = [raw.event()[0] for _ in range(MISSED_MAX)]
        assert requests == [EventType.HEARTBEAT_REQ] * MISSED_MAX
        assert raw.rest() == b""
        assert raw.end_reason().startswith(f"no answer to {MISSED_MAX} heartbeats")
    assert time.monotonic() - started > MISSED_MAX * INTERVAL_MS / 1000


def test_a_peer_that_answers_stays(hasty: NodeProcess) -> None:
    with Raw(hasty) as raw:
        for _ in range(MISSED_MAX + 1):
            assert raw.event()[0] == EventType.HEARTBEAT_REQ
            raw.send_event(EventType.HEARTBEAT_RSP)


def test_a_request_is_answered(hasty: NodeProcess) -> None:
    with Raw(hasty) as raw:
        raw.send_event(EventType.HEARTBEAT_REQ)
        kinds = [raw.event()[0]]
        while EventType.HEARTBEAT_RSP not in kinds:
            kinds.append(raw.event()[0])
        assert set(kinds) <= {EventType.HEARTBEAT_REQ, EventType.HEARTBEAT_RSP}
