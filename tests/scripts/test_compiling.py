"""The list of the modules that are compiled, and the tree that `scripts/compile` makes."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.releases import compiled_tree, compiling

ROOT = Path(__file__).parents[2]
LIST = """
considered = ["formats/", "broker/one.py"]
compiled = ["formats/fast.py"]
[[interpreted]]
reason = "It is slow."
modules = ["broker/one.py"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in ("formats/__init__.py", "formats/fast.py", "broker/one.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("def twice(number: int) -> int:\n    return number * 2\n")
    relist(tmp_path, LIST)
    return tmp_path


def relist(tree: Path, text: str) -> None:
    path = tree / compiling.LIST
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_each_module_of_the_list_is_there_and_can_be_imported() -> None:
    found = compiling.modules(ROOT)
    assert "broker/bmq/partition/stored_partition.py" in found.compiled
    for path in [*found.compiled, *found.interpreted]:
        importlib.import_module(path.removesuffix(".py").replace("/", "."))
    assert all(found.interpreted.values())


def heirs(root: Path, modules: set[str]) -> Iterator[str]:
    """Yield the classes elsewhere that inherit from one of `modules`, protocols aside."""
    files = [path for folder in ("bmqctl", "broker", "formats", "tests") for path in (root / folder).rglob("*.py")]
    imported = re.compile(rf"^from ({'|'.join(map(re.escape, modules))}) import", re.MULTILINE)
    # Most classes are no heirs, and most files have none that are.
    heir = re.compile(r"^\s*class \w+(\[.*\])?\((?!(NamedTuple|Protocol|Exception)\))", re.MULTILINE)
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        text = file.read_text()
        if path.removesuffix(".py").replace("/", ".") in modules or not (heir.search(text) and imported.search(text)):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module in modules]
        names = {alias.asname or alias.name for node in imports for alias in node.names}
        for node in nodes:
            bases = {ast.unparse(base).partition("[")[0] for base in getattr(node, "bases", [])}
            if isinstance(node, ast.ClassDef) and bases & names and "Protocol" not in bases:
                yield f"{path}: {node.name}"


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    # Compiled modules may inherit from each other. HeldRecords is interpreted for its heir, which must be found.
    compiled = [*compiling.modules(ROOT).compiled, "broker/bmq/partition/held_records.py"]
    modules = {path.removesuffix(".py").replace("/", ".") for path in compiled}
    assert list(heirs(ROOT, modules)) == ["broker/bmq/partition/tight.py: _Woken"]


def test_each_module_that_is_considered_is_in_one_of_the_lists(tree: Path) -> None:
    assert compiling.modules(tree) == (["formats/fast.py"], {"broker/one.py": "It is slow."})


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('["formats/fast.py"]', "[]", "formats/fast.py is in neither list"),
        ('["formats/fast.py"]', '["formats/fast.py", "formats/gone.py"]', "formats/gone.py is not there"),
        ('["formats/fast.py"]', '["formats/fast.py", "broker/one.py"]', "broker/one.py is in both lists"),
        ('["formats/fast.py"]', '["formats/fast.py", "formats/fast.py"]', "a module is listed twice"),
        (', "broker/one.py"]', "]", "broker/one.py is listed, but not considered"),
        ('reason = "It is slow."', "", "'reason'"),
        ('"formats/"', '"formats', "compiled.toml: "),
    ],
)
def test_a_list_that_does_not_fit_is_refused(tree: Path, old: str, new: str, fault: str) -> None:
    relist(tree, LIST.replace(old, new, 1))
    with pytest.raises(compiling.Unfit, match=fault):
        compiling.modules(tree)


@pytest.mark.process
@pytest.mark.slow
def test_a_listed_module_is_compiled_beside_its_source(tree: Path) -> None:
    if compiling.compiler() is None:
        pytest.skip("no C compiler")
    script = ROOT / "scripts/releases/compiling.py"
    subprocess.run([sys.executable, str(script), str(tree)], check=True, capture_output=True)
    made = [path.relative_to(tree).as_posix().split(".")[0] for path in compiling.extensions_of(tree)]
    assert made == ["bmqctl__mypyc", "formats/fast"]
    command = [sys.executable, "-c", "import formats.fast as f; print(f.__file__, f.twice(21))"]
    said = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout.split()
    assert said == [str(next(tree.glob("formats/fast.*.so"))), "42"]


@pytest.mark.process
@pytest.mark.slow
def test_shared_names_of_modules_can_be_imported(tree: Path) -> None:
    if compiling.compiler() is None:
        pytest.skip("no C compiler")
    (tree / "formats/other.py").write_text(
        "from formats.fast import twice\n\n\ndef six() -> int:\n    return twice(3)\n"
    )
    relist(tree, LIST.replace('compiled = ["formats/fast.py"]', 'compiled = ["formats/fast.py", "formats/other.py"]'))
    subprocess.run(
        [sys.executable, str(ROOT / "scripts/releases/compiling.py"), str(tree)], check=True, capture_output=True
    )
    made = [path.relative_to(tree).as_posix().split(".")[0] for path in compiling.extensions_of(tree)]
    assert sorted(made) == ["bmqctl__mypyc", "formats/fast", "formats/other"]
    command = [sys.executable, "-c", "import bmqctl__mypyc, formats.other as o; print(o.six())"]
    assert subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout == "6\n"


def test_a_copy_gets_what_is_new_and_loses_what_is_gone(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("copy") / "compiled"
    compiled_tree.copy(tree, folder, ["formats/fast.py", "broker/one.py"])
    (folder / "formats/fast.so").touch()
    (tree / "formats/fast.py").write_text("other")
    compiled_tree.copy(tree, folder, ["formats/fast.py"])
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {compiled_tree.MARKER, "formats/fast.py", "formats/fast.so"}
    assert (folder / "formats/fast.py").read_text() == "other"


def test_a_folder_of_something_else_is_left_alone(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("other")
    (folder / "precious").write_text("content")
    with pytest.raises(compiling.Unfit, match="no compiled tree"):
        compiled_tree.copy(tree, folder, ["formats/fast.py"])
    assert [path.name for path in folder.iterdir()] == ["precious"]


def test_the_digest_is_that_of_sources_and_list(tree: Path) -> None:
    files = ["formats/fast.py", "broker/one.py"]
    before = compiled_tree.digest_of(tree, files)
    assert compiled_tree.digest_of(tree, files) == before
    (tree / "broker/one.py").write_text("other")
    after = compiled_tree.digest_of(tree, files)
    relist(tree, LIST + "\n")
    assert len({before, after, compiled_tree.digest_of(tree, files)}) == 3
