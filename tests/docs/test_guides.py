"""The commands of the manual: each block that is marked is run, and what it prints is compared with the page.

A block that follows the comment `<!-- run -->` is run in a folder of the page's own, against a node whose store is
`bmq-data` there. A block of Python that follows `<!-- file: NAME -->` is written to that file before. Numbers, dates,
keys and GUIDs are masked, and the port is the node's. A line of three dots stands for any lines.

A page whose commands or programs name a nameserver has a node of RocketMQ beside that of BlazingMQ, from the start.

A page that starts a RocketMQ node itself is run without that of BlazingMQ. Its Python programs are run where RocketMQ's
C++ client is installed; without the client the page is skipped.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from bmqctl.systems.node_process import NodeProcess, RocketProcess
from broker.bmq.config.domain_schema import DomainVariant
from broker.bmq.config.load import parse
from scripts.judges.cpp_client import CannotInstall, cpp_python
from tests.rigs.library_broker import REFERENCE, library_broker

DOCS = Path(__file__).resolve().parents[2] / "docs"
MAIN = "from bmqctl.app import main; main()"
DOCUMENTED_PORT = "30114"
COMMAND_S_MAX = 120
START_S_MAX = 120
# Commands that take their broker by an option, which the pages leave at its default.
WITH_BROKER = {
    "admin",
    "bundle",
    "replay",
    "cluster",
    "bench",
    "bridge",
    "post",
    "tail",
    "browse",
    "copy",
    "move",
    "check",
    "queue",
    "top",
}
OTHERWISE = {"-b", "--broker", "--own-node", "--rocketmq", "--nameserver", "disk", "group"}
# The contexts of a page: from the first one on, commands take their broker from there.
CONTEXTS = "config/bmqctl/contexts.json"
START_ROCKETMQ = "bmqctl start rocketmq"
NAMESERVER_PORT = "9876"

_BLOCK = re.compile(r"^<!-- (run|file: (?P<file>\S+)) -->\n+```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "TIME"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "GUID"),
    (re.compile(r"\b(?=[0-9A-F]*\d)[0-9A-F]{10}\b"), "KEY"),
    (re.compile(r"\d[\d,.]*"), "N"),
    (re.compile(r"(?<!\S)-(?!\S)"), "N"),
    (re.compile(r"\bN (h|min|s|ms)\b|\bN(h|m|s|ms|d)\b"), "N"),
    # On a busy machine a producer sends all of a few messages to one queue.
    (re.compile(r"\bN queue\b"), "N queues"),
    (re.compile(r"[-=]{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


class Command(NamedTuple):
    """A command of a page, what it reads, and what the page says that it prints."""

    line: str
    stdin: str
    output: list[str]


class Guide(NamedTuple):
    """The executable part of a page: its files, then its commands in their order."""

    files: dict[str, str]
    commands: list[Command]


def commands_of(block: str) -> Iterator[Command]:
    """The commands of a block: `$ COMMAND`, maybe with a here-document, and the lines that it prints."""
    lines = block.splitlines()
    while lines:
        line = lines.pop(0)
        assert line.startswith("$ "), f"a command was expected: {line}"
        line = line.removeprefix("$ ")
        while line.endswith("\\"):
            line = line[:-1] + lines.pop(0).strip()
        stdin: list[str] = []
        if found := re.search(r" <<'(\w+)'$", line):
            line = line[: found.start()]
            end = lines.index(found[1])
            stdin, lines = lines[:end], lines[end + 1 :]
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        yield Command(line, "".join(f"{each}\n" for each in stdin), output)


def guide_of(page: Path) -> Guide:
    files: dict[str, str] = {}
    commands: list[Command] = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["file"]:
            files[block["file"]] = block["text"]
        else:
            commands.extend(commands_of(block["text"]))
    return Guide(files, commands)


def shape(text: str) -> str:
    """A line without what differs from run to run."""
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text.strip()


def is_like(printed: list[str], documented: list[str]) -> bool:
    """Return whether lines have the documented shapes, in which `...` is any number of lines."""
    if not documented:
        return not printed
    if documented[0] == "...":
        return any(is_like(printed[start:], documented[1:]) for start in range(len(printed) + 1))
    return bool(printed) and printed[0] == documented[0] and is_like(printed[1:], documented[1:])


def shapes(lines: list[str]) -> list[str]:
    return [line if line == "..." else shape(line) for line in lines if line.strip()]


def run(command: Command, folder: Path, port: int) -> list[str]:
    """The lines that a command prints, to whichever stream."""
    program, *words = shlex.split(command.line.replace(DOCUMENTED_PORT, str(port)))
    if program == "bmqctl":
        has_context = (folder / CONTEXTS).exists()
        if words[0] in WITH_BROKER and not has_context and not OTHERWISE & set(words):
            # After the subcommand, before the command to the broker.
            at = 2 if words[0] in ("cluster", "check", "queue") else 1
            words[at:at] = ["--broker", f"tcp://127.0.0.1:{port}"]
        start = [sys.executable, "-c", MAIN]
    else:
        assert program == "python", f"neither bmqctl nor python: {command.line}"
        start = [sys.executable]
    return execute([*start, *words], command.stdin, folder, {"BMQ_PORT": str(port)})


def run_with_rocketmq(command: Command, folder: Path, node: RocketProcess, python: Path) -> list[str]:
    """Run a command of a page that starts and kills its RocketMQ node itself."""
    if command.line == START_ROCKETMQ:
        return [node.start().ready_line]
    program, *words = shlex.split(command.line)
    if program == "kill":
        assert words[0] == "-9", f"another signal: {command.line}"
        node.kill()
        return []
    if program == "python":
        return execute([str(python), *words], command.stdin, folder, {"PYTHONPATH": "", "HOME": str(folder)})
    if words[0] != "journal":
        assert words[:2] == ["bench", "--rocketmq"], f"no command for a RocketMQ node: {command.line}"
        words[2:2] = ["--nameserver", node.nameserver]
    return execute([sys.executable, "-c", MAIN, *words], command.stdin, folder, {})


def execute(words: list[str], stdin: str, folder: Path, environment: dict[str, str]) -> list[str]:
    """The lines that a program prints, to whichever stream."""
    done = subprocess.run(
        words,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S_MAX,
        cwd=folder,
        env={**os.environ, "COLUMNS": "400", "XDG_CONFIG_HOME": str(folder / "config"), **environment},
        check=False,
    )
    return done.stdout.splitlines()


GUIDES = {page.relative_to(DOCS).as_posix(): guide_of(page) for page in sorted(DOCS.rglob("*.md"))}
RUNNABLE = {name: guide for name, guide in GUIDES.items() if guide.commands}
OF_ROCKETMQ = {
    name: guide for name, guide in RUNNABLE.items() if any(command.line == START_ROCKETMQ for command in guide.commands)
}


OF_BOTH = [
    name
    for name, guide in RUNNABLE.items()
    if name not in OF_ROCKETMQ
    and any(
        word in text
        for text in (*(each.line for each in guide.commands), *guide.files.values())
        for word in ("rocketmq://", "--nameserver")
    )
]


def test_there_are_commands_to_run() -> None:
    assert sum(len(guide.commands) for guide in RUNNABLE.values()) >= 10


@pytest.mark.parametrize("name", sorted(RUNNABLE.keys() - OF_ROCKETMQ.keys() - set(OF_BOTH)))
def test_the_commands_of_a_page_print_what_it_says(name: str, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "bmq-data", timeout_s=START_S_MAX) as node:
        follow(RUNNABLE[name], tmp_path, node.port)


@pytest.mark.skipif(REFERENCE is None, reason="scripts/conformance-client names a C++ broker")
def test_the_programs_of_the_client_library_print_what_their_page_says_with_the_c_plus_plus_broker(
    tmp_path: Path,
) -> None:
    with library_broker(tmp_path / "broker") as node:
        follow(RUNNABLE["use/client-library.md"], tmp_path, node.port)


def follow(guide: Guide, folder: Path, port: int) -> None:
    """Write the files of a page, run its commands, and compare what they print."""
    for file, text in guide.files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text.replace(DOCUMENTED_PORT, str(port)))
    for command in guide.commands:
        check(command, run(command, folder, port))


@pytest.mark.parametrize("name", OF_BOTH)
def test_the_commands_of_a_page_on_both_systems_print_what_it_says(name: str, tmp_path: Path) -> None:
    # With one queue, the messages of several commands have an order.
    config = tmp_path / "broker.conf"
    config.write_text("defaultTopicQueueNums=1\n")
    with (
        NodeProcess(tmp_path / "bmq-data", timeout_s=START_S_MAX) as node,
        RocketProcess(tmp_path / "rocketmq-data", config_file=config, timeout_s=START_S_MAX) as rocket,
    ):
        guide, port = RUNNABLE[name], str(rocket.nameserver_port)
        files = {file: text.replace(NAMESERVER_PORT, port) for file, text in guide.files.items()}
        commands = [each._replace(line=each.line.replace(NAMESERVER_PORT, port)) for each in guide.commands]
        follow(Guide(files, commands), tmp_path, node.port)


@pytest.mark.parametrize("name", OF_ROCKETMQ)
def test_the_commands_of_a_page_on_rocketmq_print_what_it_says(name: str, tmp_path: Path) -> None:
    try:
        python = cpp_python()
    except CannotInstall as reason:
        pytest.skip(str(reason))
    guide = OF_ROCKETMQ[name]
    node = RocketProcess(tmp_path / "rocketmq-data", timeout_s=START_S_MAX)
    for file, text in guide.files.items():
        (tmp_path / file).write_text(text.replace(NAMESERVER_PORT, str(node.nameserver_port)))
    with closing(node):
        for command in guide.commands:
            check(command, run_with_rocketmq(command, tmp_path, node, python))


def check(command: Command, printed: list[str]) -> None:
    """Compare what a command printed with the page."""
    text = "\n".join(printed)
    assert is_like(shapes(printed), shapes(command.output)), f"{command.line} printed:\n{text}"


def test_blocks_are_taken_apart() -> None:
    first, second = commands_of("$ bmqctl tool <<'END'\nstart\nEND\n> 1\n$ bmqctl admin \\\n    HELP\n")
    assert first == Command("bmqctl tool", "start\n", ["> 1"])
    assert second == Command("bmqctl admin HELP", "", [])


def test_shapes_have_no_numbers() -> None:
    line = "0  7  5.1 KiB  11s  -  2026-11-22T15:41:10Z  1D7D4648A9  400000000000A6B1EC68B2BBA3A9199C"
    assert shape(line) == "N N N KiB N N TIME KEY GUID"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [(["a", "b"], True), (["a", "x", "y", "b"], True), (["a"], False), (["b"], False), (["a", "b", "c"], False)],
)
def test_dots_are_any_lines(printed: list[str], expected: bool) -> None:
    assert is_like(printed, ["a", "...", "b"]) is expected


def test_links_lead_somewhere() -> None:
    for page in DOCS.rglob("*.md"):
        if page.relative_to(DOCS).parts[0] == "reference":
            continue  # what is made by a program is checked where it is made
        for target in re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            place = (page.parent / target).resolve()
            # Pages that a program makes are there only in the manual as it is built, where links are checked, too.
            is_made = place.parent == DOCS.resolve() / "reference"
            assert is_made or place.is_file(), f"{page.relative_to(DOCS)} leads to {target}"


def test_the_documented_domain_can_be_used() -> None:
    page = (DOCS / "use" / "consistency.md").read_text(encoding="utf-8")
    found = re.search(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    domain = parse(DomainVariant, found[1].encode(), "consistency.md").definition
    assert domain is not None
    assert domain.parameters.consistency.strong is not None


def test_all_alarms_are_in_the_table() -> None:
    page = (DOCS / "operate" / "alarms.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "broker").rglob("*.py"))
    names = set(re.findall(r"\b(?:alarm|panic)\(\s*log,\s*\"([A-Z_]+)\"", sources))
    names |= set(re.findall(r"\b(?:ALARM|PANIC) \[([A-Z_]+)\]", sources))
    assert len(names) >= 10
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
