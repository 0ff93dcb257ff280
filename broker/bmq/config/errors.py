"""The one error of a configuration that cannot be used."""

from __future__ import annotations

__all__ = ["HIDDEN", "ConfigError", "shown"]

HIDDEN = "********"
"""What stands for a secret."""

_SHOWN_CHARACTERS_MAX = 60


class ConfigError(ValueError):
    """A fault in a configuration file; `str` of it is one line for the operator.

    `file` is the path as it was given, `json_path` the member (`$.myClusters[0].nodes[2].id`) or the place in the
    text (`line 3, column 7`), empty where the whole file is meant; `reason` says what is wrong and `remedy` what to do.
    """

    def __init__(self, file: str, json_path: str, reason: str, remedy: str) -> None:
        super().__init__(file, json_path, reason, remedy)
        self.file = file
        self.json_path = json_path
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.file}: {self.json_path}" if self.json_path else self.file
        return f"{where}: {self.reason}; {self.remedy}"


def shown(value: object) -> str:
    """A value from a file, in one line and not too long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 3] + "..."
