"""A master and a slave in processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bmqctl.common.ports import free_port, free_rocketmq_port
from bmqctl.testing import RocketProcess

FILE_BYTES = 65_536


def start(folder: Path, role: str, *options: str, **properties: Any) -> RocketProcess:
    """Start a broker of a group. Its configuration goes beside its store."""
    folder.mkdir(parents=True, exist_ok=True)
    port, config = free_rocketmq_port(), folder / "broker.conf"
    properties = {"mappedFileSizeCommitLog": FILE_BYTES, "maxHashSlotNum": 50, "maxIndexNum": 200, **properties}
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    ports = ["--role", role, "--ha-port", str(free_port())] if role != "slave" else ["--role", role]
    process = RocketProcess(folder / "store", config_file=config, port=port, options=[*ports, *options])
    process.start()
    return process
