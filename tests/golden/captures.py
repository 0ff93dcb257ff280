"""The wire captures beside this file: what went over each TCP connection, one way."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CAPTURES", "streams"]

HERE = Path(__file__).parent
CAPTURES = ("wire-single", "wire-cluster", "wire-proxies")


def streams(capture: str) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every direction of every connection; names end in `.c2s.bin` or `.s2c.bin`."""
    with tarfile.open(HERE / f"{capture}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read()
