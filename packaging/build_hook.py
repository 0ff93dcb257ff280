"""A build hook of hatchling: a wheel gets the commit that it is made of, and compiled modules if that is asked for.

With BMQCTL_COMPILE=1 in the environment, scripts/releases/compiling.py compiles the modules of packaging/compiled.toml:
the wheel is then for this platform and Python alone. A build that cannot compile them fails. Otherwise it is for all.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["BuildHook"]

ASKED = "BMQCTL_COMPILE"
EXTRA = "compile"
PACKAGES = ("formats", "broker", "bmqctl")


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds what a wheel has and a checkout has not. An editable installation has neither: its sources change."""

    def dependencies(self) -> list[str]:
        """Return what an isolated build installs: mypyc reads the types of all packages that the modules import."""
        if not _is_asked():
            return []
        core = self.metadata.core
        return [*core.dependencies, *core.optional_dependencies[EXTRA]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        compiling = self._compiling() if _is_asked() else None
        self._folder = tempfile.TemporaryDirectory()
        place = Path(self._folder.name)
        self._add_commit(place, build_data)
        if compiling is not None:
            self._add_extensions(compiling, place / "tree", build_data)

    def _compiling(self) -> ModuleType:
        """Load scripts/releases/compiling.py, and end the build if there is no compiler for it."""
        spec = importlib.util.spec_from_file_location("compiling", Path(self.root, "scripts/releases/compiling.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if module.compiler() is None:
            remedy = f"install one (Debian: apt-get install gcc), name it in CC, or unset {ASKED}"
            sys.exit(f"{ASKED}=1: there is no C compiler: {remedy}")
        return module

    def _add_commit(self, place: Path, build_data: dict[str, Any]) -> None:
        """Note the commit as bmqctl/commit.txt."""
        found = subprocess.run(
            ["git", "-C", self.root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            path = place / "commit.txt"
            path.write_text(found.stdout)
            build_data["force_include"][str(path)] = "bmqctl/commit.txt"

    def _add_extensions(self, compiling: ModuleType, tree: Path, build_data: dict[str, Any]) -> None:
        """Compile in a copy of the packages, so that the checkout stays as it is."""
        skipped = shutil.ignore_patterns("__pycache__", "*.so")
        for name in (*PACKAGES, "packaging", "scripts"):
            shutil.copytree(Path(self.root, name), tree / name, ignore=skipped)
        subprocess.run([sys.executable, str(tree / "scripts/releases/compiling.py"), str(tree)], check=True)
        for path in compiling.extensions_of(tree):
            build_data["force_include"][str(path)] = path.relative_to(tree).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _is_asked() -> bool:
    return os.environ.get(ASKED, "0") not in ("", "0")
