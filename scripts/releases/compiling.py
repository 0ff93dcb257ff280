"""Compiles modules of a copy of the tree with mypyc, as packaging/compiled.toml lists them.

    python scripts/releases/compiling.py FOLDER

FOLDER is the copy. Each extension is put beside its source, which Python then no longer imports but shows in
tracebacks; one extension in FOLDER has their shared code. C sources and objects are in FOLDER/build, which a second run
reuses as far as they are unchanged. It needs mypy, setuptools and a C compiler.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

LIST = "packaging/compiled.toml"
BUILD = "build/mypyc"
# Name of the shared extension. mypyc's own names are checksums, many of which are no names of modules.
GROUP = "bmqctl"
# scripts/check checks types, with all libraries; here some may be missing.
MYPY_OPTIONS = ("--config-file=", "--explicit-package-bases", "--ignore-missing-imports", "--no-error-summary")


class Modules(NamedTuple):
    """The modules without I/O: the compiled ones, and the others with the reason against it."""

    compiled: list[str]
    interpreted: dict[str, str]


class Unfit(Exception):
    """The list cannot be read, or does not fit the tree."""


def modules(root: Path) -> Modules:
    """Read the list of `root`. Raises `Unfit` if it names missing files, leaves one out, or names one twice."""
    try:
        listed = tomllib.loads((root / LIST).read_text())
        compiled: list[str] = listed["compiled"]
        given = [(path, str(entry["reason"])) for entry in listed["interpreted"] for path in entry["modules"]]
        considered = set(_files(root, listed["considered"]))
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise Unfit(f"{root / LIST}: {error}") from None
    reasons = {file: reason for path, reason in given for file in _files(root, [path])}
    faults = [
        *(f"{path} is not there" for path in [*compiled, *(path for path, _ in given)] if not (root / path).exists()),
        *(f"{path} is in both lists" for path in compiled if path in reasons),
        *(f"{path} is in neither list" for path in sorted(considered.difference(compiled, reasons))),
        *(f"{path} is listed, but not considered" for path in sorted({*compiled, *reasons} - considered)),
    ]
    if len(set(compiled)) < len(compiled):
        faults.append("a module is listed twice")
    if faults:
        raise Unfit(f"{root / LIST}: {'; '.join(faults)}")
    return Modules(compiled, reasons)


def _files(root: Path, paths: list[str]) -> Iterator[str]:
    """Yield the modules that `paths` name, each a module or a folder: packages' own modules hold no code."""
    for path in paths:
        for file in sorted((root / path).rglob("*.py")) if path.endswith("/") else [root / path]:
            if file.name != "__init__.py":
                yield file.relative_to(root).as_posix()


def compiler() -> str | None:
    """Find the C compiler that extensions of this Python are built with, or None."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    return shutil.which(command[0]) if command else None


def compile_tree(folder: Path) -> None:
    """Compile the listed modules of `folder`, which becomes the working directory."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    os.chdir(folder)
    paths = modules(Path()).compiled
    extensions = mypycify(
        [*MYPY_OPTIONS, *paths],
        opt_level="2",
        debug_level="0",
        target_dir=BUILD,
        group_name=GROUP,
        multi_file=len(paths) > 1,  # so that all processors compile; mypyc's C of a single module is one file anyway
    )
    for extension in extensions:
        # Calls from module to module then need no entry in the procedure linkage table.
        extension.extra_compile_args.append("-fvisibility=hidden")

    class Parallel(build_ext):
        """Compiles the sources of an extension on all processors; setuptools does so only with extensions."""

        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_each(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    made = list(pool.map(lambda source: compile_some([source], **options), sources))
                return [name for names in made for name in names]

            self.compiler.compile = compile_each
            super().build_extensions()

    # Not setup(), which would read this project's own pyproject.toml.
    command = Parallel(Distribution({"name": "bmqctl", "packages": [], "ext_modules": extensions}))
    command.inplace = True
    command.build_temp = BUILD
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()


def extensions_of(folder: Path) -> list[Path]:
    """List the extensions that `compile_tree` has made."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    packages = [folder / name for name in ("formats", "broker", "bmqctl")]
    return sorted([*folder.glob(f"*{suffix}"), *(each for place in packages for each in place.rglob(f"*{suffix}"))])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/releases/compiling.py FOLDER")
    if compiler() is None:
        sys.exit("compiling: no C compiler found; install one (Debian: apt-get install gcc) or name it in CC")
    try:
        compile_tree(Path(sys.argv[1]).resolve())
    except Unfit as error:
        sys.exit(f"compiling: {error}")


if __name__ == "__main__":
    main()
