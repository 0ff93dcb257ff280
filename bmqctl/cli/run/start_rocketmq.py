"""`bmqctl start rocketmq`: run a RocketMQ nameserver and broker until a signal."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.cli.families import expanded
from bmqctl.cli.run.console_beside import (
    Beside,
    console_beside,
    console_trust,
    reachable,
)
from bmqctl.cli.run.start_rocketmq_options import (
    Address,
    ConfigFile,
    Host,
    MetricsHost,
    MetricsPort,
    refuse_config,
    split_addresses,
)
from bmqctl.common.installed import advising
from bmqctl.common.later import Later

if TYPE_CHECKING:
    from broker.rocketmq.assembly import app as assembly
else:
    assembly = Later("broker.rocketmq.assembly.app")

__all__ = ["app"]

app = typer.Typer(add_completion=False)


class FlushType(Enum):
    """The original's words for the time of flushes to the disk."""

    ASYNC = "async"
    SYNC = "sync"


class ReplicationRole(Enum):
    """The roles of brokers of one name."""

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"
    SLAVE = "slave"


@app.command()
@expanded
def rocketmq(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            "-n",
            min=3,
            max=7,
            help="Start a group of this many nodes on this host, one process each, with controllers that elect "
            "its master. Each node's ports are 10 above those of the previous node.",
            show_default=False,
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=4,
            help="With --nodes: this many such groups in one cluster, broker-a, broker-b and so on, under the "
            "controllers of the first; by default 1.",
            show_default=False,
        ),
    ] = None,
    config_file: ConfigFile = None,
    store: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the store (storePathRootDir), by default ./rocketmq-data; with --nodes that of the "
            "nodes' directories, by default ./rocketmq-group.",
            show_default=False,
        ),
    ] = None,
    host: Host = None,
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
    address: Address = None,
    nameserver: Annotated[
        list[str] | None,
        typer.Option(
            "--nameserver", metavar="HOST:PORT[;HOST:PORT]", help="Other nameservers to register with; repeatable."
        ),
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
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    *,
    beside: Beside,
    log_level: Annotated[
        str | None,
        typer.Option(
            help="Lowest severity that is logged to the console; by default WARN, with --nodes ERROR.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start a RocketMQ nameserver and broker in one process, and run them until SIGINT or SIGTERM.

    With --nodes, start a group of such processes, each with a controller, too: when one is gone, the others go on. Its
    directories have the configuration and the store of each node. A group that was stopped is started again; ports and
    addresses stay as they are.

    Clients of Apache RocketMQ that use its remoting protocol connect to the nameserver and from there to the broker, or
    to the one port that is both for them; those of RocketMQ 5 to the port for gRPC. The store has the file formats of
    Apache RocketMQ: its broker can open it, and vice versa.

    Exits with 2 and one line on stderr if the configuration cannot be used, with 1 if the store is damaged.

    Examples:

        bmqctl start rocketmq

        bmqctl start rocketmq --store /var/lib/rocketmq --host 0.0.0.0 --address 10.0.0.5 --flush sync

        bmqctl start rocketmq --grpc-port 9081

        bmqctl start rocketmq --config broker.conf --nameserver "ns1:9876;ns2:9876"

        bmqctl start rocketmq -n 3 --console-port 30180

        bmqctl start rocketmq -n 3 --groups 2 --store two-groups

        bmqctl start rocketmq --role slave --broker-id 1 --nameserver 10.0.0.5:9876 --store /var/lib/rocketmq-copy
    """
    if no_grpc and grpc_port is not None:
        refuse_config("--grpc-port and --no-grpc contradict each other; leave one out")
    if no_remoting and remoting_port is not None:
        refuse_config("--remoting-port and --no-remoting contradict each other; leave one out")
    if groups is not None and nodes is None:
        refuse_config("--groups goes with --nodes, the number of nodes of each group")
    if nodes is not None:
        of_one = {"config": config_file, "nameserver": nameserver, "role": role, "broker-id": broker_id}
        for option, value in {**of_one, "ha-port": ha_port, "metrics-port": metrics_port}.items():
            if value:
                refuse_config(f"--{option} is for one node; with --nodes leave it out")
        # The start of one node must not wait for the modules of a group.
        from bmqctl.cli.run.start_rocketmq_group import GroupOptions, start_group

        wanted = GroupOptions(
            nodes,
            host,
            address,
            nameserver_port,
            controller_port,
            port,
            0 if no_grpc else grpc_port,
            0 if no_remoting else remoting_port,
            groups,
        )
        more = None if flush is None else flush.value
        start_group(store or Path("rocketmq-group"), wanted, more, log_level or "ERROR", beside)
    try:
        config = assembly.RocketConfig() if config_file is None else assembly.load_rocketmq_config(config_file)
        config = config.changed(
            store=store,
            bind_address=host,
            port=port,
            nameserver_port=nameserver_port,
            grpc_port=0 if no_grpc else grpc_port,
            remoting_port=0 if no_remoting else remoting_port,
            told_address=address,
            nameservers=split_addresses(nameserver) if nameserver else None,
            exports_metrics=None if metrics_port is None else True,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            flush_sync=None if flush is None else flush is FlushType.SYNC,
        )
        config = config.with_role(None if role is None else assembly.Role[role.name], broker_id, ha_port)
        config = assembly.with_controller(config, controller_port)
    except assembly.PropertyError as fault:
        refuse_config(fault)
    # Its own nameserver need not know the brokers that register with the others.
    names = ";".join((reachable(config.bind_address, config.nameserver_port), *config.nameservers))

    def place_words() -> tuple[str, ...]:
        if config.tls.mode is assembly.TlsMode.ENFORCING:
            return (
                "--nameserver",
                names,
                *console_trust("start rocketmq", config.tls.dial_trust, "tlsClientTrustCertPath"),
            )
        return "--nameserver", names

    with console_beside("start rocketmq", beside, place_words) as ready:
        code = assembly.run_rocketmq(config, (log_level or "WARN").upper(), advising("start rocketmq", ready))
    raise typer.Exit(code)
