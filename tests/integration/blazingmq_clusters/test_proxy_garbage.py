"""A proxy among peers that behave badly: what is asked of a node is asked of it, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bmqctl.testing import NodeProcess, ProxyProcess
from tests.integration.blazingmq.test_garbage import (  # noqa: F401
    test_a_listener_of_a_broadcast_that_never_reads,
    test_a_peer_that_asks_and_never_reads_the_answers,
    test_garbage_after_the_negotiation,
    test_garbage_before_the_negotiation,
    test_garbage_of_a_proxy,
    test_half_open_connections,
    test_links_that_end_amid_an_event,
    test_names_with_line_breaks_make_no_lines_in_the_log,
    test_peers_that_are_nothing_known,
    witness,
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """The proxy, in the place of a node."""
    folder = tmp_path_factory.mktemp("node")
    with NodeProcess(folder / "store") as behind, ProxyProcess(folder / "proxy", [behind.address]) as proxy:
        proxy.wait_available()
        yield proxy
