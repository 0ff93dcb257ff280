"""The progress in a queue, and the addresses of nameservers."""

from __future__ import annotations

import pytest

from bmqctl.client.address import BadAddress
from bmqctl.client.rocketmq.progress import Progress
from bmqctl.client.rocketmq.session import parse_nameservers


def test_an_offset_is_committed_when_all_before_it_is_settled() -> None:
    progress = Progress(7)
    assert progress.settled_offset == 7
    progress.took([7, 9, 10], 12)
    progress.settle(9)
    assert progress.settled_offset == 7
    progress.settle(7)
    assert progress.settled_offset == 10
    progress.settle(10)
    progress.settle(10)
    assert progress.settled_offset == progress.offset == 12


def test_nameservers_are_parsed() -> None:
    assert parse_nameservers("rocketmq://a:9876,b:9877/") == ["a:9876", "b:9877"]
    assert parse_nameservers("rocketmq://a:9876;b:9877") == ["a:9876", "b:9877"]


@pytest.mark.parametrize(
    "uri", ["rocketmq://", "rocketmq://a", "rocketmq://a:1,,b:2", "tcp://a:1", "rocketmq://a:99999"]
)
def test_invalid_nameserver_is_refused(uri: str) -> None:
    with pytest.raises(BadAddress, match="expected rocketmq://HOST:PORT"):
        parse_nameservers(uri)
