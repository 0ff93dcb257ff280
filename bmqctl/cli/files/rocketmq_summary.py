"""`bmqctl journal summary` on a store of RocketMQ: count its messages by topic, and the waiting ones by group."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import typer

from bmqctl.cli.arguments import given_options
from bmqctl.cli.files.printing import end_with, rate_text, size_text, stopped_by
from bmqctl.cli.files.rocketmq_queues import missing_places, queue_json, shown_ms, with_lost
from bmqctl.common.refusal import say
from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    LateProgress,
    OutputFormat,
    print_report,
    print_table,
    refuse,
    until_reader_leaves,
)
from bmqctl.common.tables import ResultConsole
from bmqctl.stores.rocketmq.read.files import open_store
from bmqctl.stores.rocketmq.read.queues import lost_messages
from bmqctl.stores.rocketmq.read.topics import TopicKind
from bmqctl.stores.rocketmq.summary import GroupFigures, LogSummary, TopicFigures, summarize_log

__all__ = ["OWN_OPTIONS", "print_summary"]

COMMAND = "journal summary"
OWN_OPTIONS: Final = frozenset({"topic"})
_FOREIGN_OPTIONS: Final = frozenset({"queue", "sort", "payload_bytes", "plot", "plot_out"})
_TOP_IN_TABLE: Final = 40

_TOPIC_KEYS = (
    *("topic", "messages", "damaged", "missing", "size", "per_s"),
    *("first_ms", "first", "last_ms", "last", "kind", "queues"),
)
_TOPIC_COLUMNS = [
    Column("topic", "topic", 36),
    Column("kind", "kind", 12),
    Column("queues", "queues", 6, right=True),
    Column("messages", "messages", 11, right=True),
    Column("lost", "lost", 8, right=True),
    Column("size", "stored", 10, right=True),
    Column("per_s", "in/s", 8, right=True),
    Column("first", "first message", 24),
    Column("last", "last message", 24),
]
_GROUP_COLUMNS = [
    Column("group", "group", 28),
    Column("topic", "topic", 36),
    Column("lag", "waiting", 10, right=True),
    Column("oldest", "oldest that waits", 24),
    Column("queues", "waiting by queue"),
]


def print_summary(context: typer.Context, path: Path, wanted: OutputFormat) -> None:
    """Print the requested summary; exit with code 1 if a part of the store cannot be read."""
    for option in given_options(context, _FOREIGN_OPTIONS):
        refuse(COMMAND, f"{path} is a store of RocketMQ, and {option} is for those of BlazingMQ")
    topic, top = context.params["topic"], context.params["top"]
    with stopped_by(COMMAND, path), LateProgress("reading the commit log") as on_progress:
        found = summarize_log(open_store(path), lambda name: topic is None or topic in name, on_progress)
    if topic is not None and not found.topics:
        refuse(COMMAND, f"--topic {topic}: no topic in {path} has this in its name")
    topics = sorted(found.topics, key=lambda each: (list(TopicKind).index(each.kind), -each.messages, each.topic))
    with until_reader_leaves():
        if wanted is OutputFormat.TABLE:
            _print_tables(found, topics, _TOP_IN_TABLE if top is None else top)
        else:
            report = _as_json(found, topics[:top])
            print_report(report, report["topics"], _TOPIC_KEYS, wanted)
    for fault in found.faults:
        say(COMMAND, f"left out: {fault}")
    queues = [queue for topic in found.topics for queue in topic.queues]
    end_with(COMMAND, path, found.log.account, lost_messages(queues), missing_places(queues))
    if found.faults:
        raise typer.Exit(EXIT_FAULTS)


def _as_json(found: LogSummary, topics: list[TopicFigures]) -> dict[str, Any]:
    return {
        "log": {
            "begin": found.log.begin,
            "end": found.log.end,
            "files": found.log.files,
            "not_in_queues": found.log.not_in_queues,
            "unfinished_bytes": found.log.unfinished_bytes,
            **found.log.account.as_json(),
        },
        "totals": _totals(found),
        "topics": [
            {**_topic(topic), "kind": topic.kind, "queues": [queue_json(queue) for queue in topic.queues]}
            for topic in topics
        ],
        "groups": [_group(group) for group in found.groups],
        "delayed_by_level": found.delayed,
        "faults": found.faults,
    }


def _totals(found: LogSummary) -> dict[str, int]:
    return {
        "topics": len(found.topics),
        "messages": found.messages(TopicKind.ORDINARY),
        "damaged": sum(topic.damaged for topic in found.topics),
        "missing": sum(topic.missing for topic in found.topics),
        "size": sum(topic.size for topic in found.topics),
        "waiting": found.lag(TopicKind.ORDINARY),
        "retries_waiting": found.lag(TopicKind.RETRY),
        "dead_letters": found.messages(TopicKind.DEAD_LETTERS),
        "delayed": found.messages(TopicKind.DELAYED),
        "delayed_waiting_by_level": sum(found.delayed.values()),
        "half_messages": found.messages(TopicKind.HALF),
        "half_messages_unsettled": found.unsettled,
    }


def _topic(topic: TopicFigures) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "messages": topic.messages,
        "damaged": topic.damaged,
        "missing": topic.missing,
        "size": topic.size,
        "per_s": round(topic.per_s, 3),
        "first_ms": topic.first_ms,
        "first": shown_ms(topic.first_ms),
        "last_ms": topic.last_ms,
        "last": shown_ms(topic.last_ms),
    }


def _group(group: GroupFigures) -> dict[str, Any]:
    return {
        "group": group.group,
        "topic": group.topic,
        "lag": group.lag,
        "oldest_ms": group.oldest_ms,
        "oldest": shown_ms(group.oldest_ms),
        "queues": [vars(queue) for queue in group.queues],
    }


def _print_tables(found: LogSummary, topics: list[TopicFigures], top: int) -> None:
    console = ResultConsole()
    log = found.log
    console.print(
        f"commit log: {size_text(log.end - log.begin)} in {log.files} files, offsets {log.begin} to {log.end}"
    )
    if log.unfinished_bytes:
        console.print(
            f"{size_text(log.unfinished_bytes)} of an unfinished write follow: a broker that starts removes them"
        )
    if log.not_in_queues:
        console.print(f"{log.not_in_queues} of its messages are in no queue: a broker that starts enters them")
    console.print()
    rows = (
        {
            **_topic(topic),
            "kind": topic.kind,
            "queues": len(topic.queues),
            "lost": topic.damaged + topic.missing or "",
            "size": size_text(topic.size),
            "per_s": rate_text(topic.per_s),
        }
        for topic in topics[:top]
    )
    lost = lost_messages(queue for topic in topics for queue in topic.queues)
    print_table(rows, with_lost(_TOPIC_COLUMNS, lost), console)
    if len(topics) > top:
        console.print(f"and {len(topics) - top} more topics (--top)")
    if found.groups:
        console.print()
        print_table(map(_group_row, found.groups), _GROUP_COLUMNS, console)
    totals = _totals(found)
    console.print()
    console.print(
        f"{totals['messages']} messages in topics of applications, {totals['waiting']} wait for groups; "
        f"{totals['retries_waiting']} retries wait, {totals['dead_letters']} dead letters; "
        f"{totals['delayed_waiting_by_level']} delayed by level wait; "
        f"{totals['half_messages_unsettled']} half messages are unsettled"
    )


def _group_row(group: GroupFigures) -> dict[str, Any]:
    waiting = (f"{queue.queue_id}: {queue.lag}" for queue in group.queues if queue.lag)
    return {**_group(group), "queues": ", ".join(waiting)}
