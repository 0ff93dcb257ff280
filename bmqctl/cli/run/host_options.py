"""Options that say which host a BlazingMQ configuration is read for: those of the C++ broker, and the port."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["HostDataCenter", "HostName", "HostTags", "InstanceId", "Port"]

Port = Annotated[
    int | None,
    typer.Option(
        "--port", "-p", min=1, max=65535, help="Port to listen on, instead of the configured ones.", show_default=False
    ),
]
InstanceId = Annotated[
    str | None, typer.Option("--instance-id", "--instanceId", "-i", help="Name of this instance in logs and metrics.")
]
HostName = Annotated[
    str | None, typer.Option("--host-name", "--hostName", "-h", help="Name of this host, instead of hostName.")
]
HostTags = Annotated[
    str | None, typer.Option("--host-tags", "--hostTags", "-t", help="Tags of this host, instead of hostTags.")
]
HostDataCenter = Annotated[
    str | None,
    typer.Option(
        "--host-data-center", "--hostDataCenter", "-d", help="Data center of this host, instead of hostDataCenter."
    ),
]
