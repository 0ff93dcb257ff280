"""Packs packages for the single binary, which unpacks them when they are imported: see bmqctl/common/kept_packages.py.

packaging/bmqctl.spec calls this. It takes the files of a package that an import loads, and the libraries that these are
linked to.
"""

from __future__ import annotations

import json
import py_compile
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

KEPT: dict[str, str] = {
    # A certificate, since that imports most of it.
    "cryptography": (
        "from broker.shell.connections.certificates import make_self_signed; make_self_signed('localhost', 0)"
    ),
    "fastavro": "import fastavro",
    # Parts that numpy imports only on use are named too; no module here uses its random numbers.
    "numpy": "import numpy, numpy.fft, numpy.linalg, numpy.ma, numpy.typing",
}
"""The packages that stay packed, and the imports that load all wanted parts of each."""

_PROBE = """
import json, sys
before = set(sys.modules)
{imports}
# A module that warns of deprecated names stands behind a proxy, which has a file, and no specification.
real = {{
    name: module
    for name, module in sys.modules.items()
    if getattr(module, "__spec__", None) is not None or isinstance(getattr(module, "__file__", None), str)
}}
print(json.dumps({{name: getattr(real[name], "__file__", None) for name in real if name not in before}}))
"""


class Found(NamedTuple):
    """The wanted files of a package, its folder, and the other packages that its imports load."""

    files: list[Path]
    root: Path
    others: list[str]


def find(package: str, imports: str) -> Found:
    """Import a package in a fresh interpreter, and list the files loaded. Raises CalledProcessError if it is not
    installed.
    """
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE.format(imports=imports)], stdout=subprocess.PIPE, text=True, check=True
    )
    modules: dict[str, str | None] = json.loads(probe.stdout)
    own = {name for name in modules if name.partition(".")[0] == package}
    files = [Path(file) for name in sorted(own) if (file := modules[name]) is not None]
    others = sorted(modules.keys() - own)
    place = Path(modules[package] or "")
    if place.name != "__init__.py":  # a single module
        return Found(files, place.parent, others)
    return Found([*files, *libraries_of(files, place.parent)], place.parent.parent, others)


def libraries_of(files: Iterable[Path], folder: Path) -> list[Path]:
    """List the shared libraries of a package that extensions among `files` are linked to, and their dependencies.

    They are in its `folder`, or beside it, where auditwheel puts them.
    """
    from PyInstaller.depend.bindepend import get_imports

    places = (folder, folder.with_name(f"{folder.name}.libs"))
    found: dict[Path, None] = {}
    waiting = [file for file in files if file.name.endswith(tuple(EXTENSION_SUFFIXES))]
    while waiting:
        for _, path in sorted(get_imports(str(waiting.pop()))):
            library = Path(path) if path else None
            if library is not None and any(map(library.is_relative_to, places)) and library not in found:
                found[library] = None
                waiting.append(library)
    return list(found)


def pack(files: Iterable[Path], root: Path) -> bytes:
    """Make a ZIP archive of files below `root`: Python with its bytecode, others unchanged."""
    archive = BytesIO()
    # Not compressed: PyInstaller compresses the modules.
    with zipfile.ZipFile(archive, "w") as packed, tempfile.TemporaryDirectory() as work:
        made = Path(work) / "made"
        for file in sorted(files):
            name = file.relative_to(root).as_posix()
            if file.suffix == ".py":
                packed.write(file, name)
                # Unchecked: the times of unpacked files are new.
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(file), str(made), dfile=name, doraise=True, invalidation_mode=mode)
                packed.write(made, cache_from_source(name))
            else:
                # Libraries that auditwheel has altered no longer load if they are stripped.
                packed.write(file, name)
    return archive.getvalue()
