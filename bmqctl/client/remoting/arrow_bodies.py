"""Message bodies compressed by LZ4 or Zstandard, read by pyarrow.

It is an extra: import this module only for such a body.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from formats.errors import FormatError

__all__ = ["inflate_by_arrow"]

_STEP_BYTES: Final = 1 << 20
# The errors of Zstandard and LZ4 that say nothing about their input.
_NO_MEMORY: Final = ("not enough memory", "ERROR_allocation_failed")


def inflate_by_arrow(body: memoryview, name: str, keep: int, bytes_max: int) -> tuple[bytes, int]:
    """Decompress the first `keep` bytes of a body by the codec `name`; return them and the full size.

    Raises `FormatError`, also for a full size above `bytes_max`.
    """
    if not len(body):
        raise FormatError(name, 0, "the stream is empty")
    head = bytearray()
    total = 0
    try:
        stream: Any = pa.CompressedInputStream(pa.BufferReader(body), name)
        while piece := stream.read(_STEP_BYTES):
            total += len(piece)
            if total > bytes_max:
                raise FormatError(name, 0, f"inflates to more than {bytes_max} bytes")
            head += piece[: keep - len(head)]
    except MemoryError:
        # pyarrow's own error of this kind is also an `ArrowException`.
        raise
    except (OSError, pa.ArrowException) as error:
        if any(each in str(error) for each in _NO_MEMORY):
            raise MemoryError(str(error)) from error
        raise FormatError(name, 0, str(error)) from None
    return bytes(head), total
