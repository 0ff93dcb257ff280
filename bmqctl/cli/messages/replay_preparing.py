"""The messages, the destination and the pace of `bmqctl replay`, by its options."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from bmqctl.carrying.bridge.ends import BadBridge
from bmqctl.carrying.messages.ends import CannotBegin, Reach
from bmqctl.carrying.replay.account import count_steps
from bmqctl.carrying.replay.log_plan import LogSelection, make_log_plan
from bmqctl.carrying.replay.names import BadRename, Renames
from bmqctl.carrying.replay.plan import Matches, Plan, Selection, StoreChanged, make_plan
from bmqctl.carrying.replay.plan import Progress as OnProgress
from bmqctl.carrying.replay.progress import Head, Progress, StateFault, open_state, read_head
from bmqctl.carrying.replay.run import Replay, Run
from bmqctl.cli.administer.admin import endpoint_of
from bmqctl.cli.arguments import given_options
from bmqctl.cli.messages.replay_job import Job
from bmqctl.cli.messages.replay_options import COMMAND
from bmqctl.common.refusal import say
from bmqctl.common.render import LateProgress, refuse
from bmqctl.stores.blazingmq.read.files import (
    FileKind,
    NotAStoreFile,
    find_files,
    identify,
    recovery_sets,
)
from bmqctl.stores.blazingmq.read.wanted import BadFilter, parse_time
from bmqctl.stores.rocketmq.read.files import LOG_FOLDER, open_store
from bmqctl.stores.rocketmq.read.filters import LogFilters, parse_time_ms
from bmqctl.systems.opening import open_broker, open_end
from formats.bmq.expressions import ExpressionError, compile_expression
from formats.bmq.guid import GUID_SIZE, parse_guid
from formats.bmq.stores.outcomes import MessageOutcome
from formats.errors import FormatError

__all__ = [
    "blazingmq_plan",
    "check_delayed",
    "guid_of",
    "open_destination",
    "open_progress",
    "prepare",
    "refuse_foreign",
    "rocketmq_plan",
    "speed_of",
]

SPEED_MAX: Final = 1e6
LOG_FILTERS: Final = ("topics", "queue_ids", "ids", "keys", "tags")

MakePlan = Callable[[Mapping[str, int] | None, OnProgress], Plan]


def open_destination(to: str | None, broker: str, reach: Reach) -> Replay:
    """Open the place that messages go to; one without a name leaves each its own."""
    try:
        if to is not None:
            return open_end(to, broker, may_lack_topic=True).replay(reach)
        return open_broker(*endpoint_of(COMMAND, broker)).replay(reach)
    except BadBridge as fault:
        refuse(COMMAND, f"--to {fault}" if to is not None and to in str(fault) else f"--broker {fault}")
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))


def refuse_foreign(context: typer.Context, names: frozenset[str], text: str) -> None:
    for option in given_options(context, names):
        refuse(COMMAND, text.format(option))


def check_delayed(destination: Replay) -> None:
    try:
        destination.check_delayed()
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))


def blazingmq_plan(context: typer.Context, store: Path, stack: ExitStack) -> tuple[MakePlan, set[str], dict[str, Any]]:
    """The making of the plan, the files that it reads, and the options that decide it."""
    given = context.params
    selection = Selection(
        queues=tuple(given["queues"] or []),
        apps=tuple(given["apps"] or []),
        since=None if given["since"] is None else parse_time(given["since"]),
        until=None if given["until"] is None else parse_time(given["until"]),
        guids=frozenset(map(guid_of, given["guids"] or [])),
        outcomes=frozenset(MessageOutcome[status.name] for status in given["statuses"] or []),
        matches=None if given["where"] is None else _matches(given["where"]),
    )
    selection.filters()
    journals = _journals(store, given["partition"])
    about = {
        "--queue": sorted(selection.queues),
        "--app": sorted(selection.apps),
        "--since": selection.since,
        "--until": selection.until,
        "--guid": sorted(map(bytes.hex, selection.guids)),
        "--status": sorted(outcome.word for outcome in selection.outcomes),
    }
    return partial(make_plan, journals, selection, stack), {path.name for path in journals}, about


def rocketmq_plan(context: typer.Context, path: Path, stack: ExitStack) -> tuple[MakePlan, set[str], dict[str, Any]]:
    given = context.params
    store = open_store(path)
    if not path.is_dir() or not path.samefile(store.root):
        refuse(COMMAND, f"{path} is a part of a store: name the store, {store.root}")
    texts: dict[str, Any] = {name: frozenset(given[name] or ()) for name in LOG_FILTERS}
    filters = LogFilters(
        since_ms=None if given["since"] is None else parse_time_ms(given["since"]),
        until_ms=None if given["until"] is None else parse_time_ms(given["until"]),
        **texts,
    )
    matches = None if given["where"] is None else _matches(given["where"])
    selection = LogSelection(filters, frozenset(given["groups"] or ()), given["delayed"], matches)
    about = {
        "--since": filters.since_ms,
        "--until": filters.until_ms,
        "--delayed": "given" if selection.delayed else None,
        "--group": sorted(selection.groups),
        **{f"--{name[:-1].replace('_', '-')}": sorted(values) for name, values in texts.items()},
    }
    return partial(make_log_plan, store, selection, stack), {LOG_FOLDER}, about


def prepare(
    make: MakePlan,
    names: set[str],
    destination: Replay,
    rules: list[str],
    state: Path | None,
    about: dict[str, Any],
    progress_of: Callable[[Head], Progress],
) -> Job:
    started = time.monotonic()
    try:
        renames = Renames(rules)
        earlier = None if state is None else read_head(state)
        ends = None if earlier is None else earlier.ends
        if ends is not None and set(ends) != names:
            raise StateFault(f"{state} belongs to a replay of other files: {', '.join(sorted(ends))}")
        with LateProgress("looking for messages") as on_progress:
            plan = make(ends, on_progress)
        targets = _targets(renames, rules, destination, plan)
        head = Head.new(plan.digest(), len(plan.entries), plan.ends, about)
        silent_s = time.time() - state.stat().st_mtime if state is not None and earlier is not None else 0.0
        progress = progress_of(head)
    except (BadRename, StateFault, StoreChanged) as error:
        refuse(COMMAND, str(error))
    before = count_steps(plan, progress.steps)
    return Job(Run(plan, progress, targets), before, state, started, silent_s, destination)


def _targets(renames: Renames, rules: list[str], destination: Replay, plan: Plan) -> list[str]:
    """Return the queue or topic that each of the plan's goes to. Raises `BadRename`."""
    name = destination.target
    if not name:
        return renames.targets(plan.queues, plan.known, destination.check_target)
    if rules:
        raise BadRename(f"--rename {rules[0]}: --to names {name} for all messages; give one of the two")
    return [name] * len(plan.queues)


def open_progress(state: Path | None, dry_run: bool, stack: ExitStack, head: Head) -> Progress:
    """A dry run begins where the state says, and leaves it as it is."""
    if state is None or (dry_run and not state.exists()):
        return Progress.in_memory(head)
    progress = stack.enter_context(open_state(state, head))
    return Progress.in_memory(progress.head, progress.steps) if dry_run else progress


def _journals(path: Path, partition: int | None) -> list[Path]:
    """The journals that a broker would recover from."""
    if not path.is_dir():
        if partition is not None:
            refuse(COMMAND, f"--partition is for the directory of a store; {path} has only one partition")
        kind = identify(path)
        if kind is not FileKind.JOURNAL:
            refuse(COMMAND, f"{path} is a {kind}: name the .bmq_journal file beside it, or the directory")
        return [path]
    try:
        sets = recovery_sets(path)
    except NotAStoreFile as fault:
        raise NotAStoreFile(f"{fault}, and no commitlog of a RocketMQ store") from None
    older = sum(files.journal is not None for files in find_files(path).sets) - len(sets)
    if older:
        say(COMMAND, f"{older} older journals in {path} skipped: to replay one, give its path")
    if partition is not None and partition not in sets:
        refuse(COMMAND, f"--partition {partition}: {path} has {', '.join(map(str, sorted(sets)))}")
    chosen = sets if partition is None else {partition: sets[partition]}
    return [path / files.journal for _, files in sorted(chosen.items()) if files.journal is not None]


def speed_of(pace: str) -> float | None:
    if pace in ("max", "original"):
        return None if pace == "max" else 1.0
    try:
        speed = float(pace)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= SPEED_MAX:
        refuse(COMMAND, f"--pace {pace}: expected max, original, or a factor above 0")
    return speed


def guid_of(text: str) -> bytes:
    try:
        return parse_guid(text.upper())
    except FormatError:
        raise BadFilter(f"--guid {text}: a GUID has {2 * GUID_SIZE} hexadecimal digits") from None


def _matches(text: str) -> Matches:
    try:
        return compile_expression(text).matches
    except ExpressionError as error:
        refuse(COMMAND, f"--where: {error}")
