"""Bodies of messages that are compressed by LZ4 or Zstandard, by pyarrow.

It is an extra: import this module only where such a body is read.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bmqctl.journal.read.payload import INFLATE_STEP
from formats.bmq.codes import DECOMPRESSED_SIZE_MAX
from formats.errors import FormatError

__all__ = ["inflate_by_arrow"]


def inflate_by_arrow(body: memoryview, name: str, keep: int) -> tuple[bytes, int]:
    """Decompress the first `keep` bytes of a body by the codec `name`; return them and the full size."""
    head = bytearray()
    total = 0
    try:
        stream: Any = pa.CompressedInputStream(pa.BufferReader(body), name)
        while piece := stream.read(INFLATE_STEP):
            total += len(piece)
            if total > DECOMPRESSED_SIZE_MAX:
                raise FormatError(name, 0, f"inflates to more than {DECOMPRESSED_SIZE_MAX} bytes")
            head += piece[: keep - len(head)]
    except (OSError, pa.ArrowException) as error:
        raise FormatError(name, 0, str(error)) from None
    return bytes(head), total
