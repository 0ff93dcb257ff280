"""Configurations of both systems, as the brokers' own readers understand them: their faults, and their settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from broker.bmq.config import Changes, ConfigError, NodeConfig, load_broker_config
from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.cluster_schema import ClustersDefinition
from broker.bmq.config.consistency import DefinedDomain, eventual_by_default
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.dump import to_json
from broker.bmq.config.load import parse, read
from broker.bmq.config.local_cluster import write_local_cluster
from broker.bmq.config.model import Model
from broker.bmq.config.unknown import unknown_members
from broker.rocketmq.config.node import (
    MISREAD,
    PropertyError,
    RocketConfig,
    load_rocketmq_config,
    properties_of,
)
from formats.addresses import shown_place
from formats.errors import FormatError

__all__ = [
    "BadConfig",
    "Changes",
    "Finding",
    "Setting",
    "Target",
    "Written",
    "disagreements",
    "fault_of_domain",
    "faults_with_store",
    "findings_in",
    "settings_of",
    "summary_of",
    "targets_in",
    "write_cluster",
]

_BROKER_FILE = "bmqbrkrcfg.json"
_CLUSTERS_FILE = "clusters.json"


class BadConfig(Exception):
    """A configuration that cannot be read; the text is the reason."""


class Finding(NamedTuple):
    """A fault, with which a broker does not start or serve a domain, or a note about a part without effect."""

    is_fault: bool
    file: str
    place: str
    problem: str
    remedy: str

    @property
    def line(self) -> str:
        where = f"{self.file}: {self.place}" if self.place else self.file
        return f"{'fault' if self.is_fault else 'note'}: {where}: {self.problem}; {self.remedy}"


class Setting(NamedTuple):
    """A setting in force, from a file or by default."""

    file: str
    name: str
    value: Any
    source: str


class Written(NamedTuple):
    """A cluster's folders, one for each node, and the URI of the first node.

    `authority` is a new authority's certificate file, `credentials` a new user's.
    """

    folders: list[Path]
    address: str
    authority: Path | None
    credentials: Path | None


class Target(NamedTuple):
    """A configuration to check: its path, its name in the output, and the options of a start."""

    path: Path
    name: str
    changes: Changes


def write_cluster(
    directory: Path, nodes: int, host: str, port: int, *, uses_tls: bool = False, user: str | None = None
) -> Written:
    """Write a folder for each node of a cluster on this host. Raises `BadConfig` on failure."""
    from bmqctl.systems.blazingmq.securing import AUTHORITY_FILE, ClusterSecurity, credentials_file

    security = None
    if uses_tls or user is not None:
        names = [f"node{number}" for number in range(1, nodes + 1)]
        if user in names:
            raise BadConfig(f"{user} is the name of a node: give the user another")
        security = ClusterSecurity(directory, names, host, uses_tls=uses_tls, user=user)
    try:
        folders = write_local_cluster(directory, nodes, host, port, security=security)
    except ConfigError as fault:
        raise BadConfig(str(fault)) from None
    except OSError as fault:
        raise BadConfig(f"{fault.filename}: {fault.strerror}") from None
    authority = directory / AUTHORITY_FILE if uses_tls else None
    return Written(
        folders,
        f"tcp://{shown_place(host, port)}",
        authority,
        None if user is None else credentials_file(directory, user),
    )


def targets_in(path: Path, changes: Changes, *, all_nodes: bool) -> list[Target]:
    """The configurations at a path: those of a folder of nodes, or the one; with `all_nodes` for each node.

    Raises `BadConfig` if `all_nodes` is given and the nodes of a configuration cannot be read.
    """
    if path.is_dir() and not (path / _BROKER_FILE).exists():
        nodes = sorted(each for each in path.iterdir() if (each / _BROKER_FILE).is_file())
        if nodes:
            return [target for node in nodes for target in targets_in(node, changes, all_nodes=all_nodes)]
    if not all_nodes:
        return [Target(path, str(path), changes)]
    if not path.is_dir():
        raise BadConfig(f"{path}: --all-nodes is for a folder of BlazingMQ's files")
    try:
        clusters = read(ClustersDefinition, path / _CLUSTERS_FILE).my_clusters
    except ConfigError as fault:
        raise BadConfig(str(fault)) from None
    if not clusters:
        raise BadConfig(f"{path}: --all-nodes: the broker is a node of no cluster")
    return [
        Target(path, f"{path} at {node.host}:{node.port}", {**changes, "host_name": node.host, "port": node.port})
        for node in clusters[0].nodes
    ]


def disagreements(targets: Sequence[Target]) -> Iterator[Finding]:
    """Yield settings that differ among the nodes of one cluster but must not."""
    from broker.bmq.assembly.checking import difference

    first: dict[str, NodeConfig] = {}
    for target in targets:
        try:
            config = load_broker_config(target.path, **target.changes) if target.path.is_dir() else None
        except ConfigError:
            continue
        if config is None or config.cluster is None:
            continue
        other = first.setdefault(config.cluster.name, config)
        differs = difference(config, other)
        if differs is not None:
            reason = f"differs from {other.directory}: {differs}"
            file = str(target.path / _CLUSTERS_FILE)
            yield Finding(True, file, "$.myClusters[0]", reason, "write the same into the files of all nodes")


def findings_in(path: Path, changes: Changes | None = None) -> list[Finding]:
    """The faults of a folder of BlazingMQ's files, or of a file of RocketMQ's properties."""
    return list(_blazingmq_findings(path, changes or {}) if path.is_dir() else _rocketmq_findings(path))


def faults_with_store(path: Path, store: Path) -> list[Finding]:
    """The faults that a configuration has with a store in another place."""
    from broker.bmq.assembly.checking import fault_of_store

    if not path.is_dir():
        return []
    try:
        found = fault_of_store(load_broker_config(path, data_dir=store))
    except ConfigError as fault:
        return list(_faults(fault))
    return [] if found is None else [_fault(found)]


def _ending(file: str, place: str, pem: str | Path | None) -> Iterator[Finding]:
    """Yield a note on a file of certificates of which one ends soon; another finding says what cannot be read."""
    from bmqctl.systems.checking.certificates import SOON_DAYS, days_until, end_in

    if pem is None:
        return
    try:
        end = end_in(Path(pem))
    except (OSError, ValueError):
        return
    if days_until(end) < SOON_DAYS:
        text = f"{pem} ends on {end:%Y-%m-%d}, in {days_until(end):,g} days"
        yield Finding(False, file, place, text, "replace it; a running node reads the new file")


def summary_of(path: Path, changes: Changes | None = None) -> str:
    """A short description of a valid configuration. Raises `BadConfig` for another."""
    try:
        if not path.is_dir():
            config = load_rocketmq_config(path)
            return f"RocketMQ, broker {config.options.name} of cluster {config.options.cluster}"
        found = load_broker_config(path, **(changes or {}))
    except (ConfigError, PropertyError) as fault:
        raise BadConfig(str(fault)) from None
    if found.cluster is None:
        clusters = ", ".join(each.name for each in found.clusters.proxy_clusters) or "none"
        return f"BlazingMQ, proxy to {clusters}, {len(found.domains.names())} domains"
    nodes = len(found.cluster.nodes)
    return f"BlazingMQ, node of cluster {found.cluster.name} with {nodes} nodes, {len(found.domains.names())} domains"


def settings_of(path: Path) -> list[Setting]:
    """All settings in force, without secrets. Raises `BadConfig`."""
    try:
        return list(_blazingmq_settings(load_broker_config(path)) if path.is_dir() else _rocketmq_settings(path))
    except (ConfigError, PropertyError, FormatError) as fault:
        raise BadConfig(str(fault)) from None


# -- BlazingMQ


def _blazingmq_findings(directory: Path, changes: Changes) -> Iterator[Finding]:
    # The modules that make authorizers take as long to import as all of this module.
    from broker.bmq.assembly import checking

    try:
        config = load_broker_config(directory, **changes)
    except ConfigError as fault:
        yield from _faults(fault)
        return
    yield from map(_fault, checking.faults_at_start(config, str(directory / _BROKER_FILE)))
    tls = config.broker.app_config.tls_config
    if tls is not None:
        for member, path in (
            ("certificateAuthority", tls.certificate_authority),
            ("certificate", tls.certificate),
            ("certificateRevocationList", tls.certificate_revocation_list),
        ):
            yield from _ending(str(directory / _BROKER_FILE), f"$.appConfig.tlsConfig.{member}", path)
    for name in config.domains.names():
        found = checking.fault_of_domain(config, name)
        if found is not None:
            yield from _faults(found)
    yield from (_fault(each)._replace(is_fault=False) for each in checking.useless_domains(config))
    yield from map(_eventual, eventual_by_default(config))
    for file, model, _ in _models(config):
        for place in unknown_members(model, _raw(file)):
            yield Finding(
                False, str(file), place, "is not known here, and is skipped", "correct its name, or remove it"
            )


def _eventual(domain: DefinedDomain) -> Finding:
    return Finding(
        False,
        domain.file,
        "$.definition.parameters.consistency",
        "is missing, so the domain is eventually consistent: one node has a message when it is acknowledged",
        'add {"strong": {}}, or {"eventual": {}} if that is meant',
    )


def _faults(fault: ConfigError) -> Iterator[Finding]:
    yield from map(_fault, (fault, *fault.others))


def _fault(fault: ConfigError) -> Finding:
    return Finding(True, fault.file, fault.json_path, fault.reason, fault.remedy)


def _models(config: NodeConfig) -> Iterator[tuple[Path, type[Model], Model]]:
    assert config.directory is not None
    yield config.directory / _BROKER_FILE, Configuration, config.broker
    yield config.directory / _CLUSTERS_FILE, ClustersDefinition, config.clusters
    for name in config.domains.names():
        try:
            found = config.domains.read(name)
        except ConfigError:
            continue
        if found is not None:
            yield Path(found[0]), DomainVariant, found[1]


def _raw(file: Path) -> Any:
    return json.loads(file.read_bytes())


def _blazingmq_settings(config: NodeConfig) -> Iterator[Setting]:
    for file, _, found in _models(config):
        raw = _raw(file)
        for name, value, given in _flattened("$", to_json(found), raw):
            yield Setting(str(file), name, value, "file" if given else "default")


def _flattened(path: str, value: Any, raw: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield each scalar value with its JSON path, and whether the file has it, too."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            inner = raw.get(name, ...) if isinstance(raw, dict) else ...
            yield from _flattened(f"{path}.{name}", each, inner)
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            inner = raw[index] if isinstance(raw, list) and index < len(raw) else ...
            yield from _flattened(f"{path}[{index}]", each, inner)
    else:
        yield path, value, raw is not ...


def fault_of_domain(name: str, text: bytes) -> str | None:
    """The fault of a domain file's contents; None if there is none."""
    try:
        found = parse(DomainVariant, text, f"{name}.json")
    except ConfigError as fault:
        return f"{fault.json_path}: {fault.reason}; {fault.remedy}"
    if found.definition is not None and found.definition.parameters.name not in ("", name):
        return f"$.definition.parameters.name: is {found.definition.parameters.name!r}"
    return None


# -- RocketMQ


def _rocketmq_findings(file: Path) -> Iterator[Finding]:
    # The modules with which a broker starts take as long to import as all of this module.
    from broker.rocketmq.assembly.checking import faults_at_start, notes_at_start

    try:
        config = load_rocketmq_config(file)
    except PropertyError as fault:
        for each in (fault, *fault.others):
            yield _property_fault(file, each)
        return
    for each in faults_at_start(config):
        yield _property_fault(file, each)
    for note in notes_at_start(config):
        yield Finding(False, str(file), "", note, "set it to that")
    tls = config.tls
    for name, path in (
        ("tlsCertPath", tls.certificate),
        ("tlsServerTrustCertPath", tls.client_trust),
        ("tlsServerCrlPath", tls.client_crl),
        ("tlsClientTrustCertPath", tls.dial_trust),
    ):
        yield from _ending(str(file), name, path)
    for name in config.doubts:
        yield Finding(False, str(file), name, f"its value {MISREAD}", "write it with \\u and four digits each")
    for name in config.unused:
        yield Finding(False, str(file), name, "has no effect here", "correct its name, or leave it for Apache's broker")


def _property_fault(file: Path, fault: PropertyError) -> Finding:
    return Finding(True, str(file), "", fault.problem.removeprefix(f"{file}: "), fault.remedy or "correct it")


def _rocketmq_settings(file: Path) -> Iterator[Setting]:
    config: RocketConfig = load_rocketmq_config(file)
    given = properties_of(file)
    for name, value in sorted({**config.controller_properties, **config.properties}.items()):
        yield Setting(str(file), name, value, "file" if name in given else "default")
