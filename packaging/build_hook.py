"""A build hook of hatchling: a wheel gets the commit that it is made of, and compiled modules if that is asked for.

With BMQCTL_COMPILE=1 in the environment, and a C compiler, the modules of packaging/compiled.toml are compiled
(scripts/compiling.py): the wheel is then for this platform and Python alone. Otherwise it is for all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["BuildHook"]

ASKED = "BMQCTL_COMPILE"
PACKAGES = ("formats", "broker", "bmqctl")


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds what a wheel has and a checkout has not. An editable installation has neither: its sources change."""

    def dependencies(self) -> list[str]:
        return ["mypy>=2.1", "setuptools>=65"] if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        place = Path(self._folder.name)
        self._add_commit(place, build_data)
        if self._compiles():
            self._add_extensions(place / "tree", build_data)
        elif os.environ.get(ASKED, "0") != "0":
            self.app.display_warning(f"{ASKED} is set, but there is no C compiler: the modules are interpreted")

    def _compiles(self) -> bool:
        command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
        return os.environ.get(ASKED, "0") != "0" and bool(command) and shutil.which(command[0]) is not None

    def _add_commit(self, place: Path, build_data: dict[str, Any]) -> None:
        """Note the commit as bmqctl/commit.txt."""
        found = subprocess.run(
            ["git", "-C", self.root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            path = place / "commit.txt"
            path.write_text(found.stdout)
            build_data["force_include"][str(path)] = "bmqctl/commit.txt"

    def _add_extensions(self, tree: Path, build_data: dict[str, Any]) -> None:
        """Compile in a copy of the packages, so that the checkout stays as it is."""
        skipped = shutil.ignore_patterns("__pycache__", "*.so")
        for name in (*PACKAGES, "packaging", "scripts"):
            shutil.copytree(Path(self.root, name), tree / name, ignore=skipped)
        subprocess.run([sys.executable, str(tree / "scripts/compiling.py"), str(tree)], check=True)
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        found = [*tree.glob(f"*{suffix}"), *(each for name in PACKAGES for each in (tree / name).rglob(f"*{suffix}"))]
        for path in found:
            build_data["force_include"][str(path)] = path.relative_to(tree).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
