"""The generated reference has everything that is declared."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

import broker.bmq.config
from bmqctl import app
from bmqctl.cli import files as journal
from bmqctl.cli.run import start
from broker.bmq.config.model import Choice, Model
from formats.bmq.control import messages
from formats.bmq.control.schema import describe
from formats.bmq.stores.faults import CATALOGUE
from formats.rocketmq.remoting.headers import administration, consuming, replicating, routing, sending
from scripts.manual.alarms import alarms
from scripts.manual.commands import commands
from scripts.manual.configuration import meanings as element_meanings
from scripts.manual.drawing import structure_drawing
from scripts.manual.markdown import text
from scripts.manual.pages import generated_pages
from scripts.manual.structures import layouts, meanings

PAGES = generated_pages()
ROOT = Path(__file__).resolve().parents[2]
GROUPS = {"": app.COMMANDS, "journal": journal.COMMANDS, "start": start.COMMANDS}
# Declared for the admin commands of the original, and carried by no event.
UNREACHED = {"DumpMessages"}


def section(path: str, title: str) -> str:
    """Return a page's text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)} \{{ #\S+ \}}\n(.*?)(?=^#+ |\Z)", PAGES[path], re.MULTILINE | re.DOTALL)
    assert found, f"{path} has no section {title}"
    return found[1]


def subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for each in cls.__subclasses__():
        yield each
        yield from subclasses(each)


def models() -> list[type[Model]]:
    for module in pkgutil.iter_modules(broker.bmq.config.__path__, "broker.bmq.config."):
        importlib.import_module(module.name)
    return [each for each in subclasses(Model) if each is not Choice and not each.__name__.startswith("_")]


@pytest.mark.parametrize("group", GROUPS)
def test_index_has_each_command_of_each_group(group: str) -> None:
    names = {each.name for each in commands()}
    for name in GROUPS[group]:
        words = " ".join(filter(None, ("bmqctl", group, name)))
        assert any(f"{each} ".startswith(f"{words} ") for each in names), words
        assert f"[`{words}" in PAGES["reference/cli/index.md"]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_page_has_each_option_of_a_command(command: Any) -> None:
    shown = section(f"reference/cli/{command.words[1]}.md", command.name)
    for parameter in command.command.params:
        if not parameter.hidden and parameter.param_type_name == "option":
            assert f"| `{parameter.opts[0]}`" in shown
            assert parameter.help, f"{command.name} {parameter.opts[0]} has no help"
    assert f"```text\n{command.name}" in shown


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_configuration_has_each_element(model: type[Model]) -> None:
    path = next(path for path, page in PAGES.items() if "configuration" in path and f"\n## {model.__name__} {{" in page)
    shown = section(path, model.__name__)
    for name, field in model.model_fields.items():
        assert f"| `{field.alias or name}` |" in shown


def test_meaning_of_an_element_stands_below_it() -> None:
    for model in models():
        assert set(element_meanings(model)) <= set(model.model_fields)


def test_element_that_has_no_effect_is_read_nowhere() -> None:
    """Every element with an effect is read as an attribute of its name, and no other element is.

    `tests/broker/bmq/assembly/test_effects.py` changes each of them.
    """
    sources = [path for path in (ROOT / "broker").rglob("*.py") if path.parent.name != "config"]
    read = {
        node.attr
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    idle = [
        f"{model.__name__}.{name}"
        for model in models()
        for name, meaning in element_meanings(model).items()
        if meaning.startswith("No effect, because ")
    ]
    assert len(idle) > 40
    # Other things have names like these.
    common = {"StatPluginConfig.hosts", "StatPluginConfig.instance_id", "TcpInterfaceConfig.name", "Domain.name"}
    assert [each for each in idle if each.partition(".")[2] in read and each not in common] == []


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_structure_is_told_in_full(layout: Any) -> None:
    path = next(path for path, page in PAGES.items() if f"### {layout.name} {{" in page)
    shown = section(path, layout.name)
    told = meanings(layout)
    rows = re.findall(r"^\| (\d+) \| (?:(\d+)\S*)? ?\| (\d+) \| \w+ \| `(\w+)` \| (.+) \|$", shown, re.MULTILINE)
    assert [name for *_, name, _ in rows] == list(layout.field_bits)
    at = 0
    for byte, bit, width, name, meaning in rows:
        assert int(byte) * 8 + int(bit or 0) == at
        at += int(width)
        assert told[name].endswith("."), f"{layout.name}.{name} has no meaning"
        assert meaning
    assert at == layout.size * 8
    assert f"<title>{layout.name}, {layout.size} byte" in shown


@pytest.mark.parametrize("name", sorted(messages.__all__))
def test_control_message_has_each_element(name: str) -> None:
    cls = getattr(messages, name)
    if not is_dataclass(cls):
        assert f"## {name} {{" in PAGES["reference/blazingmq/numbers.md"]
        return
    if name in UNREACHED:
        return
    shown = section("reference/blazingmq/control.md", name)
    for element in describe(cls).elements:  # type: ignore[arg-type]
        assert f"| {element.tag} | `{element.name}` |" in shown


@pytest.mark.parametrize("module", [administration, consuming, replicating, routing, sending])
def test_requests_have_each_header(module: Any) -> None:
    for name in module.__all__:
        if hasattr(getattr(module, name), "_fields"):
            assert f"\n## {name} {{" in PAGES["reference/rocketmq/requests.md"]


def test_faults_have_each_code_with_its_advice() -> None:
    for code, kind in CATALOGUE.items():
        assert f"| `{code}` | {text(kind.advice)} |" in PAGES["reference/faults.md"]


def test_alarms_have_each_place_that_raises_one() -> None:
    found = alarms()
    sources = [path.read_text() for path in (ROOT / "broker").rglob("*.py")]
    calls = sum(len(re.findall(r"^ +(?:alarm|panic)\(", source, re.MULTILINE)) for source in sources)
    written = sum(len(re.findall(r'"(?:ALARM|PANIC) \[[A-Z_]+\]', source)) for source in sources)
    # One call has a name for each of two states.
    assert len(found) == calls + written + 1
    assert all(re.fullmatch("[A-Z_]+", each.name) for each in found)
    for each in found:
        assert f"`{each.severity} [{each.name}]`" in PAGES["reference/alarms.md"]


def test_drawing_has_a_row_for_each_word() -> None:
    drawn = structure_drawing("A thing", {"kind": 4, "key": 40, "reserved": 20})
    boxes = re.findall(r'<rect class="(\w+)" x="(\d+)" y="(\d+)" width="(\d+)"', drawn)
    bit = 24  # pixels
    assert boxes == [
        ("field", "40", "16", str(4 * bit)),
        ("field", str(40 + 4 * bit), "16", str(28 * bit)),
        ("field", "40", "46", str(12 * bit)),
        ("reserved", str(40 + 12 * bit), "46", str(20 * bit)),
    ]


def test_drawing_turns_a_name_that_is_longer_than_its_field() -> None:
    drawn = structure_drawing("A thing", {"unlimited": 1, "counter": 7})
    assert re.search(r'transform="rotate\(-90[^>]*>unlimited<', drawn)
    assert not re.search(r"rotate[^>]*>counter<", drawn)
