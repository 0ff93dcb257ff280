"""`plain_acl.yml`, the accounts of RocketMQ's ACL 1.0 (source: PlainAccessData, AuthMigrator).

Reads the part of YAML that such files use: names with values, lists, and a list of accounts. Refuses other YAML.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from formats.errors import FormatError
from formats.rocketmq.remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

__all__ = ["Account", "read_accounts"]

_ACTIONS: Final = {"PUB": ["Pub"], "SUB": ["Sub"], "PUB|SUB": ["Pub", "Sub"], "SUB|PUB": ["Pub", "Sub"]}


class Account(NamedTuple):
    """An account as a user and its policies, if any. `white_addresses`: it lists addresses, which are ignored."""

    user: UserInfo
    acl: AclInfo | None
    white_addresses: bool


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def read_accounts(text: str) -> list[Account]:
    """Read the accounts of a file. Raises `FormatError` with the faulty line's number and no secret."""
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        bare = _without_comment(raw).rstrip()
        if bare.strip() and bare.strip() != "---":
            if "\t" in bare[: len(bare) - len(bare.lstrip())]:
                raise _fault(number, "is indented with tabs")
            lines.append(_Line(number, len(bare) - len(bare.lstrip()), bare.strip()))
    value, at = _block(lines, 0, 0) if lines else ({}, 0)
    if at < len(lines) or not isinstance(value, dict):
        raise _fault(lines[min(at, len(lines) - 1)].number, "is not what is expected here")
    accounts = value.get("accounts") or []
    if not isinstance(accounts, list):
        raise _fault(1, "has accounts that are no list")
    has_white = bool(value.get("globalWhiteRemoteAddresses"))
    return [_account(each, has_white) for each in accounts]


def _fault(number: int, reason: str) -> FormatError:
    return FormatError(f"plain_acl.yml, line {number}", 0, reason)


def _without_comment(line: str) -> str:
    quote = ""
    for at, each in enumerate(line):
        if quote:
            quote = "" if each == quote else quote
        elif each in "'\"" and (at == 0 or line[at - 1] in " :-"):
            quote = each
        elif each == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at]
    return line


def _scalar(text: str, number: int) -> str:
    text = text.strip()
    if text[:1] in ("'", '"'):
        if len(text) < 2 or text[-1] != text[0] or "\\" in text:
            raise _fault(number, "has a quoted text that cannot be read")
        return text[1:-1]
    if text[:1] in ("&", "*", "!", "|", ">", "{", "["):
        raise _fault(number, "has a value that needs quotes")
    return text


def _block(lines: list[_Line], at: int, indent: int) -> tuple[Any, int]:
    """Read the list or mapping at line `at`, indented at least by `indent`; return it and the next line's index."""
    first = lines[at]
    if first.indent < indent:
        return None, at
    return (_list if first.text == "-" or first.text.startswith("- ") else _mapping)(lines, at, first.indent)


def _list(lines: list[_Line], at: int, indent: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while at < len(lines) and lines[at].indent == indent and lines[at].text[:2] in ("-", "- "):
        number, _, text = lines[at]
        rest = text[1:].lstrip()
        if _is_pair(rest):
            # The item is a mapping; its following lines are indented as far as its first name.
            inner = indent + len(text) - len(rest)
            lines[at] = _Line(number, inner, rest)
            item, at = _mapping(lines, at, inner)
            items.append(item)
        else:
            items.append(_scalar(rest, number))
            at += 1
    return items, at


def _is_pair(text: str) -> bool:
    return text[:1] not in ("'", '"') and (": " in text or text.endswith(":"))


def _mapping(lines: list[_Line], at: int, indent: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at].indent == indent and not lines[at].text.startswith("- "):
        number, _, text = lines[at]
        if not _is_pair(text):
            raise _fault(number, "has no name with a colon")
        name, _, value = text.partition(":")
        at += 1
        if value.strip():
            found[name.strip()] = _scalar(value, number)
            continue
        is_list = at < len(lines) and lines[at].text.startswith("- ")
        found[name.strip()], at = (
            _block(lines, at, indent if is_list else indent + 1) if at < len(lines) else (None, at)
        )
    return found, at


def _account(value: Any, has_white: bool) -> Account:
    if not isinstance(value, dict):
        raise _fault(1, "has an account that is no mapping")
    name, secret = value.get("accessKey"), value.get("secretKey")
    if not isinstance(name, str) or not isinstance(secret, str):
        raise _fault(1, "has an account without accessKey or secretKey")
    is_admin = str(value.get("admin")).lower() == "true"
    custom = [*_entries(value, "topicPerms", "Topic"), *_entries(value, "groupPerms", "Group")]
    default = [*_default(value, "defaultTopicPerm", "Topic"), *_default(value, "defaultGroupPerm", "Group")]
    policies = [PolicyInfo(kind, entries) for kind, entries in (("Custom", custom), ("Default", default)) if entries]
    acl = AclInfo(f"User:{name}", policies) if policies else None
    user = UserInfo(name, secret, "Super" if is_admin else "Normal", "enable")
    return Account(user, acl, has_white or bool(value.get("whiteRemoteAddress")))


def _entries(account: dict[str, Any], field: str, kind: str) -> list[PolicyEntryInfo]:
    texts = account.get(field) or []
    if not isinstance(texts, list):
        raise _fault(1, f"has {field} that are no list")
    pairs = [str(text).split("=") for text in texts]
    if any(len(pair) != 2 for pair in pairs):
        raise _fault(1, f"has {field} that are not NAME=PERMISSION")
    return [_entry(f"{kind}:{name.strip()}", permission) for name, permission in pairs]


def _default(account: dict[str, Any], field: str, kind: str) -> list[PolicyEntryInfo]:
    permission = account.get(field)
    return [_entry(f"{kind}:*", permission)] if isinstance(permission, str) and permission else []


def _entry(resource: str, permission: str) -> PolicyEntryInfo:
    permission = permission.strip()
    decision = "Deny" if permission == "DENY" else "Allow"
    if decision == "Allow" and permission not in _ACTIONS:
        raise FormatError("plain_acl.yml", 0, f"{permission[:20]!r} is none of DENY, PUB, SUB and PUB|SUB")
    return PolicyEntryInfo(resource, _ACTIONS.get(permission, ["All"]), [], decision)
