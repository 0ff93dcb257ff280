"""Properties in force: administrators can read them, and change some while the node runs.

A change takes effect at once, and is then written to the configuration file, if any. Changes that need a restart are
refused; the original accepts them, without effect before the next start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from broker.common.kept import KeptFile
from formats.errors import FormatError
from formats.rocketmq.files.property_text import read_properties, write_properties
from formats.rocketmq.remoting.codes import ResponseCode

__all__ = ["SettingRefused", "Settings"]

log = logging.getLogger("broker.rocketmq.settings")

TEXT_BYTES_MAX: Final = 1 << 16

Read = Callable[[str], Any]


class SettingRefused(Exception):
    """The code and the text of the answer to a refused change."""

    def __init__(self, code: ResponseCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Settings:
    """Properties by name. `readers` check and parse the known ones' values.

    `keep` writes changes to the configuration file; if it raises `OSError`, the change is not made, or undone if the
    `file` has a `Keeper`. `locked` properties cannot be changed. Appliers get `initial` values when they are added.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        readers: Mapping[str, Read],
        keep: Callable[[Mapping[str, str]], None],
        locked: Collection[str] = (),
        initial: Mapping[str, str] | None = None,
    ) -> None:
        self._properties = {**properties, **(initial or {})}
        self._initial = initial or {}
        self._readers = readers
        self.file = KeptFile(lambda data: keep(json.loads(data)), self._content, self._settled)
        # The values in the file, changes since the last write began, and changes being written.
        self._kept = dict(self._properties)
        self._changed: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._locked = frozenset(locked)
        self._appliers: dict[str, Callable[[Any], None]] = {}
        # Returns why properties may not have new values together, or None.
        self.find_fault: Callable[[Mapping[str, Any]], str | None] = lambda values: None
        self.changes = 0

    def on_change(self, name: str, apply: Callable[[Any], None]) -> None:
        """Call `apply` with each new value of a property, and at once with its initial one, if any."""
        self._appliers[name] = apply
        if name in self._initial:
            apply(self._readers[name](self._initial[name]))

    def text(self, others: Mapping[str, str] | None = None) -> bytes:
        """Return all properties as text, with `others` in place of those of the same names."""
        return write_properties({**self._properties, **(others or {})})

    def change(self, data: bytes, who: str) -> list[str]:
        """Change the properties in a text, all or none; return their names. Raises `SettingRefused`."""
        changes = self._read(data)
        values = {name: self._value(name, text) for name, text in changes.items()}
        fault = self.find_fault(values)
        if fault is not None:
            raise SettingRefused(ResponseCode.INVALID_PARAMETER, fault)
        # A change that cannot be written is not made.
        self._changed.update(changes)
        self.file.changed()
        for name, value in values.items():
            self._appliers[name](value)
            self._properties[name] = changes[name]
            log.info("%s sets %s to %s", who, name, changes[name])
        self.changes += 1
        return list(changes)

    def _content(self) -> bytes:
        self._written, self._changed = self._changed, {}
        return json.dumps(self._written).encode()

    def _settled(self, error: OSError | None) -> None:
        written, self._written = self._written, {}
        if error is None:
            self._kept.update(written)
            return
        undone, self._changed = {**written, **self._changed}, {}
        for name in undone:
            before = self._kept.get(name)
            if before is not None and self._properties[name] != before:
                self._properties[name] = before
                self._appliers[name](self._readers[name](before))
                log.warning("%s is %s again", name, before)

    def _read(self, data: bytes) -> dict[str, str]:
        try:
            return read_properties(data[:TEXT_BYTES_MAX].decode())
        except (UnicodeDecodeError, FormatError):
            raise SettingRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None

    def _value(self, name: str, text: str) -> Any:
        if name in self._locked:
            raise SettingRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if name not in self._readers:
            raise SettingRefused(ResponseCode.INVALID_PARAMETER, f"{name[:80]} means nothing here")
        if name not in self._appliers:
            text = f"{name} cannot be changed while the node runs; change it in the configuration file and restart"
            raise SettingRefused(ResponseCode.INVALID_PARAMETER, text)
        try:
            return self._readers[name](text)
        except ValueError as error:
            raise SettingRefused(ResponseCode.INVALID_PARAMETER, f"{name}: '{text[:80]}' {error}") from None
