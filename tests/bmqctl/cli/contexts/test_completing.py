"""Completion in bash, zsh and fish: of commands, options and the names of contexts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bmqctl.app import app

SHELLS = ("bash", "zsh", "fish")


def output(line: str, shell: str, config: Path) -> str:
    """Return what a shell's script is answered for a line up to the cursor."""
    found = {
        "BMQCTL_CONTEXT": "",
        "XDG_CONFIG_HOME": str(config),
        "_BMQCTL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return CliRunner().invoke(app, [], prog_name="bmqctl", env=found).output


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("local", "london", "paris"):
        assert CliRunner().invoke(app, ["context", "add", name, "tcp://h:1"]).exit_code == 0
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
def test_names_of_contexts(shell: str, config: Path) -> None:
    for line in ("bmqctl cluster status --context lo", "bmqctl context use lo", "bmqctl context show lo"):
        found = output(line, shell, config)
        assert "local" in found
        assert "london" in found
        assert "paris" not in found


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_options(shell: str, tmp_path: Path) -> None:
    found = output("bmqctl cl", shell, tmp_path)
    assert "cluster" in found
    assert "journal" not in found
    assert "explain" in output("bmqctl queue ex", shell, tmp_path)
    assert "--logs-mib" in output("bmqctl bundle --lo", shell, tmp_path)


@pytest.mark.parametrize("text", ["{", '{"contexts": 1}'])
def test_a_damaged_file_completes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "bmqctl").mkdir()
    (tmp_path / "bmqctl" / "contexts.json").write_text(text)
    assert output("bmqctl browse --context lo", "bash", tmp_path).strip() == ""


@pytest.mark.process
@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell(shell: str) -> None:
    code = "from bmqctl.app import main; main()"
    env = {**os.environ, "_BMQCTL_COMPLETE": f"source_{shell}"}
    done = subprocess.run([*(sys.executable, "-c"), code], env=env, capture_output=True, text=True, check=True)
    assert f"_BMQCTL_COMPLETE=complete_{shell}" in done.stdout
