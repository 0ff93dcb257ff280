"""`bmqctl` on a disk whose size is in a file: `python -m tests.rigs.limited_disk QUOTA FOLDER ...`.

QUOTA names a file with the number of bytes that the files in FOLDER may occupy; it can change at any time. Beyond it,
allocating fails with "No space left on device", as on a full disk, and the kernel is not asked.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from broker.shell.host.calls import HOST

__all__: list[str] = []


def main() -> None:
    quota, folder = Path(sys.argv[1]), Path(sys.argv[2])
    allocate = HOST.allocate

    def limited(fd: int, start: int, size: int) -> None:
        status = os.fstat(fd)
        # The range begins at the latest where the allocated part ends; allocated blocks cost nothing.
        wanted = size - max(0, min(status.st_blocks * 512, start + size) - start)
        occupied = sum(path.stat().st_blocks * 512 for path in folder.iterdir() if path.is_file())
        if wanted and occupied + wanted > int(quota.read_text()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, start, size)

    HOST.allocate = limited  # type: ignore[method-assign]
    sys.argv[:3] = ["bmqctl"]
    from bmqctl.app import main as bmqctl

    bmqctl()


if __name__ == "__main__":
    main()
