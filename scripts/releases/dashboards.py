"""The Grafana dashboards of `packaging/grafana`, made from tables of their panels.

.venv/bin/python -m scripts.releases.dashboards          write them
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["DASHBOARDS", "FOLDER", "Dashboard", "Panel", "Query", "Row", "Variable", "render"]

FOLDER: Final = Path(__file__).parents[2] / "packaging" / "grafana"

# A third of the 24 columns of Grafana's grid.
WIDTH: Final = 8
HEIGHT: Final = 7
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# The version of the format of dashboards that Grafana 10 and later read without a change.
SCHEMA_VERSION: Final = 39


class Query(NamedTuple):
    """An expression, and the legend of its series."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A graph over time. `unit` is a name of Grafana's."""

    title: str
    unit: str
    queries: Sequence[Query]
    about: str = ""


class Row(NamedTuple):
    """Panels below a title."""

    title: str
    panels: Sequence[Panel]


class Variable(NamedTuple):
    """A choice at the top: the values of `label` of a metric."""

    name: str
    label: str
    metric: str


class Dashboard(NamedTuple):
    """A dashboard; `name` is its file's, and its address in Grafana."""

    name: str
    title: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


# The primary of a queue counts all messages; other nodes' counts are part of that.
_OF: Final = 'Role="PRIMARY",Cluster=~"$cluster",Domain=~"$domain"'
_LABELS: Final = "{{Domain}}/{{Queue}}"
_APP: Final = f"{_LABELS} {{{{AppId}}}}"
_WHOLE: Final = ',AppId=""'
_BEHIND: Final = "{{consumer_group}} of {{topic}}"
_PARTS: Final = "consumer_group, topic"


def _by_domain(metric: str) -> Query:
    return Query(f"sum by (Domain) (rate({metric}{{{_OF}}}[$__rate_interval]))", "{{Domain}}")


def _highest(metric: str, legend: str = _LABELS, more: str = "") -> Query:
    return Query(f"topk(10, {metric}{{{_OF}{more}}})", legend)


def _of_partitions(what: str) -> Query:
    metrics = f'{{__name__=~"cluster_partition[0-9]+_{what}_offset_bytes",Cluster=~"$cluster"}}'
    number = f'label_replace({metrics}, "partition", "$1", "__name__", "cluster_partition([0-9]+)_.*")'
    return Query(f"max by (Cluster, partition) ({number})", f"{what}, {{{{Cluster}}}} {{{{partition}}}}")


_BLAZINGMQ: Final = Dashboard(
    "blazingmq",
    "BlazingMQ",
    (Variable("cluster", "Cluster", "cluster_healthiness"), Variable("domain", "Domain", "queue_heartbeat")),
    (
        Row(
            "Brokers",
            (
                Panel(
                    "Health",
                    "none",
                    (
                        Query(
                            'max by (Cluster, instance) (cluster_healthiness{Cluster=~"$cluster"})',
                            "{{Cluster}} {{instance}}",
                        ),
                    ),
                    "1 is healthy, 2 is not: no leader, or a partition without a primary that serves it.",
                ),
                Panel(
                    "Queues and clients",
                    "short",
                    (
                        Query("brkr_summary_queues_count", "queues {{instance}}"),
                        Query("brkr_summary_clients_count", "clients {{instance}}"),
                    ),
                ),
                Panel("CPU", "percent", (Query("brkr_system_cpu_all", "{{instance}}"),), "Of one processor."),
                Panel(
                    "Resident memory", "bytes", (Query("brkr_system_mem_res", "{{instance}}"),), "Mapped files count."
                ),
                Panel(
                    "Partition files",
                    "bytes",
                    (_of_partitions("journal"), _of_partitions("data")),
                    "Each starts over when it reaches its size.",
                ),
                Panel(
                    "Sizes of partition files",
                    "bytes",
                    (
                        Query(
                            'max by (Cluster) (cluster_partition_cfg_journal_bytes{Cluster=~"$cluster"})',
                            "journal, {{Cluster}}",
                        ),
                        Query(
                            'max by (Cluster) (cluster_partition_cfg_data_bytes{Cluster=~"$cluster"})',
                            "data, {{Cluster}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Messages",
            (
                Panel("Posted", "cps", (_by_domain("queue_put_msgs"),)),
                Panel("Delivered", "cps", (_by_domain("queue_push_msgs"),), "Each app of a fan-out queue counts."),
                Panel("Confirmed", "cps", (_by_domain("queue_confirm_msgs"),)),
                Panel("Bytes posted", "Bps", (_by_domain("queue_put_bytes"),)),
                Panel("Bytes delivered", "Bps", (_by_domain("queue_push_bytes"),)),
                Panel(
                    "Refused, rejected, expired",
                    "cps",
                    (
                        _by_domain("queue_nack_msgs")._replace(legend="refused {{Domain}}"),
                        _by_domain("queue_reject_msgs")._replace(legend="rejected {{Domain}}"),
                        _by_domain("queue_gc_msgs")._replace(legend="expired {{Domain}}"),
                    ),
                ),
            ),
        ),
        Row(
            "Backlog",
            (
                Panel("Messages, the ten longest queues", "short", (_highest("queue_content_msgs_max", more=_WHOLE),)),
                Panel("Bytes, the ten largest queues", "bytes", (_highest("queue_content_bytes_max", more=_WHOLE),)),
                Panel(
                    "Use of limits, the ten highest",
                    "percent",
                    (
                        _highest("queue_msgs_utilization_max", f"messages {_LABELS}"),
                        _highest("queue_bytes_utilization_max", f"bytes {_LABELS}"),
                    ),
                ),
                Panel(
                    "Time to delivery, the ten longest",
                    "ns",
                    (_highest("queue_queue_time_max", _APP),),
                ),
                Panel(
                    "Time to confirm, the ten longest",
                    "ns",
                    (_highest("queue_confirm_time_max", _APP),),
                ),
                Panel(
                    "Producers and consumers",
                    "short",
                    (
                        Query(f"sum by (Domain) (queue_producers_count{{{_OF}}})", "producers {{Domain}}"),
                        Query(f"sum by (Domain) (queue_consumers_count{{{_OF}}})", "consumers {{Domain}}"),
                    ),
                ),
            ),
        ),
    ),
)

_AT: Final = 'cluster=~"$cluster",node_id=~"$broker"'
_USERS: Final = f'{_AT},is_system="false"'


def _rate(metric: str, by: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (rate({metric}{{{_USERS}}}[$__rate_interval]))", legend)


def _longest(metric: str) -> Query:
    return Query(f"topk(10, max by (consumer_group, topic) ({metric}{{{_USERS}}}))", _BEHIND)


_ROCKETMQ: Final = Dashboard(
    "rocketmq",
    "RocketMQ",
    (
        Variable("cluster", "cluster", "rocketmq_broker_permission"),
        Variable("broker", "node_id", "rocketmq_broker_permission"),
    ),
    (
        Row(
            "Messages",
            (
                Panel("Stored", "cps", (_rate("rocketmq_messages_in_total", "topic", "{{topic}}"),)),
                Panel(
                    "Delivered",
                    "cps",
                    (_rate("rocketmq_messages_out_total", _PARTS, _BEHIND),),
                ),
                Panel(
                    "Sent to dead letters",
                    "cps",
                    (
                        _rate(
                            "rocketmq_send_to_dlq_messages_total",
                            _PARTS,
                            _BEHIND,
                        ),
                    ),
                ),
                Panel("Bytes stored", "Bps", (_rate("rocketmq_throughput_in_total", "topic", "{{topic}}"),)),
                Panel(
                    "Bytes delivered",
                    "Bps",
                    (_rate("rocketmq_throughput_out_total", _PARTS, _BEHIND),),
                ),
                Panel(
                    "Topics and groups",
                    "short",
                    (
                        Query(f"rocketmq_topic_number{{{_AT}}}", "topics {{node_id}}"),
                        Query(f"rocketmq_consumer_group_number{{{_AT}}}", "groups {{node_id}}"),
                    ),
                    "Those of the system count.",
                ),
            ),
        ),
        Row(
            "Consumers",
            (
                Panel(
                    "Messages behind, the ten highest",
                    "short",
                    (
                        Query(
                            f"topk(10, sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{_USERS}}}))",
                            _BEHIND,
                        ),
                    ),
                ),
                Panel("Time behind, the ten highest", "ms", (_longest("rocketmq_consumer_lag_latency"),)),
                Panel(
                    "Connections",
                    "short",
                    (
                        Query(f"sum by (node_id) (rocketmq_producer_connections{{{_AT}}})", "producers {{node_id}}"),
                        Query(
                            f"sum by (consumer_group) (rocketmq_consumer_connections{{{_USERS}}})",
                            "consumers {{consumer_group}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Store",
            (
                Panel("Disk in use", "bytes", (Query(f"rocketmq_storage_size{{{_AT}}}", "{{node_id}}"),)),
                Panel(
                    "Not yet on the disk",
                    "bytes",
                    (Query(f"rocketmq_storage_flush_behind_bytes{{{_AT}}}", "{{node_id}}"),),
                ),
                Panel(
                    "Age of the oldest message",
                    "ms",
                    (Query(f"rocketmq_storage_message_reserve_time{{{_AT}}}", "{{node_id}}"),),
                ),
            ),
        ),
    ),
)

DASHBOARDS: Final = (_BLAZINGMQ, _ROCKETMQ)


def render(dashboard: Dashboard) -> str:
    made = {
        "uid": f"bmqctl-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["bmqctl"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_source(), *map(_variable, dashboard.variables)]},
        "panels": list(_panels(dashboard.rows)),
    }
    return json.dumps(made, indent=1) + "\n"


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({variable.metric}, {variable.label})", "refId": "A"},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
            "panels": [],
        }
        top += 1
        for place, panel in enumerate(row.panels):
            number += 1
            line, column = divmod(place, 24 // WIDTH)
            at = {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": top + line * HEIGHT}
            yield _panel(number, panel, at)
        top += -(-len(row.panels) // (24 // WIDTH)) * HEIGHT


def _panel(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query.expr, "legendFormat": query.legend}
        for place, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(render(dashboard))


if __name__ == "__main__":
    main()
