"""`bmqctl bundle`: an archive of what somebody needs to help."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import typer

from bmqctl.carrying.bridge.ends import CannotBegin
from bmqctl.cli.families import expanded
from bmqctl.cli.securing import Security
from bmqctl.cli.watch.cluster_options import Nodes, options_of
from bmqctl.common.render import (
    EXIT_FAULTS,
    Output,
    OutputFormat,
    print_lines,
    print_values,
    refuse,
    until_reader_leaves,
)
from bmqctl.common.version import version_text
from bmqctl.systems.bundling.archive import Archive
from bmqctl.systems.bundling.folders import add_configuration, add_logs, add_store, is_plain, logs_of
from bmqctl.systems.bundling.redaction import Redaction
from bmqctl.systems.doctor.examine import of_folder, of_host
from bmqctl.systems.doctor.facts import folder_facts, host_facts
from bmqctl.systems.opening import open_cluster, open_clusters

__all__ = ["bundle"]

DEFAULT_BROKER = "tcp://localhost:30114"
MIB = 1 << 20
_KEYS = ("name", "bytes", "note", "missing")


@expanded
def bundle(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of a node's store, of either system; the node may be stopped.", show_default=False
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(help="A configuration to include: a file, or a folder of files.", show_default=False),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(help="A log, or a folder of logs, besides those in the node's folder.", show_default=False),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            help=f"A node of BlazingMQ's cluster, as tcp://HOST:PORT; without a folder {DEFAULT_BROKER}.",
            show_default=False,
        ),
    ] = None,
    *,
    nodes: Nodes,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no node; only collect files.")] = False,
    logs_mib: Annotated[
        int, typer.Option(min=0, max=4096, help="MiB of logs to include, the newest first, before compression.")
    ] = 16,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="The archive; by default bmqctl-bundle-TIME.tar.gz in the current folder.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each node.")] = 5,
    output: Output = None,
    security: Security,
) -> None:
    """Write logs, configuration, state, statistics and versions into an archive for somebody who has to help.

    With a folder: the ends of its logs, the list of its files, and what `bmqctl doctor` finds; also of a stopped node.
    With a broker, a nameserver or a context: the answers of all nodes of the cluster about their state. Files of
    `--config` are taken along, and checked as `bmqctl config validate` does.

    Passwords, keys and tokens are replaced by REDACTED, wherever they occur; files with private keys, and messages, are
    never taken along. Look at the archive before you send it: nobody knows all names of secrets. manifest.json
    names each file in it, and what is missing, and why: it could not be had, or is left out by design, such as a
    private key, a log beyond --logs-mib, or a queue beyond the first 200.

    Examples:

        bmqctl bundle /var/lib/bmq --config /etc/bmq

        bmqctl bundle --broker tcp://10.0.0.5:30114 --file cluster.tar.gz

        bmqctl bundle rocketmq-data --config broker.conf --nameserver 127.0.0.1:9876 --logs-mib 100

        bmqctl bundle /var/lib/bmq --offline --output json | jq '.missing'

    Exit codes: 0, also if something is left out by design; 1 if something could not be had; 2 if none was written.
    """
    now = datetime.now(UTC)
    path = file or Path(f"bmqctl-bundle-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        refuse("bundle", f"{path}: exists; name another with --file")
    for each in [*([] if folder is None else [folder]), *(config or ()), *(log or ())]:
        if not each.exists():
            refuse("bundle", f"{each}: no such file or folder")
    if folder is not None and not folder.is_dir():
        refuse("bundle", f"{folder}: is no folder")
    reach = security.reach("bundle", timeout)
    try:
        clusters = [] if offline else open_clusters(options_of(broker, nodes, reach))
        if not (clusters or folder or offline):
            clusters = [open_cluster(options_of(None, nodes, reach))]
    except CannotBegin as fault:
        refuse("bundle", str(fault))
    secrets = [security.authn_data] if security.authn_data else []
    try:
        archive = Archive(path, Redaction(secrets))
    except OSError as fault:
        refuse("bundle", f"{path}: {fault.strerror}")
    try:
        with archive:
            # The secrets of the configuration are then known, and found in what follows.
            for each in config or ():
                add_configuration(archive, each)
                _add_findings(archive, each)
            _add_host(archive, folder)
            for cluster in clusters:
                cluster.bundle(archive)
            if folder is not None:
                add_store(archive, folder)
            add_logs(archive, logs_of(folder, log or ()), folder, logs_mib * MIB)
            archive.complete({"written": now.isoformat(timespec="seconds"), "version": version_text().splitlines()[0]})
    except OSError as fault:
        refuse("bundle", f"{path}: {fault.strerror}")
    _report(archive, output)


def _add_host(archive: Archive, folder: Path | None) -> None:
    found = list(of_host(host_facts()))
    if folder is not None:
        try:
            found += of_folder(folder_facts(folder))
        except OSError as fault:
            archive.lack("doctor.json", f"{folder}: {fault.strerror}")
    archive.add_json("doctor.json", [each._asdict() for each in found])
    packages = sorted({(str(each.metadata["Name"]), each.version) for each in distributions()})
    archive.add_json("versions.json", {"text": version_text(), "python": sys.version, "packages": dict(packages)})


def _add_findings(archive: Archive, path: Path) -> None:
    # The readers of configurations take a third of a second to import.
    from bmqctl.systems.config_reading import findings_in

    name = f"configuration-findings/{path.name or 'config'}.json"
    if not is_plain(path):
        archive.lack(name, "not all of its files are plain ones that can be read")
        return
    try:
        archive.add_json(name, [each._asdict() for each in findings_in(path)], str(path))
    except (OSError, ValueError) as fault:
        archive.lack(name, str(fault))


def _report(archive: Archive, output: OutputFormat | None) -> None:
    with until_reader_leaves():
        match output:
            case None | OutputFormat.TABLE:
                total = sum(each["bytes"] for each in archive.files)
                print(f"{archive.path}: {len(archive.files)} files, {total:,} bytes before compression")
                print_lines(f"missing: {each['name']}: {_reason(each)}" for each in archive.missing)
            case OutputFormat.JSON:
                print(
                    json.dumps(
                        {"path": str(archive.path), "files": archive.files, "missing": archive.missing}, indent=4
                    )
                )
            case _:
                rows = [*archive.files, *({"name": e["name"], "missing": _reason(e)} for e in archive.missing)]
                print_values(rows, _KEYS, output)
    if not archive.is_whole:
        raise typer.Exit(EXIT_FAULTS)


def _reason(missing: dict[str, Any]) -> str:
    return f"{missing['reason']} (left out by design)" if missing["by_design"] else str(missing["reason"])
