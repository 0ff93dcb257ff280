"""`bmqctl start rocketmq-nameserver`: brokers register with it, and clients find them by it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmqctl.systems.node_process import HOST, NodeFailed, NodeProcess, RocketProcess
from formats.rocketmq.remoting.codes import RequestCode, ResponseCode
from tests.rigs.messages_at_hand import run
from tests.rigs.remoting import Remote
from tests.waiting import eventually


class NameserverProcess(NodeProcess):
    """A nameserver on `port`, which a configuration may name."""

    config_file: Path | None = None

    def _words(self) -> list[str]:
        place = ["--port", str(self.port)] if self.config_file is None else ["--config", str(self.config_file)]
        return ["start", "rocketmq-nameserver", *place, "--store", str(self.data_dir)]


def test_brokers_register_with_it_and_with_its_successor(tmp_path: Path) -> None:
    place = NameserverProcess(tmp_path / "nameserver")
    place.start()
    with RocketProcess(tmp_path / "store", options=("--nameserver", f"{HOST}:{place.port}"), grpc_port=0):
        where = f"rocketmq://{HOST}:{place.port}/orders"
        try:
            eventually(lambda: "DefaultCluster" in run("cluster", "status", "--nameserver", f"{HOST}:{place.port}")[0])
            run("post", where, "one")
            with Remote(place.port) as remote:
                stored = remote.call(RequestCode.PUT_KV_CONFIG, namespace="ours", key="colour", value="blue")
                assert stored.code == ResponseCode.SUCCESS
        finally:
            place.stop()
        place.start()
        try:
            eventually(lambda: "orders" in run("topic", "list", "--nameserver", f"{HOST}:{place.port}")[0])
            assert run("browse", where, "--raw")[0] == "one\n"
            with Remote(place.port) as remote:
                answer = remote.call(RequestCode.GET_KV_CONFIG, namespace="ours", key="colour")
                assert (answer.ext_fields or {})["value"] == "blue"
        finally:
            place.stop()


def test_a_configuration_of_apaches_names_the_port(tmp_path: Path) -> None:
    place = NameserverProcess(tmp_path / "nameserver")
    place.config_file = tmp_path / "namesrv.conf"
    place.config_file.write_text(f"listenPort={place.port}\nnoSuchProperty=1\n")
    with place, Remote(place.port) as remote:
        assert remote.call(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
        assert "unsupported properties ignored: noSuchProperty" in (place.data_dir / "bmqctl.log").read_text()


def test_two_do_not_share_a_store(tmp_path: Path) -> None:
    with NameserverProcess(tmp_path / "nameserver"), pytest.raises(NodeFailed) as failed:
        NameserverProcess(tmp_path / "nameserver").start()
    assert failed.value.exit_code == 2
