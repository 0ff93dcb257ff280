"""The removal of secrets from configurations, answers and logs, by their names, their forms and their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

__all__ = ["REDACTED", "Redaction", "has_private_key"]

REDACTED: Final = "REDACTED"
# Shorter values are not looked for elsewhere: they occur by chance.
VALUE_CHARS_MIN: Final = 6
VALUES_MAX: Final = 1_000
LINE_CHARS_MAX: Final = 64 << 10
BLOCK_LINES_MAX: Final = 500

_WORDS: Final = (
    r"passw(?:or)?d|passphrase|secret|token|credential|private[_.-]?key|access[_.-]?key|api[_.-]?key"
    r"|authorization|authn[_.-]?data|signature"
)
_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
# The name of a secret, what separates it from the value, and the value: quoted, or up to what ends a word.
_IN_TEXT: Final = re.compile(
    rf"""((?:{_WORDS})[\w.-]{{0,64}}\\*["']?\s{{0,8}}[=:]\s{{0,8}})"""
    r"""(\\*"(?:[^"\\]|\\.)*"?|'[^']*'?|(?:(?:Basic|Bearer|Digest)\s+)?[^\s,;&}\])]+)""",
    re.IGNORECASE,
)
_IN_LINE: Final = re.compile(rf"(^[^=:]*(?:{_WORDS})[^=:]*[=:]\s*)(.*)$", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(r"\b(Basic|Bearer)\s+[A-Za-z0-9+/=._~-]{8,}")
_USER_IN_ADDRESS: Final = re.compile(r"(://)[^/\s:@]{1,256}:[^/\s@]{1,256}@")
_KEY_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_KEY_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")
_KEY: Final = re.compile(rf"{_KEY_BEGIN.pattern}.*?{_KEY_END.pattern}")
# A line of a key whose first line is not seen, as where the end of a log is cut off.
_BASE64_LINE: Final = re.compile(r"\s*[A-Za-z0-9+/]{40,}={0,2}\s*")
_NAMED: Final = ("key", "name")


def has_private_key(text: str) -> bool:
    """Return whether a private key in PEM is in a text."""
    return _KEY_BEGIN.search(text) is not None


class Redaction:
    """The secrets that were found so far, which are struck out wherever they occur again.

    A value that stands under the name of a secret is one; so is one under `value` in the configuration of
    authentication, where BlazingMQ has users and passwords as pairs.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._known: re.Pattern[str] | None = None
        for each in secrets:
            self._learn(each)

    # -- texts

    def text(self, text: str) -> str:
        """Return a text of one line without secrets."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        text = _KEY.sub(REDACTED, text)
        if _NAME.search(text):
            text = _IN_TEXT.sub(rf"\1{REDACTED}", text)
        if "asic" in text or "earer" in text:
            text = _AUTHORIZATION.sub(rf"\1 {REDACTED}", text)
        if "://" in text:
            text = _USER_IN_ADDRESS.sub(rf"\1{REDACTED}@", text)
        return text

    def log(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of a log without secrets; of a longer line than any of a broker's, only the beginning."""
        left = 0
        for line in lines:
            if left:
                left = 0 if _KEY_END.search(line) else left - 1
                continue
            shown = self.text(line[:LINE_CHARS_MAX])
            if found := _KEY_BEGIN.search(shown):
                left = BLOCK_LINES_MAX
                yield f"{shown[: found.start()]}{REDACTED}\n"
            elif _BASE64_LINE.fullmatch(shown):
                yield f"{REDACTED}\n"
            else:
                yield shown if shown.endswith("\n") else f"{shown}\n"

    # -- configurations

    def configuration(self, text: str) -> str:
        """Return a configuration in JSON, YAML or properties without secrets."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return "".join(f"{line}\n" for line in self._settings(text.replace("\\\n", "")))
        return json.dumps(self.value(found), indent=4) + "\n"

    def _settings(self, text: str) -> Iterator[str]:
        """Yield lines of `name=value` and `name: value`; what is indented below a secret's name belongs to it."""
        for line in text.splitlines():
            self._learn_from(line)
        below: int | None = None
        for line in self.log(text.splitlines(keepends=True)):
            line = line.rstrip("\n")
            indent = len(line) - len(line.lstrip(" -"))
            if below is not None and (indent > below or not line.strip()):
                continue
            below = None
            if found := _IN_LINE.match(line):
                below = indent
                line = f"{found[1]}{REDACTED}"
            yield line

    def value(self, value: Any) -> Any:
        """Return a value of JSON without secrets. Raises `RecursionError` for one of too many levels."""
        return self._value(value, False, False)

    def _value(self, value: Any, is_secret: bool, in_authentication: bool) -> Any:
        if isinstance(value, dict):
            named = any(isinstance(value.get(each), str) and _NAME.search(value[each]) for each in _NAMED)
            found = {}
            # fastjson's names may be numbers.
            for name, each in ((str(name), each) for name, each in value.items()):
                below = in_authentication or "authentic" in name.lower()
                hides = is_secret or bool(_NAME.search(name)) or (name == "value" and (named or below))
                found[name] = self._value(each, hides, below)
            return found
        if isinstance(value, list):
            return [self._value(each, is_secret, in_authentication) for each in value]
        if value is None or isinstance(value, bool):
            return value
        if is_secret:
            self._learn(str(value))
            return REDACTED
        return self.text(value) if isinstance(value, str) else value

    def _learn_from(self, line: str) -> None:
        for each in _IN_TEXT.finditer(line):
            self._learn(each[2].strip("\\\"'"))
        if found := _IN_LINE.match(line):
            self._learn(found[2].strip(" \"'"))

    def _learn(self, value: str) -> None:
        _, colon, password = value.partition(":")
        if colon:
            # An identity is a user and a password.
            self._learn(password)
        if len(value) < VALUE_CHARS_MIN or value == REDACTED or REDACTED in value or len(self._values) >= VALUES_MAX:
            return
        if value not in self._values:
            self._values.add(value)
            ordered = sorted(self._values, key=len, reverse=True)
            self._known = re.compile("|".join(re.escape(each) for each in ordered))
