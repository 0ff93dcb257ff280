from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.golden.rocketmq.stores import unpack


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Path]]:
    """`java(name)` unpacks stores of the original once; their files must not be written to."""
    return cache(lambda name: unpack(name, tmp_path_factory.mktemp("rocketmq")))


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of one record's size are made."""
    monkeypatch.setattr("bmqctl.pipeline.rocketmq.plan._SPLIT_BYTES_MIN", 1)
