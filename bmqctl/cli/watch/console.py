"""`bmqctl console`: pages that show a cluster, for a browser."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.cli.administer.admin import endpoint_of
from bmqctl.cli.arguments import parse_host
from bmqctl.cli.run.console_beside import NEEDS_EXTRA, check_certificate, listen_for_console
from bmqctl.cli.securing import Keys, TlsAuthority
from bmqctl.cli.watch.cluster_options import Controller, IsRocketmq, Nameserver
from bmqctl.common.ending import announce
from bmqctl.common.refusal import say
from bmqctl.common.render import refuse
from formats.addresses import shown_place

if TYPE_CHECKING:
    from bmqctl.console.application import ConsoleSettings
    from bmqctl.console.cluster import Connector
from bmqctl.carrying.bridge.ends import CannotBegin

__all__ = ["console"]

COMMAND = "console"
DEFAULT_BROKER = "tcp://localhost:30114"
DEFAULT_PORT = 30180


def console(
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker",
            "-b",
            metavar="tcp://HOST:PORT",
            help="A node of BlazingMQ's cluster, from which the others are learned; repeatable, in case one of them is "
            f"down at the start; by default {DEFAULT_BROKER}.",
            show_default=False,
        ),
    ] = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    controller: Controller = None,
    host: Annotated[
        str,
        typer.Option(
            parser=parse_host,
            metavar="ADDRESS",
            help="Address to listen on; all but loopback addresses admit other machines.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on.")] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name by which browsers reach the console, beside those of the loopback interface; repeatable.",
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Serve HTTPS with this certificate, a PEM file; --key names its key.", show_default=False),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key of --certificate.", show_default=False)] = None,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between samples.")] = 2,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each node.")] = 5,
    tls_authority: TlsAuthority = None,
    authn_mechanism: Annotated[
        str, typer.Option(help="The mechanism by which users authenticate at BlazingMQ's nodes.")
    ] = "BASIC",
    listen_fd: Annotated[int | None, typer.Option(hidden=True, min=0, max=(1 << 31) - 1)] = None,
    decodes_avro: Annotated[bool, typer.Option("--decode-avro", hidden=True)] = False,
) -> None:
    """Serve pages that show a cluster to a browser, until SIGINT or SIGTERM.

    The pages show the cluster's map with its nodes, partitions, primaries and lag; queues or topics with live charts
    and their messages; and domains. Queues and apps can be purged, domains reconfigured, and offsets of groups reset,
    after a confirmation that shows the effect. The console asks the cluster only while a page is open, with the
    credentials of the user who has logged in: the nodes decide what that user may see and do. Requests without a login
    are anonymous.

    It needs the extra `console`. Each command of `bmqctl start` that serves clients starts one beside it by
    `--console-port PORT`.

    Examples:

        bmqctl console

        bmqctl console --broker tcp://10.0.0.5:30114 --broker tcp://10.0.0.6:30114 --port 8080

        bmqctl console --nameserver "10.0.0.5:9876;10.0.0.6:9876"

        bmqctl console --host 0.0.0.0 --allow-host ops.example.com --certificate ops.pem --key ops.key

    Exit codes: 0; 2 if it cannot listen, an option is not valid, or the extra is not installed.
    """
    if decodes_avro:
        from bmqctl.console.avro import decode_input

        decode_input()
        return
    try:
        from bmqctl.console.serving import Certificate, serve_console
    except ImportError:
        refuse(COMMAND, NEEDS_EXTRA)
    from bmqctl.console.application import ConsoleSettings, make_application

    files = None
    if certificate is not None or key is not None:
        files = Certificate(*check_certificate(COMMAND, ("--certificate", "--key"), certificate, key))
    connect: Connector
    if rocketmq or nameserver or controller:
        from bmqctl.console.rocketmq import SYSTEM as ROCKETMQ
        from bmqctl.console.rocketmq import connector as rocketmq_connector
        from bmqctl.systems.rocketmq.cluster import places_of

        if broker:
            refuse(COMMAND, "--broker is for BlazingMQ")
        try:
            places = places_of(None, nameserver, controller)
            connect = rocketmq_connector(places, Keys(tls_authority).reach(COMMAND, timeout))
        except CannotBegin as fault:
            refuse(COMMAND, str(fault))
        system, place = ROCKETMQ, ", ".join(places.nameservers or places.controllers)
    else:
        from bmqctl.console.blazingmq import SYSTEM as BLAZINGMQ
        from bmqctl.console.blazingmq import connector

        brokers = broker or [DEFAULT_BROKER]
        system, place = BLAZINGMQ, ", ".join(brokers)
        connect = connector([endpoint_of(COMMAND, each) for each in brokers], timeout, tls_authority, authn_mechanism)
    hosts = (*(allow_host or ()), *(() if host in ("0.0.0.0", "::") else (host,)))
    sock = listen_for_console(COMMAND, host, port) if listen_fd is None else socket.socket(fileno=listen_fd)
    settings = ConsoleSettings(place, system, interval, files is not None, hosts, sock.getsockname()[1])
    if listen_fd is None:
        _announce(settings, sock)
    serve_console(make_application(connect, settings), sock, files, partial(say, "console"))


def _announce(settings: ConsoleSettings, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    scheme = "https" if settings.is_secure else "http"
    announce(f"bmqctl: console of {settings.place} on {scheme}://{shown_place(host, port)}/")
