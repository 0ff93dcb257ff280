"""The golden stores, unpacked once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.rocketmq.stores import STORES, unpack


@pytest.fixture(scope="session")
def golden_brokers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The brokers' folders of every archive, by its name."""
    root = tmp_path_factory.mktemp("rocketmq")
    return {name: unpack(name, root / name) for name in STORES}


@pytest.fixture(scope="session")
def golden_broker(golden_brokers: dict[str, list[Path]]) -> Path:
    """The store with messages of every kind, in files of 256 KiB."""
    return golden_brokers["store"][0]
