"""`bmqctl start rocketmq`: run a RocketMQ nameserver and broker until they are told to stop."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from broker.rocketmq.assembly.app import (
    PropertyError,
    RocketConfig,
    Role,
    load_rocketmq_config,
    run_rocketmq,
    with_controller,
)

__all__ = ["app"]

EXIT_CONFIG = 2

app = typer.Typer(add_completion=False)


class FlushType(Enum):
    """The original's words for when messages go to the disk."""

    ASYNC = "async"
    SYNC = "sync"


class ReplicationRole(Enum):
    """The roles of brokers of one name."""

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"
    SLAVE = "slave"


@app.command()
def rocketmq(
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Properties of the broker, as Apache RocketMQ's broker.conf has them. Other options go before them.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Directory of the store (storePathRootDir); by default ./rocketmq-data.", show_default=False),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on; by default 127.0.0.1.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=1, max=65535, help="Port of the broker; by default 10911.", show_default=False
        ),
    ] = None,
    nameserver_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the nameserver; by default 9876.", show_default=False),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port for clients that speak gRPC, as those of RocketMQ 5 do; by default 8081, unless another "
            "program has that one, and none for a slave (grpcServerPort).",
            show_default=False,
        ),
    ] = None,
    no_grpc: Annotated[bool, typer.Option("--no-grpc", help="Do not serve gRPC (grpcServerPort=0).")] = False,
    remoting_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port for clients that speak the remoting protocol, to whom it is a nameserver and this broker; by "
            "default 8080, unless another program has that one, and none for a slave (remotingListenPort).",
            show_default=False,
        ),
    ] = None,
    no_remoting: Annotated[
        bool, typer.Option("--no-remoting", help="Serve no such port (remotingListenPort=0).")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="IP address that clients connect to (brokerIP1), if it differs from the one to listen on.",
            show_default=False,
        ),
    ] = None,
    nameserver: Annotated[
        list[str] | None,
        typer.Option("--nameserver", "-n", metavar="HOST:PORT", help="Another nameserver to register with."),
    ] = None,
    flush: Annotated[
        FlushType | None,
        typer.Option(
            help="When messages are flushed to the disk. async: within half a second; they survive the process, not a "
            "power failure. sync: before they are acknowledged (flushDiskType).",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        ReplicationRole | None,
        typer.Option(
            help="Role among the brokers of one name (brokerRole). Slaves copy the log of a master; senders to a "
            "sync-master wait until inSyncReplicas have it. By default, no slave can connect.",
            show_default=False,
        ),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option(min=1, help="Id of a slave among the brokers of its name (brokerId).", show_default=False),
    ] = None,
    ha_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port for slaves (haListenPort); by default the one after --port.",
            show_default=False,
        ),
    ] = None,
    controller_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port for a controller beside the nameserver, which elects the masters of brokers; the only one of "
            "its group. Without it there is none (enableControllerInNamesrv).",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="Lowest severity that is logged to the console.")] = "WARN",
) -> None:
    """Start a RocketMQ nameserver and broker in one process, and run them until SIGINT or SIGTERM.

    Clients of Apache RocketMQ that use its remoting protocol connect to the nameserver and from there to the broker, or
    to the one port that is both for them; those of RocketMQ 5 to the port for gRPC. The store has the file formats of
    Apache RocketMQ: its broker can open it, and vice versa.

    Exits with 2 and one line on stderr if the configuration cannot be used, with 1 if the store is damaged.

    Examples:

        bmqctl start rocketmq

        bmqctl start rocketmq --store /var/lib/rocketmq --host 0.0.0.0 --address 10.0.0.5 --flush sync

        bmqctl start rocketmq --grpc-port 9081

        bmqctl start rocketmq --config broker.conf --nameserver ns1:9876 --nameserver ns2:9876

        bmqctl start rocketmq --role slave --broker-id 1 --nameserver 10.0.0.5:9876 --store /var/lib/rocketmq-copy
    """
    if no_grpc and grpc_port is not None:
        typer.echo("bmqctl: --grpc-port and --no-grpc contradict each other; leave one out", err=True)
        raise typer.Exit(EXIT_CONFIG)
    if no_remoting and remoting_port is not None:
        typer.echo("bmqctl: --remoting-port and --no-remoting contradict each other; leave one out", err=True)
        raise typer.Exit(EXIT_CONFIG)
    try:
        config = RocketConfig() if config_file is None else load_rocketmq_config(config_file)
        config = config.changed(
            store=store,
            bind_address=host,
            port=port,
            nameserver_port=nameserver_port,
            grpc_port=0 if no_grpc else grpc_port,
            remoting_port=0 if no_remoting else remoting_port,
            told_address=address,
            nameservers=tuple(nameserver) if nameserver else None,
            flush_sync=None if flush is None else flush is FlushType.SYNC,
        )
        config = config.with_role(None if role is None else Role[role.name], broker_id, ha_port)
        config = with_controller(config, controller_port)
    except PropertyError as fault:
        typer.echo(f"bmqctl: {fault}", err=True)
        raise typer.Exit(EXIT_CONFIG) from None
    raise typer.Exit(run_rocketmq(config, log_level.upper()))
