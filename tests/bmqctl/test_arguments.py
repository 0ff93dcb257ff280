"""Words of the command line that are addresses."""

from __future__ import annotations

import pytest
import typer

from bmqctl.cli.arguments import parse_host
from broker.bmq.config.cluster_schema import TcpClusterNodeConnection


@pytest.mark.parametrize("text", ["a/b", "[", "a]", "x:y", "::1%", "a b", "a\nb", "1:2:3", "[[::1]]", "tcp://h"])
def test_text_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="neither an address nor the name of a host"):
        parse_host(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [("::1", "::1"), ("[::1]", "::1"), ("fe80::1%lo", "fe80::1%lo"), ("0.0.0.0", "0.0.0.0"), ("a-b.c", "a-b.c")],
)
def test_hosts_make_endpoints(text: str, host: str) -> None:
    assert parse_host(text) == host
    endpoint = f"tcp://[{host}]:1" if ":" in host else f"tcp://{host}:1"
    assert TcpClusterNodeConnection(endpoint=endpoint).endpoint == endpoint
