"""A replay that can begin: carried out or rehearsed, and its account printed."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import trio
import typer
from numpy.typing import NDArray

from bmqctl.carrying.bridge.carrying import CannotBegin
from bmqctl.carrying.replay.account import QUEUE_KEYS, Account, make_account
from bmqctl.carrying.replay.messages import MessageSource
from bmqctl.carrying.replay.plan import Plan
from bmqctl.carrying.replay.run import Replay, ReplayFault, ReplayOptions, Run, read_all
from bmqctl.cli.files.printing import missing
from bmqctl.cli.messages.replay_options import COMMAND
from bmqctl.common.refusal import say
from bmqctl.common.render import EXIT_FAULTS, LateProgress, OutputFormat, print_values, refuse, until_reader_leaves
from bmqctl.common.tables import ResultConsole, ResultTable

__all__ = ["Job", "missing_guids"]

EXIT_INTERRUPTED = 130
FAULTS_SHOWN = 10
WIDTH_MIN = 100


def missing_guids(plan: Plan, guids: frozenset[bytes]) -> list[str]:
    """Texts about messages that were requested by GUID or id and are missing."""
    found = set()
    for entry in plan.entries if guids else ():
        source = plan.sources[entry["journal"]]
        assert isinstance(source, MessageSource)
        record = source.reader.read(int(entry["place"]), 1)
        found |= {guid for guid in guids if guid in record}
    return [missing(guid) for guid in sorted(guids - found)] + [f"no message has the id {text}" for text in plan.unseen]


@dataclass
class Job:
    """A replay that can begin; `silent_s` is the time since an earlier run wrote to the state."""

    run: Run
    before: NDArray[np.int64]
    state: Path | None
    started: float
    silent_s: float
    destination: Replay
    faults: int = 0

    @property
    def plan(self) -> Plan:
        return self.run.plan

    def tell_missing(self, texts: Iterable[str]) -> None:
        """Print the replay's gaps on standard error, and count them as faults."""
        for text in texts:
            say(COMMAND, text)
            self.faults += 1

    def rehearse(self) -> Account:
        with LateProgress("reading messages") as self.run.on_progress:
            self.run.on_fault = self.tell_fault
            done = np.fromiter(read_all(self.run, self.destination.convert), np.int64)
            return make_account(self.run, self.before, done)

    def post(self, options: ReplayOptions) -> Account:
        """Post all messages; exit with code 2 if none can be posted."""
        run = self.run
        try:
            self._carry_out(partial(self.destination.carry_out, run, options))
        except CannotBegin as fault:
            refuse(COMMAND, str(fault))
        account = make_account(run, self.before)
        text = self.destination.about_repeated(run, account.again, self.silent_s) if account.again else None
        if text is not None:
            say(COMMAND, text)
        return account

    def _carry_out(self, work: Callable[[], Awaitable[None]]) -> None:
        run = self.run
        with LateProgress("posting messages") as run.on_progress:
            run.on_fault = self.tell_fault
            try:
                trio.run(work)
            except (KeyboardInterrupt, BaseExceptionGroup) as error:
                # SIGINT before there was a queue to post to: trio raises it in a group.
                if isinstance(error, BaseExceptionGroup) and error.split(KeyboardInterrupt)[1] is not None:
                    raise
                raise typer.Exit(EXIT_INTERRUPTED) from None

    def tell_fault(self, fault: ReplayFault) -> None:
        """Print a fault on standard error, if it is among the first few."""
        self.faults += 1
        if self.faults <= FAULTS_SHOWN:
            say(COMMAND, f"{fault.where}: {fault.reason}")
        elif self.faults == FAULTS_SHOWN + 1:
            say(COMMAND, "and more")

    def tell(self, account: Account, dry_run: bool, wanted: OutputFormat) -> None:
        """Print the account, and exit with the code for it."""
        run = self.run
        with until_reader_leaves():
            if wanted is OutputFormat.TABLE:
                _print_account(account, run, dry_run, time.monotonic() - self.started)
            elif wanted is OutputFormat.JSON:
                facts = {
                    **account.as_json(run.plan, run.targets),
                    "dry_run": dry_run,
                    "interrupted": run.interrupted,
                    "ended_by": run.ended_by,
                    "elapsed_s": round(time.monotonic() - self.started, 3),
                }
                print(json.dumps(facts, indent=2))
            else:
                print_values(account.rows(run.plan, run.targets), QUEUE_KEYS, wanted)
        if run.ended_by is not None:
            say(COMMAND, run.ended_by)
        if account.damaged:
            is_journal = isinstance(run.plan.sources[0], MessageSource)
            where = "slots of the journals hold no record: see bmqctl journal validate"
            say(COMMAND, f"{account.damaged} {where if is_journal else _IN_LOG}")
        if not dry_run and not account.total.is_complete:
            say(COMMAND, "not all were posted" + (f": run again with --state {self.state}" if self.state else ""))
        if run.interrupted:
            raise typer.Exit(EXIT_INTERRUPTED)
        if self.faults or account.damaged or not account.total.is_complete:
            raise typer.Exit(EXIT_FAULTS)


_IN_LOG = "places of the commit log hold no record that can be replayed: see bmqctl journal dump"


def _print_account(account: Account, run: Run, dry_run: bool, elapsed_s: float) -> None:
    """Print a row for each queue, with the columns that say anything, and the sums."""
    total = account.total._asdict()
    shown = [name for name in total if name in ("selected", "posted") or total[name]]
    table = ResultTable(box=None, pad_edge=False, show_footer=len(account.queues) > 1)
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
    # Names are for copying: lines may be longer than the terminal is wide.
    names = sum(max(map(len, column), default=0) for column in (run.plan.queues, run.targets))
    console.width = max(console.width, WIDTH_MIN + names)
    if account.queues:
        console.print(table)
    for status, count in sorted(account.refused.items()):
        console.print(f"refused by the broker: {count:,} {status}")
    what = "could be posted; nothing was posted" if dry_run else "posted"
    console.print(f"{total['posted']:,} of {total['selected']:,} messages {what}, in {elapsed_s:.1f} s")
