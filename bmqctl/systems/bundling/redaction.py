"""Removal of secrets from configurations, answers and logs, by name, form and value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bmqctl.common.pretty import pretty

__all__ = ["REDACTED", "Redaction", "has_private_key"]

REDACTED: Final = "REDACTED"
# Shorter values are not sought elsewhere: they occur by chance.
VALUE_CHARS_MIN: Final = 6
VALUES_MAX: Final = 1_000
LINE_CHARS_MAX: Final = 64 << 10
BLOCK_LINES_MAX: Final = 500

# Words that make a name a secret's anywhere in it.
_ANYWHERE: Final = (
    r"passw(?:or)?[dt]|kennwort|contrase[nñ]a|mot_?de_?passe|wachtwoord|пароль|密码|mnemonic|csrf|xsrf|passphrase|passcode|requirepass|secret|token|credential|authorization|authn[_.-]?data|signature"
    r"|master[_.-]?auth|cookie|bearer|keytab"
    r"|(?:private|access|api|account|storage|shared|master|enc(?:rypt(?:ion)?)?|crypt(?:o)?|cipher|signing|sign|hmac|aes|rsa"
    r"|ssh|pgp|gpg|session|client|auth|user|priv|licen[cs]e)[_.-]?key"
    r"|session[_.-]?id|(?:unlock|pairing|verification|recovery|backup|security)[_.-]?code"
)
# Words that do so only as whole words of a name, as in `db_pwd`, `dbPwd` and `PWD`, not within `task` or `passive`.
_SHORT: Final = r"pass|pwd|pw|psk|otp|jwt|creds?|sig|sk|pin|salt|pepper|senha|sas"
_CAMEL: Final = (
    r"(?-i:(?<=[a-z0-9])(?:P(?:ass|ASS|wd|WD|w|W|sk|SK|in|IN)|O(?:tp|TP)|J(?:wt|WT)|Creds?|Sig|S(?:[kK]|alt|AS)|Auth))"
    r"(?![a-z])"
)
# Words at the end of a name without a separator: `dbpass`, `mysqlpwd`, but not English words such as `bypass`.
_ENDING: Final = r"(?<=[a-z0-9])(?<!\bby)(?<!\bcom)(?<!\btres)(?<!\bover)(?<!\bunder)(?:pass|pwd|pw)(?![a-z])"
_WORDS: Final = (
    rf"{_ANYWHERE}|(?<![a-z])(?:{_SHORT})(?![a-z])|(?<![a-z0-9])_?auth(?![a-z_.-])|pw_?hash|{_CAMEL}|{_ENDING}"
)
_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
# Each secret's name contains one of these in lower case; searching for them first is much faster.
_STEM: Final = re.compile(
    "pass|pwd?|psk|secret|token|cred|key|auth|sig|sk|otp|jwt|cookie|bearer|wort|woord|contrase|senha|пароль|密码"
    "|mnemonic|csrf|xsrf|session|code|pin|salt|pepper|sas|identified"
)
_STEM_LEFT: Final = 16
_STEM_RIGHT: Final = 24
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}

# A value: quoted, or up to the end of a word. A comma or a bracket ends it only before a space or a quote.
_VALUE: Final = (
    r"""\\*"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|`[^`]*`?"""
    r"""|(?:(?:Basic|Bearer|Digest|Negotiate|Token|ApiKey)\s+)?(?:[^\s,;&}\])<>"]|[,;}\])](?=[\w!#$%*+/=?@^~-]))+"""
)
# The rest of a secret's name, the separator, and the value.
_REST: Final = r"""[\w.-]{0,64}\\*["'`]?\]?"""
_ASSIGNED: Final = re.compile(
    _REST
    + r"""(?:\s{0,8}(?::=|=>|->|==|[=:>]|%3[dD])\s{0,8}\[?\s{0,8}|\s{1,8}(?:is|was|are|to|by|as)\s{1,8}:?\s{0,8}"""
    r"""|\s{1,8}(?:of|for)\s{1,8}[^\s:=]{1,64}\s{0,8}(?:[:=]|\s{1,8}is\s)\s{0,8}"""
    rf"""|\s{{1,8}}(?=\\*["'`]|[^\s]{{0,64}}[0-9!@#$%^&*+/_]))({_VALUE})""",
    re.IGNORECASE,
)
# The front of a command line option, whose value may look like an ordinary word.
_OPTION: Final = re.compile(r"(?:^|[^\w-])--?[\w.-]{0,64}$")
_OPTION_VALUE: Final = re.compile(rf"{_REST}\s{{1,8}}(?!-)({_VALUE})", re.IGNORECASE)
# A name and value as a pair: `"key": "password", "value": "x"`, `<property name="password" value="x"/>`.
_IN_PAIR: Final = re.compile(
    rf"""((?:name|key)\\*["']?\s{{0,8}}[=:]\s{{0,8}}\\*["']?[\w.-]{{0,64}}?(?:{_WORDS})[\w.-]{{0,64}}\\*["']?"""
    rf"""[\s,]{{1,8}}\\*["']?value\\*["']?\s{{0,8}}[=:]\s{{0,8}})({_VALUE})""",
    re.IGNORECASE,
)
# Headers whose entire value is secret, in quotes or up to the end of the line.
_HEADER: Final = re.compile(
    r"""(\b(?:(?:proxy-)?authorization|(?:set-)?cookie)\\*["']?\s{0,8}[:=]\s{0,8})"""
    r"""(\\*"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\n"']+)""",
    re.IGNORECASE,
)
_IN_LINE: Final = re.compile(rf"(^[^=:]*(?:{_WORDS})[^=:]*[=:]\s*)(.*)$", re.IGNORECASE)
# A setting with a space between name and value, as in properties.
_SPACED: Final = re.compile(rf"(^\s*[\w.-]*(?:{_WORDS})[\w.-]*\s+)([^\s=:].*)$", re.IGNORECASE)
# In YAML, the name of a pair, and the value on a later line.
_NAME_LINE: Final = re.compile(rf"\s*-?\s*(?:name|key)\s*[=:]\s*[\"']?[\w.-]*(?:{_WORDS})", re.IGNORECASE)
_VALUE_LINE: Final = re.compile(r"(\s*-?\s*value\s*[=:]\s*)(.*)$", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(r"\b(Basic|Bearer)\s+[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)
# A user and a password in options like curl's.
_USER_OPTION: Final = re.compile(r"""(\s(?:-u|--user|--proxy-user)[\s=]+["']?[^\s:"']{1,128}:)[^\s"']+""")
_USER_IN_ADDRESS: Final = re.compile(r"(://)[^/\s\"'<>]{1,512}@")
# Secrets recognized by their form: JSON Web Tokens, and keys of well-known services.
_FORMS: Final = re.compile(
    r"\beyJ[\w-]{6,4096}\.[\w-]{6,4096}\.?[\w-]{0,4096}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,255}"
    r"|\bgithub_pat_\w{20,255}|\bglpat-[\w-]{20,255}|\bxox[abeoprs]-[\w-]{10,255}|\bAIza[\w-]{30,255}"
)
_FORM_MARKS: Final = (
    "eyJ",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "AIza",
)
_KEY_BEGIN: Final = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-{4,5}")
_KEY_END: Final = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-{4,5}")
# A line of a key whose first line is not seen, as where a log is cut.
_BASE64_LINE: Final = re.compile(r"\s*[A-Za-z0-9+/]{40,}={0,2}\s*")
# The secret members of a JSON Web Key.
_OF_WEB_KEY: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "k", "oth"})
_NAMED: Final = ("key", "name")


def has_private_key(text: str) -> bool:
    return _KEY_BEGIN.search(text) is not None


def _without_keys(text: str) -> str:
    parts, at = [], 0
    while (begin := _KEY_BEGIN.search(text, at)) and (end := _KEY_END.search(text, begin.end())):
        parts += [text[at : begin.start()], REDACTED]
        at = end.end()
    return "".join([*parts, text[at:]])


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    for stem in _STEM.finditer(text.translate(_LOWER)):
        if stem.start() < at:
            continue
        name = _NAME.search(text, max(at, stem.start() - _STEM_LEFT), stem.end() + _STEM_RIGHT)
        if name is None:
            continue
        found = _ASSIGNED.match(text, name.end())
        if found is None and _OPTION.search(text, max(0, name.start() - 70), name.start()):
            found = _OPTION_VALUE.match(text, name.end())
        at = name.end()
        if found is not None:
            yield found.span(1)
            at = found.end()


def _without_assigned(text: str) -> str:
    parts, at = [], 0
    for first, end in _assigned(text):
        parts += [text[at:first], REDACTED]
        at = end
    return "".join([*parts, text[at:]])


def _setting(line: str) -> re.Match[str] | None:
    """Match a line of a configuration that sets a secret: the name with the separator, and the value."""
    if _NAME_LINE.match(line):
        return None
    return _IN_LINE.match(line) or _SPACED.match(line)


class Redaction:
    """The secrets found so far, which are removed wherever they occur again.

    A value under a secret's name is one; so is a `value` in the configuration of authentication, where BlazingMQ has
    users and passwords as pairs.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._known: re.Pattern[str] | None = None
        for each in secrets:
            self._learn(each)

    # -- texts

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        if "PRIVATE KEY" in text:
            text = _without_keys(text)
        lowered = text.translate(_LOWER)
        if _STEM.search(lowered):
            if "authorization" in lowered or "cookie" in lowered:
                text = _HEADER.sub(rf"\1{REDACTED}", text)
            if "value" in lowered:
                text = _IN_PAIR.sub(rf"\1{REDACTED}", text)
            text = _without_assigned(text)
        if "asic" in text or "earer" in text:
            text = _AUTHORIZATION.sub(rf"\1 {REDACTED}", text)
        if "-u" in text or "-user" in text:
            text = _USER_OPTION.sub(rf"\1{REDACTED}", text)
        if "://" in text:
            text = _USER_IN_ADDRESS.sub(rf"\1{REDACTED}@", text)
        if any(mark in text for mark in _FORM_MARKS):
            text = _FORMS.sub(REDACTED, text)
        return text

    def log(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of a log without secrets; only the beginning of one longer than any of a broker's."""
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
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return "".join(f"{line}\n" for line in self._settings(text.replace("\\\n", "")))
        return pretty(self.value(found), 4) + "\n"

    def _settings(self, text: str) -> Iterator[str]:
        """Yield lines of `name=value` and `name: value`; lines indented below a secret's name belong to it."""
        for line in text.splitlines():
            self._learn_from(line)
        below: int | None = None
        is_named = False
        for line in self.log(text.splitlines(keepends=True)):
            line = line.rstrip("\n")
            indent = len(line) - len(line.lstrip(" -"))
            if below is not None and (indent > below or not line.strip()):
                continue
            below = None
            found = _VALUE_LINE.match(line) if is_named else None
            is_named = is_named and not found and bool(line.strip())
            if found := found or _setting(line):
                below = indent
                line = f"{found[1]}{REDACTED}"
            elif _NAME_LINE.match(line):
                is_named = True
            yield line

    def value(self, value: Any) -> Any:
        """The JSON value without secrets. Raises `RecursionError` for one of too many levels."""
        return self._value(value, False, False)

    def _value(self, value: Any, is_secret: bool, in_authentication: bool) -> Any:
        if isinstance(value, dict):
            named = any(isinstance(value.get(each), str) and _NAME.search(value[each]) for each in _NAMED)
            is_web_key = "kty" in value
            found = {}
            # fastjson's names may be numbers.
            for name, each in ((str(name), each) for name, each in value.items()):
                below = in_authentication or "authentic" in name.lower()
                hides = is_secret or bool(_NAME.search(name)) or (name == "value" and (named or below))
                hides = hides or (is_web_key and name in _OF_WEB_KEY)
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
        for first, end in _assigned(line):
            self._learn(line[first:end].strip("\\\"'`"))
        if found := _setting(line):
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
