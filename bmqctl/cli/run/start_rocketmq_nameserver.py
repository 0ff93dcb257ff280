"""`bmqctl start rocketmq-nameserver`: run a nameserver of RocketMQ brokers until a signal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bmqctl.cli.run.start_rocketmq_options import (
    ConfigFile,
    Host,
    MetricsHost,
    MetricsPort,
    Severity,
    refuse_config,
)
from bmqctl.common.installed import advising

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def rocketmq_nameserver(
    config_file: ConfigFile = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Directory of the nameserver's files; by default ./rocketmq-nameserver.", show_default=False),
    ] = None,
    host: Host = None,
    port: Annotated[
        int | None,
        typer.Option("--port", "-p", min=1, max=65535, help="Port; by default 9876.", show_default=False),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    log_level: Severity = "WARN",
) -> None:
    """Start a nameserver, which tells clients the brokers of a topic, until SIGINT or SIGTERM.

    Brokers of this program and of Apache's register with it: name it in their namesrvAddr or --nameserver. `bmqctl
    start rocketmq` has one of its own beside its broker. A configuration may be Apache's namesrv.conf, whose port is
    listenPort; nameserverPort goes before it.

    Exits with 2 and one line on stderr if the configuration cannot be used.

    Examples:

        bmqctl start rocketmq-nameserver --store /var/lib/nameserver --host 0.0.0.0

        bmqctl start rocketmq-nameserver --config namesrv.conf --metrics-port 5557
    """
    from broker.rocketmq.assembly.nameserver import (
        PropertyError,
        RocketConfig,
        load_rocketmq_config,
        properties_of,
        run_nameserver,
    )

    try:
        config = RocketConfig() if config_file is None else load_rocketmq_config(config_file)
        given = () if config_file is None else properties_of(config_file)
        is_elsewhere = config.store != RocketConfig().store
        config = config.changed(
            store=store or (None if is_elsewhere else Path("rocketmq-nameserver")),
            bind_address=host,
            nameserver_port=port or (config.port if "listenPort" in given and "nameserverPort" not in given else None),
            exports_metrics=None if metrics_port is None else True,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
        )
    except PropertyError as fault:
        refuse_config(fault)
    raise typer.Exit(run_nameserver(config, log_level.upper(), advising("start rocketmq-nameserver")))
