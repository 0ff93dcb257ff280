"""PyPI's two clients of RocketMQ, one by remoting and one by gRPC: each consumes what the other has sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bmqctl.systems.node_process import RocketProcess
from scripts.suites.pairs import Place, build, exchange
from scripts.suites.rocketmq import Unfit

CLIENTS = ("cpp", "python")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The words that start each client."""
    try:
        return {each: build(each, tmp_path_factory.mktemp("home")) for each in CLIENTS}
    except Unfit as reason:
        pytest.skip(str(reason))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RocketProcess]:
    with RocketProcess(tmp_path / "store") as process:
        yield process


@pytest.mark.slow
def test_each_consumes_what_the_other_has_sent(
    node: RocketProcess, programs: dict[str, list[str]], tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w") as log:
        outcomes = exchange(programs, Place(node.nameserver, node.endpoint), tmp_path, log)
    assert not outcomes.reasons, (tmp_path / "log").read_text()
    assert sorted(outcomes.found) == ["cpp -> python", "cpp late", "python -> cpp", "python late"]
    assert "Traceback" not in node.output
    assert "fault of this broker" not in node.output
