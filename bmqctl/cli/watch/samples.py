"""One sample of a cluster's queues, taken and printed."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from bmqctl.common.render import (
    EXIT_FAULTS,
    Column,
    OutputFormat,
    print_table,
    print_values,
    refuse,
    until_reader_leaves,
)
from bmqctl.systems.watching.cells import HEADS, cells_of
from bmqctl.systems.watching.model import Selection, selected
from bmqctl.systems.watching.watcher import Shown, Watcher

__all__ = ["print_sample", "take"]


def take(command: str, watcher: Watcher) -> Shown:
    """Take a sample; exit with code 2 and one line on stderr if no node answers."""
    try:
        return watcher.next()
    except watcher.faults as fault:
        refuse(command, str(fault))
    except (LookupError, TypeError, ValueError, AttributeError) as fault:
        refuse(command, f"a broker's answer cannot be read: {type(fault).__name__}: {fault}")


def print_sample(
    command: str,
    shown: Shown,
    selection: Selection,
    columns: Sequence[str],
    keys: Sequence[str],
    wanted: OutputFormat | None,
) -> None:
    """Print the selected rows of a sample, for people these columns, for programs these keys.

    Exits with code 1 if a node did not answer.
    """
    rows = selected(shown.rows, selection)
    with until_reader_leaves():
        if wanted in (None, OutputFormat.TABLE):
            print_table((cells_of(each) for each in rows), [Column(name, HEADS[name]) for name in columns])
        else:
            print_values(({key: getattr(each, key) for key in keys} for each in rows), keys, wanted)
    for each in shown.sample.faults:
        typer.echo(f"bmqctl {command}: {each}", err=True)
    if shown.sample.faults:
        raise typer.Exit(EXIT_FAULTS)
