"""Stores of RocketMQ for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.rocketmq.stores import unpack


@pytest.fixture(scope="session")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden store with messages of every kind, which must not be written to."""
    return unpack("store", tmp_path_factory.mktemp("rocketmq"))[0]
