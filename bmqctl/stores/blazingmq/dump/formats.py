"""The formats of a dump, without what prints them: the options of commands name them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from types import ModuleType

from bmqctl.common.installed import installing

__all__ = ["DumpFormat", "NoArrow", "format_by_name", "load_arrow"]


class DumpFormat(StrEnum):
    """Formats of a dump; `json-pretty` is that of the reference's storage tool, `arrow` an IPC stream.

    `jsonl` is what other commands call `json-line`.
    """

    TABLE = "table"
    JSON_LINE = "json-line"
    JSONL = "jsonl"
    JSON_PRETTY = "json-pretty"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def is_columnar(self) -> bool:
        return self in (DumpFormat.PARQUET, DumpFormat.ARROW)


class NoArrow(Exception):
    """Error that pyarrow is not installed; one line that names the extra."""


def load_arrow() -> ModuleType:
    """Import `bmqctl.stores.blazingmq.dump.arrow`. Raises NoArrow if it is not available."""
    try:
        from bmqctl.stores.blazingmq.dump import arrow
    except ImportError:
        raise NoArrow(f"this output needs pyarrow, which is not installed: {installing('arrow')}") from None
    return arrow


def format_by_name(out: Path) -> DumpFormat | None:
    """Return the format implied by a file's name."""
    return _SUFFIXES.get(out.suffix.lower())


_SUFFIXES = {
    ".json": DumpFormat.JSON_LINE,
    ".jsonl": DumpFormat.JSON_LINE,
    ".ndjson": DumpFormat.JSON_LINE,
    ".csv": DumpFormat.CSV,
    ".parquet": DumpFormat.PARQUET,
    ".arrow": DumpFormat.ARROW,
    ".arrows": DumpFormat.ARROW,
}
