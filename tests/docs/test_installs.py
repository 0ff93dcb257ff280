"""Commands that install something, of pages and messages: they work in a checkout, and bring what the page runs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts.manual.pages import generated_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    **{str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))},
    "README.md": (ROOT / "README.md").read_text(),
    **dict(generated_pages()),
}
# Messages of the programs, and files for their operators.
SOURCES = sorted(
    path
    for folder in ("bmqctl", "broker", "formats", "packaging")
    for path in (ROOT / folder).rglob("*")
    if path.is_file()
    and path.suffix in {".py", ".md", ".service", ".yaml", ".toml", ""}
    # Fragments and the list of changes may say how it was.
    and not path.is_relative_to(ROOT / "packaging/news")
    and path.name != "CHANGES.md"
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPMENT = {"compile", "dev", "fuzz", "package", "test"}

# The command with a published name: with or without extras, options and quotes.
PUBLISHED = re.compile(r"\bbmqctl\[[a-z]|\binstall (?:-\S+ )*['\"]?bmqctl(?![\w/.-])")


@pytest.mark.parametrize(
    "line",
    ["pip install bmqctl", "pip install -q 'bmqctl[plots]'", "uv tool install bmqctl", "it needs bmqctl[spark]"],
)
def test_a_published_name_is_noticed(line: str) -> None:
    assert PUBLISHED.search(line)


@pytest.mark.parametrize(
    "line",
    ["pip install '.[plots]'", "apt install ./dist/bmqctl_0.1.0_amd64.deb", "uv tool install dist/bmqctl-0.1.0.whl"],
)
def test_a_checkout_or_a_file_is_no_published_name(line: str) -> None:
    assert not PUBLISHED.search(line)


@pytest.mark.parametrize("path", sorted(PAGES))
def test_no_page_installs_what_is_not_published(path: str) -> None:
    assert [line for line in PAGES[path].splitlines() if PUBLISHED.search(line)] == []


def test_no_message_installs_what_is_not_published() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if PUBLISHED.search(line)
    ]
    assert found == []


def extras_of(page: str) -> set[str]:
    """Return the extras that a page's commands install."""
    return {name for found in re.findall(r"\.\[([\w,-]+)\]'", page) for name in found.split(",")}


@pytest.mark.parametrize("path", sorted(PAGES))
def test_extras_of_pages_exist(path: str) -> None:
    assert extras_of(PAGES[path]) <= EXTRAS.keys()


def test_the_page_about_installing_has_each_extra() -> None:
    assert extras_of(PAGES["docs/start/install.md"]) == EXTRAS.keys() - FOR_DEVELOPMENT


def test_messages_name_extras_that_exist() -> None:
    named = {
        node.args[0].value
        for path in SOURCES
        if path.suffix == ".py" and "installing(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "installing"
        and isinstance(node.args[0], ast.Constant)
    }
    assert named == EXTRAS.keys() - FOR_DEVELOPMENT


def programs() -> Iterator[tuple[str, str]]:
    """Yield the programs in Python of all pages, each with its page."""
    for path, page in PAGES.items():
        for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            yield path, block


def brought(requirements: Iterable[str]) -> set[str]:
    """Return the names of the packages that an installation of `requirements` has."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        wanted = Requirement(waiting.pop())
        environments = [{"extra": extra} for extra in ("", *wanted.extras)]
        if wanted.name in found or (wanted.marker and not any(map(wanted.marker.evaluate, environments))):
            continue
        found.add(wanted.name)
        try:
            requires = distribution(wanted.name).requires or ()
        except PackageNotFoundError:
            continue  # installed by the page, and not here
        for each in requires:
            marker = Requirement(each).marker
            if marker is None or any(map(marker.evaluate, environments)):
                waiting.append(each.partition(";")[0])
    return found


def modules_of(program: str) -> Iterator[str]:
    """Yield the modules of other projects that a program imports."""
    for node in ast.walk(ast.parse(program)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        yield from (name for name in names if name.partition(".")[0] not in {*sys.stdlib_module_names, "bmqctl"})


def is_in(module: str, packages: Iterable[str]) -> bool:
    """Return True if one of `packages` brings a module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:  # not installed here: the name of the package begins with that of the module
        return any(name.partition("-")[0] == module.partition(".")[0] for name in packages)
    for name in packages:
        try:
            there = distribution(name)
        except PackageNotFoundError:
            continue
        if any(str(there.locate_file(file)) == spec.origin for file in there.files or ()):
            return True
    return False


def test_an_installation_has_what_its_requirements_need() -> None:
    assert {"trio", "attrs"} <= brought(["trio>=0.2"])
    assert "opentelemetry-sdk" not in brought(["opentelemetry-api"])
    assert is_in("opentelemetry.trace", {"opentelemetry-api"})
    assert not is_in("opentelemetry.sdk.trace", {"opentelemetry-api"})


@pytest.mark.parametrize("path", sorted({path for path, _ in programs()}))
def test_a_page_installs_what_its_programs_import(path: str) -> None:
    page = PAGES[path]
    requirements = [*PROJECT["dependencies"], *(each for name in extras_of(page) for each in EXTRAS[name])]
    # A page may install other packages by their names.
    requirements += [name for found in re.findall(r"pip\s+install ([a-z][\w =.-]*)", page) for name in found.split()]
    packages = brought(requirements)
    modules = {module for of, program in programs() if of == path for module in modules_of(program)}
    assert [module for module in sorted(modules) if not is_in(module, packages)] == []
