"""The archive: files in a folder of their own, and a manifest that names them and missing ones."""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from gzip import GzipFile
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from bmqctl.common.pretty import pretty
from bmqctl.systems.bundling.redaction import Redaction

__all__ = ["ANSWER_BYTES_MAX", "Archive"]

ANSWER_BYTES_MAX: Final = 8 << 20
_MEMORY_BYTES: Final = 4 << 20


class Archive:
    """A .tar.gz that is written piece by piece, and gets its name when complete. Only its owner can read it."""

    def __init__(self, path: Path, redaction: Redaction) -> None:
        self.path = path
        self.redaction = redaction
        self.missing: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []
        self._root = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        self._partial = Path(name)
        self._file = os.fdopen(handle, "wb")
        # A badly wrong clock might not fit.
        self._compressed = GzipFile("", "wb", 6, self._file, mtime=0)
        self._tar = tarfile.open(fileobj=self._compressed, mode="w")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if fault is not None:
            with suppress(OSError):
                self._compressed.close()
            with suppress(OSError):
                self._file.close()
            self._partial.unlink(missing_ok=True)

    def add_json(self, name: str, value: Any, note: str = "") -> None:
        """Add a value as JSON, without secrets; one of too many levels or bytes is noted as missing."""
        try:
            text = pretty(self.redaction.value(value), 1)
        except RecursionError:
            self.lack(name, "it has too many levels")
            return
        self._add(name, text.encode() + b"\n", note)

    def add_configuration(self, name: str, text: str, note: str = "") -> None:
        try:
            text = self.redaction.configuration(text)
        except RecursionError:
            self.lack(name, "it has too many levels")
            return
        self._add(name, text.encode("utf-8", "replace"), note)

    def add_lines(self, name: str, lines: Iterable[str], bytes_max: int, note: str = "") -> int:
        """Add the lines of a log, without secrets, up to a size; return the number of bytes."""
        with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as spool:
            size = 0
            for line in self.redaction.log(lines):
                data = line.encode("utf-8", "backslashreplace")
                if size + len(data) > bytes_max:
                    break
                spool.write(data)
                size += len(data)
            spool.seek(0)
            self._put(name, spool, size, note)
        return size

    @property
    def is_whole(self) -> bool:
        """True if nothing is missing except by design."""
        return all(each["by_design"] for each in self.missing)

    def lack(self, name: str, reason: str, *, by_design: bool = False) -> None:
        """Note that something is missing, and why: it was not available, or left out `by_design`."""
        self.missing.append({"name": name, "reason": self.redaction.text(reason), "by_design": by_design})

    def complete(self, about: dict[str, Any]) -> None:
        """Add the manifest, and give the archive its name. Raises `OSError` if that exists by now."""
        manifest = {**about, "files": list(self.files), "missing": self.missing}
        data = json.dumps(manifest, indent=1).encode() + b"\n"
        self._put("manifest.json", BytesIO(data), len(data), "")
        self._tar.close()
        self._compressed.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        try:
            os.link(self._partial, self.path)
        finally:
            self._partial.unlink()

    def _add(self, name: str, data: bytes, note: str) -> None:
        if len(data) > ANSWER_BYTES_MAX:
            self.lack(name, f"it has {len(data):,} bytes, more than {ANSWER_BYTES_MAX:,}", by_design=True)
        else:
            self._put(name, BytesIO(data), len(data), note)

    def _put(self, name: str, source: IO[bytes], size: int, note: str) -> None:
        member = tarfile.TarInfo(f"{self._root}/{name}")
        member.size, member.mode, member.mtime = size, 0o600, int(time.time())
        self._tar.addfile(member, source)
        self.files.append({"name": name, "bytes": size} | ({"note": note} if note else {}))
