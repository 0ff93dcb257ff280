from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app
from tests.golden.archives import unpack_store


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def run() -> Callable[..., Outcome]:
    """`run("dump", path)` runs `bmqctl journal dump <path>` in this process."""

    def command(*arguments: object) -> Outcome:
        result = CliRunner().invoke(app, ["journal", *map(str, arguments)], env={"COLUMNS": "200"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return command


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`golden(name)` unpacks a golden store once per session; its files must not be written to."""
    unpacked: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack_store(name, tmp_path_factory.mktemp("golden"))
        return unpacked[name]

    return get


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A store of the reference, stopped cleanly, to be damaged."""
    return unpack_store("single-clean", tmp_path)
