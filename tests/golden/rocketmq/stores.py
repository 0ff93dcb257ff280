"""The store archives beside this file, unpacked for tests, and what the Java client read back from the first."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from formats.rocketmq.files.names import offset_of_name
from formats.rocketmq.files.record import Blank, Record, decode_record

__all__ = ["STORES", "read_back", "records", "unpack"]

HERE = Path(__file__).parent
# Archive, and the brokers' folders in it.
STORES = {
    "store": ("broker-gsmall",),
    "ha-classic/stores": ("broker-m", "broker-s"),
    "ha-controller/stores": ("broker-c1", "broker-c2", "broker-c3"),
    "ha-controller/c3-diverged-broker-c2": ("broker-c2",),
    "ha-truncate/after": ("broker-c1", "broker-c2"),
    "ha-truncate/before-c1-diverged": ("broker-c1",),
}


def unpack(name: str, into: Path, *, without: tuple[str, ...] = ("timerwheel",)) -> list[Path]:
    """Unpack an archive, and return the folders of its brokers. Files whose name ends as in `without` are left out."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        # As `filter="data"`, which Python 3.11 before 3.11.4 does not know.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into, [member for member in archive if not member.name.endswith(without)])
    return [into / broker for broker in STORES[name]]


def records(broker: Path) -> Iterator[tuple[int, Record | Blank]]:
    """The offset and the record of everything in a broker's commit log, blank tails among it."""
    for path in sorted((broker / "commitlog").iterdir()):
        begin = offset_of_name(path.name)
        assert begin is not None
        data = path.read_bytes()
        at = 0
        while (record := decode_record(data, at)) is not None:
            yield begin + at, record
            at += record.size if isinstance(record, Blank) else int.from_bytes(data[at : at + 4], "big")


@cache
def read_back() -> dict[int, dict[str, Any]]:
    """Every message of `store` as the Java client read it, by the offset of its record."""
    lines = lzma.decompress((HERE / "readback.jsonl.xz").read_bytes()).decode().splitlines()
    return {found["commitLogOffset"]: found for found in map(json.loads, lines) if found["kind"] == "recv"}
