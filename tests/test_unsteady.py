"""The second run of failed tests that start processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unsteady import UNSTEADY_MAX

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
XDIST = ("-p", "xdist", "-n")
HEAD = """
import os
import pathlib
import sys

import pytest

def passes_again(name):
    mark = pathlib.Path(__file__).with_name(name)
    if mark.exists():
        return True
    mark.touch()
    print("output of the first run")
    return False

"""
STEADY = "def test_steady(): pass\n"
UNSTEADY = "@pytest.mark.process\ndef test_{0}():\n    assert passes_again('{0}'), 'first failure of {0}'\n"


def run(folder: Path, suite: str, *options: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    process: kind\n    unit: kind\n")
    (folder / "test_it.py").write_text(HEAD + suite)
    words = [*("-p", "tests.unsteady"), *("-p", "no:cacheprovider"), *options, str(folder)]
    command = [sys.executable, "-m", "pytest", "-ra", *words]
    # Other plugins take a second to import in each of the processes.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), (*XDIST, "2")])
def test_a_test_that_passes_alone_is_listed_with_its_first_failure(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, text = run(tmp_path, STEADY + UNSTEADY.format("one"), *options)
    assert code == 0, text
    assert "once more, alone: test_it.py::test_one" in text
    _, _, told = text.partition("UNSTEADY: failed, and passed alone")
    assert "first failure of one" in told
    assert "output of the first run" in told
    assert "UNSTEADY test_it.py::test_one" in told
    assert "1 passed, 1 unsteady" in text.splitlines()[-1]


def test_a_test_that_fails_both_times_fails_the_run(tmp_path: Path) -> None:
    broken = "@pytest.mark.process\ndef test_broken():\n    passes_again('broken')\n    assert 0, 'always'\n"
    code, text = run(tmp_path, broken + UNSTEADY.format("one"))
    assert code == 1
    assert "FAILED test_it.py::test_broken" in text
    assert "FAILED test_it.py::test_one" not in text
    assert "1 failed, 1 unsteady" in text.splitlines()[-1]
    assert (tmp_path / "broken").exists()


@pytest.mark.parametrize("count", [UNSTEADY_MAX, UNSTEADY_MAX + 1, 11])
def test_too_many_fail_the_run(tmp_path: Path, count: int) -> None:
    code, text = run(tmp_path, "".join(UNSTEADY.format(f"number_{number}") for number in range(count)))
    assert code == (count > UNSTEADY_MAX)
    assert text.count("once more, alone") == min(count, 10)
    assert (f"tests are unsteady, more than {UNSTEADY_MAX}" in text) == (count > UNSTEADY_MAX)


def test_tests_of_other_kinds_are_run_once(tmp_path: Path) -> None:
    unit = UNSTEADY.format("unit").replace("mark.process", "mark.unit")
    code, text = run(tmp_path, unit)
    assert code == 1
    assert "once more" not in text
    assert "FAILED test_it.py::test_unit" in text


def test_setup_and_teardown_fail_a_test_as_well(tmp_path: Path) -> None:
    fixture = (
        "@pytest.fixture\ndef it():\n    assert passes_again('before')\n    yield\n    assert passes_again('after')\n"
    )
    once = "@pytest.mark.process\ndef test_it(it): pass\n"
    # The second run passes the setup, and fails in the teardown.
    code, text = run(tmp_path, fixture + once)
    assert code == 1
    assert "ERROR test_it.py::test_it" in text
    (tmp_path / "before").unlink()
    code, text = run(tmp_path, fixture + once)
    assert code == 0, text
    assert "setup of test_it.py::test_it" in text


def test_a_crash_of_a_worker_fails_the_run(tmp_path: Path) -> None:
    crash = "@pytest.mark.process\ndef test_crash():\n    passes_again('crash') or os._exit(1)\n"
    code, text = run(tmp_path, crash, *XDIST, "1")
    assert code == 1
    assert "once more" not in text


def test_a_file_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    code, text = run(tmp_path, "raise ValueError\n")
    assert code == 2
    assert "once more" not in text


@pytest.mark.parametrize("options", [("-x",), ("-x", *XDIST, "1")])
def test_a_run_that_is_cut_short_fails(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, text = run(tmp_path, UNSTEADY.format("one") + UNSTEADY.format("two"), *options)
    assert code in (1, 2)
    assert "once more" not in text
