"""`bmqctl journal dump`: print the records of a file, or of all journals of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.families import expanded
from bmqctl.cli.files.dump_options import DumpOptions
from bmqctl.cli.files.printing import (
    stopped_by,
)
from bmqctl.stores.rocketmq.read.files import is_store

__all__ = ["dump"]

COMMAND = "journal dump"


@expanded
def dump(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            help="A store's directory, or a JOURNAL, DATA, QLIST, ledger (.bmq_csl) or commit log file.",
            show_default=False,
        ),
    ],
    *,
    given: DumpOptions,
) -> None:
    """Print the records of a store of BlazingMQ or RocketMQ, ours or the original's, even while a broker is writing it.

    For the directory of a store of BlazingMQ, the newest journal of each partition is printed; for one of RocketMQ the
    commit log. Filters are combined with AND, repeated values of one filter with OR. Ranges of offsets, numbers and
    times are looked up; the rest of the file is not read.

    Examples:

        bmqctl journal dump store/bmq_0.20261121_051104.bmq_journal

        bmqctl journal dump --queue bmq://my.domain/orders --since 2026-11-21T05:00 --output csv store/

        bmqctl journal dump --outstanding --app billing --type message store/

        bmqctl journal dump --guid 40000000000000CDB805BF1837EE82B1 --payload auto store/

        bmqctl journal dump --output json-line store/ | jq -r .guid

        bmqctl journal dump --out records.parquet store/

        bmqctl journal dump --follow --type message --payload auto store/

        bmqctl journal dump --topic orders --tag paid --since 2026-11-21T05:00 --payload auto rocketmq-store/

        bmqctl journal dump --id 7F0000010AB118B4AAC20000000004D2 rocketmq-store/

    Queue URIs and app ids come from the QLIST file of the journal or, without one, from the ledger. Slots that hold no
    record are printed with a `fault`.

    Exit codes: 0; 1 if records are damaged, or a record selected by GUID, id, number or offset does not exist; 2 if
    there is no file of a store, or the options contradict each other.
    """
    from bmqctl.cli.files import blazingmq_dump, rocketmq_dump

    with stopped_by(COMMAND, path):
        (rocketmq_dump if is_store(path) else blazingmq_dump).dump(context, path, given)
