"""`bmqctl console`: pages that show a cluster, for a browser."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.commands.admin import TlsAuthority, endpoint_of
from bmqctl.commands.cluster_rocketmq import Controller, IsRocketmq, Nameserver, places_of
from bmqctl.render import refuse

if TYPE_CHECKING:
    from bmqctl.console.application import Settings
    from bmqctl.console.cluster import Connector
    from bmqctl.console.serving import Certificate

__all__ = ["console", "console_beside"]

COMMAND = "console"
DEFAULT_BROKER = "tcp://localhost:30114"
DEFAULT_PORT = 30180
_EXTRA = "it needs Starlette and Hypercorn, of the extra `console`: pip install 'bmqctl[console]'"


def console(
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            help=f"A node of BlazingMQ's cluster, as tcp://HOST:PORT; by default {DEFAULT_BROKER}.",
            show_default=False,
        ),
    ] = None,
    rocketmq: IsRocketmq = False,
    nameserver: Nameserver = None,
    controller: Controller = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than those of the loopback interface let others in.")
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
        str, typer.Option(help="The mechanism by which persons who log in authenticate at BlazingMQ's nodes.")
    ] = "BASIC",
    listen_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
    decodes_avro: Annotated[bool, typer.Option("--decode-avro", hidden=True)] = False,
) -> None:
    """Serve pages that show a cluster to a browser, until SIGINT or SIGTERM.

    Shown are the cluster's map with its nodes, partitions, primaries and lag; queues or topics with live charts, and
    their messages; domains. Queues and apps can be purged, domains configured anew, and offsets of groups reset, behind
    a confirmation that says what will happen. The cluster is asked only while somebody looks, and each person's
    requests carry that person's own credentials: the nodes decide who may see and do what. Whoever does not log in is
    nobody, which nodes without authentication accept.

    It needs the extra `console`. `bmqctl start node --console-port PORT` starts one beside a node, and `start rocketmq`
    has that option, too.

    Examples:

        bmqctl console

        bmqctl console --broker tcp://10.0.0.5:30114 --port 8080

        bmqctl console --nameserver "10.0.0.5:9876;10.0.0.6:9876"

        bmqctl console --host 0.0.0.0 --allow-host ops.example.com --certificate ops.pem --key ops.key

    Exit codes: 0; 2 if it cannot listen, an option is not valid, or the extra is not installed.
    """
    if decodes_avro:
        from bmqctl.console.avro import decode_input

        decode_input()
        return
    try:
        from bmqctl.console.serving import Certificate
    except ImportError:
        refuse(COMMAND, _EXTRA)
    from bmqctl.console.application import Settings

    if (certificate is None) is not (key is None):
        refuse(COMMAND, "--certificate and --key go together")
    files = None if certificate is None or key is None else Certificate(certificate, key)
    connect: Connector
    if rocketmq or nameserver or controller:
        from bmqctl.console.rocketmq import SYSTEM as ROCKETMQ
        from bmqctl.console.rocketmq import connector as rocketmq_connector

        if broker is not None or tls_authority is not None:
            refuse(COMMAND, "--broker and --tls-authority are for BlazingMQ")
        places = places_of(None, nameserver, controller, None)
        system, place = ROCKETMQ, ", ".join(places.nameservers or places.controllers)
        connect = rocketmq_connector(places, timeout)
    else:
        from bmqctl.console.blazingmq import SYSTEM as BLAZINGMQ
        from bmqctl.console.blazingmq import connector

        system, place = BLAZINGMQ, broker or DEFAULT_BROKER
        connect = connector(*endpoint_of(COMMAND, place), timeout, tls_authority, authn_mechanism)
    hosts = (*(allow_host or ()), *(() if host in ("0.0.0.0", "::") else (host,)))
    settings = Settings(place, system, interval, files is not None, hosts)
    sock = _listening(COMMAND, host, port) if listen_fd is None else socket.socket(fileno=listen_fd)
    _serve(connect, settings, sock, files, until_input_ends)


def console_beside(command: str, host: str, port: int, words: Sequence[str]) -> AbstractContextManager[None]:
    """Return what runs a console beside the node that a command starts; exit with code 2 if it cannot listen.

    `words` name the node.
    """
    from bmqctl.console_process import run_console

    if find_spec("starlette") is None or find_spec("hypercorn") is None:
        refuse(command, f"--console-port: {_EXTRA}")
    return run_console(_listening(command, host, port), (*words, "--host", host))


def _serve(
    connect: Connector, settings: Settings, sock: socket.socket, files: Certificate | None, until_input_ends: bool
) -> None:
    from bmqctl.console.application import make_application
    from bmqctl.console.serving import serve_console

    host, port = sock.getsockname()[:2]
    scheme = "https" if settings.is_secure else "http"
    shown = f"[{host}]" if ":" in host else host
    if not until_input_ends:
        print(f"bmqctl: console of {settings.place} on {scheme}://{shown}:{port}/", flush=True)
    try:
        serve_console(make_application(connect, settings), sock, files, until_input_ends=until_input_ends)
    except OSError as fault:
        refuse(COMMAND, f"--certificate and --key: {fault.strerror or fault}")


def _listening(command: str, host: str, port: int) -> socket.socket:
    """Open the socket to serve on; exit with code 2 if it is not to be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as fault:
        refuse(command, f"the console cannot listen on {host}:{port}: {fault.strerror or fault}")
