"""`bmqctl journal`: what a store's files hold, and whether they hold it well."""

from __future__ import annotations

import os
from functools import partial

import typer

from bmqctl.cli.lazy import Entry, lazy_group

__all__ = ["COMMANDS", "app"]

# One module beside this one for each command.
COMMANDS: dict[str, Entry] = {
    "build": Entry("bmqctl.cli.files.build", "build", "Write the files of a store from JSON lines."),
    "diff": Entry("bmqctl.cli.files.diff", "diff", "Show where two replicas of a store diverge."),
    "dump": Entry("bmqctl.cli.files.dump", "dump", "Print the records of a file, or of a store."),
    "guid": Entry("bmqctl.cli.files.guid", "guid", "Decode a message's GUID or id."),
    "ledger": Entry("bmqctl.cli.files.ledger", "app", "Print the records of a cluster-state ledger."),
    "queues": Entry("bmqctl.cli.files.queues", "queues", "List the queues of a store."),
    "rejected": Entry("bmqctl.cli.files.rejected", "rejected", "List poison messages: those that apps gave up."),
    "repair": Entry("bmqctl.cli.files.repair", "repair", "Copy the undamaged part of a store to a new directory."),
    "summary": Entry("bmqctl.cli.files.summary", "summary", "Count a store's messages by queue and app, or group."),
    "validate": Entry(
        "bmqctl.cli.files.validate", "validate", "Check the files of a store for damage and contradictions."
    ),
}

app = typer.Typer(cls=lazy_group(COMMANDS), no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def journal(context: typer.Context) -> None:
    """Read and check the files of a store of BlazingMQ, and read those of RocketMQ."""
    # These commands write files with messages, which are for this account only, like a node's.
    context.call_on_close(partial(os.umask, os.umask(0o077)))
