"""Compare the compiled modules of a tree with their sources: the same public names, with the same parameters.

    scripts/compile .venv/bin/python -m scripts.releases.same_api

Every public name of a source must be in the compiled module, type variables aside, and every public function, method
and class must take the same parameters: names, kinds, and which of them have a default. mypyc does not report the
parameters of a function with a default that is no literal, and reports some wrongly as positional-only: the former are
counted, the latter accepted. Exits with 1 if something differs, or a module is not compiled here.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from scripts.releases import compiling

__all__ = ["api_of", "differences"]

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = "--sources"
# Values that are not callable, and callables that do not report their parameters.
_NO_PARAMETERS = ""
_UNKNOWN = "?"

Api = dict[str, str]


def api_of(module: ModuleType) -> Api:
    """Return the public names that a module defines, by dotted path, with their parameters."""
    return dict(_api(module))


def _api(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or isinstance(value, ModuleType | TypeVar):
            continue
        if getattr(value, "__module__", module.__name__) != module.__name__:
            continue  # imported
        yield name, _parameters(value)
        if isinstance(value, type):
            for member, found in sorted(vars(value).items()):
                if not member.startswith("_"):
                    yield f"{name}.{member}", _parameters(getattr(value, member, found))


def _parameters(value: Any) -> str:
    """Return the parameters of a callable, without annotations: `(self, data, *, limit=...)`."""
    if not callable(value):
        return _NO_PARAMETERS
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return _UNKNOWN
    bare = [
        each.replace(
            annotation=each.empty,
            default=each.default if each.default is each.empty else ...,
            kind=each.POSITIONAL_OR_KEYWORD if each.kind is each.POSITIONAL_ONLY else each.kind,
        )
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty)).replace("Ellipsis", "...")


def differences(sources: Mapping[str, Api], compiled: Mapping[str, Api]) -> list[str]:
    """List the public names of `sources` that `compiled` lacks, or that take other parameters there."""
    lines = []
    for module, names in sources.items():
        others = compiled[module]
        for name, parameters in names.items():
            if name not in others:
                lines.append(f"{module}.{name} is missing")
            elif others[name] != parameters and _UNKNOWN not in (others[name], parameters):
                lines.append(f"{module}.{name} takes {others[name] or 'no call'}, not {parameters or 'no call'}")
    return lines


def _described(modules: Iterable[str]) -> dict[str, Api]:
    return {name: api_of(importlib.import_module(name)) for name in modules}


def _of_sources(path: str) -> FileFinder:
    """Find the sources in a folder of this tree, and not the extensions beside them."""
    if not Path(path).is_relative_to(ROOT) or ".venv" in Path(path).relative_to(ROOT).parts:
        raise ImportError
    return FileFinder(path, (SourceFileLoader, [".py"]))


def main() -> int:
    modules = [path.removesuffix(".py").replace("/", ".") for path in compiling.modules(ROOT).compiled]
    if _SOURCES in sys.argv:
        sys.path_hooks.insert(0, _of_sources)
        sys.path_importer_cache.clear()
        json.dump(_described(modules), sys.stdout)
        return 0
    command = [sys.executable, "-m", "scripts.releases.same_api", _SOURCES]
    sources = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    compiled = _described(modules)
    plain = [name for name in modules if not str(sys.modules[name].__file__).endswith(tuple(EXTENSION_SUFFIXES))]
    lines = [f"{name} is not compiled" for name in plain] + differences(sources, compiled)
    for line in lines:
        print(f"same_api: {line}", file=sys.stderr)
    names = [parameters for api in compiled.values() for parameters in api.values()]
    print(
        f"same_api: compared {len(names)} public names of {len(modules)} compiled modules; "
        f"{names.count(_UNKNOWN)} do not tell their parameters"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
