"""Pages that are written by hand: their command lines are understood, and the glossary keeps to its size."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bmqctl.app import COMMANDS
from scripts.manual.alarms import alarms
from scripts.manual.commands import PROGRAM, commands, refusal_of
from scripts.manual.pages import generated_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WRITTEN = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
PAGES = WRITTEN | {"README.md": (ROOT / "README.md").read_text()} | dict(generated_pages())
TERMS_MAX = 40

# The shell's tokens that end a command.
_ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", ")"}


def command_lines(page: str) -> Iterator[str]:
    """The lines of a page's code blocks that run the program, without a prompt."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(rf"(?:^|\| )\$? ?({PROGRAM} .*)", line)
            is_message = re.match(rf"{PROGRAM} [a-z -]+: ", line)
            if found and not is_message and "..." not in found[1] and "[OPTIONS]" not in found[1]:
                yield found[1]


def words_of(line: str) -> list[str]:
    """A command's words, up to where the shell ends it; `<name>` is a word that a reader puts in."""
    lexer = shlex.shlex(re.sub(r"<([a-z-]+)>", r"\1", line), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in _ENDS:
            break
        words.append(word)
    return words


@pytest.mark.parametrize("path", sorted(PAGES))
def test_command_lines_are_understood(path: str) -> None:
    refused = {}
    for line in command_lines(PAGES[path]):
        if (reason := refusal_of(words_of(line)[1:])) is not None:
            refused[line] = reason
    assert not refused


@cache
def command_names() -> frozenset[str]:
    return frozenset(each.name for each in commands())


@pytest.mark.parametrize("path", sorted(PAGES))
def test_commands_that_are_named_exist(path: str) -> None:
    for named in re.findall(rf"`{PROGRAM} ([a-z][a-z-]*)", PAGES[path]):
        assert named in COMMANDS, f"{path} names {PROGRAM} {named}"
    for named in re.findall(rf"`({PROGRAM} (?:start|journal) [a-z]+)", PAGES[path]):
        assert any(f"{name} ".startswith(f"{named} ") for name in command_names()), f"{path} names {named}"


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("bmqctl journal validate --json store/ | jq .", False),
        ("bmqctl journal validate --jsn store/", True),
        ("bmqctl journal validate", True),
        ("bmqctl journal look store/", True),
        ("bmqctl start node --port http", True),
        ("bmqctl --version", False),
    ],
)
def test_a_line_that_the_program_refuses_is_noticed(line: str, is_refused: bool) -> None:
    assert (refusal_of(words_of(line)[1:]) is not None) == is_refused


def test_command_lines_are_found_in_blocks() -> None:
    page = "```sh\n$ bmqctl admin HELP > out\necho x | bmqctl tool \\\n  -d\n# bmqctl\n```\n\nbmqctl start node\n"
    assert [words_of(line) for line in command_lines(page)] == [["bmqctl", "admin", "HELP"], ["bmqctl", "tool", "-d"]]


def test_glossary_keeps_to_its_size() -> None:
    _, *systems = WRITTEN["docs/reference/glossary.md"].split("\n## ")
    assert len(systems) == 2
    for system in systems:
        terms = re.findall(r"^\| ([^|]+) \|", system, re.MULTILINE)[1:]
        terms.remove("---")
        assert 30 <= len(terms) <= TERMS_MAX
        assert terms == sorted(terms, key=str.casefold)


def test_operators_page_has_each_alarm() -> None:
    path = "docs/operate/alarms.md"
    told = re.findall(r"^\| `([A-Z_]+)`", WRITTEN[path], re.MULTILINE)
    assert sorted(told) == sorted({each.name for each in alarms()})
