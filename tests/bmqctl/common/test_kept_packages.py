"""Packages that are unpacked when they are imported, as the single binary does, and the archives of them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType

import pytest

from bmqctl.common.kept_packages import MODULE_PREFIX, KeptPackages
from scripts.releases import binary_packages

NAME = "bmq_kept_for_a_test"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a package whose import loads one of its two further modules, and one of another package."""
    package = tmp_path / "source" / NAME
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import used\nimport colorsys\n")
    (package / "used.py").write_text("VALUE = 7\n")
    (package / "unused.py").write_text("VALUE = 8\n")
    (package / "data.txt").write_text("read by name")
    return package.parent


@pytest.fixture
def kept(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the package would be unpacked into, where its import finds it."""
    packed = ModuleType(MODULE_PREFIX + NAME)
    files = [source / NAME / name for name in ("used.py", "__init__.py", "data.txt")]
    packed.PACKED = binary_packages.pack(files, source)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, packed.__name__, packed)
    folder = tmp_path / "kept"
    monkeypatch.setattr(sys, "meta_path", [KeptPackages({NAME}, folder), *sys.meta_path])
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_the_import_of_a_package_unpacks_it(kept: Path) -> None:
    assert not kept.exists()
    package = __import__(NAME)
    assert package.used.VALUE == 7
    assert Path(str(package.__file__)).is_relative_to(kept)
    # Bytecode, if it is written at all, lies beside the sources or in a folder of its own.
    files = {path for path in (kept / NAME).rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert files == {kept / NAME / NAME / name for name in ("__init__.py", "used.py", "data.txt")}
    assert MODULE_PREFIX + NAME not in sys.modules, "the archive stays in memory"


def test_a_package_that_another_process_unpacked_is_used(kept: Path) -> None:
    other = kept / NAME / NAME
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("VALUE = 9\n")
    assert __import__(NAME).VALUE == 9


def test_a_package_that_another_process_unpacks_meanwhile_is_used(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = zipfile.ZipFile.extractall

    def extract_slowly(archive: zipfile.ZipFile, path: Path) -> None:
        extract(archive, path)
        extract(archive, kept / NAME)

    monkeypatch.setattr(zipfile.ZipFile, "extractall", extract_slowly)
    assert __import__(NAME).used.VALUE == 7
    assert [path.name for path in kept.iterdir()] == [NAME], "something is left over"


def test_a_folder_that_takes_no_package_ends_the_program(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept.write_text("no folder")
    with pytest.raises(SystemExit) as ended:
        __import__(NAME)
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"bmqctl: {NAME} cannot be unpacked into {kept}: File exists; TMPDIR names another folder\n"
    )


def test_other_packages_are_left_alone(tmp_path: Path) -> None:
    assert KeptPackages({NAME}, tmp_path).find_spec("json", None) is None


@pytest.mark.process
def test_found_are_the_modules_that_an_import_loads(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(source))
    found = binary_packages.find(NAME, f"import {NAME}")
    assert found.files == [source / NAME / "__init__.py", source / NAME / "used.py"]
    assert found.root == source
    assert "colorsys" in found.others


@pytest.mark.process
def test_a_single_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "8_alone.py").write_text("import colorsys\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = binary_packages.find("8_alone", "__import__('8_alone')")
    assert (found.files, found.root) == ([tmp_path / "8_alone.py"], tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    ("package", "work", "answer"),
    [
        ("fastavro", "fastavro.parse_schema({'type': 'fixed', 'name': 'F', 'size': 2})['size']", 2),
        ("numpy", "(numpy.ones((2, 2)) @ numpy.arange(2)).tolist()", [1.0, 1.0]),
        ("numpy", "numpy.unique(numpy.array([b'b', b'a', b'b']), return_counts=True)[1].tolist()", [1, 2]),
        ("numpy", "numpy.frombuffer(b'abcd', '>u2').astype(int).sum().item()", 0x6162 + 0x6364),
    ],
)
def test_packed_part_of_a_package_is_enough(package: str, work: str, answer: object, tmp_path: Path) -> None:
    pytest.importorskip("PyInstaller")
    imports = binary_packages.KEPT[package]
    found = binary_packages.find(package, imports)
    zipfile.ZipFile(BytesIO(binary_packages.pack(found.files, found.root))).extractall(tmp_path)
    code = f"""
import json, sys
sys.path.insert(0, {str(tmp_path)!r})
{imports}
print(json.dumps([{package}.__file__, {work}]))
"""
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    file, result = json.loads(ran.stdout)
    assert Path(file).is_relative_to(tmp_path)
    assert result == answer
