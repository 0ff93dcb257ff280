"""The root command: what it lists, what it loads, what it imports."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
import typer
from typer.testing import CliRunner

from bmqctl.app import COMMANDS, app


def test_the_version_is_the_package_s() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"bmqctl {version('bmqctl')}\n")


def test_help_lists_every_command_without_loading_it() -> None:
    code = """
import sys
from typer.testing import CliRunner
from bmqctl.app import COMMANDS, app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0, result.output
missing = [name for name in COMMANDS if name not in result.output]
loaded = [entry.module for entry in COMMANDS.values() if entry.module in sys.modules]
heavy = [name for name in ("trio", "pydantic", "pyspark", "numpy") if name in sys.modules]
assert (missing, loaded, heavy) == ([], [], []), (missing, loaded, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_entry_can_be_loaded(name: str) -> None:
    entry = COMMANDS[name]
    found = getattr(import_module(entry.module), entry.attribute)
    assert isinstance(found, typer.Typer) or callable(found)
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert f"{name}" in result.output


def test_a_command_that_is_not_there_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["jornal"])
    assert result.exit_code == 2
    assert "No such command 'jornal'" in result.output
