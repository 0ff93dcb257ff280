"""Packages that the single binary keeps packed until they are imported.

The binary unpacks itself into a folder at each start. Large packages that few commands need would slow all of them
down, so each is a module whose `PACKED` is a ZIP archive. Importing such a package unpacks it into the folder, which
the binary removes when it ends. `scripts/releases/binary_packages.py` makes the archives.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from io import BytesIO
from pathlib import Path
from types import ModuleType

from bmqctl.common.refusal import EXIT_USAGE

__all__ = ["MODULE_PREFIX", "KeptPackages"]

MODULE_PREFIX = "bmqctl_kept_"
"""The prefix of a kept package's module."""


class KeptPackages(MetaPathFinder):
    """Finds `packages`, and unpacks each below `folder` on first use.

    Processes may share the folder, as the workers of `bmqctl bench` do.
    """

    def __init__(self, packages: Collection[str], folder: Path) -> None:
        self._packages = frozenset(packages)
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a kept package; its modules are then found in its folder."""
        if fullname not in self._packages:
            return None
        folder = self._folder / fullname
        if not folder.exists():
            try:
                self._unpack(fullname, folder)
            except OSError as fault:
                print(
                    f"bmqctl: {fullname} cannot be unpacked into {self._folder}: {fault.strerror or fault}; "
                    "TMPDIR names another folder",
                    file=sys.stderr,
                )
                raise SystemExit(EXIT_USAGE) from None
        return PathFinder.find_spec(fullname, [str(folder)])

    def _unpack(self, package: str, folder: Path) -> None:
        # Imported here: most commands unpack nothing.
        import zipfile
        from tempfile import TemporaryDirectory

        self._folder.mkdir(exist_ok=True)
        archive = BytesIO(import_module(MODULE_PREFIX + package).PACKED)
        del sys.modules[MODULE_PREFIX + package]  # as large as the package
        # Whole or absent: another process may look for it at the same time.
        with TemporaryDirectory(dir=self._folder) as unpacked:
            zipfile.ZipFile(archive).extractall(Path(unpacked) / package)
            try:
                (Path(unpacked) / package).rename(folder)
            except OSError:
                if not folder.exists():
                    raise
