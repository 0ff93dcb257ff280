"""The console beside a broker: the options of `bmqctl start` for it, and what they mean.

No module of the console is imported here: a start without one must not wait for it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.arguments import parse_host
from bmqctl.common.installed import installing
from bmqctl.common.refusal import refuse
from formats.addresses import shown_place

__all__ = [
    "NEEDS_EXTRA",
    "Beside",
    "check_certificate",
    "console_beside",
    "console_trust",
    "listen_for_console",
    "reachable",
]

NEEDS_EXTRA = f"it needs Starlette and Hypercorn, of the extra `console`: {installing('console')}"

ConsolePort = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65535,
        help="Port of the console, pages for a browser, in a process of its own; without it, there is none. Needs the "
        "extra `console`.",
        show_default=False,
    ),
]
ConsoleHost = Annotated[
    str,
    typer.Option(
        parser=parse_host,
        metavar="ADDRESS",
        help="Address of the console; all but loopback addresses admit other machines.",
    ),
]
ConsoleAllowHost = Annotated[
    list[str] | None,
    typer.Option(
        help="A name by which browsers reach the console, beside those of the loopback interface; repeatable.",
        show_default=False,
    ),
]
ConsoleCertificate = Annotated[
    Path | None,
    typer.Option(
        help="Serve the console over HTTPS with this certificate, a PEM file; --console-key names its key.",
        show_default=False,
    ),
]
ConsoleKey = Annotated[Path | None, typer.Option(help="The key of --console-certificate.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Beside:
    """The options of the console beside a broker; without a port, none."""

    console_port: ConsolePort = None
    console_host: ConsoleHost = "127.0.0.1"
    console_allow_host: ConsoleAllowHost = None
    console_certificate: ConsoleCertificate = None
    console_key: ConsoleKey = None


def console_beside(
    command: str, beside: Beside, place_words: Callable[[], Sequence[str]]
) -> AbstractContextManager[Callable[[], None]]:
    """Return a block that runs a console beside a command's broker; exit with code 2 if it cannot.

    The console starts when the block's value is called, once the broker is ready. `place_words` makes the options of
    `bmqctl console` that name the cluster; it is called only for a console.
    """
    if beside.console_port is None:
        if beside.console_allow_host or beside.console_certificate or beside.console_key:
            refuse(command, "--console-allow-host, --console-certificate and --console-key go with --console-port")
        return nullcontext(_start_nothing)
    from bmqctl.console.process import run_console

    if find_spec("starlette") is None or find_spec("hypercorn") is None:
        refuse(command, f"--console-port: {NEEDS_EXTRA}")
    words = [*place_words(), "--host", beside.console_host]
    for name in beside.console_allow_host or ():
        words += ["--allow-host", name]
    if beside.console_certificate is not None or beside.console_key is not None:
        options = ("--console-certificate", "--console-key")
        certificate, key = check_certificate(command, options, beside.console_certificate, beside.console_key)
        words += ["--certificate", str(certificate), "--key", str(key)]
    return run_console(listen_for_console(command, beside.console_host, beside.console_port), words)


def console_trust(command: str, authority: Path | None, setting: str) -> tuple[str, str]:
    """Return the option by which a console trusts nodes that speak TLS; exit with code 2 if no `setting` names it."""
    if authority is None:
        refuse(
            command, f"--console-port: the nodes speak TLS, and no {setting} names the authority of their certificates"
        )
    return "--tls-authority", str(authority)


def check_certificate(
    command: str, options: tuple[str, str], certificate: Path | None, key: Path | None
) -> tuple[Path, Path]:
    """Return the files of a certificate and its key; exit with code 2 if they cannot be used together."""
    import ssl

    both = " and ".join(options)
    if certificate is None or key is None:
        refuse(command, f"{both} go together")
    for option, path in zip(options, (certificate, key), strict=True):
        try:
            with path.open("rb"):
                pass
        except OSError as fault:
            refuse(command, f"{option}: {path}: {fault.strerror or fault}")
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as fault:
        reason = (fault.reason or "no PEM").replace("_", " ").lower()
        refuse(
            command,
            f"{both}: expected a certificate and its key, without a password, in {certificate} and {key}: {reason}",
        )
    return certificate, key


def listen_for_console(command: str, host: str, port: int) -> socket.socket:
    """Open the socket of a console; exit with code 2 if that fails."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as fault:
        refuse(command, f"the console cannot listen on {shown_place(host, port)}: {fault.strerror or fault}")


def reachable(host: str, port: int) -> str:
    """Return where this machine reaches a listener on an address, as HOST:PORT."""
    return shown_place("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, port)


def _start_nothing() -> None:
    """Do nothing, without a console."""
