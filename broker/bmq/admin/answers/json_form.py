"""Results as JSON in the form of the reference's encoder: compact, or indented by four spaces."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from broker.bmq.admin.answers.results import (
    BrokerConfig,
    ClusterHealthResult,
    ClusterList,
    ClusterProxyStatusResult,
    ClusterStatusResult,
    ClusterStorageSummary,
    DomainInfo,
    HelpResult,
    MessageContents,
    Problem,
    PurgedQueue,
    PurgedQueues,
    QueueContents,
    QueueHelperResult,
    Result,
    Stats,
    StorageContent,
    Success,
    Tunable,
    TunableConfirmation,
    Tunables,
)
from broker.bmq.admin.answers.results_queue import (
    QueueInternalsResult,
)
from broker.bmq.admin.commands import Value

__all__ = ["dumped", "to_json"]

# The name of the selection in the schema's choice, by class.
_SELECTIONS: dict[type[Any], str] = {
    Problem: "error",
    Success: "success",
    HelpResult: "help",
    BrokerConfig: "brokerConfig",
    Stats: "stats",
    Tunable: "tunable",
    Tunables: "tunables",
    TunableConfirmation: "tunableConfirmation",
    PurgedQueues: "purgedQueues",
    QueueContents: "queueContents",
    MessageContents: "messageContents",
    StorageContent: "storageContent",
    ClusterStorageSummary: "clusterStorageSummary",
    DomainInfo: "domainInfo",
    ClusterList: "clusterList",
    ClusterStatusResult: "clusterStatus",
    ClusterProxyStatusResult: "clusterProxyStatus",
    ClusterHealthResult: "clusterHealth",
    QueueHelperResult: "clusterQueueHelper",
    QueueInternalsResult: "queueInternals",
}

_NAMES = {"as_json": "asJSON"}
_VALUES = ("value", "old_value", "new_value")


def to_json(result: Result, *, pretty: bool) -> str:
    content = result.text if isinstance(result, Stats) else _plain(result)
    return dumped({_SELECTIONS[type(result)]: content}, pretty=pretty)


def dumped(value: Any, *, pretty: bool, indent: int = 4) -> str:
    """Return JSON in the form of the reference's encoder, which escapes only `/`."""
    if pretty:
        text = json.dumps(value, ensure_ascii=False, indent=indent)
    else:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("/", "\\/")


def _plain(item: Any) -> Any:
    if isinstance(item, QueueInternalsResult):
        engine = {"fanout": _plain(item.engine)}
        return {"state": _plain(item.state), "queue": {"localQueue": {"queueEngine": engine}}}
    if isinstance(item, tuple):
        return [{_choice(entry): _plain(entry)} if _choice(entry) else _plain(entry) for entry in item]
    if isinstance(item, datetime):
        return item.isoformat(timespec="milliseconds")
    if not is_dataclass(item):
        return item
    found = {}
    for each in fields(item):
        value = getattr(item, each.name)
        name = each.metadata.get("json") or _NAMES.get(each.name) or _camel(each.name)
        if each.name in _VALUES:
            found[name] = _selected(value)
        elif value is not None and value != ():
            found[name] = _plain(value)
    return found


def _choice(entry: Any) -> str | None:
    """Return the selection's name for an element of an array that may be one of several."""
    return {Problem: "error", PurgedQueue: "queue"}.get(type(entry))


def _selected(value: Value) -> dict[str, Any]:
    match value:
        case None:
            return {"theNull": {}}
        case bool():
            return {"theBool": value}
        case int():
            return {"theInteger": value}
        case float():
            return {"theDouble": value}
        case str():
            return {"theString": value}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
