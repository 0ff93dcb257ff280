"""Domains of BlazingMQ: the files of a broker's configuration."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bmqctl.systems.definitions.model import BLAZINGMQ, Action, BadDefinitions, Change, Definitions

__all__ = ["checked", "read_domains", "write_domains"]

FILE_BYTES_MAX: Final = 4 << 20


def read_domains(config: Path) -> Definitions:
    """Read the domains of a broker's configuration. Raises `BadDefinitions` for an invalid file."""
    folder = config / "domains"
    if not folder.is_dir():
        raise BadDefinitions(f"{folder}: no such folder")
    domains: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise BadDefinitions(f"{path}: has more than {FILE_BYTES_MAX:,} bytes")
            found = json.loads(path.read_bytes())
        except OSError as fault:
            raise BadDefinitions(f"{path}: {fault.strerror}") from None
        except (ValueError, RecursionError) as fault:
            raise BadDefinitions(f"{path}: is not JSON: {fault}") from None
        if not isinstance(found, dict):
            raise BadDefinitions(f"{path}: expected an object")
        domains[path.stem] = found
    return Definitions(BLAZINGMQ, {"domains": domains})


def checked(wanted: Definitions) -> Definitions:
    """Return the definitions if the broker's own reader accepts each. Raises `BadDefinitions`."""
    # The reader is a third of a second of imports.
    from bmqctl.systems.config_reading import fault_of_domain

    for name, fields in wanted.tables.get("domains", {}).items():
        if not name or "/" in name or "\0" in name or name.startswith("."):
            raise BadDefinitions(f"domains.{name!r}: is no name of a domain")
        fault = fault_of_domain(name, json.dumps(fields).encode())
        if fault is not None:
            raise BadDefinitions(f"domains.{name}: {fault}")
    return wanted


def write_domains(config: Path, changes: Sequence[Change]) -> None:
    """Replace each domain's file atomically, or remove it. Raises `OSError`."""
    for change in changes:
        path = config / "domains" / f"{change.name}.json"
        if change.action is Action.DELETE:
            path.unlink()
            continue
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(change.wanted, indent=4) + "\n")
                file.flush()
                os.fsync(file.fileno())
            # As readable as the previous file; a new one is readable by others.
            Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
