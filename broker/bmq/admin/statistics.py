"""Statistics of queues and clients (source: mqbstat::StatController, its JSON and table printers)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from broker.bmq.admin.answers.json_form import dumped
from broker.bmq.admin.answers.results import Result, Stats, Tunables
from broker.bmq.admin.commands import Encoding
from broker.bmq.admin.environment import CommandContext, Failed
from broker.bmq.admin.queue_metrics import shows_apps
from broker.bmq.core.alarms import printable
from broker.bmq.core.pretty import pretty_bytes, pretty_number
from broker.bmq.core.statistics import QueueStatistics, Recently
from broker.bmq.queue.queue import App, Queue
from formats.bmq.uri import parse_uri

__all__ = ["app_values", "get_interval", "list_intervals", "queue_values", "set_interval", "show"]

NS_PER_MS = 1_000_000
ROLE_PRIMARY = 1
INTERVAL_SUFFIX = ".PUBLISHINTERVAL"


def show(context: CommandContext, encoding: Encoding) -> Result:
    """Return all statistics: a table, or JSON within the result."""
    if encoding is Encoding.TEXT:
        return Stats("\n".join(_tables(context)) + "\n")
    if not context.throttle.permits(context.node.now.ms):
        raise Failed("Cannot save the recent snapshot, trying to make snapshots too often")
    return Stats(dumped(_json(context), pretty=encoding is Encoding.JSON_PRETTY))


# -- JSON


def _json(context: CommandContext) -> dict[str, Any]:
    domains: dict[str, dict[str, Any]] = {}
    for uri, queue in sorted(context.node.queues.items()):
        domains.setdefault(parse_uri(uri).qualified_domain, {})[uri] = _queue(context, queue)
    now = datetime.fromtimestamp(context.node.now.wall_s, UTC)
    found: dict[str, Any] = {
        "_timestamp": now.strftime("%d%b%Y_%H:%M:%S.000000").upper(),
        "domainQueues": {"domains": dict(sorted(domains.items()))},
    }
    faults = _fault_values(context)
    # Not in the reference, and present only if there are faults.
    return found | {"faults": faults} if any(faults.values()) else found


def _queue(context: CommandContext, queue: Queue) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if shows_apps(queue.config):
        apps = sorted(queue.apps.values(), key=lambda app: app.app_id)
        found["appIds"] = {app.app_id: {"values": dict(sorted(app_values(app).items()))} for app in apps}
    found["values"] = dict(sorted(queue_values(queue).items()))
    return found


def queue_values(queue: Queue) -> dict[str, int]:
    config = queue.config
    messages, size = len(queue.messages), queue.bytes
    recently = queue.statistics.recently(messages, size)
    values = _values(queue.statistics, recently, messages, size) | _times(queue)
    values["queue_producers_count"] = queue.writers
    values["queue_consumers_count"] = sum(len(app.streams) for app in queue.apps.values())
    values["queue_cfg_msgs"] = config.queue_messages_max
    values["queue_cfg_bytes"] = config.queue_bytes_max
    highest = recently.counters
    if config.queue_messages_max:
        values["queue_msgs_utilization_max"] = 100 * highest.messages_max // config.queue_messages_max
    if config.queue_bytes_max:
        values["queue_bytes_utilization_max"] = 100 * highest.bytes_max // config.queue_bytes_max
    values["queue_history_abs"] = queue.history.size
    values["queue_role"] = ROLE_PRIMARY
    return values


def _times(queue: Queue) -> dict[str, int]:
    parts = [app.statistics.recently(app.messages, app.bytes).counters for app in queue.apps.values()]
    waits, answers = sum(part.waits for part in parts), sum(part.answers for part in parts)
    return {
        "queue_queue_time_avg": sum(part.waits_ms for part in parts) // max(waits, 1) * NS_PER_MS,
        "queue_queue_time_max": max((part.wait_ms_max for part in parts), default=0) * NS_PER_MS,
        "queue_confirm_time_avg": sum(part.answers_ms for part in parts) // max(answers, 1) * NS_PER_MS,
        "queue_confirm_time_max": max((part.answer_ms_max for part in parts), default=0) * NS_PER_MS,
    }


def app_values(app: App) -> dict[str, int]:
    return _values(app.statistics, app.statistics.recently(app.messages, app.bytes), app.messages, app.bytes)


def _values(ever: QueueStatistics, recently: Recently, messages: int, size: int) -> dict[str, int]:
    """Return all values of a queue or an app, by the reference's names; times are in nanoseconds."""
    lately = recently.counters
    return {
        "queue_ack_msgs": lately.acks,
        "queue_ack_msgs_abs": ever.acks,
        # A message is acknowledged in the step in which it arrives, faster than the clock's resolution.
        "queue_ack_time_avg": 0,
        "queue_ack_time_max": 0,
        "queue_bytes_current": size,
        "queue_bytes_utilization_max": 0,
        "queue_cfg_bytes": 0,
        "queue_cfg_msgs": 0,
        "queue_confirm_msgs": lately.confirms,
        "queue_confirm_msgs_abs": ever.confirms,
        "queue_confirm_time_avg": recently.answer_ms * NS_PER_MS,
        "queue_confirm_time_max": lately.answer_ms_max * NS_PER_MS,
        "queue_consumers_count": 0,
        "queue_content_bytes": lately.bytes_max,
        "queue_content_msgs": lately.messages_max,
        "queue_gc_msgs": lately.expired,
        "queue_gc_msgs_abs": ever.expired,
        "queue_history_abs": 0,
        "queue_msgs_current": messages,
        "queue_msgs_utilization_max": 0,
        "queue_nack_msgs": lately.nacks,
        "queue_nack_msgs_abs": ever.nacks,
        "queue_nack_noquorum_msgs": 0,
        "queue_nack_noquorum_msgs_abs": 0,
        "queue_producers_count": 0,
        "queue_push_bytes": lately.push_bytes,
        "queue_push_bytes_abs": ever.push_bytes,
        "queue_push_msgs": lately.pushes,
        "queue_push_msgs_abs": ever.pushes,
        "queue_put_bytes": lately.put_bytes,
        "queue_put_bytes_abs": ever.put_bytes,
        "queue_put_msgs": lately.puts,
        "queue_put_msgs_abs": ever.puts,
        "queue_queue_time_avg": recently.wait_ms * NS_PER_MS,
        "queue_queue_time_max": lately.wait_ms_max * NS_PER_MS,
        "queue_reject_msgs": lately.rejects,
        "queue_reject_msgs_abs": ever.rejects,
        "queue_role": 0,
    }


# -- tables


class Column(NamedTuple):
    """A column of a table: the `key` of its values; `size` prints them as sizes in bytes, `time` as milliseconds."""

    group: str
    title: str
    key: str
    kind: str = "count"


_QUEUE_COLUMNS = (
    Column("Info", "producer", "queue_producers_count"),
    Column("Info", "consumer", "queue_consumers_count"),
    Column("Content", "msgs", "queue_msgs_current"),
    Column("Content", "bytes", "queue_bytes_current", "size"),
    Column("Put", "msgs (d)", "queue_put_msgs"),
    Column("Put", "bytes (d)", "queue_put_bytes", "size"),
    Column("Put", "msgs", "queue_put_msgs_abs"),
    Column("Put", "bytes", "queue_put_bytes_abs", "size"),
    Column("Push", "msgs (d)", "queue_push_msgs"),
    Column("Push", "bytes (d)", "queue_push_bytes", "size"),
    Column("Push", "msgs", "queue_push_msgs_abs"),
    Column("Push", "bytes", "queue_push_bytes_abs", "size"),
    Column("Queue Time", "avg", "queue_queue_time_avg", "time"),
    Column("Queue Time", "max", "queue_queue_time_max", "time"),
    Column("Ack", "delta", "queue_ack_msgs"),
    Column("Ack", "abs", "queue_ack_msgs_abs"),
    Column("Nack", "delta", "queue_nack_msgs"),
    Column("Nack", "abs", "queue_nack_msgs_abs"),
    Column("Confirm", "delta", "queue_confirm_msgs"),
    Column("Confirm", "abs", "queue_confirm_msgs_abs"),
    Column("Confirm", "time avg", "queue_confirm_time_avg", "time"),
    Column("Confirm", "time max", "queue_confirm_time_max", "time"),
    Column("Reject", "delta", "queue_reject_msgs"),
    Column("Reject", "abs", "queue_reject_msgs_abs"),
    Column("GC", "delta", "queue_gc_msgs"),
    Column("GC", "abs", "queue_gc_msgs_abs"),
    Column("Hist", "size", "queue_history_abs"),
)

_CHANNEL_COLUMNS = (Column("Bytes", "in", "bytes_in", "size"), Column("Bytes", "out", "bytes_out", "size"))
_FAULT_COLUMNS = (Column("Faults", "sessions ended", "sessions"), Column("Faults", "others", "others"))


def _tables(context: CommandContext) -> Iterator[str]:
    yield "\n:::::::::: :::::::::: DOMAINQUEUES >>"
    yield from _table(_queue_rows(context), _QUEUE_COLUMNS)
    yield "\n:::::::::: :::::::::: TCP CHANNELS >>"
    sessions = context.node.sessions.values()
    rows = [
        (printable(each.description), {"bytes_in": each.bytes_in, "bytes_out": each.bytes_out}) for each in sessions
    ]
    yield from _table(rows, _CHANNEL_COLUMNS)
    faults = _fault_values(context)
    if not any(faults.values()):
        return
    yield "\n:::::::::: :::::::::: FAULTS >>"
    yield from _table([("this process", faults)], _FAULT_COLUMNS)


def _fault_values(context: CommandContext) -> dict[str, int]:
    faults = context.node.faults
    return {"sessions": faults.of_sessions, "others": faults.others}


def _queue_rows(context: CommandContext) -> Iterator[tuple[str, Mapping[str, int]]]:
    by_domain: dict[str, list[Queue]] = {}
    for uri, queue in sorted(context.node.queues.items()):
        by_domain.setdefault(parse_uri(uri).qualified_domain, []).append(queue)
    for domain, queues in sorted(by_domain.items()):
        yield domain, {}
        for queue in queues:
            yield f"  {queue.uri}", queue_values(queue)
            if shows_apps(queue.config):
                for app in queue.apps.values():
                    yield f"    {app.app_id}", app_values(app)


def _table(rows: Iterable[tuple[str, Mapping[str, int]]], columns: tuple[Column, ...]) -> Iterator[str]:
    """Format columns under their groups; zeros are left blank, as in the reference's tables."""
    cells = [(name, [_cell(values.get(column.key, 0), column.kind) for column in columns]) for name, values in rows]
    first = max((len(name) for name, _ in cells), default=0)
    widths = [
        max(len(column.title), *(len(row[number]) for _, row in cells), 0) if cells else len(column.title)
        for number, column in enumerate(columns)
    ]
    groups, titles = [" " * first], [" " * first]
    at = 0
    while at < len(columns):
        group = columns[at].group
        end = next((n for n in range(at, len(columns)) if columns[n].group != group), len(columns))
        width = max(len(group), sum(widths[at:end]) + 3 * (end - at - 1))
        widths[end - 1] += max(0, len(group) - (sum(widths[at:end]) + 3 * (end - at - 1)))
        groups.append(group.center(width))
        at = end
    titles += [column.title.rjust(width) for column, width in zip(columns, widths, strict=True)]
    yield " | ".join(groups)
    yield " | ".join(titles)
    yield "-+-".join("-" * width for width in (first, *widths))
    for name, row in cells:
        yield " | ".join([name.ljust(first), *(cell.rjust(width) for cell, width in zip(row, widths, strict=True))])


def _cell(value: int, kind: str) -> str:
    if not value:
        return ""
    if kind == "size":
        return pretty_bytes(value)
    return f"{value // NS_PER_MS} ms" if kind == "time" else pretty_number(value)


# -- parameters: the reference has one per plugin that publishes statistics, and this node has no such plugin


def set_interval(name: str) -> Result:
    if not name.upper().endswith(INTERVAL_SUFFIX) or len(name) == len(INTERVAL_SUFFIX):
        raise Failed(_unsupported(name))
    raise Failed(f"No configuration found for StatConsumer '{name[: -len(INTERVAL_SUFFIX)]}'")


def get_interval(name: str) -> Result:
    if not name.upper().endswith(INTERVAL_SUFFIX) or len(name) == len(INTERVAL_SUFFIX):
        raise Failed(_unsupported(name))
    raise Failed(f"StatConsumer '{name[: -len(INTERVAL_SUFFIX)]}' does not exist")


def list_intervals() -> Tunables:
    return Tunables(())


def _unsupported(name: str) -> str:
    return f"Unsupported tunable '{name}': Issue the LIST_TUNABLES command for the list of supported tunables."
