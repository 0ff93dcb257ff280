"""The domains in the files of BlazingMQ's brokers: listing and creation.

A place is the folder of a broker's configuration, a folder of such folders, as `start cluster` makes it, or the store
of a node that was started without a configuration. Brokers read a domain's file when one of its queues is opened.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from bmqctl.client.admin import AdminLost
from bmqctl.client.protocol.authentication import Credentials
from bmqctl.systems.administration import DefinitionHolder
from bmqctl.systems.blazingmq.status.asking import Asking, NotReported, ask_all, endpoint_parts
from bmqctl.systems.definitions.blazingmq import read_domains, write_domains
from bmqctl.systems.definitions.model import BLAZINGMQ, BadDefinitions, Definitions
from broker.bmq.config import ConfigError, NodeConfig, default_config, load_broker_config
from broker.bmq.config.default import domain_definition
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.dump import to_json
from broker.bmq.config.load import BROKER_FILE, DOMAINS_DIRECTORY, parse
from broker.bmq.config.node import DOMAIN_NAME

__all__ = ["BadDomain", "Domain", "Nodes", "create_domain", "domains_in", "holders_in"]

# A file's name has at most 255 bytes, `.json` included.
NAME_BYTES_MAX: Final = 250
_NO_DOMAINS: Final = Definitions(BLAZINGMQ, {"domains": {}})
_PAUSE_S: Final = 0.1
STORE_FILES: Final = "bmq_*.bmq_*"


class BadDomain(Exception):
    """A domain that cannot be created, or a place without a configuration; one line with the remedy."""


class Domain(NamedTuple):
    """A domain of a configuration; `apps` are those of a fan-out, and `file` is empty for a built-in sample."""

    name: str
    mode: str
    storage: str
    consistency: str
    apps: str
    file: str


def domains_in(place: Path) -> list[Domain]:
    """List the domains of a place, of the first of several nodes. Raises `BadDomain`."""
    config = _configs(place)[0][1]
    try:
        resolved = config.all_domains()
        files = {name: found[0] for name in resolved if (found := config.domains.read(name)) is not None}
    except ConfigError as fault:
        raise BadDomain(str(fault)) from None
    return [_domain(name, to_json(each.parameters), files.get(name, "")) for name, each in sorted(resolved.items())]


def _domain(name: str, parameters: dict[str, Any], file: str) -> Domain:
    mode, details = next(iter(parameters["mode"].items()))
    apps: list[str] = details.get("appIDs", [])
    storage = next(iter(parameters["storage"]["config"]), "")
    consistency = next(iter(parameters["consistency"]), "")
    return Domain(name, mode, storage, consistency, ", ".join(apps), file if Path(file).exists() else "")


def create_domain(
    place: Path, name: str, mode: str, apps: Sequence[str], *, stored: bool, message_ttl_s: int, replace: bool
) -> list[Path]:
    """Write the file of a domain for each node of a place, and return the files. Raises `BadDomain`.

    Stored messages of several nodes are strongly consistent: an acknowledged message survives the loss of one node.
    """
    if DOMAIN_NAME.fullmatch(name) is None or len(name) > NAME_BYTES_MAX:
        raise BadDomain(
            f"{name}: a domain's name has at most {NAME_BYTES_MAX} letters, digits, '.', '_', '~' and '-', "
            "and does not begin with '.'"
        )
    if (mode == "fanout") != bool(apps):
        raise BadDomain("a fan-out needs --app, once for each app, and other modes have none")
    configs = _configs(place)
    files = []
    for folder, config in configs:
        file = folder / DOMAINS_DIRECTORY / f"{name}.json"
        if file.exists() and not replace:
            raise BadDomain(f"{file}: there is a domain {name} already: give --replace, or another name")
        if config.cluster is None:
            raise BadDomain(f"{folder}: is the configuration of a proxy, whose domains are those of its cluster")
        files.append((file, config.cluster.name, len(config.cluster.nodes)))
    for file, cluster, nodes in files:
        definition = domain_definition(
            name,
            cluster,
            {mode: {"appIDs": list(apps)} if apps else {}},
            "fileBacked" if stored and mode != "broadcast" else "inMemory",
            "strong" if stored and nodes > 1 and mode != "broadcast" else "eventual",
            message_ttl_s,
        )
        try:
            text = json.dumps(definition, indent=2) + "\n"
            parse(DomainVariant, text.encode(), f"domain {name}")
        except ConfigError as fault:
            raise BadDomain(str(fault)) from None
        _write(file, text)
    return [file for file, _, _ in files]


def holders_in(place: Path) -> list[DefinitionHolder]:
    """The folder of each node of a place, with the domains in its files. Raises `BadDomain`."""
    try:
        return [
            DefinitionHolder(
                str(folder),
                read_domains(folder) if (folder / DOMAINS_DIRECTORY).is_dir() else _NO_DOMAINS,
                partial(write_domains, folder),
            )
            for folder, _ in _configs(place)
        ]
    except BadDefinitions as fault:
        raise BadDomain(str(fault)) from None


class Nodes(NamedTuple):
    """The nodes of a cluster: the one at `place`, and the others that it names; none without a place."""

    place: tuple[str, int] | None
    timeout_s: float
    authority: Path | None
    credentials: Credentials | None

    def tell(self, command: str) -> None:
        """Send each node a command. Raises `BadDomain` for one that does not carry it out."""
        for node in self._all():
            self._send(node, command)

    def finish_removal(self, name: str) -> None:
        """Have each node forget a domain whose removal has begun. Raises `BadDomain`.

        Queues are gone once their cluster has recorded that, which the first step may not have seen.
        """
        for node in self._all():
            until = time.monotonic() + self.timeout_s
            while True:
                try:
                    self._send(node, f"DOMAINS REMOVE {name} FINALIZE")
                    break
                except BadDomain:
                    if time.monotonic() > until:
                        raise
                    time.sleep(_PAUSE_S)
                    self._send(node, f"DOMAINS REMOVE {name}")

    def _all(self) -> list[tuple[str, int]]:
        if self.place is None:
            return []
        try:
            view = next(each["view"] for each in ask_all(*self.place, self._asking) if "view" in each)
            return [endpoint_parts(each["endpoint"]) for each in view["nodes"]]
        except NotReported:
            # The C++ broker, whose nodes pass such commands on.
            return [self.place]
        except AdminLost as fault:
            raise BadDomain(str(fault)) from None

    @property
    def _asking(self) -> Asking:
        return Asking(*self[1:])

    def _send(self, node: tuple[str, int], command: str) -> None:
        where = f"{node[0]}:{node[1]}"
        try:
            with self._asking.client(*node) as client:
                answer = json.loads(client.send(f"ENCODING JSON_COMPACT {command}"))
        except (AdminLost, ValueError, RecursionError) as fault:
            raise BadDomain(f"{where} does not carry out {command}: {fault}") from None
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            raise BadDomain(f"{where} refuses {command}: {answer['error'].get('message')}")


def _write(file: Path, text: str) -> None:
    """Write a file atomically: a broker that reads meanwhile sees the old one or the new one."""
    new = file.with_suffix(".new")
    try:
        file.parent.mkdir(exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as fault:
        raise BadDomain(f"{fault.filename}: {fault.strerror}") from None


def _configs(place: Path) -> list[tuple[Path, NodeConfig]]:
    try:
        if (place / BROKER_FILE).is_file():
            return [(place, load_broker_config(place))]
        if nodes := sorted(_nodes(place)):
            return [(node, load_broker_config(node)) for node in nodes]
    except ConfigError as fault:
        raise BadDomain(str(fault)) from None
    if place.is_dir() and next(place.glob(STORE_FILES), None) is not None:
        return [(place, default_config(data_dir=place))]
    raise BadDomain(
        f"{place}: is neither a folder with {BROKER_FILE}, nor a folder of such folders, nor the store of a node: "
        "name one of these by --in"
    )


def _nodes(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (each for each in place.iterdir() if (each / BROKER_FILE).is_file())
