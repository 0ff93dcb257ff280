"""`bmqctl start`: the brokers that it starts. Each is imported alone, to be ready sooner."""

from __future__ import annotations

import typer

from bmqctl.cli.lazy import Entry, lazy_group

__all__ = ["COMMANDS", "app"]

COMMANDS: dict[str, Entry] = {
    "node": Entry(
        "bmqctl.cli.run.start_blazingmq",
        "node_app",
        "Start a node of a cluster, and run it until SIGINT or SIGTERM. A broker that is in no cluster is run as a "
        "proxy.",
    ),
    "proxy": Entry(
        "bmqctl.cli.run.start_blazingmq",
        "proxy_app",
        "Start a proxy, and run it until SIGINT or SIGTERM.",
    ),
    "cluster": Entry(
        "bmqctl.cli.run.start_blazingmq",
        "cluster_app",
        "Start a cluster on this host, a process per node, and run it until SIGINT or SIGTERM.",
    ),
    "rocketmq": Entry(
        "bmqctl.cli.run.start_rocketmq",
        "app",
        "Start a RocketMQ nameserver and broker in one process, and run them until SIGINT or SIGTERM.",
    ),
    "rocketmq-nameserver": Entry(
        "bmqctl.cli.run.start_rocketmq_nameserver",
        "app",
        "Start a nameserver, which tells clients the brokers of a topic, until SIGINT or SIGTERM.",
    ),
    "rocketmq-controller": Entry(
        "bmqctl.cli.run.start_rocketmq_controller",
        "app",
        "Start a controller, which gives RocketMQ brokers their ids and elects their masters, until SIGINT or SIGTERM.",
    ),
    "rocketmq-proxy": Entry(
        "bmqctl.cli.run.start_rocketmq_proxy",
        "app",
        "Start a RocketMQ proxy, which serves clients before brokers elsewhere, and run it until SIGINT or SIGTERM.",
    ),
}

app = typer.Typer(cls=lazy_group(COMMANDS), add_completion=False, no_args_is_help=True)


@app.callback()
def start() -> None:
    """Start a broker."""
