"""Java's properties as text: `name=value`, a line each. Configuration files and the requests that change them."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["changed_properties", "read_properties", "write_properties"]


def read_properties(text: str) -> dict[str, str]:
    """The properties of a text: `name=value` or `name: value`, a line each; `#` and `!` begin comments."""
    properties: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        found = _split(line)
        if found is not None:
            properties[found[0]] = found[1]
    return properties


def _split(line: str) -> tuple[str, str] | None:
    line = line.strip()
    if not line or line[0] in "#!":
        return None
    at = min((place for place in (line.find("="), line.find(":")) if place >= 0), default=len(line))
    return line[:at].strip(), line[at + 1 :].strip()


def write_properties(properties: Mapping[str, str]) -> bytes:
    """Properties as text, in the order of their names."""
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode()


def changed_properties(text: str, changes: Mapping[str, str]) -> str:
    """A text with some properties changed: in their lines where they have one, else behind all others.

    Comments and everything else stay as they are.
    """
    left = dict(changes)
    lines = []
    for line in text.splitlines():
        found = _split(line)
        if found is not None and found[0] in changes:
            if found[0] not in left:
                continue
            line = f"{found[0]}={left.pop(found[0])}"
        lines.append(line)
    lines += [f"{name}={value}" for name, value in left.items()]
    return "".join(f"{line}\n" for line in lines)
