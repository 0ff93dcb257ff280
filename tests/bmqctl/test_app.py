"""The root command: what it lists, what it loads, what it imports."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest
import typer
from typer.testing import CliRunner

from bmqctl.app import COMMANDS, app
from bmqctl.cli.files import COMMANDS as JOURNAL_COMMANDS
from bmqctl.cli.run.start import COMMANDS as START_COMMANDS


@pytest.mark.process
def test_the_version_is_the_package_s() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith(f"bmqctl {version('bmqctl')}")


@pytest.mark.process
def test_help_lists_every_command_without_loading_it() -> None:
    code = """
import sys
from typer.testing import CliRunner
from bmqctl.app import COMMANDS, app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0, result.output
missing = [name for name in COMMANDS if name not in result.output]
loaded = [entry.module for entry in COMMANDS.values() if entry.module in sys.modules]
heavy = [name for name in ("trio", "pydantic", "pyspark", "numpy", "rich.markdown", "pygments") if name in sys.modules]
assert (missing, loaded, heavy) == ([], [], []), (missing, loaded, heavy)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Modules that the others need, by what `bmqctl start` can start: each costs the time until it is ready.
NEEDLESS = {
    "node": (
        "broker.rocketmq",
        "broker.bmq.proxy.proxy",
        "broker.bmq.assembly.membership",
        "broker.bmq.member.member",
        "rich.table",
    ),
    "rocketmq": (
        "broker.bmq.admin",
        "broker.bmq.config",
        "broker.bmq.node.node",
        "broker.bmq.store",
        "broker.rocketmq.grpc.service",
        "google.protobuf",
        "h2",
        "numpy",
        "rich.table",
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("name", NEEDLESS)
def test_a_broker_is_started_without_the_modules_of_the_others(name: str) -> None:
    code = f"""
import sys
from importlib import import_module
from bmqctl.cli.run.start import COMMANDS
import_module(COMMANDS[{name!r}].module)
needless = [module for module in {NEEDLESS[name]!r} if module in sys.modules]
assert not needless, needless
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_the_module_of_each_command_imports_all_that_it_needs() -> None:
    """Import each one in a process that has only the table of commands, and none of our modules that others imported.

    Libraries that most of them need are there already.
    """
    code = """
import gc, os, sys
from importlib import import_module
import numpy, pydantic, rich.console, trio
import bmqctl.app
gc.freeze()
for name in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        import_module(name)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, name
"""
    modules = {each.module for commands in (COMMANDS, JOURNAL_COMMANDS, START_COMMANDS) for each in commands.values()}
    done = subprocess.run([sys.executable, "-c", code, *sorted(modules)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", START_COMMANDS)
def test_summary_of_a_start_command_is_the_first_paragraph_of_its_help(name: str) -> None:
    entry = START_COMMANDS[name]
    (info,) = getattr(import_module(entry.module), entry.attribute).registered_commands
    paragraph, _, _ = inspect.cleandoc(info.callback.__doc__).partition("\n\n")
    assert (info.callback.__name__.replace("_", "-"), " ".join(paragraph.split())) == (name, entry.summary)


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
