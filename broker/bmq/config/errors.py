"""The error that reports an invalid configuration."""

from __future__ import annotations

__all__ = ["HIDDEN", "ConfigError", "shown"]

HIDDEN = "********"
"""The text that is shown in place of a secret."""

_SHOWN_CHARACTERS_MAX = 60


class ConfigError(ValueError):
    """A fault in a configuration file; `str` of it is one line for the operator.

    `file` is the path as given. `json_path` names the member (`$.myClusters[0].nodes[2].id`) or the place in the text
    (`line 3, column 7`); it is empty for the whole file. `reason` is a predicate of that member ("is missing"), and
    `remedy` is an imperative ("add it"). `others` are later faults in the same file.
    """

    def __init__(
        self, file: str, json_path: str, reason: str, remedy: str, others: tuple[ConfigError, ...] = ()
    ) -> None:
        super().__init__(file, json_path, reason, remedy)
        self.file = file
        self.json_path = json_path
        self.reason = reason
        self.remedy = remedy
        self.others = others

    def __str__(self) -> str:
        where = f"{self.file}: {self.json_path}" if self.json_path else self.file
        more = f" ({len(self.others)} more after this)" if self.others else ""
        return f"{where}: {self.reason}; {self.remedy}{more}"


def shown(value: object) -> str:
    """Return the representation of a value from a file, shortened to `_SHOWN_CHARACTERS_MAX` characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
