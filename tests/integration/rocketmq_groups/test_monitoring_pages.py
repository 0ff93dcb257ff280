"""The pages of proxies and controllers for monitoring, and the health that a proxy's port for gRPC tells."""

from __future__ import annotations

from pathlib import Path

from bmqctl.common.ports import free_port, free_ports
from bmqctl.systems.node_process import HOST, ControllerProcess, RocketProcess, RocketProxyProcess
from tests.rigs.grpc_calls import Caller, connect
from tests.rigs.pages import get, metrics
from tests.waiting import eventually

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def health(proxy: RocketProxyProcess) -> list[bytes]:
    with connect(proxy.port) as sock:
        return Caller(sock).ask("/grpc.health.v1.Health/Check", b"")


def test_a_proxy_is_ready_when_it_knows_a_broker(tmp_path: Path) -> None:
    pages = free_port()
    node = RocketProcess(tmp_path / "node")
    options = ("--metrics-port", str(pages))
    with RocketProxyProcess(tmp_path / "proxy", [node.nameserver], options=options) as proxy:
        assert get(pages, "/healthz")[0] == 200
        status, _, reason = get(pages, "/readyz")
        assert (status, "no broker is known" in reason) == (503, True)
        assert health(proxy) == [NOT_SERVING]
        with node:
            eventually(lambda: get(pages, "/readyz")[0] == 200)
            assert health(proxy) == [SERVING]
            found = metrics(pages)
            ((labels, is_up),) = found["rocketmq_proxy_up"]
            assert labels == {"node_type": "proxy", "node_id": f"{HOST}:{proxy.port}", "proxy_mode": "cluster"}
            assert is_up == 1
            assert found["rocketmq_proxy_known_brokers"] == [(labels, 1)]


def test_a_controller_is_ready_when_one_of_its_group_leads(tmp_path: Path) -> None:
    pages, first = free_port(), free_ports(3)
    peers = ";".join(f"n{number}-{HOST}:{first + number}" for number in range(3))
    options = ("--metrics-port", str(pages))
    with ControllerProcess(tmp_path / "n0", self_id="n0", peers=peers, options=options, port=first):
        status, _, reason = get(pages, "/readyz")
        assert (status, reason) == (503, "no controller of the group leads\n")
        ((labels, role),) = metrics(pages)["role"]
        assert labels == {"address": f"{HOST}:{first}", "group": "group1", "peer_id": "n0"}
        assert role != 3
        with ControllerProcess(tmp_path / "n1", self_id="n1", peers=peers, port=first + 1):
            eventually(lambda: get(pages, "/readyz")[0] == 200)
            assert metrics(pages)["role"][0][1] in (2, 3)
