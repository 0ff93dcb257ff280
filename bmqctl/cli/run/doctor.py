"""`bmqctl doctor`: an examination of the host that a broker runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.common.render import EXIT_FAULTS, Column, Output, OutputFormat, print_rows, refuse, until_reader_leaves
from bmqctl.systems.doctor.examine import Judgement, State, of_folder, of_host
from bmqctl.systems.doctor.facts import folder_facts, host_facts

__all__ = ["doctor"]

_COLUMNS = [
    Column("subject", "subject"),
    Column("state", "state"),
    Column("found", "found"),
    Column("remedy", "what to do"),
]


def doctor(
    folder: Annotated[
        Path | None,
        typer.Argument(help="The folder of a store, of either system; or where there will be one.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Check this configuration, too: a folder of BlazingMQ's, or a file of RocketMQ's.", show_default=False
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Examine this host: limits, clock and versions; and the disk of a store, and a configuration, if they are named.

    Run it as the user that runs the broker: limits and permissions are those of the process. Nothing is changed. The
    output is a table by default.

    Examples:

        bmqctl doctor

        bmqctl doctor /var/lib/bmq --config /etc/bmq

        bmqctl doctor rocketmq-data --config broker.conf --output json | jq '.[] | select(.state != "ok")'

    Exit codes: 0; 1 if something is a problem, rather than a warning; 2 if there is no such folder or configuration.
    """
    found = list(of_host(host_facts()))
    if folder is not None:
        try:
            found += of_folder(folder_facts(folder))
        except OSError as fault:
            refuse("doctor", f"{folder}: {fault.strerror}")
    if config is not None:
        if not config.exists():
            refuse("doctor", f"{config}: no such file or folder")
        found += _of_config(config, folder)
    with until_reader_leaves():
        print_rows((each._asdict() for each in found), _COLUMNS, output or OutputFormat.TABLE)
    if any(each.state is State.PROBLEM for each in found):
        raise typer.Exit(EXIT_FAULTS)


def _of_config(config: Path, store: Path | None) -> list[Judgement]:
    # The readers of configurations take a third of a second to import.
    from bmqctl.systems.config_reading import faults_with_store, findings_in, summary_of

    findings = findings_in(config)
    if store is not None:
        # The store may be elsewhere than the configuration says (--data-dir).
        findings += [each for each in faults_with_store(config, store) if each.place not in {f.place for f in findings}]
    found = [
        Judgement(
            "configuration",
            State.PROBLEM if each.is_fault else State.WARNING,
            f"{each.file}: {each.place}: {each.problem}" if each.place else f"{each.file}: {each.problem}",
            each.remedy,
        )
        for each in findings
    ]
    if not any(each.is_fault for each in findings):
        found.append(Judgement("configuration", State.OK, f"{config}: {summary_of(config)}"))
    return found
