"""A plugin of pytest: a test fails that uses a port which nobody gave to it, itself or in a Python process it starts.

The watch begins when this module is imported, as the collection of tests asks for ports already.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guarding import sitecustomize as guarding

__all__: list[str] = []

_folder = Path(tempfile.mkdtemp(prefix="bmqctl-ports-"))
_watch = guarding.PortWatch(_folder)
sys.addaudithook(_watch)
os.environ[guarding.FOLDER] = str(_folder)
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(Path(guarding.__file__).parent), os.environ.get("PYTHONPATH", "")))
)


def pytest_unconfigure() -> None:
    shutil.rmtree(_folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield
    _check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    yield
    _check()


def _check() -> None:
    if misused := _watch.take_misused():
        pytest.fail("\n".join(misused), pytrace=False)
