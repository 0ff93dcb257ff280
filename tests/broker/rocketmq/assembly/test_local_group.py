"""The files of a group of RocketMQ nodes on this host: what is written, kept and refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bmqctl.common.ports import free_ports, free_rocketmq_port
from broker.rocketmq.assembly.local_group import (
    CONFIG_NAME,
    GroupNode,
    GroupOptions,
    PropertyError,
    group_nodes,
    lack_of_secret,
    open_local_group,
)
from broker.rocketmq.config.controller import with_controller
from broker.rocketmq.config.node import load_rocketmq_config


def ports(nodes: int) -> dict[str, int]:
    """Return ports of the first of `count` nodes, of which all ports are free."""
    first = free_ports(8 + 10 * (nodes - 1))
    names = ("nameserver_port", "controller_port", "port", "grpc_port", "remoting_port")
    return {name: first + number for number, name in zip((0, 1, 4, 6, 7), names, strict=True)}


def controller_port(node: GroupNode) -> int:
    assert node.controller is not None
    return node.controller.port


def opened(folder: Path, nodes: int = 3, **options: object) -> list[str]:
    """The configuration texts of a group, as they are on the disk once it was opened."""
    wanted = GroupOptions(nodes, **{**ports(nodes), **options})  # type: ignore[arg-type]
    return [(folder / CONFIG_NAME).read_text() for _, folder in open_local_group(folder, wanted)]


def test_usual_ports_are_10_apart_and_all_different() -> None:
    nodes = group_nodes(GroupOptions(7))
    assert [(node.nameserver.port, controller_port(node), node.broker.port) for node in nodes[:3]] == [
        (9876, 9878, 10911),
        (9886, 9888, 10921),
        (9896, 9898, 10931),
    ]
    assert [str(node.grpc) for node in nodes[:2]] == ["127.0.0.1:8081", "127.0.0.1:8091"]
    every = [port for node in nodes for port in node.ports]
    assert len(set(every)) == len(every) == 7 * 7


def test_shift_moves_the_ports_that_were_not_asked_for() -> None:
    (first, *_) = group_nodes(GroupOptions(3, port=20_000, grpc_port=0), 100)
    assert (first.nameserver.port, controller_port(first), first.broker.port) == (9976, 9978, 20_000)
    assert first.grpc is None
    assert str(first.remoting) == "127.0.0.1:8180"


@pytest.mark.parametrize("port", [9878, 65_530, 2])
def test_ports_that_are_the_same_for_two_or_none_are_refused(port: int) -> None:
    with pytest.raises(PropertyError, match="10 apart"):
        group_nodes(GroupOptions(3, port=port))


def test_each_node_is_configured_to_know_all_others(tmp_path: Path) -> None:
    opened(tmp_path)
    configs = [load_rocketmq_config(tmp_path / f"node{number}" / CONFIG_NAME) for number in (1, 2, 3)]
    for number, config in enumerate(configs):
        others = [f"127.0.0.1:{other.nameserver_port}" for other in configs if other is not config]
        assert list(config.nameservers) == others
        assert config.controller.self_id == f"n{number + 1}"
        assert list(config.controller.peers.values()) == list(config.replication.controllers)
        own = config.controller.peers[f"n{number + 1}"]
        assert own == f"127.0.0.1:{with_controller(config, None).controller_port}"
        assert config.replication.is_controlled
        assert config.replication.all_in_sync
        assert config.replication.in_sync_replicas_min == 2
        assert config.ha_listen_port == config.port + 1
        assert not config.unused
    assert len({config.options.name for config in configs}) == 1


def test_further_groups_are_under_the_controllers_of_the_first(tmp_path: Path) -> None:
    wanted = GroupOptions(3, groups=2, **ports(6))  # type: ignore[arg-type]
    nodes = [node for node, _ in open_local_group(tmp_path, wanted)]
    configs = [load_rocketmq_config(tmp_path / node.name / CONFIG_NAME) for node in nodes]
    assert [config.options.name for config in configs] == ["broker-a"] * 3 + ["broker-b"] * 3
    assert [config.has_controller for config in configs] == [True] * 3 + [False] * 3
    for config in configs:
        assert list(config.replication.controllers) == [str(node.controller) for node in nodes[:3]]
        assert config.replication.in_sync_replicas_min == 2
        assert len(config.nameservers) == 5
        assert not config.unused
    for again in (wanted, GroupOptions(3)):
        assert [node for node, _ in open_local_group(tmp_path, again)] == nodes
    (tmp_path / "node1" / CONFIG_NAME).unlink()
    assert [node for node, _ in open_local_group(tmp_path, wanted)] == nodes
    with pytest.raises(PropertyError, match="has groups 2"):
        open_local_group(tmp_path, GroupOptions(3, groups=1))


def test_group_that_is_there_is_kept_with_its_ports(tmp_path: Path) -> None:
    before = opened(tmp_path)
    again = open_local_group(tmp_path, GroupOptions(3))
    assert [(folder / CONFIG_NAME).read_text() for _, folder in again] == before
    assert [node.broker.port for node, _ in again] == [
        load_rocketmq_config(folder / CONFIG_NAME).port for _, folder in again
    ]


@pytest.mark.parametrize("others", [1, 3, 6])
def test_nameservers_elsewhere_are_no_nodes_of_the_group(tmp_path: Path, others: int) -> None:
    opened(tmp_path, 1)
    file = tmp_path / "node1" / CONFIG_NAME
    named = ";".join(f"10.0.0.{number}:9876" for number in range(1, others + 1))
    file.write_text(f"{file.read_text()}namesrvAddr={named}\n")
    assert [node.name for node, _ in open_local_group(tmp_path, GroupOptions(1))] == ["node1"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node1"]


def test_node_whose_folder_is_lost_is_written_again_as_it_was(tmp_path: Path) -> None:
    before = opened(tmp_path)
    (tmp_path / "node1" / CONFIG_NAME).unlink()
    again = open_local_group(tmp_path, GroupOptions(3))
    assert [(folder / CONFIG_NAME).read_text() for _, folder in again] == before


def test_changes_of_a_user_stay(tmp_path: Path) -> None:
    opened(tmp_path)
    file = tmp_path / "node2" / CONFIG_NAME
    file.write_text(file.read_text() + "# mine\nfileReservedTime=5\n")
    open_local_group(tmp_path, GroupOptions(3))
    assert "# mine" in file.read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (GroupOptions(5), "nodes 3"),
        (GroupOptions(3, port=20_000), "port "),
        (GroupOptions(3, host="0.0.0.0"), "host 127.0.0.1"),
        (GroupOptions(3, address="10.0.0.1"), "address 127.0.0.1"),
    ],
)
def test_other_group_than_the_one_that_is_there_is_refused(tmp_path: Path, options: GroupOptions, told: str) -> None:
    opened(tmp_path)
    with pytest.raises(PropertyError, match=f"the group that is there has {told}.*name another directory"):
        open_local_group(tmp_path, options)


def test_configuration_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / CONFIG_NAME).write_text("brokerName=broker-a\n")
    with pytest.raises(PropertyError, match="is not the configuration of a node of a group"):
        open_local_group(tmp_path, GroupOptions(3))


def test_port_that_was_named_and_is_taken_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    port = free_rocketmq_port()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(PropertyError, match="in use"):
        opened(tmp_path / "new", port=port)
    assert not (tmp_path / "new").exists()


def test_address_that_is_told_differs_from_the_one_to_listen_on(tmp_path: Path) -> None:
    opened(tmp_path, host="0.0.0.0", address="127.0.0.1")
    config = load_rocketmq_config(tmp_path / "node1" / CONFIG_NAME)
    assert (config.bind_address, config.told_address) == ("0.0.0.0", "127.0.0.1")
    assert all(address.startswith("127.0.0.1:") for address in config.replication.controllers)


def test_address_that_nobody_can_connect_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match="set the address of this host"):
        open_local_group(tmp_path / "new", GroupOptions(3, host="0.0.0.0"))
    assert not (tmp_path / "new").exists()


def test_start_of_a_group_without_a_secret_says_how_to_give_it_one(tmp_path: Path) -> None:
    opened(tmp_path)
    assert lack_of_secret(tmp_path) is None
    # As an earlier version made it.
    for file in tmp_path.glob(f"node*/{CONFIG_NAME}"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("peerSecretKey")))
    lack = lack_of_secret(tmp_path)
    assert lack is not None
    assert f"peerSecretKey= and the output of `openssl rand -hex 32`, to {tmp_path}/node*/broker.conf" in lack
