"""No option takes a number that no operating system can wait for, or that no count is."""

from __future__ import annotations

import re

import pytest
import typer

from tests.bmqctl.cli.matrix.examples import EXAMPLES, commands
from tests.bmqctl.cli.matrix.test_empty_options import command_of

FLOATS = ("nan", "inf", "-inf", "1e308", "1e7")
INTS = ("9223372036854775808", "-9223372036854775808", "9223372036854775807")


@pytest.mark.parametrize("name", list(commands()))
def test_an_odd_number_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [re.sub("{port.*}", "1", each) for each in EXAMPLES[name].words]
    command = command_of(name)
    taken = []
    for parameter in command.params:
        kind = parameter.type_descriptor.annotation
        if parameter.param_type_name != "option" or parameter.is_flag or kind not in (int, float):
            continue
        for value in FLOATS if kind is float else INTS:
            if kind is float and parameter.max is not None and float(value) <= parameter.max:
                continue
            try:
                command.make_context(name, [*words, f"{parameter.opts[0]}={value}"])
            except typer.BadParameter:
                continue
            except typer.Exit as end:
                streams = capsys.readouterr()
                is_told = f"{parameter.opts[0]} is " in streams.err + streams.out
                if end.exit_code == (3 if name.startswith("check ") else 2) and is_told:
                    continue
            taken.append((parameter.opts[0], value))
    assert not taken


@pytest.mark.parametrize(("option", "value"), [("--timeout", "1000000"), ("--timeout", "0.1")])
def test_the_longest_and_the_shortest_wait_are_taken(option: str, value: str) -> None:
    command_of("topic list").make_context("topic list", ["--nameserver", "127.0.0.1:1", option, value])
