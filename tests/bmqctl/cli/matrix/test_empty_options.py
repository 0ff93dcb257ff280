"""No option takes an empty word for its absence: a variable of a script without a value changes nothing in silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from bmqctl.app import app
from tests.bmqctl.cli.matrix.examples import EXAMPLES, commands


def command_of(name: str) -> Any:
    command: Any = get_command(app)
    for each in name.split():
        _, command, _ = command.resolve_command(None, [each])
    return command


def _options(command: Any) -> Iterator[str]:
    """Yield the options of a command that are followed by a value."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.is_flag:
            yield parameter.opts[0]


@pytest.mark.parametrize("name", list(commands()))
def test_an_empty_option_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    # The places are words that nobody looks at before the options are refused.
    words = [re.sub("{port.*}", "1", each) for each in EXAMPLES[name].words]
    command = command_of(name)
    taken = []
    for option in _options(command):
        try:
            command.make_context(name, [*words, option, ""])
        except typer.BadParameter:
            continue
        except typer.Exit as end:
            streams = capsys.readouterr()
            # A check exits like a plugin of a monitoring system.
            is_told = f"{option} is empty: give a value" in streams.err + streams.out
            if end.exit_code == (3 if name.startswith("check ") else 2) and is_told:
                continue
        taken.append(option)
    assert not taken
