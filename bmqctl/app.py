"""The command line's root: the table of commands, each with the place of its code.

A command's module is imported only when the command runs: `bmqctl journal dump` must start without trio, pydantic or
Spark.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from bmqctl.cli.lazy import Entry, lazy_group

__all__ = ["COMMANDS", "app", "main"]


# To add a command: write bmqctl/cli/<group>/<name>.py, exposing a typer.Typer (sub-commands) or one function (options
# and arguments), and enter it here.
COMMANDS: dict[str, Entry] = {
    "start": Entry("bmqctl.cli.run.start", "app", "Start a broker."),
    "bench": Entry("bmqctl.cli.run.bench", "bench", "Measure a broker: throughput, latency, losses.", dials=True),
    "config": Entry("bmqctl.cli.run.config", "app", "Write, check, show and set the configuration of a broker."),
    "context": Entry("bmqctl.cli.run.context", "app", "Name brokers and clusters, and choose one for other commands."),
    "doctor": Entry("bmqctl.cli.run.doctor", "doctor", "Examine the host that a broker runs on."),
    "post": Entry("bmqctl.cli.messages.post", "post", "Post messages to a queue or a topic.", dials=True),
    "tail": Entry(
        "bmqctl.cli.messages.tail", "tail", "Print the messages of a queue or a topic as they come.", dials=True
    ),
    "browse": Entry(
        "bmqctl.cli.messages.browse",
        "browse",
        "Look at the messages of a queue or a topic, and consume none.",
        dials=True,
    ),
    "find": Entry(
        "bmqctl.cli.messages.find",
        "find",
        "Look for messages of a queue or a topic, by id, key, time or expression.",
        dials=True,
    ),
    "copy": Entry("bmqctl.cli.messages.carry", "copy", "Copy messages of a queue or a topic to another.", dials=True),
    "move": Entry("bmqctl.cli.messages.carry", "move", "Move messages of a queue or a topic to another.", dials=True),
    "replay": Entry("bmqctl.cli.messages.replay", "replay", "Post the messages of a store again.", dials=True),
    "bridge": Entry(
        "bmqctl.cli.messages.bridge",
        "bridge",
        "Carry messages between a BlazingMQ queue and a RocketMQ topic.",
        dials=True,
    ),
    "dead-letters": Entry(
        "bmqctl.cli.messages.dead_letters", "app", "List, show and send again the dead letters of RocketMQ's groups."
    ),
    "top": Entry("bmqctl.cli.watch.top", "top", "Watch queues, topics and nodes: rates, backlog, lag.", dials=True),
    "check": Entry(
        "bmqctl.cli.watch.check", "app", "Check queues, groups, clusters, disks, certificates for monitoring."
    ),
    "cluster": Entry(
        "bmqctl.cli.watch.cluster", "app", "Show the state and problems of a running cluster, elect a master."
    ),
    "console": Entry(
        "bmqctl.cli.watch.console", "console", "Serve pages that show a cluster to a browser.", dials=True
    ),
    "bundle": Entry(
        "bmqctl.cli.watch.bundle", "bundle", "Write an archive for somebody who helps, without secrets.", dials=True
    ),
    "queue": Entry(
        "bmqctl.cli.administer.queue", "app", "List queues, purge one, explain why one or a group does not proceed."
    ),
    "domain": Entry(
        "bmqctl.cli.administer.domain", "app", "List, show, create, alter and delete domains of BlazingMQ."
    ),
    "topic": Entry("bmqctl.cli.administer.topic", "app", "List, show, create, alter and delete topics of RocketMQ."),
    "group": Entry(
        "bmqctl.cli.administer.group", "app", "List, show, create, alter, delete and seek groups of RocketMQ."
    ),
    "client": Entry("bmqctl.cli.administer.client", "app", "List the clients of RocketMQ's brokers."),
    "user": Entry("bmqctl.cli.administer.user", "app", "List, create, alter and delete users of RocketMQ."),
    "acl": Entry("bmqctl.cli.administer.acl", "app", "List, create, alter and delete the rights of RocketMQ's users."),
    "definitions": Entry(
        "bmqctl.cli.administer.definitions", "app", "Export, compare and apply domains, topics and groups as a file."
    ),
    "admin": Entry("bmqctl.cli.administer.admin", "admin", "Administer a running broker.", dials=True),
    "tool": Entry(
        "bmqctl.cli.administer.tool",
        "tool",
        "Post, consume and inspect messages, interactively or from a script.",
        dials=True,
    ),
    "journal": Entry("bmqctl.cli.files", "app", "Read and check the files of a store."),
    "spark-export": Entry("bmqctl.cli.spark.spark_export", "app", "Export a store to tables, with PySpark."),
    "spark-verify": Entry("bmqctl.cli.spark.spark_verify", "app", "Compare exported tables with their store."),
    "spark-report": Entry("bmqctl.cli.spark.spark_report", "app", "Report on the messages of a store, with PySpark."),
    "help": Entry("bmqctl.cli.about.help_command", "show_help", "Show the help of a command."),
    "version": Entry(
        "bmqctl.cli.about.version", "show_version", "Print the version, the commit, and compiled or interpreted."
    ),
}


TITLES = {
    "run": "Run a broker",
    "messages": "Post and read messages",
    "watch": "Watch",
    "administer": "Administer",
    "files": "Read the files of a store",
    "spark": "Hand a store to Spark",
    "about": "About bmqctl",
}
"""The titles of the help's sections, in order, by the folder of `bmqctl/cli` that has their commands."""

app = typer.Typer(
    cls=lazy_group(COMMANDS, TITLES),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from bmqctl.common.version import version_text

        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version, the commit, and compiled or interpreted, and exit.",
        ),
    ] = False,
    until_input_ends: Annotated[
        bool,
        typer.Option(
            "--until-input-ends",
            help="End when standard input does: with a pipe from the program that starts this one, at the end of that "
            "program.",
        ),
    ] = False,
) -> None:
    """BlazingMQ and RocketMQ in Python: brokers, proxies and toolkit."""
    if until_input_ends:
        from bmqctl.common.children import end_with_input

        end_with_input()


def main() -> None:
    # Typer imports pydantic, which would search all installed packages for plug-ins at each start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    app(prog_name="bmqctl")
