"""`bmqctl replay`: messages of a store, posted once more."""

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
from bmqctl.carrying.replay.run import Replay, ReplayOptions, Run
from bmqctl.cli.administer.admin import endpoint_of
from bmqctl.cli.arguments import given_options
from bmqctl.cli.families import expanded
from bmqctl.cli.files.printing import stopped_by
from bmqctl.cli.messages import replay_options as options
from bmqctl.cli.messages.replay_job import COMMAND, Job, missing_guids
from bmqctl.cli.securing import Security
from bmqctl.common.refusal import say
from bmqctl.common.render import LateProgress, Output, refuse, wanted_format
from bmqctl.stores.blazingmq.read.files import (
    FileKind,
    NotAStoreFile,
    find_files,
    identify,
    missing_journals,
    recovery_sets,
)
from bmqctl.stores.blazingmq.read.filters import BadFilter, parse_time
from bmqctl.stores.rocketmq.read.files import LOG_FOLDER, is_store, open_store
from bmqctl.stores.rocketmq.read.filters import LogFilters, parse_time_ms
from bmqctl.systems.opening import open_broker, open_end
from formats.bmq.expressions import ExpressionError, compile_expression
from formats.bmq.guid import GUID_SIZE, parse_guid
from formats.bmq.stores.outcomes import MessageOutcome
from formats.errors import FormatError

__all__ = ["replay"]

SPEED_MAX: Final = 1e6
LOG_FILTERS: Final = ("topics", "queue_ids", "ids", "keys", "tags")

MakePlan = Callable[[Mapping[str, int] | None, OnProgress], Plan]


@expanded
def replay(
    context: typer.Context,
    store: options.Store,
    to: options.To = None,
    broker: options.Broker = "tcp://localhost:30114",
    queues: options.Queues = None,
    apps: options.Apps = None,
    topics: options.Topics = None,
    queue_ids: options.QueueIds = None,
    since: options.Since = None,
    until: options.Until = None,
    guids: options.Guids = None,
    ids: options.Ids = None,
    keys: options.Keys = None,
    tags: options.Tags = None,
    groups: options.Groups = None,
    delayed: options.Delayed = False,
    where: options.Where = None,
    statuses: options.Statuses = None,
    partition: options.Partition = None,
    renames: options.Renames = None,
    create_topics: options.CreateTopics = False,
    pace: options.Pace = "max",
    dry_run: options.DryRun = False,
    state: options.State = None,
    window: options.Window = 4096,
    patience: options.Patience = 30.0,
    output: Output = None,
    as_json: options.Json = False,
    *,
    security: Security,
) -> None:
    """Post messages of a store of BlazingMQ or RocketMQ again, to a broker of BlazingMQ or a cluster of RocketMQ.

    Options that select are combined with AND, repeated values of one option with OR. Messages are posted in the order
    of the store, with their properties, the place where they come from, and `replay_time`, the original time in seconds
    since 1970. Between the systems they are mapped as by `bmqctl bridge`. The journal of BlazingMQ has times in whole
    seconds: with a pace, the messages of one second are spread evenly over it.

    Examples:

        bmqctl replay --dry-run --queue bmq://my.domain/orders --since 2026-11-21T05:00 store/

        bmqctl replay --app billing --status outstanding --rename bmq://my.domain/*=bmq://test.domain/* store/

        bmqctl replay --where 'region == "eu" && amount > 100' --pace original store/

        bmqctl replay --state replay.state --pace 10 --broker tcp://10.0.0.5:30114 store/

        bmqctl replay --topic orders --tag paid --to rocketmq://127.0.0.1:9876 rocketmq-store/

        bmqctl replay --topic orders --group billing --to bmq://my.domain/orders rocketmq-store/

        bmqctl replay --queue bmq://my.domain/orders --to 'rocketmq://127.0.0.1:9876/orders?key=customer' store/

    With --state no message is posted twice to BlazingMQ, however a run ended: a message that may or may not have
    reached the broker is posted again under the same GUID, which the broker recognizes for its domain's
    deduplicationTimeMs. RocketMQ keeps such a message a second time, with the same unique id.

    Messages that a queue has no room for are posted again until --patience ends; other refusals are final for this run.

    Exit codes: 0 if all selected messages were posted (or could be, with --dry-run); 1 if not; 2 if the replay cannot
    begin: an invalid option, no such store, no broker, no such topic, or a --state of another replay.
    """
    reach = security.reach(COMMAND)
    destination = _destination(to, broker, reach)
    speed = _speed(pace)
    with stopped_by(COMMAND, store), ExitStack() as stack:
        if is_store(store):
            _refuse_foreign(
                context, options.BLAZINGMQ_OPTIONS, f"{store} is a RocketMQ store, and {{}} is for BlazingMQ's"
            )
            if delayed:
                _check_delayed(destination)
            make, names, about = _rocketmq_plan(context, store, stack)
        else:
            _refuse_foreign(
                context, options.ROCKETMQ_OPTIONS, f"{store} is no store of RocketMQ, and {{}} is for these"
            )
            make, names, about = _blazingmq_plan(context, store, stack)
        about |= {"--where": where, "--rename": renames or []}
        if to is not None:
            about["--to"] = destination.lasting(to)
        progress_of = partial(_open_progress, state, dry_run, stack)
        job = _prepare(make, names, destination, renames or [], state, about, progress_of)
        job.tell_missing(f"{store / name}: is missing" for name in missing_journals(store))
        job.tell_missing(f"left out: {each}" for each in job.plan.left_out)
        job.tell_missing(missing_guids(job.plan, frozenset(map(_guid, guids or []))))
        account = job.rehearse() if dry_run else job.post(ReplayOptions(speed, window, patience, create_topics))
    job.tell(account, dry_run, wanted_format(output, as_json))


def _destination(to: str | None, broker: str, reach: Reach) -> Replay:
    """Open the destination; one without a name leaves each message its own."""
    try:
        if to is not None:
            return open_end(to, broker, may_lack_topic=True).replay(reach)
        return open_broker(*endpoint_of(COMMAND, broker)).replay(reach)
    except BadBridge as fault:
        refuse(COMMAND, f"--to {fault}" if to is not None and to in str(fault) else f"--broker {fault}")
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))


def _refuse_foreign(context: typer.Context, names: frozenset[str], text: str) -> None:
    for option in given_options(context, names):
        refuse(COMMAND, text.format(option))


def _check_delayed(destination: Replay) -> None:
    try:
        destination.check_delayed()
    except CannotBegin as fault:
        refuse(COMMAND, str(fault))


def _blazingmq_plan(context: typer.Context, store: Path, stack: ExitStack) -> tuple[MakePlan, set[str], dict[str, Any]]:
    """Return the maker of the plan, the files that it reads, and the options that decide it."""
    given = context.params
    selection = Selection(
        queues=tuple(given["queues"] or []),
        apps=tuple(given["apps"] or []),
        since=None if given["since"] is None else parse_time(given["since"]),
        until=None if given["until"] is None else parse_time(given["until"]),
        guids=frozenset(map(_guid, given["guids"] or [])),
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


def _rocketmq_plan(context: typer.Context, path: Path, stack: ExitStack) -> tuple[MakePlan, set[str], dict[str, Any]]:
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


def _prepare(
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
    """Return the queue or topic for each of the plan's. Raises `BadRename`."""
    name = destination.target
    if not name:
        return renames.targets(plan.queues, plan.known, destination.check_target)
    if rules:
        raise BadRename(f"--rename {rules[0]}: --to names {name} for all messages; give one of the two")
    return [name] * len(plan.queues)


def _open_progress(state: Path | None, dry_run: bool, stack: ExitStack, head: Head) -> Progress:
    """Read the state, which a dry run does not change."""
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


def _speed(pace: str) -> float | None:
    if pace in ("max", "original"):
        return None if pace == "max" else 1.0
    try:
        speed = float(pace)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= SPEED_MAX:
        refuse(COMMAND, f"--pace {pace}: expected max, original, or a factor above 0")
    return speed


def _guid(text: str) -> bytes:
    try:
        return parse_guid(text.upper())
    except FormatError:
        raise BadFilter(f"--guid {text}: a GUID has {2 * GUID_SIZE} hexadecimal digits") from None


def _matches(text: str) -> Matches:
    try:
        return compile_expression(text).matches
    except ExpressionError as error:
        refuse(COMMAND, f"--where: {error}")
