"""The check of `scripts/check` that modules parse numbers in texts by bounded functions.

    .venv/bin/python -m scripts.checks.bounded_numbers

RocketMQ's modules read untrusted texts: properties of messages, fields of headers, names of files. `int` and
`str.isdecimal` accept digits of all scripts, and `int` raises for more than 4,300 digits. So only
`formats.rocketmq.numbers` and the modules of `EXCEPTIONS` may use them. `int` may be applied to an expression that is
evidently a number: a member of an enumeration, arithmetic, an item of a column that is an attribute, or any expression
in a module that uses NumPy.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGES = ("formats/rocketmq", "broker/rocketmq", "bmqctl/stores/rocketmq", "bmqctl/systems/rocketmq/status")

EXCEPTIONS: Mapping[str, str] = {
    "formats/rocketmq/numbers.py": "It is the reader of numbers.",
    "formats/rocketmq/remoting/headers/codec.py": "Fields of requests: a bounded pattern has matched before.",
    "formats/rocketmq/remoting/fastjson.py": "A bounded pattern has matched before.",
    "formats/rocketmq/files/epochs.py": "A bounded pattern has matched before.",
    "formats/rocketmq/fast/send_forms.py": "It is on the path of each message, and reads a bounded number of bytes.",
    "formats/rocketmq/fast/send_frames.py": "It is on the path of each message, and bounds the digits itself.",
    "broker/rocketmq/sending/plain_sending.py": "It reads the marks that it has written itself.",
    "broker/rocketmq/node.py": "The system gives the port of a peer.",
}
"""Modules that may use them, by path, with the reason."""

_TESTS = ("isdecimal", "isdigit", "isnumeric")


def faults(path: str, text: str) -> Iterator[str]:
    """Yield a line for each place in a module that parses a number in a text itself."""
    tree = ast.parse(text)
    uses_numpy = any(
        isinstance(node, ast.Import) and any(alias.name == "numpy" for alias in node.names) for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _TESTS:
            yield f"{path}:{node.lineno}: use formats.rocketmq.numbers instead of {node.attr}"
        if not isinstance(node, ast.Call):
            continue
        if any(_is_int(argument) for argument in node.args) and getattr(node.func, "id", "") == "map":
            yield f"{path}:{node.lineno}: use formats.rocketmq.numbers instead of int"
        if _is_int(node.func) and not uses_numpy and not all(map(_is_number, node.args)):
            yield f"{path}:{node.lineno}: use formats.rocketmq.numbers instead of int"


def _is_int(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "int"


def _is_number(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.Add()):
            # An addition may concatenate texts.
            return _is_number(node.left) and _is_number(node.right)
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return True
        case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name[:1].isupper()
        case ast.Subscript(value=ast.Attribute(), slice=index):
            return not isinstance(index, ast.Slice)
        case ast.Constant(value=value):
            return not isinstance(value, str)
    return False


def complaints(modules: Mapping[str, str], exceptions: Mapping[str, str]) -> list[str]:
    """List the faults of modules, given as texts by path, and the unneeded exceptions."""
    found = {path: list(faults(path, text)) for path, text in modules.items()}
    lines = [line for path, each in found.items() if path not in exceptions for line in each]
    return lines + [f"{path}: remove it from EXCEPTIONS" for path in exceptions if not found.get(path)]


def main() -> int:
    root = Path(__file__).parents[2]
    files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
    lines = complaints({file.relative_to(root).as_posix(): file.read_text() for file in files}, EXCEPTIONS)
    for line in lines:
        print(f"numbers: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
