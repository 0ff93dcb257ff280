"""A build hook of hatchling: a wheel gets the commit that it is made of, as bmqctl/commit.txt."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CommitHook"]


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file to a wheel. An editable installation has none: its commit changes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        found = subprocess.run(
            ["git", "-C", self.root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            self._folder = tempfile.TemporaryDirectory()
            path = Path(self._folder.name) / "commit.txt"
            path.write_text(found.stdout)
            build_data["force_include"][str(path)] = "bmqctl/commit.txt"
