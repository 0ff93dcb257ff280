from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from formats.bmq.disk.files import FileType
from tests.golden.archives import map_file, only, unpack_store


class Store:
    """One unpacked store of one partition."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, extension: str) -> Path:
        return only(self.directory, extension)

    def file(self, file_type: FileType) -> memoryview:
        return map_file(self.path(file_type.extension))

    def ledger(self) -> memoryview:
        return map_file(self.path(".bmq_csl"))


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Store]:
    """`store(name)` unpacks a golden store once per session; its files must not be written to."""
    unpacked: dict[str, Store] = {}

    def get(name: str) -> Store:
        if name not in unpacked:
            unpacked[name] = Store(unpack_store(name, tmp_path_factory.mktemp("store")))
        return unpacked[name]

    return get
