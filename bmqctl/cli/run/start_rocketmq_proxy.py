"""`bmqctl start rocketmq-proxy`: run a proxy for RocketMQ's gRPC clients until a signal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.arguments import parse_host
from bmqctl.cli.families import expanded
from bmqctl.cli.run.console_beside import (
    Beside,
    console_beside,
    console_trust,
)
from bmqctl.cli.run.start_rocketmq_options import split_addresses
from bmqctl.common.installed import advising
from broker.rocketmq.config.tls import TlsMode, TlsOptions

__all__ = ["app"]

EXIT_CONFIG = 2

app = typer.Typer(add_completion=False)


@app.command()
@expanded
def rocketmq_proxy(
    nameserver: Annotated[
        list[str],
        typer.Option(
            "--nameserver",
            "-n",
            metavar="HOST:PORT[;HOST:PORT]",
            help="Nameservers of the cluster; all know all of its brokers.",
        ),
    ],
    host: Annotated[
        str, typer.Option("--host", parser=parse_host, metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    grpc_port: Annotated[
        int, typer.Option("--grpc-port", "-p", min=1, max=65535, help="Port for clients that speak gRPC.")
    ] = 8081,
    remoting_port: Annotated[
        int | None,
        typer.Option(
            "--remoting-port",
            min=1,
            max=65535,
            help="Port for clients that speak the remoting protocol, to whom it is a nameserver and every broker; by "
            "default 8080, unless another program has that one.",
            show_default=False,
        ),
    ] = None,
    no_remoting: Annotated[bool, typer.Option("--no-remoting", help="Do not serve the remoting protocol.")] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address that clients of the remoting protocol connect to, if it differs from the one to listen on.",
            show_default=False,
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate of the proxy in PEM; without it, a self-signed one.",
            show_default=False,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate's key in PEM, without a password.", show_default=False),
    ] = None,
    tls_mode: Annotated[
        TlsMode,
        typer.Option(
            help="TLS on both ports: none, beside plain connections, or alone; enforcing is for the connections to "
            "nameservers and brokers, too.",
        ),
    ] = TlsMode.PERMISSIVE,
    tls_trust: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Authority in PEM of nameservers' and brokers' certificates; with it, connections to them use TLS.",
            show_default=False,
        ),
    ] = None,
    proxy_protocol_from: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS[,NETWORK]",
            help="Balancers, such as 10.0.0.7,10.1.0.0/16: connections from there begin with a header of the PROXY "
            "protocol, which is believed.",
            show_default=False,
        ),
    ] = "",
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Access control: the key by which the proxy signs what it asks brokers, and whether it checks its "
            "clients. For the proxy's own account only.",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="Directory of the log.")] = Path("rocketmq-proxy-data"),
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port of /metrics, /healthz and /readyz; without it, no such pages.",
            show_default=False,
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(parser=parse_host, metavar="ADDRESS", help="Address of these pages.")
    ] = "127.0.0.1",
    *,
    beside: Beside,
    log_level: Annotated[str, typer.Option(help="Lowest severity that is logged to the console.")] = "WARN",
) -> None:
    """Start a RocketMQ proxy, which serves clients before brokers elsewhere, and run it until SIGINT or SIGTERM.

    It serves clients that speak gRPC, and clients of the remoting protocol that have it as their nameserver.
    Its brokers are the nameservers': `bmqctl start rocketmq`, or Apache's. Their messages are popped,
    and their topics, groups and offsets stay with them: the proxy has no store, and there may be several.

    Without a file, it checks no signatures and signs nothing: those of remoting clients reach the brokers, which check
    them, and brokers that want signed requests refuse what clients that speak gRPC ask. The file has these lines; the
    key is that of a super user of the brokers, which send it the other users and their policies:

        authenticationEnabled=true

        authorizationEnabled=true

        innerClientAuthenticationCredentials={"accessKey":"proxy","secretKey":"..."}

    Exits with 2 and one line on stderr if the options or the file cannot be used.

    Examples:

        bmqctl start rocketmq-proxy --nameserver 127.0.0.1:9876

        bmqctl start rocketmq-proxy --nameserver "10.0.0.5:9876;10.0.0.6:9876" --host 0.0.0.0 --address 10.0.0.7

        bmqctl start rocketmq-proxy -n ns1:9876 -n ns2:9876 --tls-certificate proxy.pem --tls-key proxy-key.pem

        bmqctl start rocketmq-proxy -n ns1:9876 --config proxy.conf --console-port 30180
    """
    from broker.rocketmq.assembly.proxy import (
        PropertyError,
        ProxyConfig,
        ProxyKeys,
        load_proxy_keys,
        run_rocketmq_proxy,
    )

    if no_remoting and remoting_port is not None:
        typer.echo("bmqctl: --remoting-port and --no-remoting contradict each other; leave one out", err=True)
        raise typer.Exit(EXIT_CONFIG)
    try:
        keys = ProxyKeys() if config_file is None else load_proxy_keys(config_file)
    except PropertyError as fault:
        typer.echo(f"bmqctl: {fault}", err=True)
        raise typer.Exit(EXIT_CONFIG) from None
    nameservers = split_addresses(nameserver)
    port = 0 if no_remoting else remoting_port
    config = ProxyConfig(
        nameservers,
        host,
        grpc_port,
        port,
        address,
        TlsOptions(tls_mode, tls_certificate, tls_key, dials=True if tls_trust else None, dial_trust=tls_trust),
        data_dir,
        keys,
        metrics_host,
        metrics_port,
        proxy_protocol_from,
    )

    def place_words() -> tuple[str, ...]:
        if config.tls.is_dialing:
            return (
                "--nameserver",
                ";".join(nameservers),
                *console_trust("start rocketmq-proxy", config.tls.dial_trust, "--tls-trust"),
            )
        return "--nameserver", ";".join(nameservers)

    with console_beside("start rocketmq-proxy", beside, place_words) as ready:
        code = run_rocketmq_proxy(config, log_level.upper(), advising("start rocketmq-proxy", ready))
    raise typer.Exit(code)
