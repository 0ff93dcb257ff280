"""`bmqctl domain` with the nodes of a cluster that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio
from typer.testing import CliRunner

from bmqctl.app import app
from bmqctl.client import connect
from bmqctl.client.admin import AdminClient
from bmqctl.systems.node_process import HOST, ClusterProcess

NAME = "shop.orders"
URI = f"bmq://{NAME}/queue"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path_factory.mktemp("domains") / "cluster") as running:
        yield running


def run(cluster: ClusterProcess, *words: str, live: bool = False) -> tuple[int, str]:
    at = ("--broker", f"tcp://{HOST}:{cluster.port}") if live else ()
    result = CliRunner().invoke(app, ["domain", *words, "--in", str(cluster.data_dir), *at])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def infos(cluster: ClusterProcess, number: int) -> str:
    with AdminClient(HOST, cluster.port + number) as client:
        return client.send(f"DOMAINS DOMAIN {NAME} INFOS")


async def post_and_hold(cluster: ClusterProcess) -> None:
    async with connect(f"tcp://{HOST}:{cluster.port}") as session:
        queue = await session.open(URI, write=True)
        await queue.post(b"order")
        words = ("delete", NAME, "--yes")
        code, out = await trio.to_thread.run_sync(lambda: run(cluster, *words, live=True))
        assert (code, "queues opened" in out, "the files are as before" in out) == (2, True, True), out


def test_a_domain_from_its_creation_to_its_deletion(cluster: ClusterProcess) -> None:
    assert run(cluster, "create", NAME)[0] == 0
    code, out = run(cluster, "show", NAME, "--output", "json")
    found = json.loads(out)
    assert (code, len(found)) == (0, 3)
    assert {each["definition"]["parameters"]["messageTtl"] for each in found.values()} == {315_360_000}
    assert "definition.parameters.messageTtl" in run(cluster, "show", NAME)[1]

    ttl = ("--set", "definition.parameters.messageTtl=3600")
    assert '"wanted": 3600' in run(cluster, "alter", NAME, *ttl, "--dry-run", "--output", "json")[1]
    code, out = run(cluster, "alter", NAME, *ttl, live=True)
    assert code == 0, out
    assert all('"messageTtl": 3600' in infos(cluster, number) for number in range(3))
    kept = ("--set", 'definition.parameters.consistency={"eventual": {}}')
    assert (
        '"field": "definition.parameters.consistency.strong"'
        in run(cluster, "alter", NAME, *kept, "--dry-run", "--output", "json")[1]
    )
    mode = ("--set", "definition.parameters.mode={}")
    assert f"domains.{NAME}: $.definition.parameters.mode" in run(cluster, "alter", NAME, *mode)[1]
    assert "no such domain" in run(cluster, "alter", "no.domain", *ttl)[1]

    trio.run(post_and_hold, cluster)
    code, out = run(cluster, "delete", NAME, "--yes", live=True)
    assert code == 0, out
    assert run(cluster, "show", NAME)[0] == 2
    assert all("doesn't exist" in infos(cluster, number) for number in range(3))
