"""The options that `bmqctl start rocketmq` shares with the commands for its controllers and proxies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bmqctl.cli.arguments import parse_host

__all__ = [
    "Address",
    "ConfigFile",
    "Host",
    "MetricsHost",
    "MetricsPort",
    "Severity",
    "refuse_config",
    "split_addresses",
]

EXIT_CONFIG = 2

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Properties, as broker.conf and controller.conf of Apache RocketMQ have them. Other options go before "
        "them.",
        show_default=False,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host",
        parser=parse_host,
        metavar="ADDRESS",
        help="Address to listen on; by default 127.0.0.1.",
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        parser=parse_host,
        metavar="ADDRESS",
        help="IP address that others connect to (brokerIP1), if it differs from the one to listen on.",
        show_default=False,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=1,
        max=65535,
        help="Port of /metrics, /healthz and /readyz (metricsPromExporterPort); without it, and where "
        "metricsExporterType is not PROM, no such pages.",
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str | None,
    typer.Option(
        "--metrics-host",
        parser=parse_host,
        metavar="ADDRESS",
        help="Address of these pages (metricsPromExporterHost); by default 127.0.0.1.",
        show_default=False,
    ),
]
Severity = Annotated[str, typer.Option(help="Lowest severity that is logged to the console.")]


def refuse_config(reason: object) -> NoReturn:
    """Exit with code 2 and one line on standard error: the configuration cannot be used."""
    typer.echo(f"bmqctl: {reason}", err=True)
    raise typer.Exit(EXIT_CONFIG)


def split_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of a repeated option, whose values may each name several, divided by semicolons."""
    return tuple(part.strip() for text in texts for part in text.split(";") if part.strip())
