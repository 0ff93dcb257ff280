"""`bmqctl start rocketmq-controller`: run a controller of RocketMQ brokers until a signal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.run.start_rocketmq_options import (
    Address,
    ConfigFile,
    Host,
    MetricsHost,
    MetricsPort,
    Severity,
    refuse_config,
)
from bmqctl.common.installed import advising

__all__ = ["app"]

PORT = 9878

app = typer.Typer(add_completion=False)


@app.command()
def rocketmq_controller(
    config_file: ConfigFile = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Directory of the controller's files; by default ./rocketmq-controller.", show_default=False),
    ] = None,
    host: Host = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65535,
            help=f"Port of a controller that is the only one; by default {PORT}.",
            show_default=False,
        ),
    ] = None,
    address: Address = None,
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="ID-HOST:PORT;...",
            help="All controllers of the group with their ids, this one among them (controllerDLegerPeers).",
            show_default=False,
        ),
    ] = None,
    self_id: Annotated[
        str | None,
        typer.Option(help="Id of this controller among them (controllerDLegerSelfId).", show_default=False),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    log_level: Severity = "WARN",
) -> None:
    """Start a controller, which gives RocketMQ brokers their ids and elects their masters, until SIGINT or SIGTERM.

    Brokers of Apache RocketMQ 5 with enableControllerMode=true name it in controllerAddr. Several controllers agree
    among themselves: a majority of them has to run. They do not mix with those of Apache's.

    Exits with 2 and one line on stderr if the configuration cannot be used, with 1 if its log is damaged.

    Examples:

        bmqctl start rocketmq-controller --store /var/lib/controller --metrics-port 5557

        bmqctl start rocketmq-controller --self-id n0 --peers "n0-10.0.0.1:9878;n1-10.0.0.2:9878;n2-10.0.0.3:9878"
    """
    from broker.rocketmq.assembly.controller import (
        PropertyError,
        RocketConfig,
        load_rocketmq_config,
        run_controller,
        with_peers,
    )

    try:
        config = RocketConfig() if config_file is None else load_rocketmq_config(config_file)
        is_elsewhere = config.store != RocketConfig().store
        config = config.changed(
            store=store or (None if is_elsewhere else Path("rocketmq-controller")),
            bind_address=host,
            told_address=address,
            exports_metrics=None if metrics_port is None else True,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
        )
        config = with_peers(config, peers, self_id, port, PORT)
    except PropertyError as fault:
        refuse_config(fault)
    raise typer.Exit(run_controller(config, log_level.upper(), advising("start rocketmq-controller")))
