"""Loading of configuration files as models, with errors of one line.

A directory holds `bmqbrkrcfg.json`, `clusters.json`, `domains/<name>.json` and, for proxies,
`proxyclusters/<name>.json`.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Unpack

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from broker.bmq.config.broker_schema import Configuration
from broker.bmq.config.cluster_schema import ClusterProxyDefinition, ClustersDefinition
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.errors import HIDDEN, ConfigError, shown
from broker.bmq.config.links import ClusterPlace, refuse_unreachable
from broker.bmq.config.model import CONFIDENTIAL, Model, bounds_of, fields_at
from broker.bmq.config.node import Changes, NodeConfig, refuse_self_as_upstream

__all__ = ["DOMAINS_DIRECTORY", "DomainFiles", "load_broker_config", "parse", "read", "reload_clusters"]

M = TypeVar("M", bound=Model)

BROKER_FILE = "bmqbrkrcfg.json"
CLUSTERS_FILE = "clusters.json"
DOMAINS_DIRECTORY = "domains"
PROXIES_DIRECTORY = "proxyclusters"

# The reference's directory for its pid file and control pipe; by default the working directory.
PREFIX_VARIABLE = "BMQ_PREFIX"


def load_broker_config(directory: Path, **changes: Unpack[Changes]) -> NodeConfig:
    """Load the configuration in `directory`: broker and clusters at once, each domain's file when needed.

    `changes` are applied before the broker is looked for in its clusters; see `NodeConfig.as_node`.

    Raises `ConfigError` for the first fault: a file that is missing, unreadable or malformed, a member that is missing
    or wrong, a cluster without this node, or a requirement that cannot be met (TLS without a certificate,
    authorization).
    """
    if not directory.is_dir():
        raise ConfigError(
            str(directory),
            "",
            "is not a directory" if directory.exists() else "does not exist",
            f"name a directory that holds {BROKER_FILE}, {CLUSTERS_FILE} and domains/",
        )
    broker = read(Configuration, directory / BROKER_FILE)
    clusters, places = _read_clusters(directory)
    _refuse_unmet_demands(broker, str(directory / BROKER_FILE))
    config = NodeConfig(
        directory=directory,
        broker=broker,
        clusters=clusters,
        domains=DomainFiles(directory / DOMAINS_DIRECTORY),
        run_directory=Path(os.environ.get(PREFIX_VARIABLE) or "."),
    )
    config = config.as_node(**changes)
    refuse_unreachable(config, places, str(directory / BROKER_FILE))
    return config


def reload_clusters(config: NodeConfig) -> NodeConfig:
    """Return a proxy's configuration with the clusters now in the files. Raises `ConfigError`."""
    if config.directory is None:
        return config
    clusters, places = _read_clusters(config.directory)
    # To become a node of a cluster, this broker needs a store and therefore a restart.
    places = [place for place in places if isinstance(place.cluster, ClusterProxyDefinition)]
    found = replace(config, clusters=clusters.model_copy(update={"my_clusters": ()}))
    refuse_unreachable(found, places, str(config.directory / BROKER_FILE))
    refuse_self_as_upstream(found)
    return found


def _read_clusters(directory: Path) -> tuple[ClustersDefinition, list[ClusterPlace]]:
    clusters = read(ClustersDefinition, directory / CLUSTERS_FILE)
    known = {cluster.name for cluster in (*clusters.my_clusters, *clusters.proxy_clusters)}
    file = str(directory / CLUSTERS_FILE)
    places = [ClusterPlace(each, file, f"$.myClusters[{index}]") for index, each in enumerate(clusters.my_clusters)]
    places += [
        ClusterPlace(each, file, f"$.proxyClusters[{index}]") for index, each in enumerate(clusters.proxy_clusters)
    ]
    more = {
        path: read(ClusterProxyDefinition, path)
        for path in sorted((directory / PROXIES_DIRECTORY).glob("*.json"))
        if path.stem not in known
    }
    places += [ClusterPlace(each, str(path), "$") for path, each in more.items()]
    return clusters.model_copy(update={"proxy_clusters": (*clusters.proxy_clusters, *more.values())}), places


class DomainFiles:
    """The domains of a directory, read at each call, so that a changed file takes effect for the next queue."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        return sorted(file.stem for file in self._directory.glob("*.json"))

    def read(self, name: str) -> tuple[str, DomainVariant] | None:
        file = self._directory / f"{name}.json"
        try:
            is_there = file.is_file()
        except OSError as failure:
            if failure.errno != errno.ENAMETOOLONG:
                reason = (failure.strerror or type(failure).__name__).lower()
                raise ConfigError(str(file), "", f"cannot be accessed: {reason}", "make it accessible") from None
            is_there = False
        return (str(file), read(DomainVariant, file)) if is_there else None


def _refuse_unmet_demands(broker: Configuration, file: str) -> None:
    """Raise `ConfigError` for a security setting that cannot be met, rather than ignore it."""
    app = broker.app_config
    for index, listener in enumerate(app.network_interfaces.tcp_interface.listeners):
        if listener.tls and app.tls_config is None:
            raise ConfigError(
                file,
                f"$.appConfig.networkInterfaces.tcpInterface.listeners[{index}].tls",
                "requires TLS, but there is no certificate",
                'name one in "tlsConfig" of "appConfig", or set it to false',
            )


def read(model: type[M], file: Path) -> M:
    """Read the model in `file`. Raises `ConfigError`."""
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(str(file), "", "does not exist", "create it, or name another directory") from None
    except OSError as failure:
        reason = (failure.strerror or type(failure).__name__).lower()
        raise ConfigError(str(file), "", f"cannot be read: {reason}", "make it a readable file") from None
    return parse(model, text, str(file))


def parse(model: type[M], text: bytes, file: str) -> M:
    """Parse the model in `text`, the contents of `file`."""
    try:
        json.loads(text.decode(), parse_constant=_no_constant)
        return model.model_validate_json(text)
    except UnicodeDecodeError as failure:
        line = text.count(b"\n", 0, failure.start) + 1
        column = failure.start - text.rfind(b"\n", 0, failure.start)
        raise ConfigError(file, f"line {line}, column {column}", "is not UTF-8", "save the file as UTF-8") from None
    except json.JSONDecodeError as failure:
        raise ConfigError(
            file,
            f"line {failure.lineno}, column {failure.colno}",
            f"is not JSON: {failure.msg}",
            "correct the syntax there",
        ) from None
    except RecursionError:
        raise ConfigError(file, "", "is nested too deeply", "write it as the reference's schema says") from None
    except ValidationError as failure:
        raise _told(failure, file, model) from None
    except ValueError as failure:
        # JSON cannot represent it, or it is too long.
        raise ConfigError(file, "", f"is not JSON: {failure}", "correct the number") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# By pydantic's error type: what the value is not, and what to write.
_TYPES = {
    "int_type": ("an integer", "write an integer, without quotes"),
    "float_type": ("a number", "write a number, without quotes"),
    "bool_type": ("a boolean", "write true or false"),
    "string_type": ("a string", "write a string, in double quotes"),
    "tuple_type": ("an array", "write an array, in []"),
    "model_type": ("an object", "write an object, in {}"),
}


def _told(failure: ValidationError, file: str, model: type[Model]) -> ConfigError:
    """Convert pydantic's errors; a value is quoted unless it might be a secret."""
    first, *others = (_fault(error, file, model) for error in failure.errors(include_url=False))
    return ConfigError(file, first.json_path, first.reason, first.remedy, tuple(others))


def _fault(error: ErrorDetails, file: str, model: type[Model]) -> ConfigError:
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    fields = [*fields_at(model, error["loc"])]
    if any(CONFIDENTIAL in field.metadata for field in fields) and error["type"] != "config":
        error["input"] = HIDDEN
    if error["type"] in ("greater_than_equal", "less_than_equal"):
        least, most = bounds_of(fields[-1])
        return ConfigError(file, path, f"is {shown(error['input'])}", f"use {least} to {most}")
    return ConfigError(file, path, *_reason(error))


def _reason(error: ErrorDetails) -> tuple[str, str]:
    kind, found, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "config":
        return context["reason"], context["remedy"]
    if kind == "json_invalid":
        # For example half a surrogate pair, which Python's parser accepts.
        return f"is not JSON: {context['error']}", "correct the syntax there"
    if kind == "missing":
        return "is missing", "add it"
    if kind in _TYPES:
        expected, remedy = _TYPES[kind]
        return f"is {_named(found)}, not {expected}", remedy
    if kind == "enum":
        return f"is {shown(found)}", f"use one of {context['expected']}"
    if kind in ("too_short", "string_too_short"):
        return "is empty", "fill it in"
    if kind in ("too_long", "string_too_long"):
        what = "members" if kind == "too_long" else "characters"
        return f"has {len(found)} {what}", f"use {context['max_length']} at most"
    return error["msg"].lower(), f"correct it; it is {_named(found)}"


def _named(found: Any) -> str:
    if isinstance(found, dict):
        return "an object"
    if isinstance(found, list):
        return "an array"
    return (
        {True: "true", False: "false"}[found] if isinstance(found, bool) else "null" if found is None else shown(found)
    )
