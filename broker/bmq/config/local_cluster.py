"""The configuration of a cluster whose nodes all run on this host, in files as the reference reads them.

One directory per node: `bmqbrkrcfg.json`, `clusters.json`, `domains/`, and its store beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from broker.bmq.config.default import default_config
from broker.bmq.config.dump import to_json
from broker.bmq.config.errors import ConfigError
from broker.bmq.config.load import load_broker_config
from formats.addresses import shown_place

__all__ = ["Security", "write_local_cluster"]

_CLUSTERS_FILE = "clusters.json"
_PARTITIONS = 4


class Security(Protocol):
    """Adds TLS and users to the nodes of a cluster."""

    @property
    def uses_tls(self) -> bool: ...

    def app_config(self, node: Path) -> dict[str, Any]:
        """Write the files of a node besides its configuration; return further members of its `appConfig`."""
        ...


def write_local_cluster(
    directory: Path, count: int, host: str, port: int, *, strong: bool = True, security: Security | None = None
) -> list[Path]:
    """Write and return the nodes' directories, `node1` to `node<count>`; node K listens on `port` + K - 1.

    Existing directories are unchanged, so that a stopped cluster continues. All stored domains are strongly consistent
    if `strong`, else only those whose names end in `.sc`; domains that several nodes cannot use are left out.
    `security` is for new directories. Raises `ConfigError` if there is another cluster, OSError if files cannot be
    written.
    """
    try:
        str(directory.absolute()).encode()
    except UnicodeEncodeError:
        remedy = "name a directory whose path is UTF-8"
        raise ConfigError(ascii(str(directory)), "", "has a path that a configuration cannot name", remedy) from None
    folders = [directory / f"node{number}" for number in range(1, count + 1)]
    if security is not None and (found := [folder for folder in folders if (folder / _CLUSTERS_FILE).exists()]):
        remedy = "name another directory, or remove it"
        raise ConfigError(str(found[0]), "", "is the folder of a node already; its security stays as it is", remedy)
    tls = {"tls": True} if security is not None and security.uses_tls else {}
    nodes = [
        {
            "id": number,
            "name": folder.name,
            "dataCenter": "UNSPECIFIED",
            "transport": {"tcp": {"endpoint": f"tcp://{shown_place(host, port + number - 1)}", **tls}},
        }
        for number, folder in enumerate(folders, 1)
    ]
    for number, folder in enumerate(folders, 1):
        file = folder / _CLUSTERS_FILE
        if file.exists():
            _check(file, nodes)
        else:
            _write_node(folder, nodes, host, port + number - 1, strong=strong, security=security)
    return folders


def _check(file: Path, nodes: list[dict[str, Any]]) -> None:
    cluster = load_broker_config(file.parent).cluster
    found = [] if cluster is None else [(node.id, node.host, node.port) for node in cluster.nodes]
    wanted = [(node["id"], *_address(node)) for node in nodes]
    if found != wanted:
        raise ConfigError(
            str(file),
            "$.myClusters[0].nodes",
            f"names {', '.join(f'{host}:{port}' for _, host, port in found)}",
            "start it with the number of nodes, host and port that it has, or name another directory",
        )


def _address(node: dict[str, Any]) -> tuple[str, int]:
    host, _, port = node["transport"]["tcp"]["endpoint"].removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def _write_node(
    folder: Path, nodes: list[dict[str, Any]], host: str, port: int, *, strong: bool, security: Security | None
) -> None:
    store = folder.absolute() / "storage"
    config = default_config(host, port, store)
    assert config.cluster is not None
    cluster = to_json(config.cluster)
    cluster["nodes"] = nodes
    cluster["partitionConfig"]["numPartitions"] = _PARTITIONS
    samples = {name: _domain(config.domains.read(name), strong=strong) for name in config.domains.names()}
    domains = {f"{name}.json": each for name, each in samples.items() if len(nodes) == 1 or _fits_cluster(each)}
    _write(folder / "domains", domains)
    # The last file: it makes the directory a node's.
    broker = {"appConfig": to_json(config.broker.app_config), "taskConfig": to_json(config.broker.task_config)}
    if security is not None:
        broker["appConfig"] |= security.app_config(folder)
        for listener in broker["appConfig"]["networkInterfaces"]["tcpInterface"]["listeners"]:
            listener["tls"] = security.uses_tls
    _write(folder, {"bmqbrkrcfg.json": broker, _CLUSTERS_FILE: {"myClusters": [cluster]}})


def _domain(found: Any, *, strong: bool) -> dict[str, Any]:
    assert found is not None
    domain = to_json(found[1])
    parameters = domain["definition"]["parameters"]
    if strong and "fileBacked" in parameters["storage"]["config"]:
        parameters["consistency"] = {"strong": {}}
    return domain


def _fits_cluster(domain: dict[str, Any]) -> bool:
    """Return True if several nodes can have queues of a domain: in memory, only broadcast queues."""
    parameters = domain["definition"]["parameters"]
    return "fileBacked" in parameters["storage"]["config"] or "broadcast" in parameters["mode"]


def _write(folder: Path, files: dict[str, dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
