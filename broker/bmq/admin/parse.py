"""Parsing of commands, as words or as JSON; one table describes both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from broker.bmq.admin.commands import Command, Encoding, Value
from broker.bmq.admin.table import TABLE, CommandRow

__all__ = ["AdminCommandError", "parse", "parse_value"]

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


class AdminCommandError(Exception):
    """Text that is not a command; the message gives the reason."""


def parse(line: str) -> tuple[Command, Encoding]:
    """Return the command in `line` and the encoding of its answer. Raises `AdminCommandError`.

    A line that starts with a brace is JSON. Otherwise it has words, in any case, maybe after `ENCODING` and a setting.
    """
    if line.startswith("{"):
        return _from_json(line)
    words = line.split()
    encoding = Encoding.TEXT
    if words and words[0].upper() == "ENCODING":
        encoding = _encoding(words[1] if len(words) > 1 else "")
        words = words[2:]
    return _from_words(words), encoding


def _encoding(name: str) -> Encoding:
    try:
        return Encoding(name.upper())
    except ValueError:
        known = ", ".join(encoding.value for encoding in Encoding)
        raise AdminCommandError(f"ENCODING must be followed by one of {known}, not by {name!r}") from None


# -- words


class _Syntax(NamedTuple):
    """A row's words: fixed ones (None: an argument), then a tail of arguments of which one may be left out."""

    row: CommandRow
    head: tuple[tuple[str, ...] | None, ...]
    tail: tuple[bool, ...]  # True if it may be left out
    tail_words: tuple[str | None, ...]  # keyword, or None


def _syntax(row: CommandRow) -> _Syntax:
    tokens = row.words.split()
    last = max(n for n, token in enumerate(tokens) if not token.startswith(("<", "[", "(")) or "|" in token)
    head: list[tuple[str, ...] | None] = []
    for token in tokens[: last + 1]:
        is_argument = token.startswith(("<", "(<"))
        head.append(None if is_argument else tuple(token.strip("[]").split("|")))
    if head[-1] is None:  # `(<domain>|ALL)` at the end
        return _Syntax(row, tuple(head[:-1]), (False,), (None,))
    tail = tokens[last + 1 :]
    words = tuple(None if "<" in token else token.strip("[]") for token in tail)
    return _Syntax(row, tuple(head), tuple(token.startswith("[") for token in tail), words)


_SYNTAX = tuple(_syntax(row) for row in TABLE)


def _from_words(words: list[str]) -> Command:
    if not words:
        raise AdminCommandError("empty command; HELP lists the commands")
    found = list(_SYNTAX)
    at = 0
    while not (len(found) == 1 and at == len(found[0].head)):
        # A row that ends here while others go on (HELP has no such pair) would be ambiguous; the table has none.
        done = " ".join(words[:at])
        expected = sorted({_expected(syntax, at) for syntax in found})
        if at == len(words):
            raise AdminCommandError(f"'{done}' must be followed by {_one_of(expected)}")
        rest = [syntax for syntax in found if _fits(syntax.head[at], words[at])]
        if not rest:
            after = f" after '{done}'" if done else ""
            raise AdminCommandError(f"'{words[at]}' is unknown{after}: use {_one_of(expected)}")
        found = rest
        at += 1
    (syntax,) = found
    given = [word for choice, word in zip(syntax.head, words, strict=False) if choice is None or len(choice) > 1]
    return _make(syntax.row, [*given, *_tail(syntax, words[at:])])


def _fits(choice: tuple[str, ...] | None, word: str) -> bool:
    return choice is None or word.upper() in choice


def _expected(syntax: _Syntax, at: int) -> str:
    choice = syntax.head[at]
    return syntax.row.words.split()[at] if choice is None else " or ".join(choice)


def _one_of(expected: list[str]) -> str:
    return expected[0] if len(expected) == 1 else f"one of {', '.join(expected)}"


def _tail(syntax: _Syntax, words: list[str]) -> list[str | None]:
    """Return the arguments at the end, None for each omitted one."""
    usage = syntax.row.words
    left_out = len(syntax.tail) - len(words)
    if left_out < 0:
        extra = " ".join(words[len(syntax.tail) :])
        raise AdminCommandError(f"too many words for the command '{usage}': {extra}")
    if left_out > sum(syntax.tail):
        raise AdminCommandError(f"too few words for the command '{usage}'")
    given = iter(words)
    found: list[str | None] = []
    for optional, keyword in zip(syntax.tail, syntax.tail_words, strict=True):
        if optional and left_out:
            left_out -= 1
            found.append(None)
            continue
        word = next(given)
        if keyword is not None and word.upper() != keyword:
            raise AdminCommandError(f"'{word}' where the command '{usage}' has {keyword}")
        found.append(word)
    return found


def _make(row: CommandRow, given: list[str | None]) -> Command:
    values: dict[str, Any] = {}
    for field, word in zip(row.fields.split(), given, strict=True):
        name, is_flag, keyword = field.partition("=")
        if is_flag:
            values[name] = word is not None and word.upper() == keyword
        elif word is not None:
            name, _, kind = field.partition(":")
            try:
                values[name] = WORD_READERS[kind](word)
            except ValueError:
                raise AdminCommandError(f"'{word}' is not a valid {name} in the command '{row.words}'") from None
    return row.make(**values)


def _int(word: str) -> int:
    if not word.lstrip("+-").isdecimal() or not word.isascii():
        raise ValueError(word)
    number = int(word)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise ValueError(word)
    return number


def parse_value(word: str) -> Value:
    """Return a tunable's value: null, true, false, a number, or the text itself."""
    constants: dict[str, Value] = {"null": None, "true": True, "false": False}
    if word in constants:
        return constants[word]
    try:
        number = int(word)
        return number if -_LONG_MAX - 1 <= number <= _LONG_MAX else float(number)
    except (ValueError, OverflowError):
        pass
    try:
        return float(word)
    except ValueError:
        return word


WORD_READERS: dict[str, Callable[[str], Any]] = {
    "": str,
    "int": _int,
    "count": lambda word: 0 if word.upper() == "UNLIMITED" else _int(word),
    "partition": lambda word: -1 if word.upper() == "ALL" else _int(word),
    "or_all": lambda word: None if word.upper() == "ALL" else word,
    "value": parse_value,
}


# -- JSON


class _NoMatch(Exception):
    """The JSON does not match this row."""


def _from_json(text: str) -> tuple[Command, Encoding]:
    try:
        found = json.JSONDecoder(strict=False).raw_decode(text)[0]
        json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise AdminCommandError("the JSON is nested too deeply") from None
    except UnicodeEncodeError:
        raise AdminCommandError("the JSON has an unpaired surrogate") from None
    except ValueError as error:
        raise AdminCommandError(f"the command is not JSON: {error}") from None
    encoding = _encoding(str(found["encoding"])) if "encoding" in found else Encoding.TEXT
    faults = []
    for row, path in _paths():
        try:
            return row.make(**_taken(row, path, found)), encoding
        except _NoMatch:
            continue
        except AdminCommandError as fault:
            faults.append(fault)
    raise faults[0] if faults else AdminCommandError("the JSON names no command")


def _paths() -> Iterator[tuple[CommandRow, list[str]]]:
    for row in TABLE:
        for path in row.json:
            yield row, path.split()


def _taken(row: CommandRow, path: list[str], found: Any) -> dict[str, Any]:
    kinds = {name: kind for name, _, kind in (field.partition(":") for field in row.fields.split())}
    kinds |= {field.partition("=")[0]: "flag" for field in row.fields.split() if "=" in field}
    values: dict[str, Any] = {}
    for step in path:
        if step[0] in "+-":
            values[step[1:]] = step[0] == "+"
        elif "=" in step:
            key, _, name = step.partition("=")
            optional = name.endswith("?")
            name = name.rstrip("?")
            item = _object(found).get(key)
            if item is None:
                if not optional:
                    raise _NoMatch
                continue
            values[name] = _json_field(row, name, kinds[name], item)
        elif "?" in step:
            key, _, name = step.partition("?")
            values[name] = key in _object(found)
        else:
            if step not in _object(found):
                raise _NoMatch
            found = found[step]
    return values


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _NoMatch
    return found


def _json_field(row: CommandRow, name: str, kind: str, item: Any) -> Any:
    fault = AdminCommandError(f"{json.dumps(item)[:80]} is not a valid {name} in the command '{row.words}'")
    if kind == "flag":
        if not isinstance(item, bool):
            raise fault
        return item
    if kind in ("int", "count", "partition"):
        if isinstance(item, bool) or not isinstance(item, int) or not -_INT_MAX - 1 <= item <= _INT_MAX:
            raise fault
        return item
    if kind == "value":
        if not isinstance(item, dict) or len(item) != 1:
            raise fault
        ((key, value),) = item.items()
        if key == "theNull":
            return None
        if not key.startswith("the") or not isinstance(value, bool | int | float | str):
            raise fault
        return value
    if not isinstance(item, str) or not item:
        raise fault
    return item
