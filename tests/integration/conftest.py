"""Real nodes, and the official client as the judge of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from bmqctl.testing import NodeProcess, bmq_node
from tests.rigs.official import Client, Connect

__all__ = ["bmq_node"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that the tests of a module share: each uses queues of its own, and does the node no harm."""
    with NodeProcess(tmp_path_factory.mktemp("node") / "store") as running:
        yield running


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Starts sessions of the official client, which end with the test: `connect(node, **options of Session)`."""
    with ExitStack() as stack:

        def start(node: NodeProcess, **options: Any) -> Client:
            return stack.enter_context(Client(node.uri, **options))

        yield start
