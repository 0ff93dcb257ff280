"""The node's refusals, as the official client's user sees them: exception, category and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blazingmq
import pytest

from bmqctl.testing import NodeProcess
from tests.rigs.official import Connect, queue_name


@pytest.mark.parametrize(
    ("uri", "options", "reason"),
    [
        (
            "bmq://no.such.domain/q",
            {"write": True},
            "UNKNOWN: Domain 'no.such.domain' is not configured on this broker",
        ),
        (
            "bmq://../q",
            {"write": True},
            "UNKNOWN: Domain '..' is not configured on this broker",
        ),
        (
            "bmq://bmq.test.persistent.fanout/q",
            {"read": True},
            "UNKNOWN: Reader of a fanout queue requires an appId to be specified.",
        ),
        (
            "bmq://bmq.test.persistent.priority/q?id=foo",
            {"read": True},
            "UNKNOWN: AppId should not be specified when opening a non-fanout queue",
        ),
    ],
)
def test_an_open_request(node: NodeProcess, connect: Connect, uri: str, options: dict[str, bool], reason: str) -> None:
    client = connect(node)
    with pytest.raises(blazingmq.Error) as refused:
        client.open(uri, **options)
    assert type(refused.value) is blazingmq.Error
    assert str(refused.value) == f"Failed to open {uri} queue: {reason}"
    # The session goes on.
    client.barrier()


@pytest.mark.parametrize(
    ("uri", "options", "category"),
    [
        ("tcp://localhost:30114", {"write": True}, "INVALID_URI"),
        ("bmq://bmq.test.mem.priority", {"write": True}, "INVALID_URI"),
        ("bmq://bmq.test.mem.priority/q", {}, "INVALID_FLAGS"),
        ("bmq://bmq.test.persistent.fanout/q?id=foo", {"write": True}, "INVALID_ARGUMENT"),
        ("bmq://bmq.test.mem.priority/q", {"read": True, "max_unconfirmed_messages": -1}, "INVALID_ARGUMENT"),
    ],
)
def test_calls_that_the_client_refuses_itself(
    node: NodeProcess, connect: Connect, uri: str, options: dict[str, Any], category: str
) -> None:
    client = connect(node)
    with pytest.raises(blazingmq.Error, match=f"queue: {category}: "):
        client.open(uri, **options)
    client.barrier()


def test_an_unknown_domain_does_not_stop_a_queue_that_is_known(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    for _ in range(3):
        with pytest.raises(blazingmq.Error, match="is not configured"):
            client.open("bmq://no.such.domain/q", read=True, write=True)
    uri = queue_name()
    client.open(uri, read=True, write=True)
    client.post_all(uri, [b"fine"])
    client.wait_for_messages(1)


def test_posting_without_the_write_flag(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = queue_name()
    client.open(uri, read=True)
    with pytest.raises(blazingmq.Error):
        client.post(uri, b"x")
    client.barrier()


def test_the_same_queue_twice(node: NodeProcess, connect: Connect) -> None:
    client = connect(node)
    uri = queue_name()
    client.open(uri, write=True)
    with pytest.raises(blazingmq.Error, match="ALREADY_OPENED"):
        client.open(uri, write=True)
    client.barrier()


def test_no_node(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with pytest.raises(blazingmq.exceptions.BrokerTimeoutError):
        blazingmq.Session(
            lambda event: None,
            broker=node.uri,
            timeout=blazingmq.Timeouts(connect_timeout=0.5),
            host_health_monitor=None,
        )
