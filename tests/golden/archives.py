"""The storage archives beside this file, unpacked and read for tests."""

from __future__ import annotations

import json
import lzma
import mmap
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["STORES", "ledger_records", "map_file", "only", "storage_records", "tallies", "truth", "unpack_store"]

HERE = Path(__file__).parent
STORES = ("single-crash", "single-clean", "cluster-node0", "cluster-node2")


def unpack_store(name: str, into: Path) -> Path:
    """Unpack the storage archive `name` and return the directory with its files; preallocated ones stay sparse."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        # As `filter="data"`, which Python 3.11 before 3.11.4 does not know.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)
    return into / name


def only(directory: Path, extension: str) -> Path:
    """The one file of a store that ends with `extension`."""
    (found,) = directory.glob(f"*{extension}")
    return found


def map_file(path: Path) -> memoryview:
    """The file's bytes, mapped: the preallocated ones are mostly holes."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@cache
def storage_records(name: str) -> list[dict[str, str]]:
    """Return the reference tool's records of the journal of `name`, in the journal's order."""
    records: list[dict[str, str]] = json.loads(_text(f"{name}.storagetool.json.xz"))["Records"]
    return sorted(records, key=lambda record: int(record["Index"]))


@cache
def ledger_records(name: str) -> list[dict[str, Any]]:
    """Return the reference tool's records of the ledger of `name`.

    On a preallocated ledger it prints a complaint about the zeros amid its JSON, which is cut out here.
    """
    lines = _text(f"{name}.csl.json.xz").splitlines()
    records: list[dict[str, Any]] = json.loads("\n".join(line.partition("CSL file is")[0] for line in lines))["Records"]
    return records


@cache
def truth(name: str) -> list[dict[str, Any]]:
    """Return the messages that the client posted and confirmed; `name` is `single` or `cluster`."""
    posted: list[dict[str, Any]] = json.loads(_text(f"{name}.truth.json.xz"))
    return posted


@cache
def tallies() -> dict[str, dict[str, int]]:
    """Return the counts of each capture or store, as made by `tests.golden.rewriting`."""
    counted: dict[str, dict[str, int]] = json.loads((HERE / "tallies.json").read_text())
    return counted


def _text(name: str) -> str:
    return lzma.decompress((HERE / name).read_bytes()).decode()
