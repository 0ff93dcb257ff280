"""`bmqctl` as on its own host: `python -m tests.rigs.mapped_host NAME ADDRESS NAMES ARGUMENT...`.

NAME is this host's, ADDRESS its loopback address, on which it listens in place of all addresses, and NAMES a file with
JSON: the addresses of the hosts by name, which may change at any time.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

__all__: list[str] = []


def main() -> None:
    name, address, names = sys.argv[1:4]
    look_up = socket.getaddrinfo

    def mapped(host: Any, *arguments: Any, **options: Any) -> Any:
        known = {**json.loads(Path(names).read_text()), name: address, "0.0.0.0": address}
        return look_up(known.get(host, host), *arguments, **options)

    socket.getaddrinfo = mapped
    socket.gethostname = lambda: name
    sys.argv[:4] = ["bmqctl"]
    from bmqctl.app import main as bmqctl

    bmqctl()


if __name__ == "__main__":
    main()
