"""The file with a broker's id."""

from __future__ import annotations

import pytest

from formats.errors import FormatError
from formats.rocketmq.files.identity import BrokerIdentity, decode_identity, encode_identity

OWN = BrokerIdentity("HaCluster", "broker-c", 1)


@pytest.mark.parametrize(
    ("identity", "data"),
    [
        # As in the golden stores.
        (OWN, b"HaCluster#broker-c#1"),
        (
            OWN._replace(check_code="127.0.0.1:24111;1795417030234"),
            b"HaCluster#broker-c#1#127.0.0.1:24111;1795417030234",
        ),
    ],
)
def test_identity_is_written_as_the_original_writes_it(identity: BrokerIdentity, data: bytes) -> None:
    assert encode_identity(identity) == data
    assert decode_identity(data) == identity
    assert decode_identity(data + b"\n") == identity


@pytest.mark.parametrize(
    "data", [b"a#b", b"a#b#", b"a#b#0", b"a#b#-1", b"a#b#x", b"a#b#99999999999999999999", b"\xff#b#1"]
)
def test_invalid_identity_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="BrokerIdentity"):
        decode_identity(data)
