"""A connection that cannot be made."""

from __future__ import annotations

import anyio
import pytest

from bmqctl.client.remoting.link import dial
from bmqctl.common.ports import free_port
from bmqctl.systems.node_process import HOST


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_failure_is_told_alike_by_every_event_loop(backend: str) -> None:
    port = free_port()
    with pytest.raises(OSError, match=rf"^all attempts to connect to {HOST}:{port} failed: Connection refused$"):
        anyio.run(dial, HOST, port, 5.0, backend=backend)
