"""The help of every command: sections, widths, the words for values, and the place of the examples."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from bmqctl.app import TITLES, app
from scripts.manual.commands import commands

NAMES = [each.words[1:] for each in commands()]


def shown(*words: str, columns: int = 80) -> str:
    result = CliRunner().invoke(app, list(words), prog_name="bmqctl", env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("words", NAMES, ids=" ".join)
def test_help_fits_80_columns_and_ends_with_the_examples(words: tuple[str, ...]) -> None:
    text, _, examples = shown(*words, "--help").partition("\nExamples:\n")
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert not re.search(r"<\w+>|list\[|<int|x[<>]=|\{[A-Z]", text)
    assert all(line.startswith("  ") for line in examples.splitlines())
    assert "Options:\n" in text


def test_values_bounds_and_arguments_are_in_words() -> None:
    text = shown("start", "node", "--help")
    assert "Usage: bmqctl start node [OPTIONS] [CONFIG_DIR]\n" in text
    assert re.search(r"-p, --port N +Port to listen on", text)
    assert "[1 to 65535]" in text
    assert re.search(r"--data-dir PATH ", text)
    assert "--fsync never|always|MS " in text
    assert re.search(r"--lines +Post each line", shown("post", "--help"))
    assert "[default: 30.0; at least 0.1]" in shown("post", "--help")


def test_a_wide_terminal_is_used_up_to_a_limit() -> None:
    longest = {
        columns: max(map(len, shown("bench", "-h", columns=columns).partition("\nExamples:")[0].splitlines()))
        for columns in (80, 95, 300)
    }
    assert longest[80] < 80 < longest[95] < 95 < longest[300] <= 100


def test_commands_are_listed_by_what_they_are_for() -> None:
    text = shown("--help")
    places = [text.index(f"\n{title}:\n") for title in TITLES.values()]
    assert places == sorted(places)
    assert text.index("\nWatch:\n") < text.index("\n  top ") < text.index("\nAdminister:\n")


@pytest.mark.process
def test_h_help_and_version_are_understood() -> None:
    assert shown("-h") == shown("--help") == shown("help")
    assert shown("post", "-h") == shown("post", "--help") == shown("help", "post")
    assert shown("help", "journal", "dump") == shown("journal", "dump", "--help")
    assert shown("version") == shown("--version")


def test_help_of_what_is_no_command_is_refused() -> None:
    result = CliRunner().invoke(app, ["help", "pots"], prog_name="bmqctl")
    assert result.exit_code == 2
    assert "No such command 'pots'" in result.output


def test_usage_in_an_error_is_that_of_the_help() -> None:
    result = CliRunner().invoke(app, ["post"], prog_name="bmqctl")
    assert result.exit_code == 2
    assert result.output.startswith("Usage: bmqctl post [OPTIONS] URI [PAYLOAD]\n")


HEAVY = re.compile(
    r"(anyio|cryptography|google|grpc|h2|lark|matplotlib|numpy|pyarrow|pyspark|rich|trio)(\.|$)"
    r"|broker\.\w+\.(assembly|store)(\.|$)"
)
# Prints for each command the modules that its help imports in addition to those before it.
HELP_OF_EACH = """
import contextlib, io, json, sys
from bmqctl.app import app
imported = set()
for words in json.loads(sys.argv[1]):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
        app([*words, "--help"], prog_name="bmqctl")
    assert "Usage: bmqctl " + " ".join(words) in shown.getvalue(), words
    print(json.dumps([words, sorted(sys.modules.keys() - imported)]))
    imported |= sys.modules.keys()
"""


@pytest.mark.process
def test_help_of_no_command_imports_what_works() -> None:
    names = [(), *dict.fromkeys(words[:depth] for words in NAMES for depth in range(1, len(words) + 1))]
    done = subprocess.run(
        [sys.executable, "-c", HELP_OF_EACH, json.dumps(names)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    imports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [tuple(words) for words, _ in imports] == names
    assert "bmqctl.cli.messages.post" in {module for _, modules in imports for module in modules}
    assert {" ".join(words): found for words, modules in imports if (found := list(filter(HEAVY.match, modules)))} == {}
