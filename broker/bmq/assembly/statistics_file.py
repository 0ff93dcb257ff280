"""The file to which statistics are written periodically, if configured (source: StatsFileLogger)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from broker.bmq.config import NodeConfig
from broker.bmq.config.broker_schema import StatsPrinterConfig, StatsPrinterEncodingFormat
from broker.bmq.core.work import Task
from broker.bmq.node.node import Node
from broker.shell.files.mapped_files import make_folder, open_private
from broker.shell.process.logs import log_file

__all__ = ["StatisticsFile", "write_statistics"]

log = logging.getLogger("broker.statistics")

DAY_S = 86_400
JSON = (StatsPrinterEncodingFormat.JSON, StatsPrinterEncodingFormat.TABLE_AND_JSON)

UNITS_PER_LINE = 20


class StatisticsFile:
    """A file that is rotated when it is long or old; rotated files are removed when they are old."""

    def __init__(self, path: Path, settings: StatsPrinterConfig) -> None:
        self._path = path
        self._settings = settings
        self._file: IO[str] | None = None
        self._begun_s = 0.0
        self._failed = False

    def write(self, lines: Iterator[str]) -> Iterator[None]:
        """Write lines, with a pause after each. Lines that cannot be written are dropped, and logged once."""
        try:
            file = self._open()
            for line in lines:
                file.write(line)
                yield
            file.flush()
            self._failed = False
        except OSError as error:
            self.close()
            if not self._failed:
                log.error("statistics cannot be written to %s: %s", self._path, error.strerror)
            self._failed = True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.debug("%s: %s", self._path, error.strerror)

    def _open(self) -> IO[str]:
        now_s = time.time()
        if self._file is not None and self._is_full(self._file, now_s):
            self.close()
            aside = time.strftime("%Y%m%d_%H%M%S", time.gmtime(now_s))
            self._path.rename(self._path.with_name(f"{self._path.name}.{aside}"))
            self._remove_old(now_s)
        if self._file is None:
            make_folder(self._path.parent)
            self._file = open(self._path, "a", encoding="utf-8", opener=open_private)  # noqa: SIM115
            self._begun_s = now_s
        return self._file

    def _is_full(self, file: IO[str], now_s: float) -> bool:
        settings = self._settings
        is_long = 0 < settings.rotate_bytes <= os.fstat(file.fileno()).st_size
        return is_long or 0 < settings.rotate_days * DAY_S <= now_s - self._begun_s

    def _remove_old(self, now_s: float) -> None:
        if self._settings.max_age_days <= 0:
            return
        for path in self._path.parent.glob(f"{self._path.name}.*"):
            if now_s - path.stat().st_mtime > self._settings.max_age_days * DAY_S:
                path.unlink(missing_ok=True)


def write_statistics(config: NodeConfig, node: Node) -> None:
    """Write statistics periodically, if configured, in slices."""
    stats = config.broker.app_config.stats
    settings = stats.printer
    if (
        not settings.file
        or settings.encoding not in JSON
        or settings.print_interval <= 0
        or stats.snapshot_interval <= 0
    ):
        return
    from broker.bmq.admin.statistics_lines import statistics_lines

    file = StatisticsFile(log_file(settings.file + ".json", config.run_directory), settings)
    interval_ms = settings.print_interval * 1000
    numbers = iter(range(1, 1 << 62))

    def write() -> Task:
        work = node.work
        try:
            for _ in file.write(statistics_lines(node, next(numbers))):
                work.left -= UNITS_PER_LINE
                while not work.may_go_on():
                    yield
        except Exception as error:
            # A long task that fails would end the node.
            node.faults.note("writing statistics", error)
        node.timers.at(node.now.ms + interval_ms, begin)

    def begin() -> None:
        node.work.start(write())

    node.timers.at(node.now.ms + interval_ms, begin)
