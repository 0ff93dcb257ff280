"""`bmqctl start`: run a node of BlazingMQ, a proxy or a cluster of nodes until a signal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bmqctl.cli.arguments import parse_host
from bmqctl.cli.families import expanded
from bmqctl.cli.run.console_beside import (
    Beside,
    console_beside,
    reachable,
)
from bmqctl.cli.run.host_options import HostDataCenter, HostName, HostTags, InstanceId, Port
from bmqctl.client.address import BadAddress, parse_address
from bmqctl.common.ending import announce
from bmqctl.common.installed import advising
from bmqctl.common.later import Later
from bmqctl.common.refusal import refuse
from bmqctl.systems.cluster_run import Member, run_members
from broker.bmq.proxy.limits import BridgeLimits
from formats.addresses import shown_place

if TYPE_CHECKING:
    from broker.bmq.assembly import app as assembly
else:
    assembly = Later("broker.bmq.assembly.app")

__all__ = ["cluster_app", "node_app", "proxy_app"]

EXIT_CONFIG = 2
PORT_MAX = 65535
# A node of a cluster prints this once it takes part.
AVAILABLE = "bmqctl: cluster available"

# Each has one command: imports for the other commands of `start` must not delay a node.
node_app = typer.Typer(add_completion=False)
proxy_app = typer.Typer(add_completion=False)
cluster_app = typer.Typer(add_completion=False)


class LogLevel(Enum):
    """Severities as the reference's configuration names them."""

    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
    FATAL = "FATAL"


Fsync = Annotated[
    str,
    typer.Option(
        metavar="never|always|MS",
        help="When messages are flushed to the disk. never: the kernel decides; they survive the process, not a "
        "power failure. always: before they are acknowledged. A number N: every N milliseconds.",
    ),
]

Host = Annotated[
    str | None,
    typer.Option(
        parser=parse_host,
        metavar="ADDRESS",
        help="Address to listen on, instead of the configured ones.",
        show_default=False,
    ),
]
Severity = Annotated[
    LogLevel | None, typer.Option(case_sensitive=False, help="Lowest severity that is logged to the console.")
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65535,
        help="Port of /metrics, /healthz and /readyz, instead of the configured one; without either, no such pages.",
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str | None,
    typer.Option(
        parser=parse_host,
        metavar="ADDRESS",
        help="Address of these pages, instead of the configured one or 127.0.0.1.",
        show_default=False,
    ),
]


@node_app.command()
@expanded
def node(
    config_dir: Annotated[
        Path | None,
        typer.Argument(
            help="Directory with bmqbrkrcfg.json, clusters.json and domains/, as for the C++ broker. "
            "By default, one node with sample domains on 127.0.0.1:30114, its files in ./bmq-data.",
            show_default=False,
        ),
    ] = None,
    host: Host = None,
    port: Port = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the store, instead of the configured one.")
    ] = None,
    instance_id: InstanceId = None,
    host_name: HostName = None,
    host_tags: HostTags = None,
    host_data_center: HostDataCenter = None,
    log_level: Severity = None,
    fsync: Fsync = "never",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    *,
    beside: Beside,
) -> None:
    """Start a node of a cluster, and run it until SIGINT or SIGTERM. A broker that is in no cluster is run as a proxy.

    Exits with 2 and one line on stderr if the configuration cannot be used.
    """
    policy = _policy(fsync)
    changes = assembly.Changes(
        host=host,
        port=port,
        data_dir=data_dir,
        instance_id=instance_id,
        host_name=host_name,
        host_tags=host_tags,
        host_data_center=host_data_center,
        log_level=None if log_level is None else log_level.value,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
    )
    with _refusing_config():
        if config_dir is None:
            config = assembly.built_in_config(**changes)
        else:
            config = assembly.load_config(config_dir, **changes).changed(**changes)
    with console_beside("start node", beside, lambda: _words_for_console("start node", config)) as ready:
        code = assembly.run_node(config, policy, advising("start node", ready))
    raise typer.Exit(code)


def _words_for_console(command: str, config: assembly.NodeConfig) -> list[str]:
    """Return the options of `bmqctl console` that name a broker's cluster; exit with code 2 if there is not one."""
    me = config.self_node
    if config.cluster is None or me is None:
        return _words_for_upstream(command, config)
    plain = next((each for each in config.listeners if not each.tls), None)
    if plain is None or me.tls:
        # As the other nodes dial it: its certificate is for that host.
        return ["--broker", f"tcp://{reachable(me.host, me.port)}", *_authority(command, config)]
    return ["--broker", f"tcp://{reachable(plain.address, plain.port)}"]


def _words_for_upstream(command: str, config: assembly.NodeConfig) -> list[str]:
    """Return the options for the cluster upstream of a proxy, like `_words_for_console`."""
    clusters = config.clusters.proxy_clusters
    if len(clusters) != 1:
        known = ", ".join(each.name for each in clusters) or "none yet"
        refuse(
            command,
            f"--console-port: a console shows one cluster, and those of this proxy are: {known}; run `bmqctl console "
            "--broker` with a node of the one to show",
        )
    nodes = clusters[0].nodes
    words = [word for node in nodes for word in ("--broker", f"tcp://{reachable(node.host, node.port)}")]
    return words + (_authority(command, config) if any(node.tls for node in nodes) else [])


def _authority(command: str, config: assembly.NodeConfig) -> list[str]:
    tls = config.broker.app_config.tls_config
    if tls is None:
        refuse(command, "--console-port: the nodes speak TLS, and the configuration has no tlsConfig")
    return ["--tls-authority", tls.certificate_authority]


@proxy_app.command()
@expanded
def proxy(
    config_dir: Annotated[
        Path | None,
        typer.Argument(
            help="Directory with bmqbrkrcfg.json, clusters.json and optionally domains/ and proxyclusters/, as the "
            "reference has it. Instead of --upstream.",
            show_default=False,
        ),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            "--upstream",
            "-u",
            metavar="HOST:PORT,...",
            help="The brokers to be a proxy to: nodes of one cluster, or proxies to it. Listens on 127.0.0.1:30113.",
            show_default=False,
        ),
    ] = None,
    cluster_name: Annotated[
        str | None,
        typer.Option("--cluster", help="With --upstream: the cluster's name, if the upstream brokers check it."),
    ] = None,
    host: Host = None,
    port: Port = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the log, the pid file and the control pipe. It stores nothing.")
    ] = None,
    buffer_mib: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Maximum size of the unacknowledged posts that it keeps, in MiB.")
    ] = BridgeLimits().bytes_max >> 20,
    buffer_messages: Annotated[
        int, typer.Option(min=1, max=1 << 31, help="Maximum number of unacknowledged posts that it keeps.")
    ] = BridgeLimits().messages_max,
    instance_id: InstanceId = None,
    host_name: HostName = None,
    host_tags: HostTags = None,
    host_data_center: HostDataCenter = None,
    log_level: Severity = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    *,
    beside: Beside,
) -> None:
    """Start a proxy, and run it until SIGINT or SIGTERM.

    A proxy stores nothing: it connects to each broker of a cluster once, on behalf of all its clients, and delivers the
    messages it receives to them. While no broker is reachable, its clients stay connected; their posts are kept, up to
    the limits, and are sent when a broker is back.

    Exits with 2 and one line on stderr if the configuration cannot be used.

    Examples:

        bmqctl start proxy --upstream node1:30114,node2:30114,node3:30114

        bmqctl start proxy /etc/bmq-proxy --port 30200 --console-port 30180
    """
    if (config_dir is None) is (upstream is None):
        refuse("start proxy", "name a directory or --upstream, and not both")
    if cluster_name is not None and upstream is None:
        refuse("start proxy", "--cluster goes with --upstream; a directory names its clusters")
    changes = assembly.Changes(
        host=host,
        port=port,
        data_dir=data_dir,
        instance_id=instance_id,
        host_name=host_name,
        host_tags=host_tags,
        host_data_center=host_data_center,
        log_level=None if log_level is None else log_level.value,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
    )
    with _refusing_config():
        config = _proxy_config(config_dir, upstream or "", cluster_name, changes).changed(**changes)
    with console_beside("start proxy", beside, lambda: _words_for_upstream("start proxy", config)) as ready:
        code = assembly.run_proxy(
            config, BridgeLimits(buffer_mib << 20, buffer_messages), advising("start proxy", ready)
        )
    raise typer.Exit(code)


def _proxy_config(
    config_dir: Path | None, upstream: str, cluster_name: str | None, changes: assembly.Changes
) -> assembly.NodeConfig:
    if config_dir is None:
        endpoints = [_endpoint(text.strip()) for text in upstream.split(",")]
        return (
            assembly.proxy_config(endpoints) if cluster_name is None else assembly.proxy_config(endpoints, cluster_name)
        )
    config = assembly.load_config(config_dir, **changes)
    if config.cluster is not None:
        refuse(
            "start proxy",
            f"{config_dir} is the configuration of a node of cluster '{config.cluster.name}'; use start node",
        )
    return config


def _endpoint(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except BadAddress:
        refuse("start proxy", f"--upstream: '{text}' is not HOST:PORT")


@cluster_app.command()
@expanded
def cluster(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=3, max=7, help="Number of nodes.")] = 3,
    directory: Annotated[
        Path, typer.Option("--dir", help="Directory of the nodes' configurations and stores; created if missing.")
    ] = Path("bmq-cluster"),
    host: Annotated[
        str, typer.Option(parser=parse_host, metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", "-p", min=1, max=65535, help="Port of the first node; the others have the ports after it."
        ),
    ] = 30114,
    log_level: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="Lowest severity that the nodes log to the console.")
    ] = LogLevel.ERROR,
    fsync: Fsync = "never",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Port of the first node's /metrics, /healthz and /readyz; the others have the ports after it. Without "
            "it, no such pages.",
            show_default=False,
        ),
    ] = None,
    metrics_host: MetricsHost = None,
    *,
    beside: Beside,
) -> None:
    """Start a cluster on this host, a process per node, and run it until SIGINT or SIGTERM.

    The cluster has the sample domains; domains in files are strongly consistent. Each node has its own
    directory, `node1` and so on, with its configuration and its store. An existing cluster is started again, with the
    domains that its directories have.

    Exits with 2 and one line on stderr if the configuration cannot be used, with 1 if a node failed.

    Examples:

        bmqctl start cluster -n 3

        bmqctl start cluster -n 5 --dir /var/tmp/planets --port 31000

        bmqctl start cluster --console-port 30180 --metrics-port 30190
    """
    _policy(fsync)
    pages = _metrics_of_cluster(nodes, port, metrics_port, metrics_host)
    try:
        with _refusing_config():
            folders = assembly.write_local_cluster(directory, nodes, host, port)
    except OSError as error:
        typer.echo(f"bmqctl: {assembly.os_error_line(error, '--dir')}", err=True)
        raise typer.Exit(EXIT_CONFIG) from None
    where = ", ".join(shown_place(host, port + number) for number in range(nodes))
    places = [reachable(host, port + number) for number in range(nodes)]
    members = [_member(folder, log_level.value, fsync, words) for folder, words in zip(folders, pages, strict=True)]
    brokers = [word for place in places for word in ("--broker", f"tcp://{place}")]
    with console_beside("start cluster", beside, lambda: brokers) as begin_console:

        def ready() -> None:
            announce(f"bmqctl: cluster of {nodes} ready on {where}")
            begin_console()

        code = run_members(members, AVAILABLE, advising("start cluster", ready))
    raise typer.Exit(code)


def _metrics_of_cluster(nodes: int, port: int, metrics_port: int | None, host: str | None) -> list[tuple[str, ...]]:
    """Return the options of each node's pages; exit with code 2 if their ports cannot be used."""
    if metrics_port is None:
        if host is not None:
            refuse("start cluster", "--metrics-host needs --metrics-port")
        return [()] * nodes
    ports = range(metrics_port, metrics_port + nodes)
    if ports[-1] > PORT_MAX:
        refuse("start cluster", f"--metrics-port: {nodes} nodes from {metrics_port} on need ports up to {ports[-1]}")
    if set(ports) & set(range(port, port + nodes)):
        refuse(
            "start cluster",
            f"--metrics-port: ports {ports[0]} to {ports[-1]} are also those of nodes, {port} to {port + nodes - 1}",
        )
    at = () if host is None else ("--metrics-host", host)
    return [("--metrics-port", str(each), *at) for each in ports]


def _member(folder: Path, log_level: str, fsync: str, pages: tuple[str, ...]) -> Member:
    """A node of a cluster, with its files, log and control pipe in `folder`, and options of its pages."""
    words = ("start", "node", str(folder), "--data-dir", str(folder / "storage"), *pages)
    return Member(folder.name, (*words, "--log-level", log_level, "--fsync", fsync), words)


@contextmanager
def _refusing_config() -> Iterator[None]:
    """Exit with one line on stderr for an unusable configuration."""
    try:
        yield
    except assembly.ConfigError as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(EXIT_CONFIG) from None


def _policy(text: str) -> assembly.FsyncPolicy:
    try:
        return assembly.parse_fsync(text)
    except ValueError as fault:
        typer.echo(f"bmqctl: --fsync: {fault}", err=True)
        raise typer.Exit(EXIT_CONFIG) from None
