"""`bmqctl start`: run a node until it is told to stop."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from broker.app import ConfigError, default_config, load_config, run_node

__all__ = ["app"]

EXIT_CONFIG = 2

app = typer.Typer(add_completion=False, no_args_is_help=True)


class LogLevel(Enum):
    """Severities as the reference's configuration names them."""

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
    FATAL = "FATAL"


@app.callback()
def start() -> None:
    """Start a broker."""


@app.command()
def node(
    config_dir: Annotated[
        Path | None,
        typer.Argument(
            help="Directory with bmqbrkrcfg.json, clusters.json and domains/, as the reference has it. "
            "Without it: one node with sample domains on 127.0.0.1:30114, its files in ./bmq-data.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, instead of the configured ones.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65535,
            help="Port to listen on, instead of the configured ones.",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the partitions' files, instead of the configured one.")
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option("--instance-id", "--instanceId", "-i", help="Name of this instance in logs and metrics."),
    ] = None,
    host_name: Annotated[
        str | None, typer.Option("--host-name", "--hostName", "-h", help="Name of this host, instead of hostName.")
    ] = None,
    host_tags: Annotated[
        str | None, typer.Option("--host-tags", "--hostTags", "-t", help="Tags of this host, instead of hostTags.")
    ] = None,
    host_data_center: Annotated[
        str | None,
        typer.Option("--host-data-center", "--hostDataCenter", "-d", help="Its data center, not hostDataCenter."),
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(case_sensitive=False, help="Least severity that is logged to the console.")
    ] = None,
) -> None:
    """Start a node of a cluster, and run it until SIGINT or SIGTERM.

    Exits with 2 and one line on stderr if the configuration cannot be used.
    """
    try:
        config = default_config() if config_dir is None else load_config(config_dir)
        config = config.changed(
            host=host,
            port=port,
            data_dir=data_dir,
            instance_id=instance_id,
            host_name=host_name,
            host_tags=host_tags,
            host_data_center=host_data_center,
            log_level=None if log_level is None else log_level.value,
        )
    except ConfigError as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(EXIT_CONFIG) from None
    raise typer.Exit(run_node(config))
