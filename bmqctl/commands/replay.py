"""`bmqctl replay`: messages of a store, posted once more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import trio
import typer
from numpy.typing import NDArray
from rich.table import Table

from bmqctl.client.authentication import Credentials
from bmqctl.client.posting import PostingOptions
from bmqctl.client.session import RequestFailed, SessionLost, SessionOptions
from bmqctl.commands.admin import endpoint_of
from bmqctl.commands.journal.printing import missing, say, stopped_by
from bmqctl.journal.read.files import FileKind, find_files, identify, recovery_sets
from bmqctl.journal.read.filters import BadFilter, parse_time
from bmqctl.render import EXIT_FAULTS, LateProgress, ResultConsole, refuse, until_reader_leaves
from bmqctl.replay.account import Account, count_steps, make_account
from bmqctl.replay.plan import BadRename, Matches, Plan, Renames, Selection, StoreChanged, make_plan
from bmqctl.replay.post import Fault, PostOptions, Run, read_all
from bmqctl.replay.progress import Head, Progress, StateFault, open_state, read_head
from formats.bmq.expressions import ExpressionError, compile_expression
from formats.bmq.guid import GUID_SIZE, parse_guid
from formats.bmq.stores.outcomes import MessageOutcome
from formats.errors import FormatError

__all__ = ["replay"]

COMMAND = "replay"
EXIT_INTERRUPTED = 130
FAULTS_SHOWN = 10
SPEED_MAX = 1e6
WIDTH_MIN = 100

_SELECTION = "Selection of messages"
_BROKER = "Broker"


class OutcomeOption(StrEnum):
    """The outcomes, as `--status` spells them."""

    _ignore_ = ["each"]
    for each in MessageOutcome:
        vars()[each.name] = each.word


def replay(
    store: Annotated[Path, typer.Argument(help="A store's directory, or one JOURNAL file of it.", show_default=False)],
    broker: Annotated[
        str, typer.Option("--broker", "-b", help="The broker, as tcp://HOST:PORT.", rich_help_panel=_BROKER)
    ] = "tcp://localhost:30114",
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            help="Select messages of this queue, by URI or key.",
            rich_help_panel=_SELECTION,
            show_default=False,
        ),
    ] = None,
    apps: Annotated[
        list[str] | None,
        typer.Option(
            "--app",
            help="Select messages addressed to this app, by id or key; --status is then what became of them there.",
            rich_help_panel=_SELECTION,
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Select messages posted from this time on: ISO 8601 (UTC), or seconds.",
            rich_help_panel=_SELECTION,
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Select messages posted before this time.", rich_help_panel=_SELECTION, show_default=False),
    ] = None,
    guids: Annotated[
        list[str] | None,
        typer.Option(
            "--guid", help="Select the message with this GUID.", rich_help_panel=_SELECTION, show_default=False
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="Select messages whose properties match this subscription expression.",
            rich_help_panel=_SELECTION,
            show_default=False,
        ),
    ] = None,
    statuses: Annotated[
        list[OutcomeOption] | None,
        typer.Option(
            "--status", help="Select messages with this outcome.", rich_help_panel=_SELECTION, show_default=False
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(min=0, help="Select messages of this partition.", rich_help_panel=_SELECTION, show_default=False),
    ] = None,
    renames: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            help="FROM=TO: post what was in queue FROM to queue TO. FROM may end with * to match a prefix, TO "
            "with * for the text that FROM's * matched. The first match applies.",
            show_default=False,
        ),
    ] = None,
    pace: Annotated[
        str, typer.Option(help="max; original; or a factor of the original pace, such as 10 or 0.5.", metavar="PACE")
    ] = "max",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read all messages and report what would be posted, without a broker.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            help="File that records the progress of the replay: a further run with it continues where the last ended.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Maximum number of unacknowledged messages.")] = 4096,
    patience: Annotated[float, typer.Option(min=0.1, help="Give up after this many seconds without progress.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    tls_authority: Annotated[
        Path | None,
        typer.Option(
            help="Connect with TLS; trust the CA certificates in this PEM file.",
            rich_help_panel=_BROKER,
            show_default=False,
        ),
    ] = None,
    authn_mechanism: Annotated[
        str | None,
        typer.Option(
            help="Authentication mechanism, such as BASIC; by default none.",
            rich_help_panel=_BROKER,
            show_default=False,
        ),
    ] = None,
    authn_data: Annotated[
        str,
        typer.Option(
            help="Credentials, such as user:password.",
            rich_help_panel=_BROKER,
            envvar="BMQCTL_AUTHN_DATA",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Post messages of a store again: to the same queues or others, of the same broker or another.

    Options that select are combined with AND, repeated values of one option with OR. Messages are posted in the order
    of the store, with their properties and two more: `replay_guid`, the original GUID, and `replay_time`, the original
    time in seconds since 1970. The journal has times in whole seconds: with a pace, the messages of one second are
    spread evenly over it.

    Examples:

        bmqctl replay --dry-run --queue bmq://my.domain/orders --since 2026-11-21T05:00 store/

        bmqctl replay --app billing --status outstanding --rename bmq://my.domain/*=bmq://test.domain/* store/

        bmqctl replay --where 'region == "eu" && amount > 100' --pace original store/

        bmqctl replay --state replay.state --pace 10 --broker tcp://10.0.0.5:30114 store/

    With --state no message is posted twice, however a run ended: a message that may or may not have reached the broker
    is posted again under the same GUID, which the broker recognizes for its domain's deduplicationTimeMs.

    Messages that a queue has no room for are posted again until --patience ends; other refusals are final for this run.

    Exit codes: 0 if all selected messages were posted (or could be, with --dry-run); 1 if not; 2 if the replay cannot
    begin: an invalid option, no such store, no broker, or a --state of another replay.
    """
    host, port = endpoint_of(COMMAND, broker)
    speed = _speed(pace)
    credentials = Credentials(authn_mechanism, authn_data.encode()) if authn_mechanism else None
    session = SessionOptions(
        process_name="bmqctl replay", resume=True, credentials=credentials, tls_authority=tls_authority
    )
    with stopped_by(COMMAND, store), ExitStack() as stack:
        selection = Selection(
            queues=tuple(queues or []),
            apps=tuple(apps or []),
            since=None if since is None else parse_time(since),
            until=None if until is None else parse_time(until),
            guids=frozenset(map(_guid, guids or [])),
            outcomes=frozenset(MessageOutcome[status.name] for status in statuses or []),
            matches=None if where is None else _matches(where),
        )
        selection.filters()
        about = {
            "--queue": sorted(selection.queues),
            "--app": sorted(selection.apps),
            "--since": selection.since,
            "--until": selection.until,
            "--guid": sorted(map(bytes.hex, selection.guids)),
            "--where": where,
            "--status": sorted(outcome.word for outcome in selection.outcomes),
            "--rename": renames or [],
        }
        progress_of = partial(_open_progress, state, dry_run, stack)
        job = _prepare(_journals(store, partition), selection, renames or [], state, about, progress_of, stack)
        job.check_guids(selection)
        options = PostOptions(host, port, session, speed, PostingOptions(window, patience))
        account = job.rehearse() if dry_run else job.post(options)
    job.tell(account, dry_run, as_json)


@dataclass
class _Job:
    """A replay that can begin; `silent_s` is how long ago an earlier run wrote to the state."""

    run: Run
    before: NDArray[np.int64]
    state: Path | None
    started: float
    silent_s: float
    faults: int = 0

    @property
    def plan(self) -> Plan:
        return self.run.plan

    def check_guids(self, selection: Selection) -> None:
        """Tell of messages that were asked for by GUID and are not there."""
        if not selection.guids:
            return
        found = set()
        for entry in self.plan.entries:
            record = self.plan.sources[entry["journal"]].reader.read(int(entry["place"]), 1)
            found |= {guid for guid in selection.guids if guid in record}
        for guid in sorted(selection.guids - found):
            say(COMMAND, missing(guid))
            self.faults += 1

    def rehearse(self) -> Account:
        with LateProgress("reading messages") as self.run.on_progress:
            self.run.on_fault = self.tell_fault
            return make_account(self.run, self.before, np.fromiter(read_all(self.run), np.int64))

    def post(self, options: PostOptions) -> Account:
        run = self.run
        with LateProgress("posting messages") as run.on_progress:
            run.on_fault = self.tell_fault
            try:
                trio.run(run.post, options)
            except OSError as error:
                refuse(COMMAND, f"no broker at {options.host}:{options.port}: {error.strerror or error}")
            except (SessionLost, RequestFailed) as error:
                refuse(COMMAND, str(error))
            except (KeyboardInterrupt, BaseExceptionGroup) as error:
                # SIGINT before there was a queue to post to: trio gives it in a group.
                if isinstance(error, BaseExceptionGroup) and error.split(KeyboardInterrupt)[1] is not None:
                    raise
                raise typer.Exit(EXIT_INTERRUPTED) from None
        account = make_account(run, self.before)
        if account.again and run.deduplication_time_ms is not None:
            known_s = run.deduplication_time_ms / 1000
            late = f"; that was {self.silent_s:.0f} s ago, so some may be duplicated" if self.silent_s > known_s else ""
            say(
                COMMAND,
                f"{account.again} messages were unacknowledged when the last run ended: posted again with the same "
                f"GUIDs, which the broker remembers for {known_s:g} s{late}",
            )
        return account

    def tell_fault(self, fault: Fault) -> None:
        """The first few, on standard error."""
        self.faults += 1
        if self.faults <= FAULTS_SHOWN:
            say(COMMAND, f"{fault.journal}: the message at place {fault.place}: {fault.reason}")
        elif self.faults == FAULTS_SHOWN + 1:
            say(COMMAND, "and more")

    def tell(self, account: Account, dry_run: bool, as_json: bool) -> None:
        """Print the account, and end with the exit code that it deserves."""
        run = self.run
        with until_reader_leaves():
            if as_json:
                facts = {
                    **account.as_json(run.plan, run.targets),
                    "dry_run": dry_run,
                    "interrupted": run.interrupted,
                    "ended_by": run.ended_by,
                    "elapsed_s": round(time.monotonic() - self.started, 3),
                }
                print(json.dumps(facts, indent=2))
            else:
                _print_account(account, run, dry_run, time.monotonic() - self.started)
        if run.ended_by is not None:
            say(COMMAND, run.ended_by)
        if account.damaged:
            say(COMMAND, f"{account.damaged} slots of the journals hold no record: see bmqctl journal validate")
        if not dry_run and not account.total.is_complete:
            say(COMMAND, "not all were posted" + (f": run again with --state {self.state}" if self.state else ""))
        if run.interrupted:
            raise typer.Exit(EXIT_INTERRUPTED)
        if self.faults or account.damaged or not account.total.is_complete:
            raise typer.Exit(EXIT_FAULTS)


def _prepare(
    journals: list[Path],
    selection: Selection,
    rules: list[str],
    state: Path | None,
    about: dict[str, Any],
    progress_of: Callable[[Head], Progress],
    stack: ExitStack,
) -> _Job:
    started = time.monotonic()
    try:
        renames = Renames(rules)
        earlier = None if state is None else read_head(state)
        ends = None if earlier is None else earlier.ends
        if ends is not None and set(ends) != {path.name for path in journals}:
            raise StateFault(f"{state} belongs to a replay of other files: {', '.join(sorted(ends))}")
        with LateProgress("looking for messages") as on_progress:
            plan = make_plan(journals, selection, stack, ends, on_progress)
        targets = renames.targets(plan.queues, plan.known)
        head = Head.new(plan.digest(), len(plan.entries), plan.ends, about)
        silent_s = time.time() - state.stat().st_mtime if state is not None and earlier is not None else 0.0
        progress = progress_of(head)
    except (BadRename, StateFault, StoreChanged) as error:
        refuse(COMMAND, str(error))
    return _Job(Run(plan, progress, targets), count_steps(plan, progress.steps), state, started, silent_s)


def _open_progress(state: Path | None, dry_run: bool, stack: ExitStack, head: Head) -> Progress:
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
    sets = recovery_sets(path)
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


def _print_account(account: Account, run: Run, dry_run: bool, elapsed_s: float) -> None:
    """A row for each queue, with the columns that say anything, and the sums."""
    total = account.total._asdict()
    shown = [name for name in total if name in ("selected", "posted") or total[name]]
    table = Table(box=None, pad_edge=False, show_footer=len(account.queues) > 1)
    table.add_column("queue", "in all", overflow="fold")
    if run.targets != run.plan.queues:
        table.add_column("to", overflow="fold")
    titles = {"before": "posted before"} | ({"posted": "fit to post"} if dry_run else {})
    for name in shown:
        table.add_column(titles.get(name, name), f"{total[name]:,}", justify="right")
    table.add_column("payload bytes", f"{sum(account.payload_bytes):,}", justify="right")
    for source, target, counts, size in zip(
        run.plan.queues, run.targets, account.queues, account.payload_bytes, strict=True
    ):
        cells = [source] if run.targets == run.plan.queues else [source, target]
        table.add_row(*cells, *(f"{counts._asdict()[name]:,}" for name in shown), f"{size:,}")
    console = ResultConsole()
    # Names are for copying: where they do not fit, lines are longer than the terminal is wide.
    names = sum(max(map(len, column), default=0) for column in (run.plan.queues, run.targets))
    console.width = max(console.width, WIDTH_MIN + names)
    if account.queues:
        console.print(table)
    for status, count in sorted(account.refused.items()):
        console.print(f"refused by the broker: {count:,} {status}")
    what = "could be posted; nothing was posted" if dry_run else "posted"
    console.print(f"{total['posted']:,} of {total['selected']:,} messages {what}, in {elapsed_s:.1f} s")
